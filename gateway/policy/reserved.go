package policy

import "sluice/gateway/internal/ascii"

// Reserved is the kind of a path that edges do not forward to backends. No rule applies to these paths.
type Reserved uint8

// The kinds.
const (
	NotReserved Reserved = iota
	HealthPath           // answered by the edge
	HiddenPath           // internal paths of backends: administration, metrics, requests of edges
)

// ReservedPath returns the kind of a decoded path. The nginx edge has the same paths in lua/edge/sluice/rewrite.lua.
func ReservedPath(path []byte) Reserved {
	if string(path) == "/healthz" {
		return HealthPath
	}
	if ascii.HasPrefixFold(path, "/admin") {
		return HiddenPath
	}
	for _, hidden := range [...]string{"/metrics", "/debug", "/.sluice"} {
		if ascii.HasPrefixFold(path, hidden) && (len(path) == len(hidden) || path[len(hidden)] == '/') {
			return HiddenPath
		}
	}
	return NotReserved
}
