package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/internal/loop"
)

const (
	// returnBatch is the number of orders that one step cancels or returns.
	returnBatch = 500
	// returnBatches bounds the steps of one RunOnce. The next one continues.
	returnBatches = 20
	// leftoverAge is how old a cancelled order is before a process other than the one that cancelled it returns its unit.
	leftoverAge = 2 * time.Second
	// confirmEvery is the number of successful calls of RunOnce from one pass over unconfirmed returns to the next.
	confirmEvery = 60
)

// HoldExpirer cancels orders that were not paid within their hold, and returns the units of cancelled orders to
// Redis. Any number of processes may run one, without a leader: the rows that one cancels are locked and skipped by
// the others, and each unit is returned once.
type HoldExpirer struct {
	store    Store
	stock    Stock
	log      *slog.Logger
	counters *Counters
	age      time.Duration
	after    sale.OrderID // position of the search for leftovers
	turns    int          // successful calls of RunOnce
}

// NewHoldExpirer returns a HoldExpirer.
func NewHoldExpirer(cfg Config) *HoldExpirer {
	cfg.setDefaults()
	return &HoldExpirer{store: cfg.Store, stock: cfg.Stock, log: cfg.Log, counters: cfg.Counters, age: leftoverAge}
}

// Run calls RunOnce at every tick of interval until ctx ends, and then returns nil. It logs when failures begin and
// end.
func (h *HoldExpirer) Run(ctx context.Context, interval time.Duration) error {
	loop.Repeat(ctx, interval, h.log, "cancelling unpaid orders or returning their units",
		func() error { return h.RunOnce(ctx) })
	return nil
}

// RunOnce does a bounded amount of work. A later call, here or in another process, retries what failed. Errors wrap
// sale.ErrUnavailable.
func (h *HoldExpirer) RunOnce(ctx context.Context) error {
	errs := []error{h.cancelOverdue(ctx), h.returnLeftovers(ctx)}
	if h.turns%confirmEvery == 0 {
		errs = append(errs, h.confirmReturns(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("admin: expire holds: %w", err)
	}
	h.turns++
	return nil
}

// cancelOverdue continues to cancel if units cannot be returned, because returnLeftovers finds them later.
func (h *HoldExpirer) cancelOverdue(ctx context.Context) error {
	var failed error
	for range returnBatches {
		cancelled, err := h.store.CancelOverdue(ctx, returnBatch)
		if err != nil {
			return errors.Join(failed, err)
		}
		h.counters.cancelled.WithLabelValues(byHold).Add(float64(len(cancelled)))
		if len(cancelled) > 0 && failed == nil {
			failed = returnUnits(ctx, h.store, h.stock, h.counters, cancelled)
		}
		if len(cancelled) < returnBatch {
			return failed
		}
	}
	return failed
}

// returnLeftovers returns the units of cancelled orders that the cancelling process has not returned.
func (h *HoldExpirer) returnLeftovers(ctx context.Context) error {
	waiting := 0
	for range returnBatches {
		orders, err := h.store.Returning(ctx, h.after, h.age, returnBatch)
		if err != nil {
			return err
		}
		err = returnUnits(ctx, h.store, h.stock, h.counters, orders)
		if err != nil {
			waiting += len(orders)
		}
		if len(orders) < returnBatch { // the last page: the next call begins at the start
			h.after = 0
			h.counters.returning.Set(float64(waiting))
			return err
		}
		h.after = orders[len(orders)-1].ID // also after a failure, so that one sale does not block the others
		if err != nil {
			return err
		}
	}
	return nil
}

// returnUnits returns the units of cancelled orders to Redis, marks their rows and counts them. It skips a sale that
// Redis does not hold, with an error: the reconcile loop loads it.
func returnUnits(ctx context.Context, db Store, stock Stock, counters *Counters, orders []sale.Order) error {
	bySale := map[string][]sale.Order{}
	for _, o := range orders {
		bySale[o.SaleID] = append(bySale[o.SaleID], o)
	}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(bySale)) {
		n, err := returnUnitsOf(ctx, db, stock, id, bySale[id])
		counters.returned.Add(float64(n))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func returnUnitsOf(
	ctx context.Context, db Store, stock Stock, saleID string, orders []sale.Order,
) (returned int, err error) {
	numbers, err := stock.ReturnUnits(ctx, saleID, orders)
	var returns []store.Return
	var back []sale.Order
	for i, number := range numbers {
		if number >= 0 { // also after an error, which concerns other shards
			returns, back = append(returns, store.Return{ID: orders[i].ID, Number: number}), append(back, orders[i])
		}
	}
	if len(returns) == 0 {
		return 0, err
	}
	if markErr := db.MarkReturned(ctx, returns); markErr != nil {
		return 0, errors.Join(err, markErr)
	}
	return len(returns), errors.Join(err, stock.ConfirmReturns(ctx, saleID, back))
}

// confirmReturns confirms the returns whose rows are marked and whose process crashed before it confirmed them, so
// that Redis deletes their numbers. A shard that is unavailable does not stop the others.
func (h *HoldExpirer) confirmReturns(ctx context.Context) error {
	sales, err := h.stock.List(ctx)
	if err != nil {
		return err
	}
	var failures []error
	for _, s := range sales {
		ids, err := h.stock.PendingReturns(ctx, s.ID)
		failures = append(failures, err)
		if len(ids) == 0 {
			continue
		}
		marked, err := h.store.Returned(ctx, ids)
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		failures = append(failures, h.stock.ConfirmReturns(ctx, s.ID, marked))
	}
	return errors.Join(failures...)
}
