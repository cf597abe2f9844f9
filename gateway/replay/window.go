package replay

import (
	"net/netip"

	"sluice/gateway/internal/heap"
)

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

func before(a, b entry) bool { return a.at < b.at || a.at == b.at && a.line < b.line }

// window sorts entries by the arrival of their requests. A log is sorted by their end, so a window of the longest
// duration is sufficient. Entries outside the window are emitted late and counted.
type window struct {
	span     int64 // ms
	capacity int   // entries in the window
	heap     heap.Heap[entry]

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
	w.heap.Push(e, before)
	for len(w.heap) > w.capacity || len(w.heap) > 0 && w.heap[0].at < w.logged-w.span {
		w.pop(emit)
	}
}

func (w *window) end(emit func(entry)) {
	for len(w.heap) > 0 {
		w.pop(emit)
	}
}

func (w *window) pop(emit func(entry)) {
	first := w.heap.Pop(before)
	w.passed = max(w.passed, first.at)
	emit(first)
}
