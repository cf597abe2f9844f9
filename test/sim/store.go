package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/backend/recovery/journal"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
)

// tables are the queries of packages store and journal.
type tables struct {
	*store.Store
	*journal.Registry
}

func newTables(db *store.DB) *tables { return &tables{store.New(db), journal.NewRegistry(db)} }

// faultyStore adds faults to the calls from a process to the order store. Calls that it does not override have no
// faults: reads of the admin service that decide nothing.
type faultyStore struct {
	*tables
	p *process
}

// do makes one call that may be lost, or be executed twice or late; call must be safe to run again after its caller has
// ended. The values of c are kept: they contain the generation of the orders.
func (s faultyStore) do(c context.Context, what string, call func(ctx context.Context) error) error {
	again := func() error { return call(context.WithoutCancel(c)) }
	return s.p.do("sql "+what, again, again)
}

// read makes a call that changes nothing.
func read[T any](
	s faultyStore, c context.Context, what string, call func(ctx context.Context) (T, error),
) (got T, err error) {
	err = s.do(c, what, func(ctx context.Context) (err error) { got, err = call(ctx); return err })
	return got, err
}

// change makes a call after which the rows are checked again.
func change[T any](
	s faultyStore, c context.Context, what string, call func(ctx context.Context) (T, error),
) (got T, err error) {
	return read(s, c, what, func(ctx context.Context) (T, error) {
		s.p.w.touched.Store(true)
		return call(ctx)
	})
}

// Write rejects or fails for the orders of troublesome buyers, as a database would; any other rejection is a violation.
func (s faultyStore) Write(c context.Context, orders []sale.Order) error {
	batch := slices.Clone(orders)
	w := s.p.w
	if refuse, err := w.trouble(s.p, batch); refuse {
		return s.p.do("sql write "+ids(batch), func() error { return err }, func() error { return nil })
	}
	return s.do(c, "write "+ids(batch), func(ctx context.Context) error {
		w.touched.Store(true)
		err := s.tables.Write(ctx, batch)
		if errors.Is(err, store.ErrRejected) {
			w.violate("SQL rejected orders that Redis had accepted: %v", err)
		}
		return err
	})
}

func (s faultyStore) CreateSale(c context.Context, n sale.Sale) (sale.Sale, error) {
	return change(s, c, "create sale", func(ctx context.Context) (sale.Sale, error) { return s.tables.CreateSale(ctx, n) })
}

func (s faultyStore) Sale(c context.Context, id string) (got sale.Sale, sold int64, err error) {
	err = s.do(c, "sale", func(ctx context.Context) (err error) { got, sold, err = s.tables.Sale(ctx, id); return err })
	return got, sold, err
}

func (s faultyStore) SaleSummaries(c context.Context) ([]store.SaleSummary, error) {
	return read(s, c, "standings", s.tables.SaleSummaries)
}

func (s faultyStore) SetSwitch(c context.Context, id string, to sale.Switch) (sale.Sale, error) {
	return change(s, c, "switch "+string(to), func(ctx context.Context) (sale.Sale, error) {
		return s.tables.SetSwitch(ctx, id, to)
	})
}

func (s faultyStore) Restock(c context.Context, id string, add int64, key string) (sale.Sale, error) {
	return change(s, c, "restock "+key, func(ctx context.Context) (sale.Sale, error) {
		return s.tables.Restock(ctx, id, add, key)
	})
}

func (s faultyStore) Order(c context.Context, id sale.OrderID) (sale.Order, error) {
	return read(s, c, "order "+short(id), func(ctx context.Context) (sale.Order, error) { return s.tables.Order(ctx, id) })
}

func (s faultyStore) OrdersOf(c context.Context, of spread.Part, yield func(sale.Order) error) error {
	all, err := read(s, c, "orders of", func(ctx context.Context) (all []sale.Order, err error) {
		err = s.tables.OrdersOf(ctx, of, func(o sale.Order) error { all = append(all, o); return nil })
		return all, err
	})
	if err != nil {
		return err
	}
	for _, o := range all {
		if err := yield(o); err != nil {
			return err
		}
	}
	return nil
}

func (s faultyStore) CancelDead(c context.Context, o store.DeadOrder) (was bool, err error) {
	return change(s, c, "cancel dead "+short(o.ID), func(ctx context.Context) (bool, error) {
		return s.tables.CancelDead(ctx, o)
	})
}

func (s faultyStore) DropDead(c context.Context, o store.DeadOrder, because error) error {
	return s.do(c, "drop dead "+short(o.ID), func(ctx context.Context) error {
		return s.tables.DropDead(ctx, o, because)
	})
}

func (s faultyStore) CancelOrder(c context.Context, id sale.OrderID) (o sale.Order, changed bool, err error) {
	err = s.do(c, "cancel order "+short(id), func(ctx context.Context) (err error) {
		s.p.w.touched.Store(true)
		o, changed, err = s.tables.CancelOrder(ctx, id)
		return err
	})
	return o, changed, err
}

func (s faultyStore) CancelOverdue(c context.Context, limit int) ([]sale.Order, error) {
	return change(s, c, "cancel overdue", func(ctx context.Context) ([]sale.Order, error) {
		return s.tables.CancelOverdue(ctx, limit)
	})
}

func (s faultyStore) Pay(c context.Context, p store.Payment) (store.Settlement, error) {
	return change(s, c, "pay "+short(p.OrderID)+" "+p.CallbackID, func(ctx context.Context) (store.Settlement, error) {
		settled, _, err := s.tables.Pay(ctx, p)
		return settled, err
	})
}

func (s faultyStore) Returning(
	c context.Context,
	after sale.OrderID,
	age time.Duration,
	limit int,
) ([]sale.Order, error) {
	return read(s, c, "returning", func(ctx context.Context) ([]sale.Order, error) {
		return s.tables.Returning(ctx, after, age, limit)
	})
}

func (s faultyStore) MarkReturned(c context.Context, returns []store.Return) error {
	back := slices.Clone(returns)
	return s.do(c, "mark returned", func(ctx context.Context) error {
		s.p.w.touched.Store(true)
		return s.tables.MarkReturned(ctx, back)
	})
}

func (s faultyStore) Returned(c context.Context, among []sale.OrderID) ([]sale.Order, error) {
	return read(s, c, "returned",
		func(ctx context.Context) ([]sale.Order, error) { return s.tables.Returned(ctx, among) })
}

func (s faultyStore) Allocations(c context.Context, id string) ([]spread.Allocation, error) {
	return read(s, c, "allocations", func(ctx context.Context) ([]spread.Allocation, error) {
		return s.tables.Allocations(ctx, id)
	})
}

func (s faultyStore) RecoverAllocations(c context.Context, id string, applied []spread.State) error {
	return s.do(c, "recover allocations "+id,
		func(ctx context.Context) error { return s.tables.RecoverAllocations(ctx, id, applied) })
}

func (s faultyStore) LastReturn(c context.Context, id string) (int64, error) {
	return read(s, c, "last return", func(ctx context.Context) (int64, error) { return s.tables.LastReturn(ctx, id) })
}

func (s faultyStore) Commit(c context.Context, id string, t spread.Transfer) ([]spread.Allocation, error) {
	what := fmt.Sprintf("commit %s %d>%d %d", id, t.From, t.To, t.Units)
	return change(s, c, what, func(ctx context.Context) ([]spread.Allocation, error) {
		return s.tables.Commit(ctx, id, t)
	})
}

func (s faultyStore) Claim(c context.Context, id string, segment int) (spread.Allocation, error) {
	return change(s, c, fmt.Sprintf("claim %s %d", id, segment), func(ctx context.Context) (spread.Allocation, error) {
		return s.tables.Claim(ctx, id, segment)
	})
}

func (s faultyStore) Count(
	c context.Context,
	of spread.Part,
	at store.Instant,
	among []sale.OrderID,
) (store.Count, error) {
	return read(s, c, "count",
		func(ctx context.Context) (store.Count, error) { return s.tables.Count(ctx, of, at, among) })
}

func (s faultyStore) Record(c context.Context, action, target, detail string) error {
	return s.do(c, "record "+action,
		func(ctx context.Context) error { return s.tables.Record(ctx, action, target, detail) })
}

func (s faultyStore) LogRetry(c context.Context, o sale.Order, failure string) error {
	return s.do(c, "log retry", func(ctx context.Context) error { return s.tables.LogRetry(ctx, o, failure) })
}

func (s faultyStore) Statuses(c context.Context, of []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	return read(s, c, "statuses", func(ctx context.Context) (map[sale.OrderID]sale.Status, error) {
		return s.tables.Statuses(ctx, of)
	})
}

func (s faultyStore) Recorded(c context.Context, of []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	return read(s, c, "recorded", func(ctx context.Context) (map[sale.OrderID]sale.Status, error) {
		return s.tables.Recorded(ctx, of)
	})
}

// Generation is part of a guard's check; see isLook.
func (s faultyStore) Generation(_ context.Context, shard int) (deployment, n int64, err error) {
	err = s.p.look(fmt.Sprint("generation ", shard), func() (err error) {
		deployment, n, err = s.tables.Generation(context.Background(), shard)
		return err
	})
	return deployment, n, err
}

// Journals is polled while a rebuild waits, so it counts as a read without effects.
func (s faultyStore) Journals(_ context.Context, shard int) (got []journal.Status, err error) {
	err = s.p.look(fmt.Sprint("journals ", shard), func() (err error) {
		got, err = s.tables.Journals(context.Background(), shard)
		return err
	})
	return got, err
}

func (s faultyStore) NextFence(c context.Context, above int64) (int64, error) {
	return read(s, c, "next fence", func(ctx context.Context) (int64, error) { return s.tables.NextFence(ctx, above) })
}

func (s faultyStore) BeginGeneration(c context.Context, shard int, fence int64) error {
	return s.do(c, "begin generation", func(ctx context.Context) error {
		return s.tables.BeginGeneration(ctx, shard, fence)
	})
}

func (s faultyStore) Heartbeat(c context.Context, id string, shard int, generation int64) error {
	return s.do(c, "heartbeat", func(ctx context.Context) error {
		return s.tables.Heartbeat(ctx, id, shard, generation)
	})
}
