package store_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

// salesOfLog returns the sale of the last log entry of each action.
func (e *env) salesOfLog(t *testing.T) map[string]string {
	t.Helper()
	log, err := e.Log(e.ctx, store.LogQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	sales := map[string]string{}
	for _, entry := range log {
		if _, later := sales[entry.Action]; !later {
			sales[entry.Action] = entry.SaleID
		}
	}
	return sales
}

func TestLogEntriesHaveTheirSale(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		step := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		e.create(t, "s", 10)
		later := storetest.Sale("later", 10)
		later.OpensAt = later.OpensAt.AddDate(1, 0, 0)
		_, err := e.CreateSale(e.ctx, later)
		step(err)
		_, err = e.OpenSale(e.ctx, "later", later.OpensAt.AddDate(-1, 0, 0))
		step(err)
		_, err = e.SetDetails(e.ctx, "later", sale.Details{Description: "New."})
		step(err)
		_, err = e.Restock(e.ctx, "later", 1, "")
		step(err)
		_, err = e.SetSwitch(e.ctx, "later", sale.Paused)
		step(err)
		_, err = e.SetSwitch(e.ctx, "later", sale.On)
		step(err)
		e.beginArchive(t, "later")

		orders := storetest.Orders("s", 5)
		e.write(t, orders[:2]...)
		e.cancel(t, orders[0])
		e.pay(t, orders[1], "one")
		e.wantSettled(t, storetest.Payment(orders[1], "two"), store.SettledTwice)
		_, err = e.SettleRefund(e.ctx, e.refunds(t)[0].Number, "refunded")
		step(err)
		step(e.LogRetry(e.ctx, orders[2], "sale x: not this one"))
		step(e.DropDead(e.ctx, store.DeadOrder{Order: orders[3]}, errors.New("rejected")))

		e.create(t, rehearsal, 1)
		_, err = e.SetSwitch(e.ctx, rehearsal, sale.Closed)
		step(err)
		_, err = e.RemoveRehearsal(e.ctx, rehearsal)
		step(err)
		step(e.SaveReport(e.ctx, store.RehearsalReport{ID: rehearsal, SaleID: "s", Verdict: "go", Report: []byte("{}")}))
		step(e.Record(e.ctx, "webhook.ping", "ep_1", ""))

		want := map[string]string{
			"sale.create": rehearsal, "sale.open": "later", "sale.describe": "later", "sale.restock": "later",
			"sale.pause": "later", "sale.resume": "later", "sale.close": rehearsal, "sale.archive": "later",
			"order.cancel": "s", "payment.settle": "s", "dead.retry": "s", "dead.drop": "s",
			"rehearsal.remove": rehearsal, "rehearsal.report": "s", "webhook.ping": "",
		}
		if got := e.salesOfLog(t); !maps.Equal(got, want) {
			t.Errorf("sales by action\n%v\nwant\n%v", got, want)
		}
		for _, o := range orders[4:] { // each form of the entry of a cancelled dead order
			e.cancelDead(t, o, false)
			if last, err := e.LastLog(e.ctx, o.ID.String(), store.CancelledOrder); err != nil || last.SaleID != "s" {
				t.Errorf("dead order: %+v, %v", last, err)
			}
		}
		if _, err := e.CancelDead(e.ctx, store.DeadOrder{Order: orders[1]}); err != nil {
			t.Fatal(err)
		}
		if last, err := e.LastLog(e.ctx, orders[1].ID.String(), store.CancelledOrder); err != nil || last.SaleID != "s" {
			t.Errorf("dead order that is a row: %+v, %v", last, err)
		}
	})
}

func TestLogOfASaleHasPagesAndFilters(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		dead := storetest.Order("a", "bob")
		as := store.WithActor(e.ctx, "ann")
		for _, err := range []error{
			e.LogRetry(as, dead, "0"), e.LogRetry(as, storetest.Order("b", "bob"), "1"), e.LogRetry(e.ctx, dead, "2"),
			e.Record(as, "dead.drop", "a", "3"), // as a process of an earlier version, which stores no sale
			e.DropDead(as, store.DeadOrder{Order: storetest.Order("a", "eve")}, errors.New("4")),
			e.SaveReport(as, store.RehearsalReport{ID: "rehearsal-a-x", SaleID: "a", Verdict: "5", Report: []byte("{}")}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			q    store.LogQuery
			want string
		}{
			{store.LogQuery{SaleID: "a"}, "5420"},
			{store.LogQuery{SaleID: "b"}, "1"},
			{store.LogQuery{SaleID: "A"}, ""},
			{store.LogQuery{SaleID: "a", Actor: "ann"}, "540"},
			{store.LogQuery{SaleID: "a", Target: dead.ID.String()}, "20"},
			{store.LogQuery{SaleID: "a", Action: "dead.retry"}, "20"},
			{store.LogQuery{SaleID: "a", Action: "dead"}, "420"},
			{store.LogQuery{SaleID: "a", Action: "dead", Actor: "ann"}, "40"},
		} {
			for _, limit := range []int{1, 2, 100} {
				got, q := "", c.q
				for q.Limit = limit; ; {
					page, err := e.Log(e.ctx, q)
					if err != nil || len(page) > limit {
						t.Fatalf("%+v: %d entries, %v", q, len(page), err)
					}
					for _, entry := range page {
						digit := strings.IndexAny(entry.Detail, "012345")
						got += entry.Detail[digit : digit+1]
						q.Before = entry.Number
					}
					if len(page) < limit {
						break
					}
				}
				if got != c.want {
					t.Errorf("%+v in pages of %d: entries %q, want %q", c.q, limit, got, c.want)
				}
			}
		}
	})
}
