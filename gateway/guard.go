package gateway

import (
	"bytes"
	"encoding/binary"
)

// guard reads along with a connection and stops it at the first byte of a request head that a careful reader would not write. fasthttp
// forgives some of what is refused here (bare line feeds, folded lines, Content-Length next to Transfer-Encoding), and so do backends, each in its
// own way: that is what request smuggling is made of. After the head it counts the body, so that it knows where the next head begins; after a
// chunked body it does not look again, and the connection must be closed.
type guard struct {
	state  guardState
	fault  fault
	size   int // bytes of this head
	line   int // bytes of this line
	lines  int // header lines of this head
	column int // bytes of the element that is being read
	spaces int // in the request line
	name   [len("transfer-encoding") + 1]byte
	value  [20]byte
	filled int // of value, without white space around it
	field  field

	old, host, length, chunked bool
	begun                      bool // the client has sent something, be it a blank line

	ended uint  // requests that have ended
	since int   // bytes of this request so far
	left  int64 // bytes of the body still to come
}

type fault uint8

const (
	noFault     fault = iota
	badHead           // 400
	headTooBig        // 431
	requestSlow       // no answer
)

type guardState uint8

const (
	beforeRequest guardState = iota
	inRequestLine
	requestLineLF
	fieldStart
	inName
	inValue
	valueLF
	headLF
	inBody
	unframed // a chunked body and whatever follows it
)

type field uint8

const (
	otherField field = iota
	lengthField
	encodingField
	hostField
)

// Bounds of a head.
const (
	maxHead  = 16 << 10 // bytes, from the method to the blank line
	maxLine  = 8 << 10  // bytes of a line, with its end
	maxLines = 100      // header lines
)

// start makes the guard ready for a head.
func (g *guard) start() {
	*g = guard{fault: g.fault, ended: g.ended + 1}
}

// idle is true between requests.
func (g *guard) idle() bool { return g.state == beforeRequest && !g.begun }

// inHead is true while a head is unfinished.
func (g *guard) inHead() bool { return g.state < inBody }

// take reads p, and takes out of it the carriage returns and line feeds in front of a request line: RFC 9112 asks to pass over blank lines, and nginx
// passes over both wherever they stand there. left is what p still has, and good how much of that may be passed on: all of it, or what comes before
// the first fault.
func (g *guard) take(p []byte) (left, good int) {
	for {
		good += g.scan(p[good:])
		rest := p[good:]
		blank := len(rest) - len(bytes.TrimLeft(rest, "\r\n"))
		if g.fault != noFault || blank == 0 {
			return len(p), good
		}
		g.begun = true
		p = p[:good+copy(rest, rest[blank:])]
	}
}

// scan reads p up to its end, to the first fault, or to a blank line in front of a request.
func (g *guard) scan(p []byte) int {
	for i := 0; i < len(p); {
		switch g.state {
		case beforeRequest:
			if p[i] == '\r' || p[i] == '\n' {
				return i
			}
			g.begun = true
		case unframed:
			g.since += len(p) - i
			return len(p)
		case inBody:
			n := min(g.left, int64(len(p)-i))
			i += int(n)
			g.since += int(n)
			if g.left -= n; g.left == 0 {
				g.start()
			}
			continue
		}
		if n := g.skim(p[i:]); n > 0 {
			i += n
			g.since += n
			continue
		}
		g.size++
		g.since++
		if g.line++; g.size > maxHead || g.line > maxLine {
			g.fault = headTooBig
		} else {
			g.step(p[i])
		}
		if g.fault != noFault {
			return i
		}
		i++
	}
	return len(p)
}

// skim takes the bytes at the beginning of p that change nothing: the inside of a name, a value or a target. Most of a head is that.
func (g *guard) skim(p []byte) (n int) {
	p = p[:min(len(p), maxHead-g.size, maxLine-g.line)]
	switch {
	case g.state == inName:
		for n < len(p) && isToken[p[n]] {
			if g.column < len(g.name) {
				g.name[g.column] = lower(p[n])
			}
			g.column++
			n++
		}
	case g.state == inValue && g.field == otherField:
		for len(p)-n >= 8 && allText(binary.LittleEndian.Uint64(p[n:])) {
			n += 8
		}
		for n < len(p) && isText[p[n]] {
			n++
		}
	case g.state == inRequestLine && g.spaces == 1 && g.column > 0:
		for n < len(p) && isText[p[n]] && p[n] > ' ' && p[n] != '#' {
			n++
		}
	}
	g.size += n
	g.line += n
	return n
}

// allText says of eight bytes at once that all of them are text. It may take a tab, or a byte behind one that is not text, for none.
func allText(w uint64) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	del := w ^ 0x7f*ones
	return ((w-' '*ones)&^w|(del-ones)&^del)&highs == 0
}

func (g *guard) step(c byte) {
	switch g.state {
	case beforeRequest:
		if g.state = inRequestLine; !isMethod(c) {
			g.fault = badHead
		}
	case inRequestLine:
		g.requestLine(c)
	case requestLineLF:
		g.expect(c, '\n', fieldStart)
	case fieldStart:
		switch {
		case c == '\r':
			g.state = headLF
		case !isToken[c]: // a folded line begins with a space
			g.fault = badHead
		default:
			if g.lines++; g.lines > maxLines {
				g.fault = headTooBig
				return
			}
			g.name[0], g.column, g.state = lower(c), 1, inName
		}
	case inName:
		switch {
		case c == ':':
			g.field = g.named()
			g.filled, g.value[0], g.value[1], g.state = 0, 0, 0, inValue
			g.column = 0
		case !isToken[c]: // a space before the colon
			g.fault = badHead
		default:
			if g.column < len(g.name) {
				g.name[g.column] = lower(c)
			}
			g.column++
		}
	case inValue:
		g.inValue(c)
	case valueLF:
		g.expect(c, '\n', fieldStart)
	case headLF:
		g.expect(c, '\n', fieldStart)
		if g.fault == noFault {
			g.endOfHead()
		}
	}
}

func (g *guard) expect(c, want byte, next guardState) {
	if c != want {
		g.fault = badHead
	}
	g.state, g.line = next, 0
}

// requestLine takes "METHOD /target HTTP/1.x", with one space in both places. The target begins with a slash: the other forms are for proxies
// that somebody chose, and this is none.
func (g *guard) requestLine(c byte) {
	switch g.spaces {
	case 0:
		if c == ' ' {
			g.spaces, g.column = 1, 0
		} else if !isMethod(c) {
			g.fault = badHead
		}
	case 1:
		switch {
		case c == ' ' && g.column > 0:
			g.spaces, g.column = 2, 0
		case c <= ' ' || c == 0x7f || (g.column == 0 && c != '/') || c == '#':
			g.fault = badHead
		default:
			g.column = 1
		}
	default:
		const version = "HTTP/1."
		switch {
		case g.column < len(version) && c == version[g.column]:
			g.column++
		case g.column == len(version) && (c == '0' || c == '1'):
			g.old = c == '0'
			g.column++
		case g.column == len(version)+1 && c == '\r':
			g.state = requestLineLF
		default:
			g.fault = badHead
		}
	}
}

// isMethod is stricter than RFC 9110: nobody has made a method of other letters, and nginx takes none.
func isMethod(c byte) bool { return 'A' <= c && c <= 'Z' || c == '_' || c == '-' }

// isToken has the bytes of header names (RFC 9110, section 5.6.2).
var isToken = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		t[c] = true
	}
	return t
}()

// isText has the bytes of header values.
var isText = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != 0x7f || c == '\t'
	}
	return t
}()

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
