// Package heap provides a binary heap. Unlike container/heap it allocates nothing for a single element.
package heap

// Heap is a binary heap. Its first element precedes all others. All calls must pass the same function before, which
// reports whether a precedes b. The zero value is empty.
type Heap[E any] []E

// Push adds an element.
func (h *Heap[E]) Push(e E, before func(a, b E) bool) {
	*h = append(*h, e)
	s := *h
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !before(e, s[parent]) {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = e
}

// Pop removes the first element and returns it. The heap must not be empty.
func (h *Heap[E]) Pop(before func(a, b E) bool) E {
	s := *h
	first, last := s[0], len(s)-1
	s[0] = s[last]
	clear(s[last:]) // releases what the element refers to
	*h = s[:last]
	h.Down(0, before)
	return first
}

// Down restores the order after the element at i was replaced by a later one.
func (h Heap[E]) Down(i int, before func(a, b E) bool) {
	if i >= len(h) {
		return
	}
	e := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if right := child + 1; right < len(h) && before(h[right], h[child]) {
			child = right
		}
		if !before(h[child], e) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = e
}
