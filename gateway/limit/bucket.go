package limit

type bucketName struct {
	rule uint32
	key  Key
}

// bucket stores the backlog of a key under a rule as the time at which it will be empty: whole microseconds, and
// frac/Count of one more, where Count is that of the rule. The unit of a backlog is 1/Count microseconds. A request
// adds exactly Period units, so nothing is rounded.
type bucket struct {
	empty Instant
	frac  int64
}

// backlog returns the backlog at the given time, in the unit above.
func (b bucket) backlog(r *Rule, now Instant) int64 {
	if b.empty < now { // frac is less than a microsecond
		return 0
	}
	return int64(b.empty-now)*r.Count + b.frac
}

// bucketOf returns the bucket with this backlog at the given time.
func bucketOf(r *Rule, now Instant, backlog int64) bucket {
	return bucket{empty: now + Instant(backlog/r.Count), frac: backlog % r.Count}
}

// expires returns the first whole instant at which the bucket is empty, if it is not used again.
func (b bucket) expires() Instant {
	if b.frac > 0 {
		return b.empty + 1
	}
	return b.empty
}
