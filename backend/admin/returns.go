package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"sluice/backend/admission"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// CancelledOrders are the orders that are cancelled as rows (order.Store).
type CancelledOrders interface {
	CancelOverdue(ctx context.Context, limit int) ([]sale.Order, error)
	Returning(ctx context.Context, after sale.OrderID, age time.Duration, limit int) ([]sale.Order, error)
	MarkReturned(ctx context.Context, returns []store.Return) error
	Returned(ctx context.Context, ids []sale.OrderID) ([]sale.OrderID, error)
}

// Units are the units and the buyers' places in Redis (admission.Stock).
type Units interface {
	List(ctx context.Context) ([]admission.View, error)
	ReturnUnits(ctx context.Context, saleID string, orders []sale.Order) ([]int64, error)
	PendingReturns(ctx context.Context, saleID string) ([]sale.OrderID, error)
	ConfirmReturns(ctx context.Context, saleID string, ids []sale.OrderID) error
}

const (
	// returnBatch is how many orders a Returner cancels, or gives back, in one go.
	returnBatch = 500
	// returnBatches bounds what one turn does of each: the next turn goes on where it ended.
	returnBatches = 20
	// leftoverAge is how old a cancelled order is before others than its canceller give its unit back.
	leftoverAge = 2 * time.Second
	// tidyEvery is how many turns lie between two looks at what Redis remembers needlessly.
	tidyEvery = 60
)

// Returner cancels orders that were not paid in time, and gives the units of cancelled orders back to Redis. Any number of them may run, none leads: the
// rows they cancel are locked and passed over by the others, and a unit goes back once whoever brings it.
type Returner struct {
	rows     CancelledOrders
	units    Units
	log      *slog.Logger
	counters *Counters
	age      time.Duration
	after    sale.OrderID // where the search for leftovers goes on
	turns    int
}

// NewReturner makes a Returner. Its counters and the logger may be nil.
func NewReturner(rows CancelledOrders, units Units, counters *Counters, log *slog.Logger) *Returner {
	if log == nil {
		log = slog.Default()
	}
	if counters == nil {
		counters = NewCounters(nil)
	}
	return &Returner{rows: rows, units: units, log: log, counters: counters, age: leftoverAge}
}

// Run takes a turn at once and then every so often, until ctx ends; it returns nil then. A failure is logged when it begins and when it is over.
func (r *Returner) Run(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	failing := false
	for {
		err := r.RunOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			r.log.Warn("unpaid orders or their units wait; trying again", "err", err, "every", every)
		case err == nil && failing:
			r.log.Info("unpaid orders are cancelled and their units sold again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// RunOnce takes one turn, of bounded work. What fails of it is left to a later turn, here or elsewhere. Errors wrap sale.ErrUnavailable.
func (r *Returner) RunOnce(ctx context.Context) error {
	r.turns++
	errs := []error{r.cancelOverdue(ctx), r.giveLeftovers(ctx)}
	if r.turns%tidyEvery == 1 {
		errs = append(errs, r.tidy(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("desk: returns: %w", err)
	}
	return nil
}

// cancelOverdue goes on cancelling when a unit cannot be given back: SQL comes first, and the unit is found again by its row.
func (r *Returner) cancelOverdue(ctx context.Context) error {
	var failed error
	for range returnBatches {
		cancelled, err := r.rows.CancelOverdue(ctx, returnBatch)
		if err != nil {
			return errors.Join(failed, err)
		}
		r.counters.cancelled.WithLabelValues("hold").Add(float64(len(cancelled)))
		if len(cancelled) > 0 && failed == nil {
			failed = r.giveBack(ctx, cancelled)
		}
		if len(cancelled) < returnBatch {
			return failed
		}
	}
	return failed
}

// giveLeftovers gives back what others have cancelled and did not live to give back, and what could not be given back before.
func (r *Returner) giveLeftovers(ctx context.Context) error {
	waiting := 0
	for range returnBatches {
		orders, err := r.rows.Returning(ctx, r.after, r.age, returnBatch)
		if err != nil {
			return err
		}
		err = r.giveBack(ctx, orders)
		if err != nil {
			waiting += len(orders)
		}
		if len(orders) < returnBatch { // the end: from the start again
			r.after = 0
			r.counters.returning.Set(float64(waiting))
			return err
		}
		r.after = orders[len(orders)-1].ID // also when these fail: one sale that cannot be reached does not keep the others waiting
		if err != nil {
			return err
		}
	}
	return nil
}

// giveBack gives the units of cancelled orders to Redis, and tells the rows. A sale that Redis does not hold is left for later: the reconcile loop loads it.
func (r *Returner) giveBack(ctx context.Context, orders []sale.Order) error {
	n, err := giveBack(ctx, r.rows, r.units, orders)
	r.counters.returned.Add(float64(n))
	return err
}

func giveBack(ctx context.Context, rows CancelledOrders, units Units, orders []sale.Order) (given int, err error) {
	bySale := map[string][]sale.Order{}
	for _, o := range orders {
		bySale[o.SaleID] = append(bySale[o.SaleID], o)
	}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(bySale)) {
		n, err := giveBackOf(ctx, rows, units, id, bySale[id])
		given += n
		errs = append(errs, err)
	}
	return given, errors.Join(errs...)
}

func giveBackOf(ctx context.Context, rows CancelledOrders, units Units, saleID string, orders []sale.Order) (given int, err error) {
	numbers, err := units.ReturnUnits(ctx, saleID, orders)
	if err != nil {
		return 0, err
	}
	returns, ids := make([]store.Return, len(orders)), make([]sale.OrderID, len(orders))
	for i, o := range orders {
		returns[i], ids[i] = store.Return{ID: o.ID, Number: numbers[i]}, o.ID
	}
	if err := rows.MarkReturned(ctx, returns); err != nil {
		return 0, err
	}
	return len(orders), units.ConfirmReturns(ctx, saleID, ids)
}

// tidy makes Redis forget the returns that rows know of and whose giver died before it could say so.
func (r *Returner) tidy(ctx context.Context) error {
	sales, err := r.units.List(ctx)
	if err != nil {
		return err
	}
	for _, s := range sales {
		ids, err := r.units.PendingReturns(ctx, s.ID)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			continue
		}
		known, err := r.rows.Returned(ctx, ids)
		if err != nil {
			return err
		}
		if err := r.units.ConfirmReturns(ctx, s.ID, known); err != nil {
			return err
		}
	}
	return nil
}
