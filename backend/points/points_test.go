package points_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"sluice/backend/event"
	"sluice/backend/order/ordertest"
	"sluice/backend/points"
	"sluice/backend/sale"
)

func TestRule(t *testing.T) {
	for _, bad := range []string{"", "1", "/", "1/0", "-1/100", "1/-1", "1/100/2", "1.5/100", "1/1000001", "1000001/1", " 1/100", "x/y"} {
		if r, err := points.ParseRule(bad); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, %v", bad, r, err)
		}
	}
	for _, c := range []struct {
		rule   string
		amount int64
		want   int64
	}{
		{points.DefaultRule, 9900, 99}, {points.DefaultRule, 99, 0}, {points.DefaultRule, 199, 1}, {"3/250", 1999, 21}, {"0/1", 1999, 0},
		{"1000000/1", math.MaxInt64, 1 << 40}, {"1/1", 0, 0},
	} {
		r, err := points.ParseRule(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Of(sale.Price{Amount: c.amount, Currency: "EUR"}); got != c.want {
			t.Errorf("%s of %d is %d, want %d", c.rule, c.amount, got, c.want)
		}
	}
}

func TestCreditedOnceAndTakenBackInAnyOrder(t *testing.T) {
	store := ordertest.Open(t, ordertest.SQLite(t))
	rule, err := points.ParseRule(points.DefaultRule)
	if err != nil {
		t.Fatal(err)
	}
	at := func(n int64, what event.Type, buyer string) event.Event {
		return event.Event{ID: sale.OrderID(n).String() + "." + string(what), Type: what, OrderID: sale.OrderID(n), Buyer: buyer, Price: sale.Price{Amount: 1999, Currency: "EUR"}}
	}
	events := []event.Event{
		at(1, event.Created, "ann"), at(2, event.Created, "ann"), at(3, event.Created, "bob"), at(1, event.Paid, "ann"),
		at(2, event.Cancelled, "ann"), at(4, event.Cancelled, "bob"), // the fourth died in the queue
	}
	for _, order := range [][]event.Event{events, events[3:], slices.Concat(events[3:], events[:3])} {
		h := points.Handler(store, rule)
		if err := h.Handle(t.Context(), order); err != nil {
			t.Fatal(err)
		}
		if err := points.Handler(store, points.Rule{Points: 7, Per: 1}).Handle(t.Context(), order); err != nil { // what is credited stays
			t.Fatal(err)
		}
		for buyer, want := range map[string]int64{"ann": 19, "bob": 19} {
			if got, err := store.Points(t.Context(), buyer); err != nil || got != want {
				t.Errorf("%s has %d points, %v; want %d", buyer, got, err, want)
			}
		}
	}
	late := []event.Event{at(9, event.Cancelled, "eve"), at(9, event.Created, "eve")}
	for _, e := range late {
		if err := points.Handler(store, rule).Handle(t.Context(), []event.Event{e}); err != nil {
			t.Fatal(err)
		}
		if got, err := store.Points(t.Context(), "eve"); err != nil || got != 0 {
			t.Errorf("eve has %d points, %v", got, err)
		}
	}
}
