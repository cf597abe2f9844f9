package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"sluice/backend/admission"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// RehearsedSales are the rehearsals in SQL (order.Store).
type RehearsedSales interface {
	RemoveRehearsal(ctx context.Context, id string) (orders int64, err error)
}

// RehearsedStock is what Redis holds of rehearsals (admission.Stock).
type RehearsedStock interface {
	CountUnits(ctx context.Context, id string) (admission.UnitCount, error)
	Remove(ctx context.Context, id string) error
}

// RefusedError says why something is not possible now, for the operator to read. It wraps sale.ErrConflict.
type RefusedError struct{ Detail string }

func (e *RefusedError) Error() string { return e.Detail }

func (e *RefusedError) Unwrap() error { return sale.ErrConflict }

func refused(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// The bounds of a rehearsal.
const (
	// MaxRehearsal is how far ahead of now a rehearsal may close. Whoever made it may die; it stops selling all the same.
	MaxRehearsal = 2 * time.Hour
	// rehearsalKept is for how long a rehearsal that has closed stays, for somebody to look at, before any backend removes it.
	rehearsalKept = 15 * time.Minute
)

// Rehearsal says what is rehearsed, and when.
type Rehearsal struct {
	SaleID   string    // of a real sale, in whatever state
	Stock    int64     // units of its own; 0: as many as the sale has in all
	OpensAt  time.Time // zero: now
	ClosesAt time.Time // required, at most MaxRehearsal ahead
	Beside   bool      // also while a real sale is open, or opens before this one closes
}

// Rehearse makes a sale of its own that is like another one, but for its name, its units and its hours. It is no secret to operators, and does not exist for
// buyers but those of its crowd (sale.Meets). Errors: *sale.InvalidError; sale.ErrNotFound; a *RefusedError beside a real sale; and those of Create.
func (d *Desk) Rehearse(ctx context.Context, actor string, r Rehearsal) (View, error) {
	now := time.Now()
	if r.OpensAt.IsZero() {
		r.OpensAt = now
	}
	var bad sale.InvalidError
	if r.Stock < 0 || r.Stock > sale.MaxStock {
		bad.Add("stock", fmt.Sprintf("must be between 1 and %d", sale.MaxStock))
	}
	switch {
	case r.ClosesAt.IsZero():
		bad.Add("closes_at", "must be set: a rehearsal ends by itself")
	case !r.ClosesAt.After(now) || !r.ClosesAt.After(r.OpensAt):
		bad.Add("closes_at", "must be after opens_at, and after now")
	case r.ClosesAt.After(now.Add(MaxRehearsal)):
		bad.Add("closes_at", "must be within "+MaxRehearsal.String()+" from now")
	}
	if sale.IsRehearsal(r.SaleID) {
		bad.Add("sale", "is a rehearsal itself")
	}
	if len(bad.Fields) > 0 {
		return View{}, &bad
	}
	found, _, err := d.store.Sale(ctx, r.SaleID)
	if err != nil {
		return View{}, err
	}
	if !r.Beside {
		if err := d.noRealSale(ctx, now, r.ClosesAt); err != nil {
			return View{}, err
		}
	}
	if r.Stock == 0 {
		r.Stock = found.Stock
	}
	copied := found
	copied.ID = sale.RehearsalID(found.ID, newID())
	copied.Title = cut("Rehearsal of "+found.Title, sale.MaxTitleLen)
	copied.Stock, copied.OpensAt, copied.ClosesAt = r.Stock, r.OpensAt, r.ClosesAt
	copied.PerBuyer = int(min(int64(copied.PerBuyer), copied.Stock))
	return d.make(ctx, actor, copied)
}

// cut shortens a text to so many bytes, between two characters.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return strings.TrimSpace(s[:most])
}

// Practice names sales that are real to nobody, so a rehearsal may run beside them. Call it before anything else.
func (d *Desk) Practice(ids ...string) {
	for _, id := range ids {
		d.practice[id] = true
	}
}

// noRealSale refuses when a real sale that is not closed is open at any instant between from and to. One that is paused may go on at any moment.
func (d *Desk) noRealSale(ctx context.Context, from, to time.Time) error {
	standings, err := d.store.SaleSummaries(ctx)
	if err != nil {
		return err
	}
	for _, s := range standings {
		if s.Switch == sale.Closed || sale.IsRehearsal(s.ID) || d.practice[s.ID] || s.OpensAt.After(to) || !s.ClosesAt.IsZero() && !s.ClosesAt.After(from) {
			continue
		}
		if s.OpensAt.After(from) {
			return refused("The sale %s opens at %s, before this would be over: its buyers would meet what is done here.", s.ID, s.OpensAt.UTC().Format(time.RFC3339))
		}
		return refused("The sale %s is open: its buyers would meet what is done here.", s.ID)
	}
	return nil
}

// Rehearsals are those that are not removed yet, the oldest first. Errors as of List.
func (d *Desk) Rehearsals(ctx context.Context) ([]View, error) {
	views, err := d.List(ctx)
	kept := views[:0]
	for _, v := range views {
		if sale.IsRehearsal(v.ID) {
			kept = append(kept, v)
		}
	}
	return kept, err
}

// RemoveRehearsal closes a rehearsal and deletes everything of it, in SQL and in Redis; orders is how many rows went. Its orders are let through to SQL first: what
// is on its way cannot be taken from a worker's hands. Whatever dies on the way, the rehearsal is closed, and the rest is done when this is asked again, or by
// the reconcile loop of any backend.
//
// Errors: sale.ErrNotFound, when nothing is left of it; a *RefusedError while orders are on their way; *sale.InvalidError for a real sale; or one that wraps
// sale.ErrUnavailable.
func (d *Desk) RemoveRehearsal(ctx context.Context, actor, id string) (orders int64, err error) {
	if !sale.IsRehearsal(id) {
		return 0, notARehearsal()
	}
	ctx = store.WithActor(ctx, actor)
	closed, err := d.store.SetSwitch(ctx, id, sale.Closed)
	if errors.Is(err, sale.ErrNotFound) {
		if err := d.stock.Remove(ctx, id); err != nil { // whoever removed it from SQL may have died right then
			return 0, err
		}
	}
	if err != nil {
		return 0, err
	}
	if err := d.apply(ctx, closed); err != nil {
		return 0, err
	}
	if err := d.buryRehearsed(ctx, actor, id); err != nil {
		return 0, err
	}
	census, err := d.stock.CountUnits(ctx, id)
	if err != nil {
		return 0, err
	}
	if n := len(census.Ready) + len(census.Delayed) + len(census.Leased) + len(census.Dead) + int(census.Unbacked); n > 0 {
		return 0, refused("%d orders of the rehearsal are still on their way to SQL. It sells nothing any more; ask again when workers have written them.", n)
	}
	orders, err = d.store.RemoveRehearsal(ctx, id)
	if err != nil {
		return orders, err
	}
	return orders, d.stock.Remove(ctx, id)
}

func notARehearsal() error {
	return &sale.InvalidError{Fields: []sale.FieldError{{Field: "sale", Detail: "is no rehearsal: the id of one begins with " + sale.RehearsalPrefix}}}
}

// buryRehearsed cancels the dead letters of a rehearsal.
func (d *Desk) buryRehearsed(ctx context.Context, actor, id string) error {
	s := Settlement{Verb: CancelDead, Reason: "the rehearsal is over", Limit: 500}
	s.Filter.SaleID = id
	for {
		_, next, err := d.Settle(ctx, actor, s)
		if err != nil || next == "" {
			return err
		}
		s.After = next
	}
}

// sweepEvery is how many turns of the reconcile loop lie between two looks at what rehearsals left.
const sweepEvery = 30

// sweep removes what is left of rehearsals of which nobody takes care any more: those that closed long ago, and what stayed in Redis of those that SQL has forgotten.
// A failure is left to the next time: nothing of it sells.
func (d *Desk) sweep(ctx context.Context) {
	held, err := d.stock.List(ctx) // before SQL is read: what SQL does not have then is gone for good
	if err != nil {
		return
	}
	standings, err := d.store.SaleSummaries(ctx)
	if err != nil {
		return
	}
	known := map[string]bool{}
	for _, s := range standings {
		if !sale.IsRehearsal(s.ID) {
			continue
		}
		known[s.ID] = true
		if time.Since(s.ClosesAt) < rehearsalKept {
			continue
		}
		if orders, err := d.RemoveRehearsal(ctx, "sluice", s.ID); err == nil {
			d.log.Info("a rehearsal that nobody removed is removed", "sale", s.ID, "orders", orders)
		}
	}
	for _, v := range held {
		if sale.IsRehearsal(v.ID) && !known[v.ID] {
			_ = d.stock.Remove(ctx, v.ID)
		}
	}
}
