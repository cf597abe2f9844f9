package limit

// heap has the bucket that is due first at its root. (container/heap would box every bucket and call through an interface.)
type heap []due

// due says that a bucket is not empty before an instant. It was true once and use only makes it later, so it need not follow each use.
type due struct {
	at     Instant
	bucket place
}

func (h *heap) push(d due) {
	*h = append(*h, d)
	s := *h
	i := len(s) - 1
	for i > 0 {
		up := (i - 1) / 2
		if s[up].at <= d.at {
			break
		}
		s[i] = s[up]
		i = up
	}
	s[i] = d
}

func (h *heap) pop() {
	s := *h
	last := len(s) - 1
	s[0] = s[last]
	*h = s[:last]
	h.down(0)
}

func (h heap) down(i int) {
	if i >= len(h) {
		return
	}
	d := h[i]
	for {
		least := 2*i + 1
		if least >= len(h) {
			break
		}
		if right := least + 1; right < len(h) && h[right].at < h[least].at {
			least = right
		}
		if d.at <= h[least].at {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = d
}
