package gateway

// RulePath appends to dst the path by which rules are matched on a request with this target. ok is false where no rule is ever asked: the
// target is malformed, or the edge answers by itself there.
func RulePath(dst, target []byte) (path []byte, ok bool) {
	path, ok = decodePath(dst, splitTarget(target))
	return path, ok && placeOf(path) == elsewhere
}
