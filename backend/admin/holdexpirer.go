package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
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
	// confirmEvery is the number of successful calls of RunOnce after which confirmReturns is due again.
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
	waiting  int          // leftovers up to this position that could not be returned
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
	down := downShards{}
	errs := []error{h.cancelOverdue(ctx, down), h.returnLeftovers(ctx, down)}
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
func (h *HoldExpirer) cancelOverdue(ctx context.Context, down downShards) error {
	var failures []error
	for range returnBatches {
		cancelled, err := h.store.CancelOverdue(ctx, returnBatch)
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		h.counters.cancelled.WithLabelValues(byHold).Add(float64(len(cancelled)))
		_, err = returnUnits(ctx, h.store, h.stock, h.counters, down, cancelled)
		failures = append(failures, err)
		if len(cancelled) < returnBatch {
			break
		}
	}
	return errors.Join(failures...)
}

// returnLeftovers returns the units of cancelled orders that the cancelling process has not returned. It continues
// after a failure, so that one sale or shard does not block the others.
func (h *HoldExpirer) returnLeftovers(ctx context.Context, down downShards) error {
	var failures []error
	for range returnBatches {
		orders, err := h.store.Returning(ctx, h.after, h.age, returnBatch)
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		returned, err := returnUnits(ctx, h.store, h.stock, h.counters, down, orders)
		failures = append(failures, err)
		h.waiting += len(orders) - returned
		if len(orders) < returnBatch { // the last page: the next call begins at the start
			h.counters.returning.Set(float64(h.waiting))
			h.after, h.waiting = 0, 0
			break
		}
		h.after = orders[len(orders)-1].ID
	}
	return errors.Join(failures...)
}

// downShards are the shards that were unavailable during a run. They are not used again in the run, so that each delays
// it once.
type downShards map[keyspace.Shard]bool

// returnUnits returns the units of cancelled orders to Redis, marks their rows and counts them. It skips the orders of
// shards that are down, and adds shards to down. It also skips a sale that Redis does not hold and returns an error for
// it. The reconcile loop loads such a sale, and a later call returns its units.
func returnUnits(
	ctx context.Context, db Store, stock Stock, counters *Counters, down downShards, orders []sale.Order,
) (returned int, err error) {
	bySale := map[string][]sale.Order{}
	for _, o := range orders {
		bySale[o.SaleID] = append(bySale[o.SaleID], o)
	}
	var failures []error
	byPart, byShard := map[spread.Part][]sale.Order{}, map[keyspace.Shard][]spread.Part{}
	for _, id := range slices.Sorted(maps.Keys(bySale)) {
		k, err := stock.Spread(ctx, id)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		for _, o := range bySale[id] {
			home := spread.HomePart(id, o.Buyer, k)
			byPart[home] = append(byPart[home], o)
		}
		for _, part := range spread.PartsOf(sale.Sale{ID: id, Spread: k}) {
			if shard := stock.ShardOf(part); len(byPart[part]) > 0 && !down[shard] {
				byShard[shard] = append(byShard[shard], part)
			}
		}
	}
	var mu sync.Mutex
	failures = append(failures, inShards(byShard, func(shard keyspace.Shard, parts []spread.Part) error {
		n := 0
		isDown, err := untilDown(parts, func(part spread.Part) error {
			marked, err := returnUnitsOf(ctx, db, stock, part, byPart[part])
			n += marked
			return err
		})
		mu.Lock()
		defer mu.Unlock()
		returned += n
		down[shard] = isDown
		return err
	}))
	counters.returned.Add(float64(returned))
	return returned, errors.Join(failures...)
}

// returnUnitsOf is returnUnits for orders of one part of a sale. It may be repeated after an error: Redis keeps the
// numbers of returns until ConfirmReturns, and frees no unit a second time.
func returnUnitsOf(
	ctx context.Context, db Store, stock Stock, part spread.Part, orders []sale.Order,
) (returned int, err error) {
	numbers, err := stock.ReturnUnits(ctx, part, orders)
	if err != nil {
		return 0, err
	}
	returns := make([]store.Return, len(orders))
	for i, number := range numbers {
		returns[i] = store.Return{ID: orders[i].ID, Number: number}
	}
	if err := db.MarkReturned(ctx, returns); err != nil {
		return 0, err
	}
	return len(returns), stock.ConfirmReturns(ctx, part, orders)
}

// confirmReturns confirms the returns whose rows are marked and whose process crashed before it confirmed them, so
// that Redis deletes their numbers. A shard that is unavailable does not stop the others, and delays the call once.
func (h *HoldExpirer) confirmReturns(ctx context.Context) error {
	sales, err := h.stock.List(ctx)
	if err != nil {
		return err
	}
	byShard := map[keyspace.Shard][]spread.Part{}
	for _, s := range sales {
		for _, part := range spread.PartsOf(s.Sale) {
			shard := h.stock.ShardOf(part)
			byShard[shard] = append(byShard[shard], part)
		}
	}
	return inShards(byShard, func(_ keyspace.Shard, parts []spread.Part) error {
		_, err := untilDown(parts, func(part spread.Part) error { return h.confirmReturnsOf(ctx, part) })
		return err
	})
}

// confirmReturnsOf is confirmReturns for one part of a sale.
func (h *HoldExpirer) confirmReturnsOf(ctx context.Context, part spread.Part) error {
	ids, err := h.stock.PendingReturns(ctx, part)
	if err != nil || len(ids) == 0 {
		return err
	}
	marked, err := h.store.Returned(ctx, ids)
	if err != nil {
		return err
	}
	return h.stock.ConfirmReturns(ctx, part, marked)
}
