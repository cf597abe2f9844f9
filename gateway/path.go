package gateway

import (
	"bytes"

	"sluice/gateway/internal/ascii"
	"sluice/gateway/policy"
)

// RulePath appends to dst the path against which the rules match a request with this target. It reports false if no
// rule applies: the target is malformed, or the path is reserved.
func RulePath(dst, target []byte) (path []byte, ok bool) {
	path, ok = decodePath(dst, splitTarget(target))
	return path, ok && policy.ReservedPath(path) == policy.NotReserved
}

// splitTarget returns the path of a request target, without the query.
func splitTarget(target []byte) []byte {
	if i := bytes.IndexByte(target, '?'); i >= 0 {
		return target[:i]
	}
	return target
}

// decodePath appends the decoded path to dst. It rejects paths that two servers may interpret differently: escaped or
// repeated slashes, backslashes, dot segments, escaped dots, control bytes and invalid escapes. The decoded path is
// only for matching; backends receive the original.
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
			high, low := ascii.HexDigit(path[i+1]), ascii.HexDigit(path[i+2])
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
			if i > 0 && !isValidSegment(dst[start:]) {
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
	return dst, len(last) == 0 || isValidSegment(last)
}

func isValidSegment(s []byte) bool {
	return !(len(s) == 0 || len(s) == 1 && s[0] == '.' || len(s) == 2 && s[0] == '.' && s[1] == '.')
}
