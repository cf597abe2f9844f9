package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Faults is what fails in a rehearsal, a fifth into the time in which people come.
type Faults struct {
	WorkerDies bool          // a worker takes a batch and dies with it
	Kill       func() error  // kills something real; nil: nothing
	KillName   string        // what it kills
	PauseRedis time.Duration // 0: it does not pause
}

// Fault is one that was made.
type Fault struct {
	At   float64 `json:"at_seconds"`
	What string  `json:"what"`
	Err  string  `json:"error,omitempty"` // why it could not be made
}

// fail makes the faults, once some have come.
func (r *run) fail(ctx context.Context) {
	p := &player{opening: r.opening}
	if !p.until(ctx, r.Crowd.Span/5) {
		return
	}
	made := func(what string, err error) {
		f := Fault{At: r.now().Seconds(), What: what}
		if err != nil {
			f.Err = err.Error()
		}
		r.faults = append(r.faults, f)
	}
	if r.Faults.Kill != nil {
		made("killed "+r.Faults.KillName, r.Faults.Kill())
	}
	if r.Faults.WorkerDies {
		n, err := r.Stage.WorkerDies(ctx, r.sale.ID)
		if err == nil && n == 0 {
			err = errors.New("the queue was empty all the time: there was nothing to die with")
		}
		made(fmt.Sprintf("a worker died with %d orders in its hands", n), err)
	}
	if r.Faults.PauseRedis > 0 {
		made(fmt.Sprintf("Redis paused for %s", r.Faults.PauseRedis), r.Stage.PauseRedis(ctx, r.sale.ID, r.Faults.PauseRedis))
	}
}
