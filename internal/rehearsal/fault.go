package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Faults are injected after a fifth of the arrival time span.
type Faults struct {
	WorkerDies bool          // a worker leases a batch and crashes
	Kill       func() error  // kills a process; optional
	KillName   string        // name of that process
	PauseRedis time.Duration // 0: no pause
}

// Fault is an injected fault.
type Fault struct {
	At   float64 `json:"at_seconds"`
	What string  `json:"what"`
	Err  string  `json:"error,omitempty"` // why it was not injected
}

// injectFaults injects the faults at their time.
func (r *run) injectFaults(ctx context.Context) {
	p := &simulator{opening: r.opening}
	if !p.until(ctx, r.Workload.Span/5) {
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
			err = errors.New("the queue was empty")
		}
		made(fmt.Sprintf("a worker crashed with %d leased orders", n), err)
	}
	if r.Faults.PauseRedis > 0 {
		made(fmt.Sprintf("Redis paused for %s", r.Faults.PauseRedis), r.Stage.PauseRedis(ctx, r.sale.ID, r.Faults.PauseRedis))
	}
}
