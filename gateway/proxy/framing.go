package proxy

import (
	"bytes"
	"slices"
	"strconv"

	"sluice/gateway/internal/ascii"
)

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
	case v.field != otherField && v.field != trailerField:
		v.value = append(v.value, c)
	}
}

const maxDigits = 18 // of a Content-Length

func (v *validator) endOfField() {
	value := bytes.Trim(v.value, " ") // nginx treats a tab as part of the value, so it makes each of these invalid
	valid := true
	switch v.field {
	case hostField:
		valid = !v.host && isHost(value)
		v.host = true
	case encodingField:
		valid = !v.chunked && !v.http10 && ascii.EqualFold(value, "chunked")
		v.chunked = true
	case lengthField:
		n, err := strconv.ParseUint(ascii.String(value), 10, 63)
		valid = !v.length && err == nil && len(value) <= maxDigits
		v.length, v.left = true, int64(n) //nolint:gosec // of 63 bits
	}
	if !valid {
		v.fault = MalformedHead
	}
}

// isHost reports whether a Host value is a name or an address in brackets, with an optional port. Bytes with a meaning
// elsewhere in a URI are rejected, and so are consecutive dots and a single dot, as in nginx.
func isHost(host []byte) bool {
	name, port, isPart := host, []byte(nil), isNameByte
	if inside, found := bytes.CutPrefix(host, []byte{'['}); found {
		var closed bool
		if name, port, closed = bytes.Cut(inside, []byte{']'}); !closed || len(port) > 0 && port[0] != ':' {
			return false
		}
		isPart = isLiteralByte
	} else if colon := bytes.IndexByte(host, ':'); colon >= 0 {
		name, port = host[:colon], host[colon:]
	}
	isDot := len(name) == 1 && host[0] == '.'
	if len(name) == 0 || isDot || !all(name, isPart) || bytes.Contains(name, []byte("..")) {
		return false
	}
	return len(port) == 0 || all(port[1:], isDigit)
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || isDigit(c) || c == '.' || c == '-' || c == '_'
}

func isLiteralByte(c byte) bool { return ascii.HexDigit(c) < 16 || c == ':' || c == '.' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func all(text []byte, is func(byte) bool) bool {
	return !slices.ContainsFunc(text, func(c byte) bool { return !is(c) })
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
