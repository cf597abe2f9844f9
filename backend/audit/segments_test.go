package audit_test

import (
	"context"
	"strings"
	"testing"

	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
)

// segmentCount is Redis with one segment.
type segmentCount struct {
	*admission.Stock
	admission.UnitCount
}

func (s segmentCount) CountShardUnits(
	_ context.Context, _ keyspace.Shard, ids []string,
) (map[string]*admission.UnitCount, error) {
	return map[string]*admission.UnitCount{ids[0]: &s.UnitCount}, nil
}

func (segmentCount) LastSerial(context.Context, spread.Part) (int64, error) { return 0, nil }

// segmentRows is SQL with one segment and no orders.
type segmentRows struct {
	*store.Store
	count store.Count
}

func (s segmentRows) Count(context.Context, spread.Part, store.Instant, []sale.OrderID) (store.Count, error) {
	return s.count, nil
}

// A segment of 5 units sends 2 units or receives 2. It balances at each step of the transfer, which Redis and SQL
// record one after the other.
func TestSegmentBalancesAtEachStepOfATransfer(t *testing.T) {
	for name, c := range map[string]struct {
		stock, left, out, allocation int64 // in Redis
		rows, version                int64 // stock and version in SQL
		inTransfer                   int64
		difference                   string // part of the report; empty: balanced
	}{
		"no transfer":                  {5, 5, 0, 1, 5, 1, 0, ""},
		"set apart in Redis":           {5, 3, 2, 1, 5, 1, 2, ""},
		"sent in SQL":                  {5, 3, 2, 1, 3, 2, 0, ""},
		"received in SQL":              {5, 5, 0, 1, 7, 2, 2, ""},
		"received, and 2 set apart":    {5, 3, 2, 1, 7, 2, 4, ""},
		"a unit set apart is missing":  {5, 3, 1, 1, 5, 1, 1, "stock is 5, and the parts add up to 4"},
		"2 units set apart are left":   {5, 5, 2, 1, 5, 1, 2, "stock is 5, and the parts add up to 7"},
		"applied, and SQL has lost it": {7, 7, 0, 2, 5, 1, -2, "SQL has lost changes"},
		"one version and two numbers":  {7, 7, 0, 1, 5, 1, -2, "version 1 of the allocation is 7 units in Redis and 5"},
	} {
		redis := segmentCount{UnitCount: admission.UnitCount{
			Loaded: true, Stock: c.stock, Left: c.left, Out: c.out, Allocation: c.allocation,
		}}
		sql := segmentRows{count: store.Count{Stock: c.rows, Version: c.version, Total: 9, Allocated: 9}}
		part := spread.Part{SaleID: "s", Segment: 0, Spread: 2}
		reports, err := audit.New(redis, sql).AuditShard(t.Context(), 0, []spread.Part{part})
		if err != nil {
			t.Fatal(err)
		}
		r := reports["s"]
		found := strings.Join(r.Differences, "; ")
		if r.InTransfer != c.inTransfer || r.Balanced != (c.difference == "") || !strings.Contains(found, c.difference) {
			t.Errorf("%s: in transfer %d, want %d; balanced %v: %s", name, r.InTransfer, c.inTransfer, r.Balanced, found)
		}
	}
}
