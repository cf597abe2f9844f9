// Package ledger proves the count of a sale: every unit is in exactly one place, at one instant, while the sale runs.
// It reads Redis and SQL and changes neither, but for a list that can be made again: see admission.Stock.ListDead.
package audit

import (
	"context"
	"errors"
	"fmt"

	"sluice/backend/admission"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// Report is the count of one sale in units, each order counted once: an order that is a row counts as ordered wherever else it still is. A cancelled row
// counts as ordered until its unit is back in Redis, and from then on the unit is left.
type Report struct {
	SaleID      string   `json:"sale_id"`
	Stock       int64    `json:"stock"`
	Left        int64    `json:"left"`
	Ready       int64    `json:"ready"`
	Delayed     int64    `json:"delayed"`
	Leased      int64    `json:"leased"`
	Ordered     int64    `json:"ordered"`
	Dead        int64    `json:"dead"`
	Returning   int64    `json:"returning"` // of the ordered: cancelled, and the unit is on its way back
	Unbacked    int64    `json:"unbacked"`  // dead letters that hold no unit; no part of the sum
	Balanced    bool     `json:"balanced"`  // Stock is the sum of left to dead, and Differences is empty
	Differences []string `json:"differences,omitempty"`
	// Orders are those that Explain found where they should not be, when the count does not balance.
	Orders []Difference `json:"orders,omitempty"`
}

type stock interface {
	censuses
	LastSerial(ctx context.Context, saleID string) (int64, error)
	Places(ctx context.Context, saleID string, yield func(buyer string, nth int, id sale.OrderID)) error
	HaveSlots(ctx context.Context, orders []sale.Order) ([]bool, error)
}

type censuses interface {
	CountUnits(ctx context.Context, saleID string) (admission.UnitCount, error)
	CountShardUnits(ctx context.Context, shard keyspace.Shard, ids []string) (map[string]*admission.UnitCount, error)
	ReindexDead(ctx context.Context, saleID string) (changed int64, err error)
}

type rows interface {
	Statuses(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error)
	OrdersOf(ctx context.Context, saleID string, yield func(sale.Order) error) error
	Count(ctx context.Context, saleID string, at store.Instant, among []sale.OrderID) (store.Count, error)
	Sale(ctx context.Context, id string) (def sale.Sale, sold int64, err error)
}

// Ledger audits sales. It is safe for concurrent use.
type Checker struct {
	stock stock
	rows  rows
}

// New makes a Ledger over Redis and SQL.
func New(stock stock, rows rows) *Checker { return &Checker{stock, rows} }

// Audit counts one sale. Errors wrap sale.ErrNotFound or sale.ErrUnavailable.
//
// Redis is read first, at one instant, and SQL after it. An order leaves Redis only when it is a row, so each order of that instant is
// found in one of them; orders accepted after it have a higher serial and are not counted. A unit that was given back after it has a higher number than the
// last return of that instant, and is counted where it was then: with the orders. Then Redis is asked again how far it has come: a row with
// a serial beyond that was never accepted by this Redis, which has lost what it knew.
func (l *Checker) Audit(ctx context.Context, saleID string) (Report, error) {
	r, loaded, err := l.countOne(ctx, saleID)
	if err != nil || r.Balanced || !loaded {
		return r, err
	}
	changed, err := l.stock.ReindexDead(ctx, saleID) // a process of an older version may have moved a dead letter, and the census did not see it
	if err != nil {
		return Report{}, fmt.Errorf("ledger: %w", err)
	}
	if changed > 0 {
		if r, loaded, err = l.countOne(ctx, saleID); err != nil || r.Balanced || !loaded {
			return r, err
		}
	}
	if r.Orders, err = l.Explain(ctx, saleID); err != nil {
		r.Differences = append(r.Differences, "which orders are at fault could not be found out: "+err.Error())
	}
	return r, nil
}

func (l *Checker) countOne(ctx context.Context, saleID string) (r Report, loaded bool, err error) {
	census, err := l.stock.CountUnits(ctx, saleID)
	if err != nil {
		return Report{}, false, fmt.Errorf("ledger: %w", err)
	}
	r, err = l.audit(ctx, saleID, &census)
	return r, census.Loaded, err
}

// AuditShard counts several sales of one shard, with one look into its queue. It names no orders: see Explain.
func (l *Checker) AuditShard(ctx context.Context, shard keyspace.Shard, ids []string) (map[string]Report, error) {
	censuses, err := l.stock.CountShardUnits(ctx, shard, ids)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	reports := make(map[string]Report, len(ids))
	for id, census := range censuses {
		if reports[id], err = l.audit(ctx, id, census); err != nil {
			return nil, err
		}
	}
	return reports, nil
}

// audit finishes what a census has begun.
func (l *Checker) audit(ctx context.Context, saleID string, census *admission.UnitCount) (Report, error) {
	if !census.Loaded {
		return l.unloaded(ctx, saleID)
	}

	r := Report{SaleID: saleID, Stock: census.Stock, Left: census.Left, Unbacked: census.Unbacked}
	places := []struct {
		name   string
		orders []keyspace.Message
		count  *int64
	}{
		{"ready", census.Ready, &r.Ready},
		{"delayed", census.Delayed, &r.Delayed},
		{"leased", census.Leased, &r.Leased},
		{"dead", census.Dead, &r.Dead},
	}
	at := map[sale.OrderID]string{}
	var ids []sale.OrderID
	for _, p := range places {
		for _, o := range p.orders {
			if other, twice := at[o.ID]; twice {
				r.Differences = append(r.Differences, fmt.Sprintf("order %s is in %s and in %s", o.ID, other, p.name))
				continue
			}
			at[o.ID] = p.name
			ids = append(ids, o.ID)
		}
	}

	count, err := l.rows.Count(ctx, saleID, store.Instant{Accepted: census.Accepted, Returned: census.LastReturn, Unrecorded: census.Returned}, ids)
	if err != nil {
		return Report{}, fmt.Errorf("ledger: %w", err)
	}
	later, err := l.stock.LastSerial(ctx, saleID)
	if errors.Is(err, sale.ErrNotFound) {
		return l.unloaded(ctx, saleID)
	}
	if err != nil {
		return Report{}, fmt.Errorf("ledger: %w", err)
	}
	if count.Last > later {
		r.Differences = append(r.Differences, fmt.Sprintf(
			"SQL has an order with serial %d, and Redis has accepted %d: Redis has lost orders that are rows", count.Last, later))
	}
	r.Returning = count.Returning
	r.Ordered = count.Rows + count.Returning
	for _, id := range count.Among {
		delete(at, id) // committed, and not acknowledged yet; perhaps cancelled since
	}
	for _, p := range places {
		for _, o := range p.orders {
			if at[o.ID] == p.name {
				*p.count++
				delete(at, o.ID)
			}
		}
	}

	if sum := r.Left + r.Ready + r.Delayed + r.Leased + r.Ordered + r.Dead; sum != r.Stock {
		r.Differences = append(r.Differences, fmt.Sprintf("stock is %d, and what was found adds up to %d", r.Stock, sum))
	}
	if r.Left < 0 {
		r.Differences = append(r.Differences, fmt.Sprintf("left is %d", r.Left))
	}
	r.Balanced = len(r.Differences) == 0
	return r, nil
}

// unloaded is the report on a sale that SQL has and Redis does not.
func (l *Checker) unloaded(ctx context.Context, saleID string) (Report, error) {
	def, sold, err := l.rows.Sale(ctx, saleID)
	if errors.Is(err, sale.ErrNotFound) {
		return Report{}, fmt.Errorf("ledger: sale %s: %w", saleID, err)
	}
	if err != nil {
		return Report{}, fmt.Errorf("ledger: %w", err)
	}
	return Report{
		SaleID: saleID, Stock: def.Stock, Ordered: sold,
		Differences: []string{"Redis does not hold this sale; a backend loads it as soon as it can reach both stores"},
	}, nil
}
