package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/backend/recovery/journal"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// tables are the queries of packages store and journal.
type tables struct {
	*store.DB
	*store.Sales
	*store.Orders
	*store.Payments
	*store.AdminLog
	*store.Generations
	*journal.Registry
}

func newTables(db *store.DB) *tables {
	return &tables{
		db, store.NewSales(db), store.NewOrders(db), store.NewPayments(db), store.NewAdminLog(db), store.NewGenerations(db),
		journal.NewRegistry(db),
	}
}

// faultyStore stands between a process and the order store. What it does not name goes to the store without faults:
// reads of the admin service that decide nothing.
type faultyStore struct {
	*tables
	p *process
}

// call makes one call that may be lost, or be carried out twice or late; do must be safe to run again after its
// caller is gone.
func (s faultyStore) call(what string, do func(ctx context.Context) error) error {
	return s.p.do(what, func() error { return do(context.Background()) }, func() error { return do(context.Background()) })
}

// Write rejects or fails for the orders of troublesome buyers, as a database would; any other rejection is a violation.
func (s faultyStore) Write(c context.Context, orders []sale.Order) error {
	batch := slices.Clone(orders)
	w := s.p.w
	refuse, err := w.trouble(s.p, batch)
	if refuse {
		return s.p.do(fmt.Sprintf("sql write %s", ids(batch)), func() error { return err }, func() error { return nil })
	}
	return s.call(fmt.Sprintf("sql write %s", ids(batch)), func(context.Context) error {
		w.touched.Store(true)
		err := s.tables.Write(context.WithoutCancel(c), batch) // it contains the generation of the orders
		if errors.Is(err, store.ErrRejected) {
			w.violate("SQL had to refuse what Redis had accepted: %v", err)
		}
		return err
	})
}

func (s faultyStore) CreateSale(_ context.Context, n sale.Sale) (got sale.Sale, err error) {
	err = s.call("sql create sale", func(ctx context.Context) (err error) {
		s.p.w.touched.Store(true)
		got, err = s.tables.CreateSale(ctx, n)
		return err
	})
	return got, err
}

func (s faultyStore) Sale(_ context.Context, id string) (got sale.Sale, sold int64, err error) {
	err = s.call("sql sale", func(ctx context.Context) (err error) { got, sold, err = s.tables.Sale(ctx, id); return err })
	return got, sold, err
}

func (s faultyStore) SaleSummaries(context.Context) (got []store.SaleSummary, err error) {
	err = s.call(
		"sql standings",
		func(ctx context.Context) (err error) { got, err = s.tables.SaleSummaries(ctx); return err },
	)
	return got, err
}

func (s faultyStore) SetSwitch(c context.Context, id string, to sale.Switch) (got sale.Sale, err error) {
	err = s.call("sql switch "+string(to), func(context.Context) (err error) {
		s.p.w.touched.Store(true)
		got, err = s.tables.SetSwitch(context.WithoutCancel(c), id, to)
		return err
	})
	return got, err
}

func (s faultyStore) Restock(c context.Context, id string, add int64, key string) (got sale.Sale, err error) {
	err = s.call("sql restock "+key, func(context.Context) (err error) {
		s.p.w.touched.Store(true)
		got, err = s.tables.Restock(context.WithoutCancel(c), id, add, key)
		return err
	})
	return got, err
}

func (s faultyStore) Order(_ context.Context, id sale.OrderID) (got sale.Order, err error) {
	err = s.call(
		"sql order "+short(id),
		func(ctx context.Context) (err error) { got, err = s.tables.Order(ctx, id); return err },
	)
	return got, err
}

func (s faultyStore) OrdersOf(_ context.Context, id string, yield func(sale.Order) error) error {
	var all []sale.Order
	err := s.call("sql orders of", func(ctx context.Context) error {
		all = nil
		return s.tables.OrdersOf(ctx, id, func(o sale.Order) error { all = append(all, o); return nil })
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

func (s faultyStore) CancelDead(c context.Context, o store.DeadOrder, actor, reason string) (was bool, err error) {
	err = s.call("sql cancel dead "+short(o.ID), func(context.Context) (err error) {
		s.p.w.touched.Store(true)
		// it contains the generation of the dead letter
		was, err = s.tables.CancelDead(context.WithoutCancel(c), o, actor, reason)
		return err
	})
	return was, err
}

func (s faultyStore) DropDead(c context.Context, o store.DeadOrder, actor, reason string, because error) error {
	return s.call("sql drop dead "+short(o.ID), func(context.Context) error {
		return s.tables.DropDead(context.WithoutCancel(c), o, actor, reason, because)
	})
}

func (s faultyStore) CancelOrder(
	_ context.Context,
	id sale.OrderID,
	actor, reason string,
) (o sale.Order, changed bool, err error) {
	err = s.call("sql cancel order "+short(id), func(ctx context.Context) (err error) {
		s.p.w.touched.Store(true)
		o, changed, err = s.tables.CancelOrder(ctx, id, actor, reason)
		return err
	})
	return o, changed, err
}

func (s faultyStore) CancelOverdue(_ context.Context, limit int) (got []sale.Order, err error) {
	err = s.call("sql cancel overdue", func(ctx context.Context) (err error) {
		s.p.w.touched.Store(true)
		got, err = s.tables.CancelOverdue(ctx, limit)
		return err
	})
	return got, err
}

func (s faultyStore) Pay(_ context.Context, p store.Payment) (settled store.Settlement, err error) {
	err = s.call(fmt.Sprintf("sql pay %s %s", short(p.OrderID), p.CallbackID), func(ctx context.Context) (err error) {
		s.p.w.touched.Store(true)
		settled, _, err = s.tables.Pay(ctx, p)
		return err
	})
	return settled, err
}

func (s faultyStore) Returning(
	_ context.Context,
	after sale.OrderID,
	age time.Duration,
	limit int,
) (got []sale.Order, err error) {
	err = s.call("sql returning", func(ctx context.Context) (err error) {
		got, err = s.tables.Returning(ctx, after, age, limit)
		return err
	})
	return got, err
}

func (s faultyStore) MarkReturned(_ context.Context, returns []store.Return) error {
	back := slices.Clone(returns)
	return s.call("sql mark returned", func(ctx context.Context) error {
		s.p.w.touched.Store(true)
		return s.tables.MarkReturned(ctx, back)
	})
}

func (s faultyStore) Returned(_ context.Context, among []sale.OrderID) (got []sale.OrderID, err error) {
	err = s.call(
		"sql returned",
		func(ctx context.Context) (err error) { got, err = s.tables.Returned(ctx, among); return err },
	)
	return got, err
}

func (s faultyStore) Count(
	_ context.Context,
	id string,
	at store.Instant,
	among []sale.OrderID,
) (got store.Count, err error) {
	err = s.call(
		"sql count",
		func(ctx context.Context) (err error) { got, err = s.tables.Count(ctx, id, at, among); return err },
	)
	return got, err
}

func (s faultyStore) Record(c context.Context, action, target, detail string) error {
	return s.call("sql record "+action, func(context.Context) error {
		return s.tables.Record(context.WithoutCancel(c), action, target, detail)
	})
}

func (s faultyStore) Statuses(_ context.Context, of []sale.OrderID) (got map[sale.OrderID]sale.Status, err error) {
	err = s.call(
		"sql statuses",
		func(ctx context.Context) (err error) { got, err = s.tables.Statuses(ctx, of); return err },
	)
	return got, err
}
