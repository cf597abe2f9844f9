package ordertest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"sluice/backend/order"
	"sluice/backend/sale"
)

// world is what the store should hold: a few sales and every order row.
type world struct {
	sales map[string]*sale.Sale
	rows  map[sale.OrderID]sale.Order
}

func (w *world) sold(saleID string) (n int64) {
	for _, o := range w.rows {
		if o.SaleID == saleID && o.Status != sale.StatusCancelled {
			n++
		}
	}
	return n
}

func (w *world) placeTaken(o sale.Order) bool {
	for _, row := range w.rows {
		if row.Status != sale.StatusCancelled && same(row, o) {
			return true
		}
	}
	return false
}

func same(a, b sale.Order) bool { return a.SaleID == b.SaleID && a.Buyer == b.Buyer && a.Nth == b.Nth }

// write tells whether the batch is accepted, and applies it if so.
func (w *world) write(batch []sale.Order) bool {
	next := &world{sales: w.sales, rows: maps.Clone(w.rows)}
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
		if next.placeTaken(o) {
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

// model drives the store and a world of maps with the same random calls, over few sales, buyers and ids so that they collide often.
func model(t *testing.T, e *env) {
	var runs atomic.Int64
	rapid.Check(t, func(r *rapid.T) {
		run := runs.Add(1) // rapid repeats: each run has sales and ids of its own
		w := &world{sales: map[string]*sale.Sale{}, rows: map[sale.OrderID]sale.Order{}}
		names := []string{fmt.Sprintf("a%d", run), fmt.Sprintf("b%d", run)}
		for _, name := range names {
			s, err := e.CreateSale(e.ctx, Sale(name, rapid.Int64Range(1, 6).Draw(r, "stock")))
			if err != nil {
				r.Fatal(err)
			}
			w.sales[name] = &s
		}
		// An id names one order, as in life: the clash of ids has a test of its own.
		anOrder := rapid.Custom(func(r *rapid.T) sale.Order {
			n := rapid.IntRange(0, 23).Draw(r, "order")
			return sale.Order{
				ID: sale.OrderID(run<<16 | int64(n+1)), SaleID: names[n%2], Buyer: string(rune('p' + n/2%4)), Nth: 1 + n/8%2, Serial: int64(n + 1),
			}
		})
		steps := map[string]func(*rapid.T){
			"write": func(r *rapid.T) {
				batch := rapid.SliceOfN(anOrder, 0, 6).Draw(r, "batch")
				if rapid.IntRange(0, 9).Draw(r, "stranger") == 0 {
					batch = append(batch, sale.Order{ID: sale.OrderID(run<<16 | 999), SaleID: "nobody", Buyer: "p", Nth: 1, Serial: 1})
				}
				err := e.Write(e.ctx, batch)
				if accepted := w.write(batch); accepted && err != nil || !accepted && !errors.Is(err, order.ErrRejected) {
					r.Fatalf("accepted should be %v, got %v", accepted, err)
				}
			},
			"cancel": func(r *rapid.T) {
				o := anOrder.Draw(r, "order")
				wasRow, err := e.CancelDead(e.ctx, o, "desk", "model")
				row, known := w.rows[o.ID]
				if want := known && row.Status != sale.StatusCancelled; err != nil || wasRow != want {
					r.Fatalf("wasRow=%v, %v; want %v", wasRow, err, want)
				}
				if !known {
					o.Status = sale.StatusCancelled
					w.rows[o.ID] = o
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
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			steps[rapid.SampledFrom([]string{"write", "write", "write", "cancel", "restock", "switch"}).Draw(r, "step")](r)
		}
		w.check(r, e)
	})
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
		c, err := e.Count(e.ctx, id, 12, ids)
		rows, among := int64(0), 0
		for _, o := range w.rows {
			if o.SaleID == id && o.Status != sale.StatusCancelled {
				among++
				if o.Serial <= 12 {
					rows++
				}
			}
		}
		if err != nil || c.Sold != w.sold(id) || c.Stock != s.Stock || c.Rows != rows || len(c.Among) != among {
			r.Fatalf("%+v, %v; want sold %d, stock %d, rows %d, among %d", c, err, w.sold(id), s.Stock, rows, among)
		}
	}
}
