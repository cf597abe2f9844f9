package store_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

// world is the expected content of the store: a few sales and all rows.
type world struct {
	sales   map[string]*sale.Sale
	rows    map[sale.OrderID]sale.Order
	paidBy  map[sale.OrderID]string
	returns map[sale.OrderID]bool // by order that was cancelled as a row: whether its unit is marked as returned
}

func (w *world) sold(saleID string) (n int64) {
	for _, o := range w.rows {
		if o.SaleID == saleID && o.Status != sale.StatusCancelled {
			n++
		}
	}
	return n
}

func (w *world) slotOccupied(o sale.Order) bool {
	for _, row := range w.rows {
		if row.Status != sale.StatusCancelled && same(row, o) {
			return true
		}
	}
	return false
}

func same(a, b sale.Order) bool {
	return a.SaleID == b.SaleID && a.Buyer == b.Buyer && a.Slot == b.Slot
}

// write applies a batch if the store must accept it, and reports whether it must.
func (w *world) write(batch []sale.Order) bool {
	next := &world{sales: w.sales, rows: maps.Clone(w.rows)} // the other fields are not used
	for _, o := range batch {
		if next.sales[o.SaleID] == nil {
			return false
		}
		if row, ok := next.rows[o.ID]; ok {
			if !same(row, o) {
				return false
			}
			continue
		}
		if next.slotOccupied(o) {
			return false
		}
		o.Status = sale.StatusCreated
		next.rows[o.ID] = o
	}
	for id, s := range w.sales {
		if next.sold(id) > s.Stock {
			return false
		}
	}
	w.rows = next.rows
	return true
}

// model makes the same random calls to the store and to a world, with few sales, buyers and ids, so that they collide
// often.
func TestAgreesWithModel(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		var runs atomic.Int64
		rapid.Check(t, func(r *rapid.T) {
			run := runs.Add(1) // each repetition uses its own sales and ids
			w := &world{
				sales: map[string]*sale.Sale{}, rows: map[sale.OrderID]sale.Order{}, paidBy: map[sale.OrderID]string{},
				returns: map[sale.OrderID]bool{},
			}
			names := []string{fmt.Sprintf("a%d", run), fmt.Sprintf("b%d", run)}
			for _, name := range names {
				s, err := e.CreateSale(e.ctx, storetest.WithHold(name, rapid.Int64Range(1, 6).Draw(r, "stock"), time.Hour))
				if err != nil {
					r.Fatal(err)
				}
				w.sales[name] = &s
			}
			// An id belongs to one order. Ids that belong to two have a test of their own.
			anOrder := rapid.Custom(func(r *rapid.T) sale.Order {
				n := rapid.IntRange(0, 23).Draw(r, "order")
				return sale.Order{
					ID: sale.OrderID(run<<16 | int64(n+1)), SaleID: names[n%2], Buyer: string(rune('p' + n/2%4)), Slot: 1 + n/8%2,
					Serial: int64(n + 1),
				}
			})
			steps := map[string]func(*rapid.T){
				"write": func(r *rapid.T) {
					batch := rapid.SliceOfN(anOrder, 0, 6).Draw(r, "batch")
					if rapid.IntRange(0, 9).Draw(r, "unknown sale") == 0 {
						batch = append(batch, storetest.Order("unknown", "p"))
					}
					err := e.Write(e.ctx, batch)
					if accepted := w.write(batch); accepted && err != nil || !accepted && !errors.Is(err, store.ErrRejected) {
						r.Fatalf("accepted: want %v, got %v", accepted, err)
					}
				},
				"cancel": func(r *rapid.T) {
					o := anOrder.Draw(r, "order")
					wasRow, err := e.CancelDead(e.ctx, store.DeadOrder{Order: o})
					row, known := w.rows[o.ID]
					_, asRow := w.returns[o.ID]
					if want := known && (row.Status != sale.StatusCancelled || asRow); err != nil || wasRow != want {
						r.Fatalf("wasRow=%v, %v; want %v", wasRow, err, want)
					}
					if !known {
						o.Status = sale.StatusCancelled
						w.rows[o.ID] = o
					}
				},
				"cancel row": func(r *rapid.T) {
					o := anOrder.Draw(r, "order")
					got, changed, err := e.CancelOrder(e.ctx, o.ID)
					switch row, known := w.rows[o.ID]; {
					case !known:
						if !errors.Is(err, sale.ErrNotFound) {
							r.Fatalf("order without a row: %v", err)
						}
					case row.Status == sale.StatusPaid:
						if !errors.Is(err, sale.ErrConflict) {
							r.Fatalf("paid order: %v", err)
						}
					case err != nil || got.Status != sale.StatusCancelled || changed != (row.Status == sale.StatusCreated):
						r.Fatalf("%+v, %v, %v; the order was %s", got, changed, err, row.Status)
					case changed:
						w.cancel(o.ID)
					}
				},
				"overdue": func(r *rapid.T) {
					due := rapid.SliceOfN(anOrder, 1, 3).Draw(r, "due")
					storetest.Elapse(t, e.url, due...)
					want := map[sale.OrderID]bool{}
					for _, o := range due {
						if w.rows[o.ID].Status == sale.StatusCreated {
							want[o.ID] = true
						}
					}
					got, err := e.CancelOverdue(e.ctx, 10)
					if err != nil || len(got) != len(want) {
						r.Fatalf("%v, %v; want %v", got, err, want)
					}
					for _, o := range got {
						if !want[o.ID] {
							r.Fatalf("order %s is not due", o.ID)
						}
						w.cancel(o.ID)
					}
				},
				"pay": func(r *rapid.T) {
					o := anOrder.Draw(r, "order")
					reference := rapid.SampledFrom([]string{"one", "two"}).Draw(r, "reference")
					p := storetest.Payment(o, reference)
					wrong := rapid.IntRange(0, 4).Draw(r, "wrong") == 0
					if wrong {
						p.Price.Amount++
					}
					row, known := w.rows[o.ID]
					want := store.SettledPaid
					switch {
					case row.Status == sale.StatusCancelled:
						want = store.SettledCancelled
					case wrong:
						want = store.SettledMismatch
					case row.Status == sale.StatusPaid && w.paidBy[o.ID] != reference:
						want = store.SettledTwice
					}
					got, replayed, err := e.Pay(e.ctx, p)
					if !known {
						if !errors.Is(err, sale.ErrNotFound) {
							r.Fatalf("order without a row: %v", err)
						}
						return
					}
					if err != nil || got != want || replayed {
						r.Fatalf("%s, %v, %v; want %s", got, replayed, err, want)
					}
					if want == store.SettledPaid {
						row.Status = sale.StatusPaid
						w.rows[o.ID], w.paidBy[o.ID] = row, reference
					}
				},
				"return": func(r *rapid.T) {
					o := anOrder.Draw(r, "order")
					if err := e.MarkReturned(e.ctx, []store.Return{{ID: o.ID, Number: 1}}); err != nil {
						r.Fatal(err)
					}
					if _, asRow := w.returns[o.ID]; asRow {
						w.returns[o.ID] = true
					}
				},
				"restock": func(r *rapid.T) {
					s := w.sales[rapid.SampledFrom(names).Draw(r, "sale")]
					add := rapid.Int64Range(1, 2).Draw(r, "add")
					got, err := e.Restock(e.ctx, s.ID, add, "")
					if s.Switch == sale.Closed {
						if !errors.Is(err, sale.ErrConflict) {
							r.Fatalf("restocked a closed sale: %v", err)
						}
						return
					}
					s.Stock += add
					s.Version++
					if err != nil || got != *s {
						r.Fatalf("%+v, %v; want %+v", got, err, *s)
					}
				},
				"switch": func(r *rapid.T) {
					s := w.sales[rapid.SampledFrom(names).Draw(r, "sale")]
					to := rapid.SampledFrom([]sale.Switch{sale.On, sale.Paused, sale.Paused, sale.On, sale.Closed}).Draw(r, "to")
					got, err := e.SetSwitch(e.ctx, s.ID, to)
					if s.Switch == sale.Closed && to != sale.Closed {
						if !errors.Is(err, sale.ErrConflict) {
							r.Fatalf("reopened a closed sale: %v", err)
						}
						return
					}
					if s.Switch != to {
						s.Switch = to
						s.Version++
					}
					if err != nil || got != *s {
						r.Fatalf("%+v, %v; want %+v", got, err, *s)
					}
				},
			}
			aStep := rapid.SampledFrom([]string{
				"write", "write", "write", "cancel", "restock", "switch", "cancel row", "overdue", "pay", "pay", "return",
			})
			for range rapid.IntRange(1, 25).Draw(r, "steps") {
				steps[aStep.Draw(r, "step")](r)
			}
			w.check(r, e)
		})
	})
}

func (w *world) cancel(id sale.OrderID) {
	row := w.rows[id]
	row.Status = sale.StatusCancelled
	w.rows[id] = row
	w.returns[id] = false
}

func (w *world) check(r *rapid.T, e *env) {
	ids := slices.Collect(maps.Keys(w.rows))
	statuses, err := e.Statuses(e.ctx, ids)
	if err != nil || len(statuses) != len(ids) {
		r.Fatalf("%d of %d rows, %v", len(statuses), len(ids), err)
	}
	for id, status := range statuses {
		if w.rows[id].Status != status {
			r.Fatalf("order %s is %s, want %s", id, status, w.rows[id].Status)
		}
	}
	for id, s := range w.sales {
		c, err := e.Count(e.ctx, spread.Part{SaleID: id}, store.Instant{Accepted: 12, Returned: math.MaxInt64}, ids)
		rows, among, returning := int64(0), 0, int64(0)
		for _, o := range w.rows {
			back, asRow := w.returns[o.ID]
			switch {
			case o.SaleID != id:
			case o.Status != sale.StatusCancelled:
				among++
				if o.Serial <= 12 {
					rows++
				}
			case asRow:
				among++
				if !back && o.Serial <= 12 {
					returning++
				}
			}
		}
		if err != nil || c.Sold != w.sold(id) || c.Stock != s.Stock || c.Rows != rows || c.Returning != returning ||
			len(c.Among) != among {
			r.Fatalf("%+v, %v; want sold %d, stock %d, rows %d, returning %d, among %d", c, err, w.sold(id), s.Stock, rows,
				returning, among)
		}
	}
}
