package spread

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"sluice/backend/sale"
	"sluice/internal/loop"
)

// The times of a Refiller. docs/scale.md shows their effect.
const (
	// horizon is the time for which the units of a segment should last. A segment with fewer units is refilled.
	horizon = 500 * time.Millisecond
	// pace is the time between two rounds while purchases wait and no unit could be moved to them.
	pace = 10 * time.Millisecond
	// settleInterval is the longest time for which a Refiller does not read SQL.
	settleInterval = time.Second
	// roundTimeout bounds a round.
	roundTimeout = time.Second
)

// Refiller moves units between the segments of one sale on behalf of a process, and decides purchases that found their
// home empty. It works in rounds, one at a time. Several processes may refill the same sale. It is safe for concurrent
// use.
type Refiller struct {
	of    Sale
	mover *Mover

	round   chan struct{} // holds one value during a round; only the round uses the next four fields
	rates   []float64     // units per second, by segment
	sold    []int64       // orders ever accepted, by segment, at the last round
	last    time.Time     // of the last round
	settled time.Time     // when SQL was last read

	mu      sync.Mutex
	waiting []*waiter // oldest first
	running bool      // a goroutine runs rounds for them
}

// waiter is a purchase that waits for a unit in its home. result receives its value once.
type waiter struct {
	home   int
	result chan error
}

// Refillers are the Refillers of a process. It is safe for concurrent use.
type Refillers struct {
	mover *Mover
	mu    sync.Mutex
	all   map[Sale]*Refiller
}

// NewRefillers returns Refillers without any sale.
func NewRefillers(mover *Mover) *Refillers {
	return &Refillers{mover: mover, all: map[Sale]*Refiller{}}
}

// Of returns the Refiller of a sale, and creates it if it does not exist.
func (r *Refillers) Of(of Sale) *Refiller {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all[of] == nil {
		r.all[of] = &Refiller{
			of: of, mover: r.mover, round: make(chan struct{}, 1),
			rates: make([]float64, of.Spread), sold: make([]int64, of.Spread),
		}
	}
	return r.all[of]
}

// ErrSoldOut reports that a sale had no unit left and none in transfer.
var ErrSoldOut = errors.New("sold out")

// Await waits on behalf of a purchase that found its home empty. It returns nil when the home has a unit for it. The
// purchase must then be decided again, because another purchase may have taken the unit. Await returns ErrSoldOut if
// the sale was sold out at an instant during the call. When ctx ends it returns an error that wraps
// sale.ErrUnavailable.
func (r *Refiller) Await(ctx context.Context, home int) error {
	if home < 0 || home >= r.of.Spread {
		return fmt.Errorf("spread: segment %d of a sale with %d", home, r.of.Spread)
	}
	w := &waiter{home: home, result: make(chan error, 1)}
	r.mu.Lock()
	r.waiting = append(r.waiting, w)
	if !r.running {
		r.running = true
		go r.serve(context.WithoutCancel(ctx))
	}
	r.mu.Unlock()
	select {
	case err := <-w.result:
		return err
	case <-ctx.Done():
		r.leave(w)
		return fmt.Errorf("spread: no unit in segment %d of sale %s: %w: %w", home, r.of.ID, sale.ErrUnavailable, ctx.Err())
	}
}

// patience bounds how long Retry waits for units.
const patience = 500 * time.Millisecond

// Retry calls try, which needs a unit of a segment, and repeats it when the segment has got one, until try has a unit
// or the sale is sold out. It returns the error of the last try. If no unit arrives in time, the error wraps
// sale.ErrUnavailable.
func (r *Refillers) Retry(ctx context.Context, in Part, try func() (lacksUnit bool, err error)) error {
	waits, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		lacksUnit, err := try()
		if !lacksUnit {
			return err
		}
		waited := r.Of(Sale{ID: in.SaleID, Spread: in.Spread}).Await(waits, in.Segment)
		if errors.Is(waited, ErrSoldOut) {
			return err
		}
		if waited != nil {
			return waited
		}
	}
}

// leave removes a purchase that no longer waits.
func (r *Refiller) leave(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = slices.DeleteFunc(r.waiting, func(other *waiter) bool { return other == w })
}

// serve runs rounds until no purchase waits. It pauses after a round in which no fewer purchases wait than before.
func (r *Refiller) serve(ctx context.Context) {
	for {
		r.mu.Lock()
		before := len(r.waiting)
		r.running = before > 0
		r.mu.Unlock()
		if before == 0 {
			return
		}
		_ = r.RunOnce(ctx) // after a failure the purchases wait for the next round, or time out
		r.mu.Lock()
		idle := len(r.waiting) >= before
		r.mu.Unlock()
		if idle {
			time.Sleep(pace)
		}
	}
}

// RunOnce runs one round: it completes unfinished transfers, moves the units that the policy moves, and answers the
// purchases that began to wait before it. It returns the errors of single segments, joined.
func (r *Refiller) RunOnce(ctx context.Context) error {
	r.round <- struct{}{}
	defer func() { <-r.round }()
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	r.mu.Lock()
	waiting := slices.Clone(r.waiting)
	r.mu.Unlock()

	states, err := r.settle(ctx)
	if states == nil {
		return err
	}
	units, complete := held(states)
	if units == 0 && complete && len(waiting) > 0 {
		soldOut, proofErr := r.mover.SoldOut(ctx, r.of)
		if soldOut {
			r.answer(waiting, func(int) bool { return true }, ErrSoldOut)
		}
		return errors.Join(err, proofErr)
	}
	levels := r.levels(states, waiting)
	gained, moveErr := r.move(ctx, Plan(levels, horizon))
	for i, l := range levels {
		gained[i] += l.Left
	}
	r.answer(waiting, func(home int) bool { gained[home]--; return gained[home] >= 0 }, nil)
	return errors.Join(err, moveErr)
}

// settle reads the segments, and settles the sale if they show a reason, or once per settleInterval.
func (r *Refiller) settle(ctx context.Context) ([]State, error) {
	states, err := r.mover.states(ctx, r.of)
	if err != nil {
		return nil, err
	}
	if time.Since(r.settled) < settleInterval && r.mover.current(r.of, states) {
		return states, nil
	}
	states, err = r.mover.settle(ctx, r.of, states)
	if states != nil {
		r.settled = time.Now()
	}
	return states, err
}

// answer answers the purchases that choose selects, oldest first. A purchase that is answered no longer waits.
func (r *Refiller) answer(waiting []*waiter, choose func(home int) bool, result error) {
	for _, w := range waiting {
		if choose(w.home) {
			r.leave(w)
			w.result <- result
		}
	}
}

// levels returns the levels of the segments, and updates the rates, which are averages over about a second.
func (r *Refiller) levels(states []State, waiting []*waiter) []Level {
	now := time.Now()
	elapsed := now.Sub(r.last).Seconds()
	first := r.last.IsZero()
	r.last = now
	levels := make([]Level, len(states))
	for i, s := range states {
		if s.Loaded {
			if sold := s.Sold - r.sold[i]; !first && sold >= 0 && elapsed > 0 { // a rebuild may decrease Sold
				r.rates[i] += (1 - math.Exp(-elapsed)) * (float64(sold)/elapsed - r.rates[i])
			}
			r.sold[i] = s.Sold
		}
		levels[i] = Level{Left: s.Left, Rate: r.rates[i], Busy: !s.Loaded || s.Out != nil}
	}
	for _, w := range waiting {
		levels[w.home].Waiting++
	}
	return levels
}

// move makes the moves of a plan concurrently. It returns the units that were moved to each segment.
func (r *Refiller) move(ctx context.Context, moves []Move) (gained []int64, err error) {
	gained = make([]int64, r.of.Spread)
	made := make([]Move, len(moves))
	failures := loop.Each(moves, -1, func(i int, m Move) (err error) {
		made[i], err = r.mover.Move(ctx, r.of, m)
		return err
	})
	for i, m := range made {
		if failures[i] == nil {
			gained[m.To] += m.Units
		}
	}
	return gained, errors.Join(failures...)
}
