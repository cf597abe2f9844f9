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
	start := len(dst)
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' {
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
		} else if c <= ' ' || c == 0x7f || c == '\\' {
			return dst, false
		}
		dst = append(dst, c)
	}
	return dst, hasValidSegments(dst[start+1:])
}

// hasValidSegments reports whether no segment of a path is "." or "..", and none but the last is empty.
func hasValidSegments(path []byte) bool {
	for more := true; more; {
		var segment []byte
		segment, path, more = bytes.Cut(path, []byte{'/'})
		if more && len(segment) == 0 || string(segment) == "." || string(segment) == ".." {
			return false
		}
	}
	return true
}
