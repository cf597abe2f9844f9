package proxy

import "sluice/gateway/internal/ascii"

// Content-Length, Transfer-Encoding and Host decide where a request ends and where it goes. The validator parses their
// values itself, more strictly than those of other headers.

// framingField returns which of these headers, or Trailer, the current name is.
func (v *validator) framingField() field {
	if v.column > len(v.name) {
		return otherField
	}
	switch string(v.name[:v.column]) {
	case "content-length":
		return lengthField
	case "transfer-encoding":
		return encodingField
	case "host":
		return hostField
	case "trailer":
		return trailerField
	}
	return otherField
}

func (v *validator) inValue(c byte) {
	switch {
	case c == '\r':
		v.state = valueLF
		v.endOfField()
	case (c < ' ' && c != '\t') || c == 0x7f:
		v.fault = MalformedHead
	case v.field == otherField, v.field == trailerField:
	case c == '\t': // nginx treats it as part of the value
		v.fault = MalformedHead
	case v.field == hostField:
		switch {
		case c == ' ':
			if v.filled > 0 {
				v.column = 1
			}
		case v.column > 0 || !v.inHost(c): // space inside the value
			v.fault = MalformedHead
		default:
			v.filled++
		}
	case c == ' ':
		if v.filled > 0 {
			v.column = 1
		}
	case v.column > 0 || v.filled == len(v.value): // space inside the value, or longer than any valid one
		v.fault = MalformedHead
	default:
		v.value[v.filled] = ascii.Lower(c)
		v.filled++
	}
}

// The parts of a Host value. While it is parsed, value[0] holds the previous byte and value[1] the part.
const (
	hostName = iota
	hostLiteral
	hostLiteralEnd
	hostPort
)

// inHost reports whether c may follow in a Host value: a name or an address in brackets, with an optional port. Bytes
// with a meaning elsewhere in a URI are rejected, and so are consecutive dots, as in nginx.
func (v *validator) inHost(c byte) bool {
	previous := v.value[0]
	v.value[0] = c
	switch v.value[1] {
	case hostName:
		switch {
		case c == ':':
			v.value[1] = hostPort
			return v.filled > 1 || v.filled == 1 && previous != '.'
		case c == '[':
			v.value[1] = hostLiteral
			return v.filled == 0
		}
		return isHostName(c) && !(c == '.' && previous == '.')
	case hostLiteral:
		if c == ']' {
			v.value[1] = hostLiteralEnd
			return v.filled > 1
		}
		return ascii.HexDigit(c) < 16 || c == ':' || c == '.' && previous != '.'
	case hostLiteralEnd:
		v.value[1] = hostPort
		return c == ':'
	}
	return '0' <= c && c <= '9'
}

func isHostName(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == '_'
}

func (v *validator) endOfField() {
	switch v.field {
	case hostField:
		if v.host || v.filled == 0 || v.filled == 1 && v.value[0] == '.' || v.value[1] == hostLiteral {
			v.fault = MalformedHead
		}
		v.host = true
	case encodingField:
		if v.chunked || v.http10 || string(v.value[:v.filled]) != "chunked" {
			v.fault = MalformedHead
		}
		v.chunked = true
	case lengthField:
		if v.length || v.filled == 0 || v.filled > 18 {
			v.fault = MalformedHead
			return
		}
		v.length = true
		for _, c := range v.value[:v.filled] {
			if c < '0' || c > '9' {
				v.fault = MalformedHead
				return
			}
			v.left = v.left*10 + int64(c-'0')
		}
	}
}

// endOfHead checks the combination of the framing headers and selects the kind of body.
func (v *validator) endOfHead() {
	switch {
	case v.length && v.chunked, !v.host && !v.http10:
		v.fault = MalformedHead
	case v.chunked:
		v.state = chunkedBody
	case v.left > 0:
		v.state = inBody
	default:
		v.start()
	}
}
