package keyspace

import "strings"

// Volatile reports whether a key of a shard expires: a dedup key, a trace, a copy or a lock.
func Volatile(key string) bool {
	_, rest, _ := strings.Cut(key, "}:")
	return strings.HasPrefix(rest, "dedup:") || strings.HasPrefix(rest, "trace:") || Temporary(key)
}

// Temporary reports whether a key of a shard exists for a task of one process only: a copy or a lock.
func Temporary(key string) bool {
	s, ok := ShardOfKey(key)
	return ok && (key == s.RebuildLock() || key == s.AuditLock() || strings.HasPrefix(key, s.key("copy:")))
}
