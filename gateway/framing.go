package gateway

// The headers that say where a request ends and whom it is for are read by the guard itself, and more strictly than others.

func (g *guard) named() field {
	if g.column > len(g.name) {
		return otherField
	}
	switch string(g.name[:g.column]) {
	case "content-length":
		return lengthField
	case "transfer-encoding":
		return encodingField
	case "host":
		return hostField
	}
	return otherField
}

func (g *guard) inValue(c byte) {
	switch {
	case c == '\r':
		g.state = valueLF
		g.endOfField()
	case (c < ' ' && c != '\t') || c == 0x7f:
		g.fault = badHead
	case g.field == otherField:
	case c == '\t': // nginx takes it for a part of the value
		g.fault = badHead
	case g.field == hostField:
		switch {
		case c == ' ':
			if g.filled > 0 {
				g.column = 1
			}
		case g.column > 0 || !g.inHost(c): // a space within
			g.fault = badHead
		default:
			g.filled++
		}
	case c == ' ':
		if g.filled > 0 {
			g.column = 1
		}
	case g.column > 0 || g.filled == len(g.value): // a space within, or longer than any good one
		g.fault = badHead
	default:
		g.value[g.filled] = lower(c)
		g.filled++
	}
}

// The parts of a host. Of its value, the guard keeps the byte before and the part.
const (
	hostName = iota
	hostLiteral
	hostLiteralEnd
	hostPort
)

// inHost says whether a host may go on with c: a name or an address in brackets, and perhaps a port. There is nothing in it that a reader could take
// for more of a URI, and no dots in a row, which nginx does not take.
func (g *guard) inHost(c byte) bool {
	before := g.value[0]
	g.value[0] = c
	switch g.value[1] {
	case hostName:
		switch {
		case c == ':':
			g.value[1] = hostPort
			return g.filled > 1 || g.filled == 1 && before != '.'
		case c == '[':
			g.value[1] = hostLiteral
			return g.filled == 0
		}
		return isHostName(c) && !(c == '.' && before == '.')
	case hostLiteral:
		if c == ']' {
			g.value[1] = hostLiteralEnd
			return g.filled > 1
		}
		return unhex[c] < 16 || c == ':' || c == '.' && before != '.'
	case hostLiteralEnd:
		g.value[1] = hostPort
		return c == ':'
	}
	return '0' <= c && c <= '9'
}

func isHostName(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == '_'
}

func (g *guard) endOfField() {
	switch g.field {
	case hostField:
		if g.host || g.filled == 0 || g.filled == 1 && g.value[0] == '.' || g.value[1] == hostLiteral {
			g.fault = badHead
		}
		g.host = true
	case encodingField:
		if g.chunked || g.old || string(g.value[:g.filled]) != "chunked" {
			g.fault = badHead
		}
		g.chunked = true
	case lengthField:
		if g.length || g.filled == 0 || g.filled > 18 {
			g.fault = badHead
			return
		}
		g.length = true
		for _, c := range g.value[:g.filled] {
			if c < '0' || c > '9' {
				g.fault = badHead
				return
			}
			g.left = g.left*10 + int64(c-'0')
		}
	}
}

func (g *guard) endOfHead() {
	switch {
	case g.length && g.chunked, !g.host && !g.old:
		g.fault = badHead
	case g.chunked:
		g.state = unframed
	case g.left > 0:
		g.state = inBody
	default:
		g.start()
	}
}
