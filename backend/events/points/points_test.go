package points_test

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"sluice/backend/events"
	"sluice/backend/events/points"
	"sluice/backend/sale"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

func TestRule(t *testing.T) {
	for _, bad := range []string{
		"", "1", "/", "1/0", "-1/100", "1/-1", "1/100/2", "1.5/100", "1/1000001", "1000001/1", " 1/100", "x/y",
	} {
		if r, err := points.ParseRule(bad); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, %v", bad, r, err)
		}
	}
	for _, c := range []struct {
		rule   string
		amount int64
		want   int64
	}{
		{points.DefaultRule, 9900, 99}, {points.DefaultRule, 99, 0}, {points.DefaultRule, 199, 1}, {"3/250", 1999, 21},
		{"0/1", 1999, 0},
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

func TestCreditedOnceAndRevokedInAnyOrder(t *testing.T) {
	store := points.NewStore(storetest.Open(t, storetest.SQLite(t)).DB)
	rule, err := points.ParseRule(points.DefaultRule)
	if err != nil {
		t.Fatal(err)
	}
	at := func(n int64, what events.Type, buyer string) events.Event {
		return events.Event{
			ID:      sale.OrderID(n).String() + "." + string(what),
			Type:    what,
			OrderID: sale.OrderID(n),
			Buyer:   buyer,
			Price:   sale.Price{Amount: 1999, Currency: "EUR"},
		}
	}
	batch := []events.Event{
		at(1, events.Created, "ann"), at(2, events.Created, "ann"), at(3, events.Created, "bob"), at(1, events.Paid, "ann"),
		at(2, events.Cancelled, "ann"), at(4, events.Cancelled, "bob"), // the fourth was cancelled in the queue
	}
	for _, order := range [][]events.Event{batch, batch[3:], slices.Concat(batch[3:], batch[:3])} {
		h := points.Handler(store, rule)
		if err := h(t.Context(), order); err != nil {
			t.Fatal(err)
		}
		// a credit does not change
		if err := points.Handler(store, points.Rule{Points: 7, Per: 1})(t.Context(), order); err != nil {
			t.Fatal(err)
		}
		for buyer, want := range map[string]int64{"ann": 19, "bob": 19} {
			if got, err := store.Balance(t.Context(), buyer); err != nil || got != want {
				t.Errorf("%s has %d points, %v; want %d", buyer, got, err, want)
			}
		}
	}
	late := []events.Event{at(9, events.Cancelled, "eve"), at(9, events.Created, "eve")}
	for _, e := range late {
		if err := points.Handler(store, rule)(t.Context(), []events.Event{e}); err != nil {
			t.Fatal(err)
		}
		if got, err := store.Balance(t.Context(), "eve"); err != nil || got != 0 {
			t.Errorf("eve has %d points, %v", got, err)
		}
	}
}

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }
