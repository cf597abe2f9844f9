package limit

type name struct {
	rule uint32
	key  Key
}

// bucket holds what a key has used of a rule, as the instant at which it will be empty: empty whole microseconds and frac parts of one, where a rule of
// Count requests in Period microseconds counts in parts of 1/Count. In that unit one request is exactly Period, whatever the rate, and nothing is ever rounded.
type bucket struct {
	name  name
	empty Instant
	frac  int64
}

// backlog is what is in the bucket at an instant, in the unit above.
func (b *bucket) backlog(r *Rule, now Instant) int64 {
	if b.empty < now { // frac is less than a microsecond
		return 0
	}
	return int64(b.empty-now)*r.Count + b.frac
}

func (b *bucket) set(r *Rule, now Instant, backlog int64) {
	b.empty, b.frac = now+Instant(backlog/r.Count), backlog%r.Count
}

// over is the first whole instant at which the bucket is empty, if nothing is put in from now on.
func (b *bucket) over() Instant {
	if b.frac > 0 {
		return b.empty + 1
	}
	return b.empty
}
