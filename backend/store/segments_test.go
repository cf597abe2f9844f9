package store_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

func (e *env) createSpread(t *testing.T, id string, stock int64, segments int) {
	t.Helper()
	n := storetest.Sale(id, stock)
	n.Spread = segments
	if _, err := e.CreateSale(e.ctx, n); err != nil {
		t.Fatal(err)
	}
}

func (e *env) wantAllocations(t *testing.T, id string, want ...spread.Allocation) {
	t.Helper()
	if have, err := e.Allocations(e.ctx, id); err != nil || !slices.Equal(have, want) {
		t.Fatalf("allocations %v, %v; want %v", have, err, want)
	}
}

func TestSegmentsDivideTheStock(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.createSpread(t, "s", 8, 3)
		e.wantAllocations(t, "s", spread.Allocation{Units: 3, Version: 1}, spread.Allocation{Units: 3, Version: 1},
			spread.Allocation{Units: 2, Version: 1})
		if read, _, err := e.Sale(e.ctx, "s"); err != nil || read.Spread != 3 {
			t.Fatalf("spread %d, %v", read.Spread, err)
		}
		// The units of a restock follow the new version, 2: segments 2 and 0 get one each. Repeating it adds nothing.
		for range 2 {
			if _, err := e.Restock(e.ctx, "s", 2, "key"); err != nil {
				t.Fatal(err)
			}
		}
		e.wantAllocations(t, "s", spread.Allocation{Units: 4, Version: 2}, spread.Allocation{Units: 3, Version: 1},
			spread.Allocation{Units: 3, Version: 2})
	})
}

func TestSaleInOneShardHasNoSegments(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.createSpread(t, "one", 8, 1)
		e.wantAllocations(t, "one")
		if read, _, err := e.Sale(e.ctx, "one"); err != nil || read.Spread != 0 {
			t.Fatalf("spread %d, %v", read.Spread, err)
		}
		if _, err := e.Restock(e.ctx, "one", 2, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Allocations(e.ctx, "unknown"); !errors.Is(err, sale.ErrNotFound) {
			t.Fatalf("unknown sale: %v", err)
		}
		n, invalid := storetest.Sale("wide", 8), new(sale.InvalidError)
		for _, n.Spread = range []int{-1, sale.MaxSpread + 1} {
			if _, err := e.CreateSale(e.ctx, n); !errors.As(err, &invalid) {
				t.Fatalf("spread %d: %v", n.Spread, err)
			}
		}
	})
}

func TestCommitMovesUnitsOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.createSpread(t, "s", 10, 2)
		transfer := spread.Transfer{From: 1, To: 0, Units: 4, Version: 1}
		for range 2 {
			if _, err := e.Commit(e.ctx, "s", transfer); err != nil {
				t.Fatal(err)
			}
		}
		e.wantAllocations(t, "s", spread.Allocation{Units: 9, Version: 2}, spread.Allocation{Units: 1, Version: 2})
		transfer.Version = 2
		if _, err := e.Commit(e.ctx, "s", transfer); !errors.Is(err, store.ErrRejected) {
			t.Fatalf("a transfer of more units than the segment owns: %v", err)
		}
		e.wantAllocations(t, "s", spread.Allocation{Units: 9, Version: 2}, spread.Allocation{Units: 1, Version: 2})
		if _, err := e.Commit(e.ctx, "s", spread.Transfer{From: 0, To: 2, Units: 1, Version: 2}); !errors.Is(
			err, sale.ErrNotFound,
		) {
			t.Fatalf("a segment that does not exist: %v", err)
		}
		for _, bad := range []spread.Transfer{{From: 0, To: 0, Units: 1, Version: 2}, {From: 0, To: 1, Version: 2}} {
			if _, err := e.Commit(e.ctx, "s", bad); err == nil {
				t.Errorf("%+v was committed", bad)
			}
		}
	})
}

func TestClaimEndsTransfers(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.createSpread(t, "s", 10, 2)
		claimed, err := e.Claim(e.ctx, "s", 0)
		if err != nil || claimed != (spread.Allocation{Units: 5, Version: 2}) {
			t.Fatalf("claimed %+v, %v", claimed, err)
		}
		if _, err := e.Commit(e.ctx, "s", spread.Transfer{From: 0, To: 1, Units: 5, Version: 1}); err != nil {
			t.Fatal(err)
		}
		e.wantAllocations(t, "s", claimed, spread.Allocation{Units: 5, Version: 1})
		if _, err := e.Claim(e.ctx, "s", 2); !errors.Is(err, sale.ErrNotFound) {
			t.Fatalf("unknown segment: %v", err)
		}
	})
}

// Redis has applied a move that a restored database does not have. Repeating the call changes nothing.
func TestAllocationsOfRedisReplaceOlderOnes(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.createSpread(t, "s", 6, 2)
		applied := []spread.State{
			{Loaded: true, Version: 3, Units: 1, Left: 1}, {Loaded: true, Version: 2, Units: 5},
		}
		for range 2 {
			if err := e.RecoverAllocations(e.ctx, "s", applied); err != nil {
				t.Fatal(err)
			}
			e.wantAllocations(t, "s", spread.Allocation{Units: 1, Version: 4}, spread.Allocation{Units: 5, Version: 3})
		}
		if err := e.RecoverAllocations(e.ctx, "unknown", applied); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("unknown sale: %v", err)
		}
		if err := e.RecoverAllocations(e.ctx, "s", applied[:1]); !errors.Is(err, sale.ErrConflict) {
			t.Errorf("another number of segments: %v", err)
		}
	})
}

// Concurrent transfers in a circle, restocks and claims do not deadlock and lose no unit.
func TestConcurrentTransfersKeepTheStock(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		const segments, rounds = 4, 25
		e.createSpread(t, "s", 400, segments)
		var all sync.WaitGroup
		for from := range segments {
			all.Go(func() {
				for round := range rounds {
					now, err := e.Allocations(e.ctx, "s")
					if err == nil {
						to := (from + 1 + round%(segments-1)) % segments
						_, err = e.Commit(e.ctx, "s", spread.Transfer{From: from, To: to, Units: 1, Version: now[from].Version})
					}
					if err == nil && round%10 == 0 {
						_, err = e.Restock(e.ctx, "s", 3, "")
					}
					if err == nil && round%10 == 5 {
						_, err = e.Claim(e.ctx, "s", from)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		stored, _, err := e.Sale(e.ctx, "s")
		if err != nil {
			t.Fatal(err)
		}
		now, err := e.Allocations(e.ctx, "s")
		sum := int64(0)
		for _, a := range now {
			sum += a.Units
		}
		if err != nil || sum != stored.Stock || stored.Stock != 400+4*3*3 {
			t.Fatalf("allocations %v of stock %d, %v", now, stored.Stock, err)
		}
	})
}

// Rows are selected by the serials of a segment.
func TestRowsOfOneSegment(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.createSpread(t, "s", 10, 2)
		parts := spread.PartsOf(sale.Sale{ID: "s", Spread: 2})
		orders := storetest.Orders("s", 3)
		orders[1].Serial, orders[2].Serial = parts[1].Base()+1, parts[1].Base()+2
		e.write(t, orders...)
		for i, part := range append(parts, spread.Part{SaleID: "s"}) {
			want := [][]sale.Order{orders[:1], orders[1:], orders}[i]
			if found := e.ordersOf(t, part); !slices.Equal(idsOf(found), idsOf(want)) {
				t.Errorf("%+v: %v, want %v", part, found, want)
			}
			n, err := e.Count(e.ctx, part, store.Always, []sale.OrderID{orders[0].ID})
			if err != nil || n.Rows != int64(len(want)) || n.Total != 10 || n.Allocated != 10 || n.Sold != 3 {
				t.Errorf("%+v: %+v, %v", part, n, err)
			}
			if part.Spread > 1 && (n.Stock != 5 || n.Version != 1) || part.Spread == 0 && n.Stock != 10 {
				t.Errorf("%+v: %+v", part, n)
			}
		}
		at := store.Instant{Accepted: parts[1].Base() + 1, Returned: 0}
		if n, err := e.Count(e.ctx, parts[1], at, nil); err != nil || n.Rows != 1 || n.Last != parts[1].Base()+2 {
			t.Errorf("as of the first order of the segment: %+v, %v", n, err)
		}
		if _, err := e.Count(e.ctx, spread.Part{SaleID: "s", Segment: 2, Spread: 3}, store.Always, nil); !errors.Is(
			err, sale.ErrNotFound,
		) {
			t.Errorf("an unknown segment: %v", err)
		}
	})
}
