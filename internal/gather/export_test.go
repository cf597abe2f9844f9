package gather

// Len returns the number of requests that wait.
func (q *Queue[T]) Len() int { return len(q.waiting) }

// Idle reports whether no turn is in progress. In that state no request waits.
func (q *Queue[T]) Idle() bool { return q.running == 0 }
