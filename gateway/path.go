package gateway

import "bytes"

// splitTarget returns the path of a request target, without the query.
func splitTarget(target []byte) []byte {
	if i := bytes.IndexByte(target, '?'); i >= 0 {
		return target[:i]
	}
	return target
}

// decodePath appends the decoded path to dst. It refuses paths that two servers could read differently, and which no page or call of ours
// needs: escaped or doubled slashes, backslashes, dot segments, escaped dots and control bytes, broken escapes. What the backend gets is the path
// as it was sent; this one is for matching rules against.
func decodePath(dst, path []byte) (decoded []byte, ok bool) {
	if len(path) == 0 || path[0] != '/' {
		return dst, false
	}
	start := len(dst) // of the segment
	for i := 0; i < len(path); i++ {
		c := path[i]
		switch c {
		case '%':
			if i+2 >= len(path) {
				return dst, false
			}
			high, low := unhex[path[i+1]], unhex[path[i+2]]
			if high > 15 || low > 15 {
				return dst, false
			}
			i += 2
			if c = high<<4 | low; c < ' ' || c == 0x7f || c == '/' || c == '\\' || c == '.' {
				return dst, false
			}
		case '\\':
			return dst, false
		case '/':
			if i > 0 && !goodSegment(dst[start:]) {
				return dst, false
			}
			dst = append(dst, c)
			start = len(dst)
			continue
		default:
			if c <= ' ' || c == 0x7f {
				return dst, false
			}
		}
		dst = append(dst, c)
	}
	last := dst[start:]
	return dst, len(last) == 0 || goodSegment(last)
}

func goodSegment(s []byte) bool {
	return !(len(s) == 0 || len(s) == 1 && s[0] == '.' || len(s) == 2 && s[0] == '.' && s[1] == '.')
}

var unhex = func() (t [256]byte) {
	for c := range t {
		switch {
		case c >= '0' && c <= '9':
			t[c] = byte(c - '0')
		case c >= 'a' && c <= 'f':
			t[c] = byte(c - 'a' + 10)
		case c >= 'A' && c <= 'F':
			t[c] = byte(c - 'A' + 10)
		default:
			t[c] = 0xff
		}
	}
	return t
}()

type place uint8

const (
	elsewhere place = iota
	healthPlace
	hiddenPlace
)

// placeOf says whether a decoded path is the edge's own, or one that the public has no business with: those of operators, and what edges ask backends.
func placeOf(path []byte) place {
	if string(path) == "/healthz" {
		return healthPlace
	}
	if hasFoldedPrefix(path, "/admin") {
		return hiddenPlace
	}
	for _, hidden := range [...]string{"/metrics", "/debug", "/.sluice"} {
		if hasFoldedPrefix(path, hidden) && (len(path) == len(hidden) || path[len(hidden)] == '/') {
			return hiddenPlace
		}
	}
	return elsewhere
}

// hasFoldedPrefix compares without regard to the case of ASCII letters; prefix is in lower case.
func hasFoldedPrefix(s []byte, prefix string) bool {
	if len(s) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if lower(s[i]) != prefix[i] {
			return false
		}
	}
	return true
}
