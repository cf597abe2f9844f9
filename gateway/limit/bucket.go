package limit

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

type name struct {
	rule uint32
	key  Key
}

type bucket struct {
	name    name
	rule    *Rule
	limiter *rate.Limiter
	due     int64 // ms; the bucket is not full before. It was true once and use only makes it later, so it need not follow each use
}

// full is the instant, in ms, from which the bucket is full if nothing is taken from now on.
func (b *bucket) full(now int64) int64 {
	lack := float64(b.rule.Burst+1) - b.limiter.TokensAt(time.UnixMilli(now))
	if lack <= 0 {
		return now
	}
	// A millionth of a millisecond is the floats' own, and no reason to wait for another whole one.
	ms := math.Ceil(lack/b.rule.PerSecond*1000 - 1e-6)
	if ms > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return now + int64(ms)
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
