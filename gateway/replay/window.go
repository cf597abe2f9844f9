package replay

import "net/netip"

// entry is the part of a line that is needed for its evaluation.
type entry struct {
	at           int64 // ms
	line         int64 // in its file, from 1; orders entries with the same time
	client       netip.Addr
	buyer        string
	covers       [2]uint64 // matching rules of each policy: see policyRun.covers
	coarse       bool
	unauthorized bool
}

func (e *entry) before(other *entry) bool {
	return e.at < other.at || e.at == other.at && e.line < other.line
}

// window sorts entries by the arrival of their requests. A log is sorted by their end, so a window of the longest
// duration is sufficient. Entries outside the window are emitted late and counted.
type window struct {
	span     int64 // ms
	capacity int   // entries in the window

	held []entry // storage of the entries
	free []int32
	heap []heapEntry

	logged     int64 // latest end of a request
	newest     int64 // latest arrival of a request
	passed     int64 // latest arrival of an emitted entry
	outOfOrder int64
	late       int64
}

type heapEntry struct {
	at, line int64
	held     int32
}

func (p heapEntry) before(other heapEntry) bool {
	return p.at < other.at || p.at == other.at && p.line < other.line
}

// add adds an entry whose request ended at logged, and emits the entries that no later line can precede.
func (w *window) add(e entry, logged int64, emit func(entry)) {
	if e.at < w.newest {
		w.outOfOrder++
	}
	if e.at < w.passed {
		w.late++
	}
	w.newest, w.logged = max(w.newest, e.at), max(w.logged, logged)
	w.push(e)
	for len(w.heap) > w.capacity || len(w.heap) > 0 && w.heap[0].at < w.logged-w.span {
		w.pop(emit)
	}
}

// end emits the remaining entries.
func (w *window) end(emit func(entry)) {
	for len(w.heap) > 0 {
		w.pop(emit)
	}
}

func (w *window) push(e entry) {
	p := heapEntry{e.at, e.line, int32(len(w.held))}
	if n := len(w.free); n > 0 {
		p.held, w.free = w.free[n-1], w.free[:n-1]
		w.held[p.held] = e
	} else {
		w.held = append(w.held, e)
	}
	w.heap = append(w.heap, p)
	for i := len(w.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !w.heap[i].before(w.heap[parent]) {
			return
		}
		w.heap[i], w.heap[parent] = w.heap[parent], w.heap[i]
		i = parent
	}
}

func (w *window) pop(emit func(entry)) {
	first, last := w.heap[0], len(w.heap)-1
	w.heap[0] = w.heap[last]
	w.heap = w.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if right := child + 1; right < last && w.heap[right].before(w.heap[child]) {
			child = right
		}
		if !w.heap[child].before(w.heap[i]) {
			break
		}
		w.heap[i], w.heap[child] = w.heap[child], w.heap[i]
		i = child
	}
	w.free = append(w.free, first.held)
	w.passed = max(w.passed, first.at)
	emit(w.held[first.held])
	w.held[first.held] = entry{}
}

// spread distributes the entries of a log with a resolution of seconds evenly over their second. Otherwise they would
// look like a burst.
type spread struct {
	capacity int
	second   []entry
}

func (s *spread) add(e entry, emit func(entry)) {
	if !e.coarse {
		s.end(emit)
		emit(e)
		return
	}
	if len(s.second) > 0 && s.second[0].at != e.at || len(s.second) >= s.capacity {
		s.end(emit)
	}
	s.second = append(s.second, e)
}

func (s *spread) end(emit func(entry)) {
	n := int64(len(s.second))
	for i, e := range s.second {
		e.at += int64(i) * 1000 / n
		emit(e)
	}
	s.second = s.second[:0]
}
