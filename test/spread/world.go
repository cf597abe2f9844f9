package spread

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"sluice/backend/spread"
)

const saleID = "s"

// plan is the configuration of a run, derived from its seed.
type plan struct {
	Segments         int
	Stock            int64
	Movers, Buyers   int // processes
	Steps            int // with faults
	Faults, Deaths   float64
	Losses           float64 // of a segment, per step
	Restocks, Cancel int
	Idle             int  // most steps of the admin between two actions
	Skew             bool // all buyers have the same home
	Stale            bool // some purchases are sent to a segment that is not the home
}

func planOf(rnd *rand.Rand) plan {
	pick := func(from, to int) int { return from + rnd.IntN(to-from+1) }
	p := plan{
		Segments: pick(2, 5),
		Stock:    int64(pick(1, []int{2, 12}[rnd.IntN(2)])),
		Movers:   pick(1, 3),
		Buyers:   pick(2, 4),
		Steps:    pick(100, 500),
		Faults:   []float64{0, 0.05, 0.2, 0.4}[rnd.IntN(4)],
		Deaths:   []float64{0, 0.01, 0.05}[rnd.IntN(3)],
		Losses:   []float64{0, 0.01, 0.03, 0.08}[rnd.IntN(4)],
		Restocks: pick(0, 2),
		Cancel:   []int{0, 3, 100}[rnd.IntN(3)],
		Idle:     []int{50, 3}[rnd.IntN(2)],
		Skew:     rnd.IntN(3) == 0,
		Stale:    rnd.IntN(4) == 0,
	}
	if rnd.IntN(5) == 0 { // units return continuously, while purchases detect that the sale is sold out
		p.Segments, p.Stock, p.Buyers, p.Faults, p.Deaths, p.Losses = 2, int64(pick(1, 3)), 6, 0, 0, 0
		p.Cancel, p.Idle = 1000, 1
	}
	return p
}

// world plays one sale of one seed. Processes are coroutines: one runs at a time, until its next call to a store. The
// seed chooses which one continues and what happens to its call.
type world struct {
	plan
	rnd      *rand.Rand
	stores   stores
	parked   chan *process // a process that is at a call or has ended
	waiting  []*process    // at a call
	late     []func() error
	requests map[*request]bool
	calm     bool // no more faults
	over     bool // processes end
	buyers   int
	first    string // the first violation
	trace    []string
	result   result
}

// request is a purchase in progress. least is the smallest number of free units since it began.
type request struct{ least int64 }

// result counts the events of one run or of many.
type result struct {
	Steps, Orders, SoldOut, Refused, Restocks, Cancelled, Losses, Loads int
	Commits                                                             int
	Faults                                                              [fates]int
}

func (r *result) add(o result) {
	r.Steps, r.Orders, r.SoldOut, r.Refused = r.Steps+o.Steps, r.Orders+o.Orders, r.SoldOut+o.SoldOut, r.Refused+o.Refused
	r.Restocks, r.Cancelled, r.Losses = r.Restocks+o.Restocks, r.Cancelled+o.Cancelled, r.Losses+o.Losses
	r.Loads, r.Commits = r.Loads+o.Loads, r.Commits+o.Commits
	for i, n := range o.Faults {
		r.Faults[i] += n
	}
}

// play runs one seed and returns the world after it.
func play(seed uint64, open func(k int, stock int64) stores) *world {
	rnd := rand.New(rand.NewPCG(seed, 3))
	w := &world{plan: planOf(rnd), rnd: rnd, parked: make(chan *process), requests: map[*request]bool{}}
	w.note("seed %d: %+v", seed, w.plan)
	w.stores = open(w.Segments, w.Stock)
	for i := range w.Movers {
		w.start(fmt.Sprintf("mover%d", i+1), (*process).move)
	}
	for i := range w.Buyers {
		w.start(fmt.Sprintf("backend%d", i+1), (*process).sell)
	}
	for i := range 2 {
		w.start(fmt.Sprintf("rebuilder%d", i+1), (*process).rebuild)
	}
	w.start("admin", (*process).administrate)
	for w.result.Steps < w.Steps && w.first == "" {
		w.strike()
		w.step()
	}
	w.note("no more faults")
	w.calm = true
	for until := w.result.Steps + 20_000; !w.rests() && w.first == ""; w.step() {
		if w.result.Steps > until {
			t := w.stores.Truth()
			w.violate("a unit is stranded, or sold out is never answered: %d units are free, %+v", t.free(), t)
		}
	}
	w.over = true
	for len(w.waiting) > 0 {
		w.step()
	}
	return w
}

func (w *world) sale() spread.Sale { return spread.Sale{ID: saleID, Spread: w.Segments} }

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) violate(format string, args ...any) {
	if w.first == "" {
		w.first = fmt.Sprintf(format, args...)
		w.note("VIOLATION: %s", w.first)
	}
}

// start starts a process, which runs until its first call.
func (w *world) start(name string, main func(*process)) {
	p := &process{w: w, name: name, main: main, turn: make(chan fate), rnd: rand.New(rand.NewPCG(w.rnd.Uint64(), 0))}
	go func() {
		main(p)
		p.ended = true
		w.parked <- p
	}()
	w.park()
}

// park waits until the process that runs is at a call or has ended. A process that ended starts again.
func (w *world) park() {
	p := <-w.parked
	switch {
	case !p.ended:
		w.waiting = append(w.waiting, p)
	case !w.over:
		w.start(p.name, p.main)
	}
}

// step schedules the call of one process, or makes a late one.
func (w *world) step() {
	w.result.Steps++
	if len(w.late) > 0 && (w.calm || w.rnd.IntN(8) == 0) {
		i := w.rnd.IntN(len(w.late))
		call := w.late[i]
		w.late = slices.Delete(w.late, i, i+1)
		w.note("late call: %v", call())
		w.check()
		return
	}
	i := w.rnd.IntN(len(w.waiting))
	p := w.waiting[i]
	w.waiting = slices.Delete(w.waiting, i, i+1)
	f := fine
	if !w.calm {
		switch x := w.rnd.Float64(); {
		case x < w.Deaths:
			f = dieBefore + fate(w.rnd.IntN(2))
		case x < w.Deaths+w.Faults:
			f = before + fate(w.rnd.IntN(int(dieBefore-before)))
		}
	}
	w.result.Faults[f]++
	p.turn <- f
	w.park()
	w.check()
}

// strike loses a segment with the probability Losses: its server starts again empty, or with the data of an earlier
// instant.
func (w *world) strike() {
	segment := w.rnd.IntN(w.Segments)
	switch x := w.rnd.Float64(); {
	case x < w.Losses:
		old := w.rnd.IntN(2) == 0
		w.note("segment %d is lost, old %v", segment, old)
		w.stores.Lose(segment, old)
		w.result.Losses++
	case x < 3*w.Losses:
		w.stores.Save(segment)
	}
}

// check checks the invariants that hold after every step.
func (w *world) check() {
	t := w.stores.Truth()
	if d := w.stores.Difference(); d != "" {
		w.violate("the stores differ from the model: %s", d)
	}
	var orders, units int64
	for i, a := range t.Allocations {
		orders += int64(len(t.Orders[i]))
		units += a.Units
		s := t.States[i]
		if !s.Loaded {
			continue
		}
		sum := s.Left + int64(len(t.Orders[i]))
		if s.Out != nil {
			sum += s.Out.Units
		}
		if s.Left < 0 || sum != s.Units {
			w.violate("segment %d does not balance: %+v with %d orders", i, s, len(t.Orders[i]))
		}
		for buyer := range t.Orders[i] {
			if home := spread.Home(buyer, w.Segments); home != i {
				w.violate("buyer %s has an order in segment %d, and its home is %d", buyer, i, home)
			}
		}
	}
	if orders > t.Stock {
		w.violate("oversold: %d orders of %d units", orders, t.Stock)
	}
	if units != t.Stock {
		w.violate("the allocations add up to %d and the stock is %d", units, t.Stock)
	}
	free := t.free()
	for r := range w.requests {
		r.least = min(r.least, free)
	}
}

// rests reports whether every unit is sold, sold out has been answered since, and the stores agree.
func (w *world) rests() bool {
	t := w.stores.Truth()
	if t.free() > 0 || t.Pending > 0 || len(w.late) > 0 || w.result.SoldOut == 0 {
		return false
	}
	for i, s := range t.States {
		if !s.Loaded || s.Out != nil || s.Version != t.Allocations[i].Version {
			return false
		}
	}
	return true
}
