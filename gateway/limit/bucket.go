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
	due   Instant // the bucket is not empty before. It was true once and use only makes it later, so it need not follow each use
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

// heap has the bucket that is due first at its root. (container/heap would box every bucket and call through an interface.)
type heap []*bucket

func (h *heap) push(b *bucket) {
	*h = append(*h, b)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if s[up].due <= s[i].due {
			return
		}
		s[up], s[i] = s[i], s[up]
		i = up
	}
}

func (h *heap) pop() {
	s := *h
	last := len(s) - 1
	s[0], s[last] = s[last], nil
	*h = s[:last]
	h.down(0)
}

func (h heap) down(i int) {
	for {
		least := 2*i + 1
		if least >= len(h) {
			return
		}
		if right := least + 1; right < len(h) && h[right].due < h[least].due {
			least = right
		}
		if h[i].due <= h[least].due {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
