package replay

import "net/netip"

// entry is what of a line is needed to judge it.
type entry struct {
	at           int64 // ms
	line         int64 // of its file, from 1: settles ties
	client       netip.Addr
	buyer        string
	covers       [2]uint64 // the rules of each side that cover it, see side
	coarse       bool
	unauthorized bool
}

func (e *entry) before(other *entry) bool {
	return e.at < other.at || e.at == other.at && e.line < other.line
}

// window puts entries in the order in which their requests came. A log has them in the order in which they ended, so it is enough to look back
// as far as a request may take; what comes later than that is passed on late and counted.
type window struct {
	span int64 // ms
	most int   // entries that are held at one time

	held []entry // the places of the heap's entries
	free []int32
	heap []place

	logged     int64 // the latest time of writing so far
	newest     int64 // the latest time of coming so far
	passed     int64 // the time of the latest entry that was passed on
	outOfOrder int64
	late       int64
}

type place struct {
	at, line int64
	held     int32
}

func (p place) before(other place) bool {
	return p.at < other.at || p.at == other.at && p.line < other.line
}

// add takes an entry whose line was written at logged, and passes on what can have nothing before it any more.
func (w *window) add(e entry, logged int64, pass func(entry)) {
	if e.at < w.newest {
		w.outOfOrder++
	}
	if e.at < w.passed {
		w.late++
	}
	w.newest, w.logged = max(w.newest, e.at), max(w.logged, logged)
	w.push(e)
	for len(w.heap) > w.most || len(w.heap) > 0 && w.heap[0].at < w.logged-w.span {
		w.pop(pass)
	}
}

// end passes on the rest.
func (w *window) end(pass func(entry)) {
	for len(w.heap) > 0 {
		w.pop(pass)
	}
}

func (w *window) push(e entry) {
	p := place{e.at, e.line, int32(len(w.held))}
	if n := len(w.free); n > 0 {
		p.held, w.free = w.free[n-1], w.free[:n-1]
		w.held[p.held] = e
	} else {
		w.held = append(w.held, e)
	}
	w.heap = append(w.heap, p)
	for i := len(w.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !w.heap[i].before(w.heap[up]) {
			return
		}
		w.heap[i], w.heap[up] = w.heap[up], w.heap[i]
		i = up
	}
}

func (w *window) pop(pass func(entry)) {
	first, last := w.heap[0], len(w.heap)-1
	w.heap[0] = w.heap[last]
	w.heap = w.heap[:last]
	for i := 0; ; {
		least := 2*i + 1
		if least >= last {
			break
		}
		if right := least + 1; right < last && w.heap[right].before(w.heap[least]) {
			least = right
		}
		if !w.heap[least].before(w.heap[i]) {
			break
		}
		w.heap[i], w.heap[least] = w.heap[least], w.heap[i]
		i = least
	}
	w.free = append(w.free, first.held)
	w.passed = max(w.passed, first.at)
	pass(w.held[first.held])
	w.held[first.held] = entry{}
}

// spread gives the entries of a second that a log knows no better than that times of their own, evenly over it: taken all at once they would look
// like a burst that never was.
type spread struct {
	most   int
	second []entry
}

func (s *spread) add(e entry, pass func(entry)) {
	if !e.coarse {
		s.end(pass)
		pass(e)
		return
	}
	if len(s.second) > 0 && s.second[0].at != e.at || len(s.second) >= s.most {
		s.end(pass)
	}
	s.second = append(s.second, e)
}

func (s *spread) end(pass func(entry)) {
	n := int64(len(s.second))
	for i, e := range s.second {
		e.at += int64(i) * 1000 / n
		pass(e)
	}
	s.second = s.second[:0]
}
