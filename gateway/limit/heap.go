package limit

// heap orders buckets by expiry, the earliest at the root. container/heap would allocate for each element.
type heap []expiry

// expiry is a lower bound of the time at which a bucket is empty. Using a bucket only postpones that time, so the
// heap is not updated on each use.
type expiry struct {
	at     Instant
	bucket slot
}

func (h *heap) push(e expiry) {
	*h = append(*h, e)
	s := *h
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if s[parent].at <= e.at {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = e
}

func (h *heap) pop() {
	s := *h
	last := len(s) - 1
	s[0] = s[last]
	*h = s[:last]
	h.down(0)
}

// down restores the order after the element at i has increased.
func (h heap) down(i int) {
	if i >= len(h) {
		return
	}
	e := h[i]
	for {
		first := 2*i + 1
		if first >= len(h) {
			break
		}
		if right := first + 1; right < len(h) && h[right].at < h[first].at {
			first = right
		}
		if e.at <= h[first].at {
			break
		}
		h[i] = h[first]
		i = first
	}
	h[i] = e
}
