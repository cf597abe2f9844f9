// Package audit checks, while a sale runs, that every unit of the sale is in exactly one place:
//
//	stock = left + in transfer + ready + delayed + leased + ordered + dead
//
// A sale with several segments is audited segment by segment. The stock of a segment is its allocation in SQL. In
// transfer are the units of the outgoing transfer, and the change by a newer allocation that Redis has not applied. The
// terms are counted in units, each order once. left to leased and dead are in Redis, ordered is in SQL. An order
// that is a row counts as ordered even if its message or letter still exists. A cancelled row counts as ordered until
// its unit is back in Redis.
//
// The Checker reads Redis at one instant (a copy of the queue) and SQL afterwards. An order leaves Redis only after it
// is a row, so every order of that instant is found in one of the two. Later orders have a higher serial and are not
// counted; units that were returned later have a higher return number and count as ordered. Then the Checker reads the
// last serial that Redis has accepted: a row with a higher serial shows that Redis has lost data.
//
// The package changes neither store, except that it repairs the index of dead letters (admission.Stock.ReindexDead).
// The Auditor pauses a sale that does not balance through its caller.
package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"sluice/backend/admission"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
)

// Report holds the units of one sale, or of one segment of it.
type Report struct {
	SaleID     string `json:"sale_id"`
	Stock      int64  `json:"stock"`
	Left       int64  `json:"left"`
	InTransfer int64  `json:"in_transfer,omitempty"` // between segments; 0 for a sale in one shard
	Ready      int64  `json:"ready"`
	Delayed    int64  `json:"delayed"`
	Leased     int64  `json:"leased"`
	Ordered    int64  `json:"ordered"`
	Dead       int64  `json:"dead"`
	Returning  int64  `json:"returning"` // part of Ordered: cancelled orders; their unit is not back in Redis yet
	Unbacked   int64  `json:"unbacked"`  // dead letters that hold no unit; not part of the sum
	Balanced   bool   `json:"balanced"`  // Stock equals the sum of Left to Dead, and there are no Differences
	// Segments are the reports of the segments of a sale, by index; none for a sale in one shard.
	Segments []Report `json:"segments,omitempty"`
	// Archived reports that the orders are in files (package archive). Ordered is then their number, and Balanced compares
	// it with the number of units sold.
	Archived    bool     `json:"archived,omitempty"`
	Differences []string `json:"differences,omitempty"`
	// Orders are the orders that Explain found in the wrong place, if the sale does not balance.
	Orders []Difference `json:"orders,omitempty"`
}

// stock is the part of Redis that a Checker reads (admission.Stock).
type stock interface {
	CountUnits(ctx context.Context, of spread.Part) (admission.UnitCount, error)
	CountShardUnits(ctx context.Context, shard keyspace.Shard, ids []string) (map[string]*admission.UnitCount, error)
	ReindexDead(ctx context.Context, of spread.Part) (changed int64, err error)
	LastSerial(ctx context.Context, of spread.Part) (int64, error)
	Slots(ctx context.Context, of spread.Part, yield func(buyer string, slot int, id sale.OrderID)) error
	HaveSlots(ctx context.Context, orders []sale.Order) ([]bool, error)
}

// Rows is the part of SQL that a Checker reads (store.Store).
type Rows interface {
	SaleSummaries(ctx context.Context) ([]store.SaleSummary, error)
	Sale(ctx context.Context, id string) (def sale.Sale, sold int64, err error)
	Statuses(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error)
	OrdersOf(ctx context.Context, of spread.Part, yield func(sale.Order) error) error
	Count(ctx context.Context, of spread.Part, at store.Instant, among []sale.OrderID) (store.Count, error)
}

// Checker audits sales. It is safe for concurrent use.
type Checker struct {
	stock stock
	rows  Rows
}

// New returns a Checker over Redis and SQL.
func New(stock stock, rows Rows) *Checker { return &Checker{stock, rows} }

// Audit audits one sale, each segment at its own instant. If a part does not balance, Audit repairs the index of dead
// letters, counts the part again, and names the orders in the wrong place. Errors wrap sale.ErrNotFound or
// sale.ErrUnavailable.
func (c *Checker) Audit(ctx context.Context, saleID string) (Report, error) {
	def, _, err := c.rows.Sale(ctx, saleID)
	if err != nil {
		return Report{}, fmt.Errorf("audit: sale %s: %w", saleID, err)
	}
	parts := spread.PartsOf(def)
	reports := make([]Report, len(parts))
	for i, part := range parts {
		if reports[i], err = c.auditPart(ctx, part); err != nil {
			return Report{}, err
		}
	}
	if len(parts) == 1 {
		return reports[0], nil
	}
	return sum(saleID, reports), nil
}

// sum returns the report of a sale from those of its segments.
func sum(saleID string, segments []Report) Report {
	total := Report{SaleID: saleID, Balanced: true, Segments: segments}
	for i, r := range segments {
		total.Stock += r.Stock
		total.Left += r.Left
		total.InTransfer += r.InTransfer
		total.Ready += r.Ready
		total.Delayed += r.Delayed
		total.Leased += r.Leased
		total.Ordered += r.Ordered
		total.Dead += r.Dead
		total.Returning += r.Returning
		total.Unbacked += r.Unbacked
		total.Balanced = total.Balanced && r.Balanced
		for _, d := range r.Differences {
			total.differ("segment %d: %s", i, d)
		}
		total.Orders = append(total.Orders, r.Orders...)
	}
	return total
}

// auditPart audits one part of a sale.
func (c *Checker) auditPart(ctx context.Context, of spread.Part) (Report, error) {
	r, loaded, err := c.auditOne(ctx, of)
	if err != nil || r.Balanced || !loaded {
		return r, err
	}
	// The count repairs an index with fewer or more lines than letters. One with as many may have lines without a letter.
	changed, err := c.stock.ReindexDead(ctx, of)
	if err != nil {
		return Report{}, fmt.Errorf("audit: %w", err)
	}
	if changed > 0 {
		if r, loaded, err = c.auditOne(ctx, of); err != nil || r.Balanced || !loaded {
			return r, err
		}
	}
	if r.Orders, err = c.Explain(ctx, of); err != nil {
		r.differ("the orders in the wrong place could not be determined: %v", err)
	}
	return r, nil
}

func (c *Checker) auditOne(ctx context.Context, of spread.Part) (r Report, loaded bool, err error) {
	count, err := c.stock.CountUnits(ctx, of)
	if err != nil {
		return Report{}, false, fmt.Errorf("audit: %w", err)
	}
	r, err = c.report(ctx, of, &count)
	return r, count.Loaded, err
}

// AuditShard audits parts of several sales in one shard with one copy of its queue. The reports are by id of the sale.
// It does not name orders; see Explain. An error that does not concern others (see admission.ConcernsOthers) is of the
// sales without a report.
func (c *Checker) AuditShard(
	ctx context.Context, shard keyspace.Shard, parts []spread.Part,
) (map[string]Report, error) {
	ids := make([]string, len(parts))
	for i, part := range parts {
		ids[i] = part.SaleID
	}
	counts, failed := c.stock.CountShardUnits(ctx, shard, ids)
	if admission.ConcernsOthers(failed) {
		return nil, fmt.Errorf("audit: %w", failed)
	}
	parts = slices.DeleteFunc(slices.Clone(parts), func(p spread.Part) bool { return counts[p.SaleID] == nil })
	all, errs := make([]Report, len(parts)), make([]error, len(parts))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrentReports)
	for i, part := range parts {
		g.Go(func() error {
			all[i], errs[i] = c.report(ctx, part, counts[part.SaleID])
			if admission.ConcernsOthers(errs[i]) {
				return errs[i]
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	reports := make(map[string]Report, len(parts))
	for i, part := range parts {
		if errs[i] == nil {
			reports[part.SaleID] = all[i]
		}
	}
	return reports, errors.Join(failed, errors.Join(errs...))
}

// concurrentReports is the number of sales of a shard that are read from SQL concurrently: a rebuild waits for them.
// The default pool of PostgreSQL has at least four connections.
const concurrentReports = 3

// place is a part of the queue with the orders that a count found in it, and their units in the report.
type place struct {
	name   string
	orders []keyspace.Message
	units  *int64
}

// report adds the rows in SQL to a count of Redis.
func (c *Checker) report(ctx context.Context, of spread.Part, count *admission.UnitCount) (Report, error) {
	if !count.Loaded {
		return c.unloaded(ctx, of)
	}
	r := Report{SaleID: of.SaleID, Stock: count.Stock, Left: count.Left, Unbacked: count.Unbacked}
	places := []*place{
		{"ready", count.Ready, &r.Ready},
		{"delayed", count.Delayed, &r.Delayed},
		{"leased", count.Leased, &r.Leased},
		{"dead", count.Dead, &r.Dead},
	}
	at := r.locate(places)
	instant := store.Instant{
		Accepted: of.Base() + count.Accepted, Returned: count.LastReturn, Unrecorded: count.Returned,
	}
	rows, err := c.rows.Count(ctx, of, instant, slices.Collect(maps.Keys(at)))
	if err != nil {
		return Report{}, fmt.Errorf("audit: %w", err)
	}
	r.compareAllocation(of, count, rows)
	last, err := c.stock.LastSerial(ctx, of)
	if errors.Is(err, sale.ErrNotFound) {
		return c.unloaded(ctx, of)
	}
	if err != nil {
		return Report{}, fmt.Errorf("audit: %w", err)
	}
	if rows.Last > last {
		r.differ("SQL has an order with serial %d, and Redis has accepted %d: Redis has lost orders that are rows",
			rows.Last, last)
	}
	r.Returning = rows.Returning
	r.Ordered = rows.Rows + rows.Returning
	for _, id := range rows.Among {
		delete(at, id) // a row that the worker has not acknowledged yet
	}
	for _, p := range at {
		*p.units++
	}
	if sum := r.Left + r.InTransfer + r.Ready + r.Delayed + r.Leased + r.Ordered + r.Dead; sum != r.Stock {
		r.differ("stock is %d, and the parts add up to %d", r.Stock, sum)
	}
	if r.Left < 0 {
		r.differ("left is %d", r.Left)
	}
	r.Balanced = len(r.Differences) == 0
	return r, nil
}

// locate returns the place of each order. An order in two places is a difference.
func (r *Report) locate(places []*place) map[sale.OrderID]*place {
	at := map[sale.OrderID]*place{}
	for _, p := range places {
		for _, o := range p.orders {
			if other, twice := at[o.ID]; twice {
				r.differ("order %s is in %s and in %s", o.ID, other.name, p.name)
				continue
			}
			at[o.ID] = p
		}
	}
	return at
}

// differ adds a difference.
func (r *Report) differ(format string, args ...any) {
	r.Differences = append(r.Differences, fmt.Sprintf(format, args...))
}

// compareAllocation sets the stock and the units in transfer of a segment.
func (r *Report) compareAllocation(of spread.Part, count *admission.UnitCount, rows store.Count) {
	if of.Spread < 2 {
		return
	}
	r.Stock = rows.Stock
	r.InTransfer = count.Out + rows.Stock - count.Stock
	switch {
	case count.Allocation > rows.Version:
		r.differ("Redis has version %d of the allocation, and SQL has %d: SQL has lost changes",
			count.Allocation, rows.Version)
	case count.Allocation == rows.Version && count.Stock != rows.Stock:
		r.differ("version %d of the allocation is %d units in Redis and %d in SQL", rows.Version, count.Stock, rows.Stock)
	}
	if rows.Allocated != rows.Total {
		r.differ("the stock of the sale is %d, and the allocations of its segments add up to %d", rows.Total, rows.Allocated)
	}
}

// unloaded returns the report of a part of a sale that Redis does not hold. A sale that SQL does not have either was
// removed: it has no units, and must not end the audit of others.
func (c *Checker) unloaded(ctx context.Context, of spread.Part) (Report, error) {
	def, sold, err := c.rows.Sale(ctx, of.SaleID)
	if errors.Is(err, sale.ErrNotFound) {
		return Report{SaleID: of.SaleID, Balanced: true}, nil
	}
	if err != nil {
		return Report{}, fmt.Errorf("audit: sale %s: %w", of.SaleID, err)
	}
	r := Report{
		SaleID: of.SaleID, Stock: def.Stock, Ordered: sold,
		Differences: []string{"Redis does not hold this sale; a backend loads it when both stores are available"},
	}
	if of.Spread > 1 {
		rows, err := c.rows.Count(ctx, of, store.Always, nil)
		if err != nil {
			return Report{}, fmt.Errorf("audit: %w", err)
		}
		r.Stock, r.Ordered = rows.Stock, rows.Rows
		r.Differences[0] = "Redis does not hold this segment; a backend loads it when both stores are available"
	}
	return r, nil
}
