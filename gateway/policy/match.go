package policy

import (
	"strings"

	"sluice/gateway/internal/ascii"
)

// Match selects the requests of a rule. The zero value matches every request.
type Match struct {
	Method string // in upper case; "" matches any
	Path   string // "*" matches exactly one segment; "" matches any
}

// String returns the method and the path, or "" if m matches every request.
func (m Match) String() string { return strings.TrimSpace(m.Method + " " + m.Path) }

// Covers reports whether a request matches. The path must be decoded, without empty, "." and ".." segments. A slash
// at its end and the case of ASCII letters are ignored, because some servers ignore them: a different spelling must
// not bypass a rule.
func (m Match) Covers(method, path []byte) bool {
	return (m.Method == "" || m.Method == string(method)) && (m.Path == "" || covers(m.Path, path))
}

func covers(pattern string, path []byte) bool {
	if len(path) > 1 && path[len(path)-1] == '/' {
		path = path[:len(path)-1]
	}
	i := 0
	for p := 0; p < len(pattern); p++ {
		if pattern[p] == '*' {
			start := i
			for i < len(path) && path[i] != '/' {
				i++
			}
			if i == start {
				return false
			}
			continue
		}
		if i == len(path) || ascii.Lower(path[i]) != ascii.Lower(pattern[p]) {
			return false
		}
		i++
	}
	return i == len(path)
}

// badPattern returns a description of the error in a path pattern, or "".
func badPattern(pattern string) string {
	if pattern[0] != '/' {
		return "must begin with a slash"
	}
	if pattern == "/" {
		return ""
	}
	for segment := range strings.SplitSeq(pattern[1:], "/") {
		switch {
		case segment == "":
			return "has an empty segment or a slash at its end"
		case segment == "." || segment == "..":
			return `has a segment "." or ".."`
		case segment == "*":
		case strings.Contains(segment, "*"):
			return `may have "*" only as a whole segment`
		default:
			for i := range len(segment) {
				if c := segment[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"%<>\^{|}?#`+"`", c) >= 0 {
					return "is matched against decoded paths without a query, and may hold plain ASCII only"
				}
			}
		}
	}
	return ""
}
