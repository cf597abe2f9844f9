// Package gather forms groups of concurrent requests that one operation serves together, such as one run of a script or
// one query for several rows. It decides which requests a group holds and when it starts. It does not run the operation
// and does not bound how many requests wait.
package gather

import "time"

// Pause is how long a goroutine waits, under load, before it takes the next group.
const Pause = time.Millisecond

// Queue holds the requests for one target. While fewer than Limit groups are in flight, a request starts a group
// immediately; otherwise it joins the next group.
//
// Under load the requests are gathered, because an operation costs as much as several requests. After a group of at
// least busy and less than Size/2 requests, a single goroutine waits for Pause and then runs the next group. Few
// requests and large groups do not wait.
//
// A Queue is not safe for concurrent use: the caller guards its methods with a lock. The fields are set before the
// first use.
type Queue[T any] struct {
	Limit int // groups in flight, at least 1
	Size  int // requests of a group, at least 1

	waiting   []T
	running   int  // turns
	gathering bool // one turn gathers requests, and no other may take them
}

// busy is the minimum size of a group that indicates load.
const busy = 4

// Turn is the state of one goroutine that runs groups. The zero value is a new turn.
type Turn struct{ gathers bool }

// Add adds a request. If it returns true, the caller starts a goroutine that calls Next and Done in turn until Next
// returns no request.
func (q *Queue[T]) Add(request T) (start bool) {
	q.waiting = append(q.waiting, request)
	if q.running >= q.Limit || q.gathering {
		return false
	}
	q.running++
	return true
}

// Next appends the oldest requests, at most Size, to group, which is empty. If it appends none, the turn has ended,
// because no request waits or another turn gathers the requests.
func (q *Queue[T]) Next(t *Turn, group []T) []T {
	n := min(len(q.waiting), q.Size)
	if q.gathering && !t.gathers {
		n = 0
	}
	if n == 0 {
		if t.gathers {
			q.gathering = false
		}
		q.running--
		return group
	}
	group = append(group, q.waiting[:n]...)
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:])
	q.waiting = q.waiting[:rest]
	return group
}

// Done reports whether the turn, which has run a group of n requests, waits for Pause before it calls Next.
func (q *Queue[T]) Done(t *Turn, n int) (pause bool) {
	if !q.gathering || t.gathers {
		t.gathers = n >= busy && n < q.Size/2
		q.gathering = t.gathers
	}
	return t.gathers
}
