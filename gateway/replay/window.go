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
	span     int64   // ms
	capacity int     // entries in the window
	heap     []entry // the earliest at the root

	logged     int64 // latest end of a request
	newest     int64 // latest arrival of a request
	passed     int64 // latest arrival of an emitted entry
	outOfOrder int64
	late       int64
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
	w.heap = append(w.heap, e)
	i := len(w.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&w.heap[parent]) {
			break
		}
		w.heap[i] = w.heap[parent]
		i = parent
	}
	w.heap[i] = e
}

func (w *window) pop(emit func(entry)) {
	first, last := w.heap[0], len(w.heap)-1
	moved := w.heap[last]
	w.heap[last] = entry{} // releases the buyer's name
	w.heap = w.heap[:last]
	i := 0
	for child := 1; child < last; child = 2*i + 1 {
		if right := child + 1; right < last && w.heap[right].before(&w.heap[child]) {
			child = right
		}
		if !w.heap[child].before(&moved) {
			break
		}
		w.heap[i] = w.heap[child]
		i = child
	}
	if last > 0 {
		w.heap[i] = moved
	}
	w.passed = max(w.passed, first.at)
	emit(first)
}
