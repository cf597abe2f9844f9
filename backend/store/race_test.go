package store_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

func TestWriteOverlappingBatchesConcurrently(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		const writers, each = 4, 60
		e.create(t, "s", 1000)
		all := storetest.Orders("s", writers*each)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() { // each writer writes all orders, shuffled and split differently
				mine := slices.Clone(all)
				random := rand.New(rand.NewPCG(uint64(w), 1))
				random.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
				for batch := range slices.Chunk(mine, 7+w*5) {
					if err := e.Write(e.ctx, batch); err != nil {
						t.Errorf("writer %d: %v", w, err)
					}
				}
			})
		}
		wg.Wait()
		e.wantRows(t, "s", writers*each)
	})
}

func TestWriteSalesInAnyOrderConcurrently(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		const sales, writers, rounds, each = 5, 4, 12, 3
		for i := range sales {
			e.create(t, "s"+strconv.Itoa(i), writers*rounds*each)
		}
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(w), 2))
				for range rounds {
					var batch []sale.Order
					for _, i := range random.Perm(sales) {
						batch = append(batch, storetest.Orders("s"+strconv.Itoa(i), each)...)
					}
					if err := e.Write(e.ctx, batch); err != nil { // a deadlock would be ErrUnavailable
						t.Errorf("writer %d: %v", w, err)
					}
				}
			})
		}
		wg.Wait()
		for i := range sales {
			e.wantRows(t, "s"+strconv.Itoa(i), writers*rounds*each)
		}
	})
}

func TestWriteNeverOversellsConcurrently(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		const stock, writers = 50, 6
		e.create(t, "s", stock)
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for range stock {
					if err := e.Write(e.ctx, storetest.Orders("s", 1)); err != nil && !errors.Is(err, store.ErrRejected) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		e.wantRows(t, "s", stock)
	})
}

func TestWriteInterruptedIsAllOrNothing(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		const rounds, each = 40, 50
		e.create(t, "s", 2*rounds*each)
		random := rand.New(rand.NewPCG(1, 3))
		complete, absent := 0, 0
		typical := time.Duration(0)
		for round := range rounds {
			batch := storetest.Orders("s", each)
			ctx, cancel := context.WithCancel(e.ctx)
			if round > 5 { // typical is measured
				after := time.Duration(random.Int64N(int64(typical) * 3 / 2))
				timer := time.AfterFunc(after, cancel)
				defer timer.Stop()
			}
			start := time.Now()
			err := e.Write(ctx, batch)
			if round <= 5 {
				typical = max(time.Since(start), time.Microsecond)
			}
			cancel()
			if err != nil && !errors.Is(err, sale.ErrUnavailable) {
				t.Fatalf("interrupted: %v", err)
			}
			ids := make([]sale.OrderID, each)
			for i, o := range batch {
				ids[i] = o.ID
			}
			rows, serr := e.Statuses(e.ctx, ids)
			switch {
			case serr != nil:
				t.Fatal(serr)
			case len(rows) == each:
				complete++
			case len(rows) == 0 && err != nil:
				absent++
				e.write(t, batch...) // like the next worker; the server may still be executing the first attempt
			default:
				t.Fatalf("%d of %d orders are rows after an interrupted write (%v)", len(rows), each, err)
			}
		}
		e.wantRows(t, "s", rounds*each)
		t.Logf("%d batches were complete, %d absent", complete, absent)
	})
}

func TestCancelDeadAgainstWriteHasOneWinner(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		const rounds = 40
		e.create(t, "s", rounds)
		kept := int64(0)
		for range rounds {
			o := storetest.Orders("s", 1)[0]
			var wg sync.WaitGroup
			var wasRow bool
			wg.Go(func() {
				if err := e.Write(e.ctx, []sale.Order{o}); err != nil {
					t.Errorf("write: %v", err)
				}
			})
			wg.Go(func() {
				var err error
				if wasRow, err = e.CancelDead(e.ctx, store.DeadOrder{Order: o}); err != nil {
					t.Errorf("cancel: %v", err)
				}
			})
			wg.Wait()
			got, err := e.Order(e.ctx, o.ID)
			if err != nil {
				t.Fatal(err)
			}
			if wasRow != (got.Status == sale.StatusCreated) {
				t.Fatalf("wasRow=%v for an order that is %s", wasRow, got.Status)
			}
			if wasRow {
				kept++
			}
		}
		e.wantRows(t, "s", kept)
	})
}
