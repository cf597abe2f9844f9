package proxy

import (
	"bytes"
	"encoding/binary"

	"sluice/gateway/internal/ascii"
)

// validator checks a request head byte by byte, before fasthttp parses it. It rejects heads that parsers may interpret
// differently: bare line feeds, folded lines, Content-Length together with Transfer-Encoding, and others. fasthttp and
// many backends accept some of them, each in its own way, which makes request smuggling possible.
//
// It blanks the value of a Trailer header. fasthttp rejects some of these values, for which it does not report the
// method. The header is not forwarded and has no effect, and nginx ignores it.
//
// After the head it counts a body of known length, so that it finds the next head. It does not parse chunked bodies:
// after one, the connection must be closed.
//
// The zero validator expects a head. Not safe for concurrent use.
type validator struct {
	state  headState
	fault  Fault
	size   int                                // bytes of this head
	line   int                                // bytes of this line
	lines  int                                // header lines of this head
	column int                                // bytes of the current element
	spaces int                                // spaces in the request line
	name   [len("transfer-encoding") + 1]byte // of the header in lower case, or the method
	value  []byte                             // of a header that decides about the framing
	field  field

	isHead                        bool // the method is HEAD
	http10, host, length, chunked bool // what the head contains
	started                       bool // the client has sent something, possibly a blank line

	requests uint  // completed requests
	left     int64 // remaining bytes of the body
}

// Fault is the reason why a connection was stopped.
type Fault uint8

// The faults.
const (
	NoFault        Fault = iota
	MalformedHead        // answered with 400
	HeadTooLarge         // answered with 431
	RequestTimeout       // the client was too slow; no answer is sent
)

type headState uint8

const (
	beforeRequest headState = iota
	inRequestLine
	requestLineLF
	fieldStart
	inName
	inValue
	valueLF
	headLF
	inBody
	chunkedBody // a chunked body, and all that follows it
)

type field uint8

const (
	otherField field = iota
	lengthField
	encodingField
	hostField
	trailerField
)

// Limits of a head.
const (
	maxHead  = 16 << 10 // bytes, from the method to the blank line
	maxLine  = 8 << 10  // bytes of a line, including its CRLF
	maxLines = 100      // header lines
)

func (v *validator) start() {
	*v = validator{fault: v.fault, requests: v.requests + 1, value: v.value[:0]}
}

// idle reports whether the client has sent nothing of the next request.
func (v *validator) idle() bool { return v.state == beforeRequest && !v.started }

// inHead reports whether the current head is incomplete.
func (v *validator) inHead() bool { return v.state < inBody }

// check validates p and removes the carriage returns and line feeds in front of a request line: RFC 9112 section 2.2
// requires servers to ignore blank lines there, and nginx ignores both bytes in any order. left is the new length of p.
// good is how many of these bytes may be passed to the parser: those before the end of the request, or before the first
// fault.
func (v *validator) check(p []byte) (left, good int) {
	requests := v.requests
	for {
		good += v.scan(p[good:])
		rest := p[good:]
		blank := len(rest) - len(bytes.TrimLeft(rest, "\r\n"))
		if v.fault != NoFault || v.requests != requests || blank == 0 {
			return len(p), good
		}
		v.started = true
		p = p[:good+copy(rest, rest[blank:])]
	}
}

// scan validates p up to its end, the end of the request, the first fault, or a blank line in front of a request. It
// returns the bytes scanned.
func (v *validator) scan(p []byte) (i int) {
	for requests := v.requests; i < len(p) && v.requests == requests; {
		switch v.state {
		case beforeRequest:
			if p[i] == '\r' || p[i] == '\n' {
				return i
			}
			v.started = true
		case chunkedBody:
			return len(p)
		case inBody:
			n := min(v.left, int64(len(p)-i))
			i += int(n)
			if v.left -= n; v.left == 0 {
				v.start()
			}
			continue
		}
		if n := v.skip(p[i:]); n > 0 {
			i += n
			continue
		}
		v.size++
		if v.line++; v.size > maxHead || v.line > maxLine {
			v.fault = HeadTooLarge
		} else {
			inTrailer := v.state == inValue && v.field == trailerField
			v.step(p[i])
			if inTrailer && v.state == inValue {
				p[i] = ' '
			}
		}
		if v.fault != NoFault {
			return i
		}
		i++
	}
	return i
}

// skip consumes the leading bytes of p that do not change the state: the inside of a name, a value or a target, which
// is most of a head. It returns their count.
func (v *validator) skip(p []byte) (n int) {
	p = p[:min(len(p), maxHead-v.size, maxLine-v.line)]
	switch {
	case v.state == inName:
		for n < len(p) && isToken[p[n]] {
			if v.column < len(v.name) {
				v.name[v.column] = ascii.Lower(p[n])
			}
			v.column++
			n++
		}
	case v.state == inValue && v.field != trailerField:
		for len(p)-n >= 8 && allText(binary.LittleEndian.Uint64(p[n:])) {
			n += 8
		}
		for n < len(p) && isText[p[n]] {
			n++
		}
		if v.field != otherField {
			v.value = append(v.value, p[:n]...)
		}
	case v.state == inRequestLine && v.spaces == 1 && v.column > 0:
		for n < len(p) && isText[p[n]] && p[n] > ' ' && p[n] != '#' {
			n++
		}
	}
	v.size += n
	v.line += n
	return n
}

// allText reports whether all eight bytes of w are text, and none of them is a tab.
func allText(w uint64) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	del := w ^ 0x7f*ones
	return ((w-' '*ones)&^w|(del-ones)&^del)&highs == 0
}

func (v *validator) step(c byte) {
	switch v.state {
	case beforeRequest:
		v.state = inRequestLine
		v.method(c)
	case inRequestLine:
		v.requestLine(c)
	case requestLineLF:
		v.expect(c, '\n', fieldStart)
	case fieldStart:
		switch {
		case c == '\r':
			v.state = headLF
		case !isToken[c]: // for example the space of a folded line
			v.fault = MalformedHead
		default:
			if v.lines++; v.lines > maxLines {
				v.fault = HeadTooLarge
				return
			}
			v.name[0], v.column, v.state = ascii.Lower(c), 1, inName
		}
	case inName:
		if c != ':' { // for example a space: skip has consumed the name
			v.fault = MalformedHead
			return
		}
		v.field, v.state, v.value = v.framingField(), inValue, v.value[:0]
	case inValue:
		v.inValue(c)
	case valueLF:
		v.expect(c, '\n', fieldStart)
	case headLF:
		v.expect(c, '\n', fieldStart)
		if v.fault == NoFault {
			v.endOfHead()
		}
	}
}

// expect requires one byte at the end of a line.
func (v *validator) expect(c, want byte, next headState) {
	if c != want {
		v.fault = MalformedHead
	}
	v.state, v.line = next, 0
}

// requestLine accepts "METHOD /target HTTP/1.x" with single spaces. The target must begin with a slash: the other forms
// are for forward proxies.
func (v *validator) requestLine(c byte) {
	switch v.spaces {
	case 0:
		if c == ' ' {
			v.isHead = v.column == len("HEAD") && string(v.name[:v.column]) == "HEAD"
			v.spaces, v.column = 1, 0
		} else {
			v.method(c)
		}
	case 1:
		switch {
		case c == ' ' && v.column > 0:
			v.spaces, v.column = 2, 0
		case c <= ' ' || c == 0x7f || (v.column == 0 && c != '/') || c == '#':
			v.fault = MalformedHead
		default:
			v.column = 1
		}
	default:
		const version = "HTTP/1."
		switch {
		case v.column < len(version) && c == version[v.column]:
			v.column++
		case v.column == len(version) && (c == '0' || c == '1'):
			v.http10 = c == '0'
			v.column++
		case v.column == len(version)+1 && c == '\r':
			v.state = requestLineLF
		default:
			v.fault = MalformedHead
		}
	}
}

func (v *validator) method(c byte) {
	if !isMethod(c) {
		v.fault = MalformedHead
	}
	if v.column < len(v.name) {
		v.name[v.column] = c
	}
	v.column++
}

// isMethod is stricter than RFC 9110, and the same as in nginx. No registered method contains other characters.
func isMethod(c byte) bool { return 'A' <= c && c <= 'Z' || c == '_' || c == '-' }

// isToken marks the bytes of header names (RFC 9110, section 5.6.2).
var isToken = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		t[c] = true
	}
	return t
}()

// isText marks the bytes of header values.
var isText = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= ' ' && c != 0x7f || c == '\t'
	}
	return t
}()
