package proxy

import (
	"bytes"
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

// inValue handles a byte of a value behind those that skip has consumed, or of a Trailer header.
func (v *validator) inValue(c byte) {
	switch {
	case c == '\r':
		v.state = valueLF
		v.endOfField()
	case !isText[c]:
		v.fault = MalformedHead
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

// The bytes of the parts of a Host value.
var (
	isDigit       = bytesOf(digits)
	isNameByte    = bytesOf(digits + letters + ".-_")
	isLiteralByte = bytesOf(digits + "abcdefABCDEF:.")
)

const (
	digits  = "0123456789"
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

func bytesOf(text string) *[256]bool {
	var t [256]bool
	for _, c := range []byte(text) {
		t[c] = true
	}
	return &t
}

func all(text []byte, are *[256]bool) bool {
	for _, c := range text {
		if !are[c] {
			return false
		}
	}
	return true
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
