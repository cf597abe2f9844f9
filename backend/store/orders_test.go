package store_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

func TestCancelDeadInsertsCancelledRow(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 10)
		e.cancelDead(t, storetest.Order("s", "ann"), false)
		row := storetest.Order("s", "ben")
		e.write(t, row)
		e.cancelDead(t, row, true)
		e.wantRows(t, "s", 1)

		held := store.DeadOrder{Order: storetest.Order("s", "dan"), Unbacked: true}
		for i := range 2 { // the row records that no unit returns
			if wasRow, err := e.CancelDead(e.ctx, held); err != nil || wasRow != (i > 0) {
				t.Fatalf("an order without a unit, time %d: wasRow=%v, %v", i+1, wasRow, err)
			}
		}
		rows, err := e.OrderRows(e.ctx, store.OrderQuery{SaleID: "s", Status: sale.StatusCancelled})
		if err != nil || len(rows) != 2 || rows[0].Unbacked || !rows[1].Unbacked || rows[0].Returning || rows[1].Returning {
			t.Fatalf("cancelled rows: %+v, %v", rows, err)
		}

		foreign := row // its id belongs to another order, so it can never be a row
		foreign.Buyer = "cid"
		if _, err := e.CancelDead(e.ctx, store.DeadOrder{Order: foreign}); !errors.Is(err, store.ErrRejected) {
			t.Fatalf("an order whose id is taken: %v", err)
		}
		e.cancelDead(t, storetest.Order("unknown", "ann"), false)

		got, err := e.Order(e.ctx, row.ID)
		row.Status = sale.StatusCreated
		if err != nil || got != row {
			t.Fatalf("the row changed to %+v, %v", got, err)
		}
		if _, err := e.CancelDead(e.ctx, store.DeadOrder{Order: sale.Order{}}); !errors.Is(err, store.ErrRejected) {
			t.Fatalf("zero order: %v", err)
		}
	})
}

// An order is a row, with the slot that a rebuild gave it. Redis then returns with older data: a dead letter of the
// order with its former slot. The row holds the unit.
func TestCancelDeadOfARowWithAnotherSlot(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 5)
		row := storetest.Order("s", "ann")
		e.write(t, row)
		dead := row
		dead.Slot = 2
		e.cancelDead(t, dead, true)
		e.wantRows(t, "s", 1)
	})
}

// A page of rows with a rare status ends after a number of rows of any status. The pages together have all rows.
func TestPagesOfARareStatus(t *testing.T) {
	defer store.SetPartSizes(2, 4)()
	for _, url := range []string{storetest.SQLite(t), storetest.Postgres(t)} {
		e := open(t, url, store.Config{})
		e.create(t, "other", 50)
		e.create(t, "s", 50)
		orders := append(storetest.Orders("s", 20), storetest.Orders("other", 20)...)
		e.write(t, orders...)
		for _, i := range []int{0, 1, 2, 19, 30} {
			e.cancel(t, orders[i])
		}
		for name, c := range map[string]struct {
			q    store.OrderQuery
			want [][]int // of each page, the indexes of the orders
		}{
			"of a sale":        {store.OrderQuery{SaleID: "s", Status: sale.StatusCancelled}, [][]int{{0, 1, 2}, {}, {}, {19}}},
			"the newest first": {store.OrderQuery{SaleID: "s", Status: sale.StatusCancelled, Newest: true}, [][]int{{19}, {}, {2}, {1, 0}}},
			"full pages":       {store.OrderQuery{SaleID: "s", Status: sale.StatusCancelled, Limit: 1}, [][]int{{0}, {1}, {2}, {}, {}, {19}, {}}},
			"of all sales":     {store.OrderQuery{Status: sale.StatusCancelled}, [][]int{{0, 1, 2}, {}, {}, {19}, {}, {30}, {}}},
			"of a buyer":       {store.OrderQuery{Status: sale.StatusCancelled, Buyer: orders[19].Buyer}, [][]int{{19}}},
			"any status":       {store.OrderQuery{SaleID: "other", Limit: 12}, [][]int{{20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}, {32, 33, 34, 35, 36, 37, 38, 39}}},
		} {
			var got [][]int
			for more := true; more; {
				rows, next, err := e.OrderPage(t.Context(), c.q)
				if err != nil {
					t.Fatal(err)
				}
				page := []int{}
				for _, row := range rows {
					page = append(page, slices.IndexFunc(orders, func(o sale.Order) bool { return o.ID == row.ID }))
				}
				got = append(got, page)
				c.q.After, more = next, next != 0
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s: pages %v, want %v", name, got, c.want)
			}
		}
	}
}

// The file of an archived sale may contain the order, for example as paid.
func TestCancelDeadRejectsOrdersOfAnArchivedSale(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "old", 5)
		row, dead := storetest.Order("old", "ann"), storetest.Order("old", "ben")
		e.write(t, row)
		e.beginArchive(t, "old")
		e.cancelDead(t, row, true)
		_, err := e.CancelDead(e.ctx, store.DeadOrder{Order: dead})
		if !errors.Is(err, store.ErrRejected) {
			t.Errorf("an order of an archived sale: %v", err)
		}
		if rows, err := e.Statuses(e.ctx, []sale.OrderID{row.ID, dead.ID}); err != nil || len(rows) != 1 ||
			rows[row.ID] != sale.StatusCreated {
			t.Errorf("rows %v, %v", rows, err)
		}
		if _, err := e.LastLog(e.ctx, dead.ID.String(), store.CancelledOrder); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("the action log has the cancellation: %v", err)
		}
	})
}

func TestCancelDeadFreesTheSlot(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 1)
		e.cancelDead(t, storetest.Order("s", "ann"), false)
		e.write(t, storetest.Order("s", "ann"))
		e.wantRows(t, "s", 1)

		// Now the slot belongs to the row of another order.
		e.cancelDead(t, storetest.Order("s", "ann"), false)
	})
}

func TestDropDeadIsLogged(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		why := errors.New("no room")
		for i, dead := range []store.DeadOrder{
			{Order: storetest.Order("s", "ann")}, {Order: storetest.Order("s", "ben"), Unbacked: true},
		} {
			if err := e.DropDead(acting(e.ctx, "admin\x00", "why \xff"), dead, why); err != nil {
				t.Fatal(err)
			}
			last, err := e.LastLog(e.ctx, dead.ID.String(), store.DroppedDead)
			if err != nil || last.Actor != "admin" || last.HeldNoUnit() != (i == 1) ||
				!strings.HasSuffix(last.Detail, "sale s: why \uFFFD (there can be no row: no room)") {
				t.Errorf("log %+v, %v", last, err)
			}
			if _, err := e.Order(e.ctx, dead.ID); !errors.Is(err, sale.ErrNotFound) {
				t.Errorf("it is a row: %v", err)
			}
		}
		older := e.begin(t)
		e.begin(t)
		dead := store.DeadOrder{Order: storetest.Order("s", "cid")}
		ctx := store.WithGeneration(e.ctx, 0, older)
		if err := e.DropDead(ctx, dead, why); !errors.Is(err, store.ErrStale) {
			t.Errorf("older generation: %v", err)
		}
		if _, err := e.LastLog(e.ctx, dead.ID.String(), store.DroppedDead); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("the rejected call is in the action log: %v", err)
		}
	})
}

func TestCancelDeadAcceptsAnyReason(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 1)
		for _, reason := range []string{"", "nul \x00, not UTF-8 \xff", "two\nlines", `'"`} {
			dead := store.DeadOrder{Order: storetest.Order("s", "ann")}
			if _, err := e.CancelDead(acting(e.ctx, "admin\x00", reason), dead); err != nil {
				t.Errorf("reason %q: %v", reason, err)
			}
		}
	})
}

func TestRecordedReturnsDroppedOrders(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 10)
		row, absent := storetest.Order("s", "ann"), storetest.Order("s", "cid")
		cancelled, dropped := storetest.Order("s", "ben"), storetest.Order("s", "dan")
		e.write(t, row)
		e.cancelDead(t, cancelled, false)
		for range 2 { // an interrupted cancellation is repeated
			if err := e.DropDead(e.ctx, store.DeadOrder{Order: dropped}, store.ErrRejected); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Record(e.ctx, "dead.retry", absent.ID.String(), ""); err != nil {
			t.Fatal(err)
		}
		got, err := e.Recorded(e.ctx, []sale.OrderID{row.ID, cancelled.ID, dropped.ID, absent.ID})
		want := map[sale.OrderID]sale.Status{
			row.ID: sale.StatusCreated, cancelled.ID: sale.StatusCancelled, dropped.ID: sale.StatusCancelled,
		}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
		if got, err := e.Recorded(e.ctx, nil); err != nil || len(got) != 0 {
			t.Errorf("no ids: %v, %v", got, err)
		}
	})
}

func TestOrderAndStatusesReadRows(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 10)
		row, dead, absent := storetest.Order("s", "ann"), storetest.Order("s", "ben"), storetest.Order("s", "cid")
		e.write(t, row)
		e.cancelDead(t, dead, false)
		got, err := e.Statuses(e.ctx, []sale.OrderID{row.ID, dead.ID, absent.ID, row.ID})
		if err != nil || len(got) != 2 || got[row.ID] != sale.StatusCreated || got[dead.ID] != sale.StatusCancelled {
			t.Fatalf("%v, %v", got, err)
		}
		orders, err := e.OrdersByID(e.ctx, []sale.OrderID{row.ID, dead.ID, absent.ID, row.ID})
		if err != nil || len(orders) != 2 || orders[dead.ID].Status != sale.StatusCancelled {
			t.Fatalf("%+v, %v", orders, err)
		}
		if one, err := e.Order(e.ctx, row.ID); err != nil || orders[row.ID] != one {
			t.Fatalf("by id %+v, alone %+v, %v", orders[row.ID], one, err)
		}
		if got, err := e.OrdersByID(e.ctx, nil); err != nil || len(got) != 0 {
			t.Fatalf("no ids: %v, %v", got, err)
		}
		if got, err := e.Statuses(e.ctx, nil); err != nil || len(got) != 0 {
			t.Fatalf("no ids: %v, %v", got, err)
		}
		if _, err := e.Order(e.ctx, absent.ID); !errors.Is(err, sale.ErrNotFound) {
			t.Fatalf("absent: %v", err)
		}
		high := storetest.Order("s", "dan")
		high.ID = 1<<63 - 1
		e.write(t, high)
		if got, err := e.Order(e.ctx, high.ID); err != nil || got.ID != high.ID {
			t.Fatalf("the highest id was read as %d, %v", got.ID, err)
		}
	})
}

func TestOrdersOfReadsEveryPage(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		const n = 5_100 // more than one page, which ends between orders of one serial
		e.create(t, "s", n)
		e.create(t, "other", 10)
		batch := storetest.Orders("s", n)
		for i := range batch {
			batch[i].Serial = int64(i/3 + 1) // serials can repeat after a rebuild
		}
		for part := range slices.Chunk(batch, 500) {
			e.write(t, part...)
		}
		e.write(t, storetest.Orders("other", 3)...)
		dead := storetest.Order("s", "dead")
		e.cancelDead(t, dead, false)
		for _, status := range []sale.Status{sale.StatusCancelled, sale.StatusCreated} {
			storetest.Exec(t, e.url, "UPDATE orders SET return_number = NULL, status = '"+string(status)+
				"' WHERE sale_id = 's' AND id <> "+dead.ID.String())
			for i := range batch {
				batch[i].Status = status
			}
			if got := e.ordersOf(t, spread.Part{SaleID: "s"}); !slices.Equal(got, batch) {
				t.Fatalf("read %d orders, want the %d that are %s", len(got), n, status)
			}
		}

		stop, seen := errors.New("stop"), 0
		err := e.OrdersOf(e.ctx, spread.Part{SaleID: "s"}, func(sale.Order) error {
			if seen++; seen == 5 {
				return stop
			}
			return nil
		})
		if !errors.Is(err, stop) || seen != 5 {
			t.Fatalf("stopped after %d with %v", seen, err)
		}
		if err := e.OrdersOf(e.ctx, spread.Part{SaleID: "unknown"}, func(sale.Order) error { return stop }); err != nil {
			t.Fatalf("unknown sale: %v", err)
		}
	})
}

func TestCountReadsOneInstant(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 10)
		e.create(t, "other", 10)
		batch := storetest.Orders("s", 5)
		for i := range batch {
			batch[i].Serial = int64(i + 1)
		}
		e.write(t, batch...)
		foreign := storetest.Order("other", "ann")
		e.write(t, foreign)
		dead := storetest.Order("s", "dead")
		dead.Serial = 2
		e.cancelDead(t, dead, false)
		c, err := e.Count(
			e.ctx,
			spread.Part{SaleID: "s"},
			store.Instant{Accepted: 3},
			[]sale.OrderID{batch[4].ID, dead.ID, foreign.ID,
				batch[0].ID, 77},
		)
		if err != nil || c.Rows != 3 || c.Sold != 5 || c.Stock != 10 {
			t.Fatalf("%+v, %v", c, err)
		}
		slices.Sort(c.Among)
		if !slices.Equal(c.Among, []sale.OrderID{batch[0].ID, batch[4].ID}) {
			t.Fatalf("among %v", c.Among)
		}
		if _, err := e.Count(e.ctx, spread.Part{SaleID: "unknown"}, store.Always, nil); !errors.Is(err, sale.ErrNotFound) {
			t.Fatalf("unknown sale: %v", err)
		}

		// While orders are written, every count reads sold and rows as of the same instant.
		done := make(chan error, 1)
		go func() {
			for range 40 {
				if _, err := e.Restock(e.ctx, "other", 5, ""); err != nil {
					done <- err
					return
				}
				if err := e.Write(e.ctx, storetest.Orders("other", 5)); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		for {
			if c, err := e.Count(e.ctx, spread.Part{SaleID: "other"}, store.Always, nil); err != nil || c.Rows != c.Sold {
				t.Fatalf("%d rows, %d sold, %v", c.Rows, c.Sold, err)
			}
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				return
			default:
			}
		}
	})
}

func TestOrdersInSale(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 10)
		e.create(t, "other", 10)
		var mine []sale.Order
		for range 4 {
			o := storetest.Order("s", "ann")
			e.write(t, o)
			mine = append(mine, o)
			if len(mine) < 4 {
				e.cancel(t, o)
			}
		}
		e.write(t, storetest.Order("s", "bob"), storetest.Order("other", "ann"))
		got, err := e.OrdersInSale(e.ctx, "ann", "s", 2) // of three that are cancelled
		if err != nil || len(got) != 3 {
			t.Fatalf("%+v, %v", got, err)
		}
		for i, o := range got {
			if want := mine[i+1]; o.ID != want.ID || o.Expired || (o.Status == sale.StatusCancelled) != (i < 2) {
				t.Errorf("order %d: %+v, want %s", i, o, want.ID)
			}
		}
	})
}

func TestOrdersOfBuyerReturnsNewest(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		var want []sale.OrderID
		for i := range 6 {
			id := fmt.Sprintf("s%d", i)
			e.create(t, id, 10)
			mine, other := storetest.Order(id, "ann"), storetest.Order(id, "bob")
			e.write(t, mine, other)
			want = append(want, mine.ID)
		}
		for _, i := range []int{1, 4} {
			e.cancel(t, sale.Order{ID: want[i]})
		}
		for _, limit := range []int{1, 3, 6, 50} {
			got, err := e.OrdersOfBuyer(e.ctx, "ann", limit)
			if err != nil {
				t.Fatal(err)
			}
			var ids []sale.OrderID
			for _, o := range got {
				ids = append(ids, o.ID)
				if i := slices.Index(want, o.ID); (o.Status == sale.StatusCancelled) != (i == 1 || i == 4) || o.Buyer != "ann" {
					t.Errorf("%+v", o)
				}
			}
			if n := min(limit, 6); !slices.Equal(ids, want[6-n:]) {
				t.Errorf("the newest %d are %v, want %v", limit, ids, want[6-n:])
			}
		}
		if got, err := e.OrdersOfBuyer(e.ctx, "unknown", 5); err != nil || len(got) != 0 {
			t.Errorf("%v, %v", got, err)
		}
	})
}
