package spread

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sluice/backend/spread"
)

// sell is a backend that decides purchases, one after the other.
func (p *process) sell() {
	mover := spread.NewMover(p, p)
	for !p.dead && !p.w.over {
		p.purchase(mover)
		p.pause()
	}
}

// purchase decides one purchase of a new buyer as a backend does: in the home segment; if that is empty, it answers
// sold out after the proof, or else refills the segment and tries again.
func (p *process) purchase(mover *spread.Mover) {
	w := p.w
	buyer := w.newBuyer()
	home, order := spread.Home(buyer, w.Segments), int64(w.buyers)
	if w.Stale && !w.calm && p.rnd.IntN(4) == 0 {
		home = p.rnd.IntN(w.Segments) // computed for another spread
	}
	r := &request{least: w.stores.Truth().free()}
	w.requests[r] = true
	defer delete(w.requests, r)
	tries := 4
	if w.calm {
		tries = 100
	}
	for range tries {
		var v verdict
		err := p.call("buy", func() (err error) { v, err = w.stores.Buy(home, buyer, order); return err })
		if p.dead || w.over {
			return
		}
		if err != nil {
			continue
		}
		if v == accepted {
			w.result.Orders++
			return
		}
		soldOut, err := mover.SoldOut(context.Background(), w.sale())
		if p.dead || w.over {
			return
		}
		if err == nil && soldOut {
			w.note("%s: sold out", buyer)
			if r.least > 0 {
				w.violate("sold out was answered too early: at least %d units were free", r.least)
			}
			w.result.SoldOut++
			return
		}
		p.refill(mover, home)
	}
	w.result.Refused++
}

// refill settles the sale and makes the moves of the policy. A purchase waits in segment waiting, if that is not
// negative.
func (p *process) refill(mover *spread.Mover, waiting int) {
	ctx := context.Background()
	states, err := mover.Settle(ctx, p.w.sale())
	if states == nil || p.dead {
		p.w.note("%s: settle: %v", p.name, err)
		return
	}
	levels := make([]spread.Level, len(states))
	for i, s := range states {
		levels[i] = spread.Level{Left: s.Left, Rate: 1, Busy: !s.Loaded || s.Out != nil}
	}
	if waiting >= 0 {
		levels[waiting].Waiting++
	}
	for _, m := range spread.Plan(levels, time.Second) {
		if _, err := mover.Move(ctx, p.w.sale(), m); err != nil {
			p.w.note("%s: %+v: %v", p.name, m, err)
		}
		if p.dead {
			return
		}
	}
}

// move is the loop of a backend that refills segments before they are empty.
func (p *process) move() {
	mover := spread.NewMover(p, p)
	for !p.dead && !p.w.over {
		p.refill(mover, -1)
		p.pause()
	}
}

// rebuild is the loop of a backend that rebuilds segments whose data is not verified.
func (p *process) rebuild() {
	w := p.w
	for !p.dead && !w.over {
		segment := p.rnd.IntN(w.Segments)
		if w.stores.Truth().States[segment].Loaded {
			p.pause()
			continue
		}
		var fence int64
		var claimed spread.Allocation
		for _, do := range []func() error{
			func() error {
				return p.call("begin", func() (err error) { fence, err = w.stores.Begin(segment); return err })
			},
			func() error {
				return p.call("claim", func() (err error) { claimed, err = w.stores.Claim(segment); return err })
			},
			func() error {
				f, c := fence, claimed
				return p.call("load", func() error { return w.stores.Load(segment, f, c) })
			},
		} {
			if err := do(); err != nil {
				fence = 0
				break
			}
		}
		if fence > 0 {
			w.result.Loads++
		}
	}
}

// administrate restocks and cancels orders.
func (p *process) administrate() {
	w := p.w
	for !p.dead && !w.over {
		for range p.rnd.IntN(w.Idle) {
			p.pause()
		}
		if w.calm || p.dead {
			p.pause()
			continue
		}
		if w.result.Restocks < w.Restocks && p.rnd.IntN(2) == 0 {
			w.result.Restocks++
			units := int64(1 + p.rnd.IntN(3))
			_ = p.once("restock", func() error { return w.stores.Restock(units) })
			continue
		}
		segment := p.rnd.IntN(w.Segments)
		var buyers []string
		for buyer := range w.stores.Truth().Orders[segment] {
			buyers = append(buyers, buyer)
		}
		if slices.Sort(buyers); len(buyers) > 0 && w.result.Cancelled < w.Cancel {
			w.result.Cancelled++
			buyer := buyers[p.rnd.IntN(len(buyers))]
			_ = p.call("cancel "+buyer, func() error { return w.stores.Cancel(segment, buyer) })
			continue
		}
		p.pause()
	}
}

func (w *world) newBuyer() string {
	for {
		w.buyers++
		buyer := fmt.Sprintf("buyer%d", w.buyers)
		if !w.Skew || w.calm || spread.Home(buyer, w.Segments) == 0 {
			return buyer
		}
	}
}
