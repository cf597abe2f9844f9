package keyspace

import "strings"

// Volatile reports whether a key of the shard expires: a request key, a trace, a copy or a lock.
func (s Shard) Volatile(key string) bool {
	rest, _ := strings.CutPrefix(key, s.key(""))
	return strings.HasPrefix(rest, "dedup:") || strings.HasPrefix(rest, "trace:") || s.Temporary(key)
}

// Temporary reports whether a key of the shard exists for a task of one process only: a copy or a lock.
func (s Shard) Temporary(key string) bool {
	return key == s.RebuildLock() || key == s.AuditLock() || strings.HasPrefix(key, s.key("copy:"))
}
