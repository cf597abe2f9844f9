package storetest

import (
	"slices"
	"strings"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/store"
)

func writeTwice(t *testing.T, e *env) {
	e.create(t, "s", 10)
	e.write(t)
	e.wantRows(t, "s", 0)
	batch := Orders("s", 10)
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
}

func writeMixed(t *testing.T, e *env) {
	e.create(t, "s", 10)
	batch := Orders("s", 6)
	e.write(t, batch[:4]...)
	e.write(t, batch[2:]...)
	e.wantRows(t, "s", 6)

	again := batch[5]
	again.Serial += 1000 // a rebuild of Redis can assign new serials; the row keeps its own
	e.write(t, again, batch[5], Order("s", "new"))
	e.wantRows(t, "s", 7)
	if got, err := e.Order(e.ctx, again.ID); err != nil || got.Serial != batch[5].Serial {
		t.Fatalf("%+v, %v", got, err)
	}
}

func writeUnusualBuyers(t *testing.T, e *env) {
	buyers := []string{
		`'; DROP TABLE orders; --`, `"quoted"`, `back\slash`, "{a,b}", `{"json":[1]}`, "NULL", " spaces  kept ", "👟🎫", "$1",
		"%s",
		strings.Repeat("é", 127) + "x", strings.Repeat("👟", 63) + "abc", "\u202Eright to left",
	}
	e.create(t, "s", 100)
	var batch []sale.Order
	for _, buyer := range buyers {
		batch = append(batch, Order("s", buyer))
	}
	e.write(t, batch...)
	for _, o := range batch {
		if got, err := e.Order(e.ctx, o.ID); err != nil || got.Buyer != o.Buyer {
			t.Errorf("buyer %q was read as %q, %v", o.Buyer, got.Buyer, err)
		}
	}
}

func writeSeveralSales(t *testing.T, e *env) {
	for _, id := range []string{"a", "B", "c"} {
		e.create(t, id, 5)
	}
	batch := slices.Concat(Orders("c", 3), Orders("a", 2), Orders("B", 5))
	e.write(t, batch...)
	e.wantRows(t, "a", 2)
	e.wantRows(t, "B", 5)
	e.wantRows(t, "c", 3)

	// One full sale rejects the whole batch.
	e.wantRejected(t, "the second sale is full", slices.Concat(Orders("a", 1), Orders("B", 1), Orders("c", 1))...)
	e.wantRows(t, "a", 2)
	e.wantRows(t, "c", 3)
}

func writeOversell(t *testing.T, e *env) {
	e.create(t, "s", 3)
	first := Orders("s", 2)
	e.write(t, first...)
	rest := Orders("s", 2)
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
}

func writeUnknownSale(t *testing.T, e *env) {
	e.create(t, "s", 5)
	good := Order("s", "ann")
	e.wantRejected(t, "unknown sale", good, Order("unknown", "ann"))
	e.wantRows(t, "s", 0)
	e.write(t, good)
	e.wantRows(t, "s", 1)
}

func writeSecondOrderForSlot(t *testing.T, e *env) {
	e.create(t, "s", 10)
	first := Order("s", "ann")
	e.write(t, first)
	second := Order("s", "ann")
	e.wantRejected(t, "the same slot", Order("s", "ben"), second)
	e.wantRejected(t, "the same slot twice in one batch", Order("s", "cid"), Order("s", "cid"))
	e.wantRows(t, "s", 1)
	second.Slot = 2
	e.write(t, second, Order("s", "Ann")) // another slot, another buyer
	e.wantRows(t, "s", 3)
}

func writeForeignOrderID(t *testing.T, e *env) {
	e.create(t, "s", 10)
	e.create(t, "other", 10)
	mine := Order("s", "ann")
	e.write(t, mine)
	for _, change := range []func(*sale.Order){
		func(o *sale.Order) { o.Buyer = "ben" },
		func(o *sale.Order) { o.SaleID = "other" },
		func(o *sale.Order) { o.Slot = 2 },
	} {
		theirs := mine
		change(&theirs)
		e.wantRejected(t, "a used id", theirs)
		e.wantRejected(t, "a used id, in a batch with its order", Order("s", "dan"), mine, theirs)
		want := mine
		want.Status = sale.StatusCreated
		if got, err := e.Order(e.ctx, mine.ID); err != nil || got != want {
			t.Fatalf("the row is %+v, %v; want %+v", got, err, want)
		}
	}
	two := Order("s", "cid")
	twin := two
	twin.Buyer = "dan"
	e.wantRejected(t, "one id for two orders of a batch", two, twin)
	e.wantRows(t, "s", 1)
	e.wantRows(t, "other", 0)
}

func writeInvalidOrder(t *testing.T, e *env) {
	e.create(t, "s", 10)
	good := Order("s", "ann")
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
		bad := Order("s", "ben")
		change(&bad)
		e.wantRejected(t, what, good, bad)
	}
	e.wantRows(t, "s", 0)
}

func writeCancelled(t *testing.T, e *env) {
	e.create(t, "s", 2)
	dead := Order("s", "ann")
	if _, err := e.CancelDead(e.ctx, store.DeadOrder{Order: dead}, "admin", "test"); err != nil {
		t.Fatal(err)
	}
	e.write(t, dead)
	e.wantRows(t, "s", 0)
	e.write(t, append(Orders("s", 2), dead)...)
	e.wantRows(t, "s", 2)
	if got, err := e.Order(e.ctx, dead.ID); err != nil || got.Status != sale.StatusCancelled {
		t.Fatalf("%+v, %v", got, err)
	}
}
