package store_test

import (
	"slices"
	"strings"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/store/storetest"
)

func TestWriteTwiceCountsOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 10)
		e.write(t)
		e.wantRows(t, "s", 0)
		batch := storetest.Orders("s", 10)
		slices.Reverse(batch)
		given := slices.Clone(batch)
		for range 3 {
			e.write(t, batch...)
			e.wantRows(t, "s", 10)
		}
		if !slices.Equal(batch, given) {
			t.Fatal("Write changed the caller's batch")
		}
		got, err := e.Order(e.ctx, batch[0].ID)
		want := batch[0]
		want.Status = sale.StatusCreated
		if err != nil || got != want {
			t.Fatalf("stored %+v, %v; want %+v", got, err, want)
		}
	})
}

func TestWriteMixedBatchCountsOnlyNewOrders(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 10)
		batch := storetest.Orders("s", 6)
		e.write(t, batch[:4]...)
		e.write(t, batch[2:]...)
		e.wantRows(t, "s", 6)

		again := batch[5]
		again.Serial += 1000 // a rebuild of Redis can assign new serials; the row keeps its own
		e.write(t, again, batch[5], storetest.Order("s", "new"))
		e.wantRows(t, "s", 7)
		if got, err := e.Order(e.ctx, again.ID); err != nil || got.Serial != batch[5].Serial {
			t.Fatalf("%+v, %v", got, err)
		}
	})
}

func TestWriteKeepsUnusualBuyers(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		buyers := []string{
			`'; DROP TABLE orders; --`, `"quoted"`, `back\slash`, "{a,b}", `{"json":[1]}`, "NULL", " spaces  kept ",
			"👟🎫", "$1", "%s", strings.Repeat("é", 127) + "x", strings.Repeat("👟", 63) + "abc", "\u202Eright to left",
		}
		e.create(t, "s", 100)
		var batch []sale.Order
		for _, buyer := range buyers {
			batch = append(batch, storetest.Order("s", buyer))
		}
		e.write(t, batch...)
		for _, o := range batch {
			if got, err := e.Order(e.ctx, o.ID); err != nil || got.Buyer != o.Buyer {
				t.Errorf("buyer %q was read as %q, %v", o.Buyer, got.Buyer, err)
			}
		}
	})
}

func TestWriteSeveralSalesInOneBatch(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		for _, id := range []string{"a", "B", "c"} {
			e.create(t, id, 5)
		}
		batch := slices.Concat(storetest.Orders("c", 3), storetest.Orders("a", 2), storetest.Orders("B", 5))
		e.write(t, batch...)
		e.wantRows(t, "a", 2)
		e.wantRows(t, "B", 5)
		e.wantRows(t, "c", 3)

		// One full sale rejects the whole batch.
		e.wantRejected(t, "the second sale is full",
			storetest.Order("a", "ann"), storetest.Order("B", "ann"), storetest.Order("c", "ann"))
		e.wantRows(t, "a", 2)
		e.wantRows(t, "c", 3)
	})
}

func TestWriteRejectsMoreThanTheStock(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 3)
		first := storetest.Orders("s", 2)
		e.write(t, first...)
		rest := storetest.Orders("s", 2)
		e.wantRejected(t, "4 of 3 units", rest...)
		e.wantRejected(t, "4 of 3 units, with a repeated order", append(slices.Clone(first), rest...)...)
		e.wantRows(t, "s", 2)
		e.write(t, rest[0])
		e.wantRejected(t, "the fourth", rest[1])
		e.wantRows(t, "s", 3)
		if _, err := e.Restock(e.ctx, "s", 1, ""); err != nil {
			t.Fatal(err)
		}
		e.write(t, rest...)
		e.wantRows(t, "s", 4)
	})
}

func TestWriteRejectsUnknownSale(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 5)
		good := storetest.Order("s", "ann")
		e.wantRejected(t, "unknown sale", good, storetest.Order("unknown", "ann"))
		e.wantRows(t, "s", 0)
		e.write(t, good)
		e.wantRows(t, "s", 1)
	})
}

// A suspended worker can write orders after its lease has expired and their rows were moved to a file.
func TestWriteRejectsOrdersOfAnArchivedSale(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "old", 5)
		e.create(t, "s", 5)
		late := storetest.Order("old", "ann")
		e.write(t, late)
		e.beginArchive(t, "old")
		e.write(t, late) // its row is not removed yet
		e.removeArchived(t, "old")
		for range 2 { // before EndArchive and after it
			e.wantRejected(t, "a removed row", late)
			e.wantRejected(t, "a removed row, in a batch", late, storetest.Order("s", "ann"))
			if _, sold, err := e.Sale(e.ctx, "old"); err != nil || sold != 1 {
				t.Fatalf("%d units sold, %v; want 1", sold, err)
			}
			if err := e.EndArchive(e.ctx, "old"); err != nil {
				t.Fatal(err)
			}
		}
		e.wantRows(t, "s", 0)
	})
}

func TestWriteRejectsSecondOrderForASlot(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 10)
		first := storetest.Order("s", "ann")
		e.write(t, first)
		second := storetest.Order("s", "ann")
		e.wantRejected(t, "the same slot", storetest.Order("s", "ben"), second)
		e.wantRejected(t, "the same slot twice in one batch", storetest.Order("s", "cid"), storetest.Order("s", "cid"))
		e.wantRows(t, "s", 1)
		second.Slot = 2
		e.write(t, second, storetest.Order("s", "Ann")) // another slot, another buyer
		e.wantRows(t, "s", 3)
	})
}

func TestWriteRejectsUsedOrderID(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 10)
		e.create(t, "other", 10)
		mine := storetest.Order("s", "ann")
		e.write(t, mine)
		for _, change := range []func(*sale.Order){
			func(o *sale.Order) { o.Buyer = "ben" },
			func(o *sale.Order) { o.SaleID = "other" },
			func(o *sale.Order) { o.Slot = 2 },
		} {
			theirs := mine
			change(&theirs)
			e.wantRejected(t, "a used id", theirs)
			e.wantRejected(t, "a used id, in a batch with its order", storetest.Order("s", "dan"), mine, theirs)
			want := mine
			want.Status = sale.StatusCreated
			if got, err := e.Order(e.ctx, mine.ID); err != nil || got != want {
				t.Fatalf("the row is %+v, %v; want %+v", got, err, want)
			}
		}
		two := storetest.Order("s", "cid")
		twin := two
		twin.Buyer = "dan"
		e.wantRejected(t, "one id for two orders of a batch", two, twin)
		e.wantRows(t, "s", 1)
		e.wantRows(t, "other", 0)
	})
}

func TestWriteRejectsInvalidOrder(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 10)
		good := storetest.Order("s", "ann")
		for what, change := range map[string]func(*sale.Order){
			"id 0":              func(o *sale.Order) { o.ID = 0 },
			"no sale":           func(o *sale.Order) { o.SaleID = "" },
			"sale of two words": func(o *sale.Order) { o.SaleID = "a b" },
			"no buyer":          func(o *sale.Order) { o.Buyer = "" },
			"buyer with a NUL":  func(o *sale.Order) { o.Buyer = "a\x00b" },
			"buyer not UTF-8":   func(o *sale.Order) { o.Buyer = "a\xff" },
			"buyer too long":    func(o *sale.Order) { o.Buyer = strings.Repeat("x", sale.MaxBuyerLen+1) },
			"slot 0":            func(o *sale.Order) { o.Slot = 0 },
			"slot too high":     func(o *sale.Order) { o.Slot = 1 << 40 },
			"serial 0":          func(o *sale.Order) { o.Serial = 0 },
		} {
			bad := storetest.Order("s", "ben")
			change(&bad)
			e.wantRejected(t, what, good, bad)
		}
		e.wantRows(t, "s", 0)
	})
}

func TestWriteKeepsCancelledOrder(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 2)
		dead := storetest.Order("s", "ann")
		e.cancelDead(t, dead, false)
		e.write(t, dead)
		e.wantRows(t, "s", 0)
		e.write(t, append(storetest.Orders("s", 2), dead)...)
		e.wantRows(t, "s", 2)
		if got, err := e.Order(e.ctx, dead.ID); err != nil || got.Status != sale.StatusCancelled {
			t.Fatalf("%+v, %v", got, err)
		}
	})
}
