package store_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

func TestCreateSaleReadsBackAsWritten(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		full := storetest.Sale("Full.sale_1-x", 7)
		full.Title = `O'Neil "ünï" 👟; DROP TABLE sales --`
		full.PerBuyer = 3
		full.OpensAt = time.Date(2026, 7, 1, 10, 0, 0, 123_456_789, time.FixedZone("", 7200))
		full.ClosesAt = time.Date(2026, 7, 1, 12, 0, 0, 1_000_000, time.UTC)
		full.Switch = sale.Paused
		full.Version = 9
		bare := storetest.Sale("bare", sale.MaxStock)
		bare.Title = strings.Repeat("x", sale.MaxTitleLen)
		bare.Switch = ""
		for _, s := range []sale.Sale{full, bare} {
			created, err := e.CreateSale(e.ctx, s)
			if err != nil {
				t.Fatal(err)
			}
			want := s
			want.Version = 1
			want.OpensAt, want.ClosesAt = s.OpensAt.UTC().Truncate(time.Millisecond), s.ClosesAt.UTC()
			if want.Switch == "" {
				want.Switch = sale.On
			}
			read, sold, err := e.Sale(e.ctx, s.ID)
			if err != nil || sold != 0 {
				t.Fatalf("sold %d, %v", sold, err)
			}
			if !reflect.DeepEqual(created, want) || !reflect.DeepEqual(read, want) {
				t.Fatalf("created %+v\n   read %+v\n   want %+v", created, read, want)
			}
		}
		e.write(t, storetest.Orders("bare", 3)...)
		summaries, err := e.SaleSummaries(e.ctx)
		if err != nil || len(summaries) != 2 || summaries[0].ID != full.ID || summaries[0].Sold != 0 ||
			summaries[1].ID != "bare" || summaries[1].Sold != 3 {
			t.Fatalf("summaries %+v, %v", summaries, err)
		}
		if _, _, err := e.Sale(e.ctx, "unknown"); !errors.Is(err, sale.ErrNotFound) {
			t.Fatalf("unknown sale: %v", err)
		}
	})
}

func TestCreateSaleRejectsUsedIDAndInvalidSale(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		first := e.create(t, "taken", 5)
		if _, err := e.CreateSale(e.ctx, storetest.Sale("taken", 9)); !errors.Is(err, sale.ErrExists) {
			t.Fatalf("taken id: %v", err)
		}
		if now, _, err := e.Sale(e.ctx, "taken"); err != nil || now != first {
			t.Fatalf("the rejected sale changed the first one: %+v, %v", now, err)
		}
		var invalid *sale.InvalidError
		if _, err := e.CreateSale(e.ctx, storetest.Sale("empty", 0)); !errors.As(err, &invalid) {
			t.Fatalf("invalid sale: %v", err)
		}
	})
}

// A repeated creation returns the sale as it is now. Each field that is set at the creation must be the same.
func TestRepeatedCreationReturnsTheSale(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "other", 4)
		n := storetest.Sale("s", 5)
		n.Details = sale.Details{Picture: "https://shop.example/a.jpg"}
		for range 2 {
			if got, err := e.CreateSale(e.ctx, n); err != nil || got != n {
				t.Fatalf("%+v, %v; want %+v", got, err, n)
			}
		}
		for i, key := range []string{"", "k", "k", ""} { // the repeated key adds nothing
			if _, err := e.Restock(e.ctx, "s", 3, key); err != nil {
				t.Fatalf("restock %d: %v", i, err)
			}
		}
		want, err := e.SetSwitch(e.ctx, "s", sale.Paused)
		if err != nil || want.Stock != 14 {
			t.Fatalf("%+v, %v", want, err)
		}
		if got, err := e.CreateSale(e.ctx, n); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
		for name, change := range map[string]func(*sale.Sale){
			"stock": func(n *sale.Sale) { n.Stock = 14 }, "title": func(n *sale.Sale) { n.Title += "x" },
			"hold": func(n *sale.Sale) { n.Hold = time.Minute }, "picture": func(n *sale.Sale) { n.Picture = "" },
			"segments": func(n *sale.Sale) { n.Spread = 2 },
		} {
			changed := n
			change(&changed)
			if _, err := e.CreateSale(e.ctx, changed); !errors.Is(err, sale.ErrExists) {
				t.Errorf("another %s: %v", name, err)
			}
		}
		log, err := e.Log(e.ctx, store.LogQuery{Action: "sale.create", Target: "s"})
		if err != nil || len(log) != 1 {
			t.Errorf("logged %+v, %v; want one creation", log, err)
		}
	})
}

func TestSetSwitchIncrementsVersionAndClosedIsFinal(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 5)
		for _, step := range []struct {
			to      sale.Switch
			version int64
			err     error
		}{
			{sale.On, 1, nil},
			{sale.Paused, 2, nil},
			{sale.Paused, 2, nil},
			{sale.On, 3, nil},
			{sale.Closed, 4, nil},
			{sale.Closed, 4, nil},
			{sale.On, 4, sale.ErrConflict},
			{sale.Paused, 4, sale.ErrConflict},
		} {
			got, err := e.SetSwitch(e.ctx, "s", step.to)
			if !errors.Is(err, step.err) {
				t.Fatalf("to %s: %v, want %v", step.to, err, step.err)
			}
			if err == nil && (got.Switch != step.to || got.Version != step.version) {
				t.Fatalf("to %s: %s at version %d, want version %d", step.to, got.Switch, got.Version, step.version)
			}
			if now, _, err := e.Sale(e.ctx, "s"); err != nil || now.Version != step.version {
				t.Fatalf("after %s: version %d, want %d (%v)", step.to, now.Version, step.version, err)
			}
		}
		if _, err := e.SetSwitch(e.ctx, "unknown", sale.On); !errors.Is(err, sale.ErrNotFound) {
			t.Fatalf("unknown sale: %v", err)
		}
		var invalid *sale.InvalidError
		if _, err := e.SetSwitch(e.ctx, "s", "off"); !errors.As(err, &invalid) {
			t.Fatalf("unknown position: %v", err)
		}
	})
}

func TestRestockOncePerRequestKey(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 5)
		e.create(t, "other", 5)
		want := func(stock, version int64, got sale.Sale, err error) {
			t.Helper()
			if err != nil || got.Stock != stock || got.Version != version {
				t.Fatalf("stock %d, version %d, %v; want %d and %d", got.Stock, got.Version, err, stock, version)
			}
			if now, _, err := e.Sale(e.ctx, got.ID); err != nil || now != got {
				t.Fatalf("stored %+v, returned %+v, %v", now, got, err)
			}
		}
		got, err := e.Restock(e.ctx, "s", 3, "k'1 👟")
		want(8, 2, got, err)
		got, err = e.Restock(e.ctx, "s", 3, "k'1 👟")
		want(8, 2, got, err)
		got, err = e.Restock(e.ctx, "other", 3, "k'1 👟")
		want(8, 2, got, err)
		got, err = e.Restock(e.ctx, "s", 1, "")
		want(9, 3, got, err)
		got, err = e.Restock(e.ctx, "s", 1, "")
		want(10, 4, got, err)

		rejected := func(why string, want error, id string, add int64, key string) {
			t.Helper()
			if _, err := e.Restock(e.ctx, id, add, key); !errors.Is(err, want) {
				t.Fatalf("%s: %v, want %v", why, err, want)
			}
		}
		refused := func(why, id string, add int64, key string) {
			t.Helper()
			_, err := e.Restock(e.ctx, id, add, key)
			if refused, ok := errors.AsType[*store.RefusedError](err); !ok || refused.Detail != "Nothing was added: "+why {
				t.Fatalf("%v, want that nothing was added: %s", err, why)
			}
		}
		refused("this Idempotency-Key was used with another number.", "s", 4, "k'1 👟")
		refused("the stock of the sale would exceed 1000000000.", "s", sale.MaxStock-9, "k2")
		rejected("unknown sale", sale.ErrNotFound, "unknown", 1, "k")
		var invalid *sale.InvalidError
		for _, add := range []int64{0, -1} {
			if _, err := e.Restock(e.ctx, "s", add, ""); !errors.As(err, &invalid) {
				t.Fatalf("adding %d: %v", add, err)
			}
		}
		if _, err := e.Restock(e.ctx, "s", 1, "nul\x00"); !errors.As(err, &invalid) {
			t.Fatalf("request key with a NUL: %v", err)
		}
		got, err = e.Restock(e.ctx, "s", sale.MaxStock-10, "k2")
		want(sale.MaxStock, 5, got, err)

		if _, err := e.SetSwitch(e.ctx, "s", sale.Closed); err != nil {
			t.Fatal(err)
		}
		refused("the sale is closed.", "s", 1, "k3")
		got, err = e.Restock(e.ctx, "s", sale.MaxStock-10, "k2") // a repeated request has the same result
		want(sale.MaxStock, 6, got, err)
	})
}

func TestRestockConcurrentlyLosesNothing(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 1)
		const each, same = 8, 5
		var wg sync.WaitGroup
		for range each {
			for _, key := range []string{"", "shared"} {
				wg.Go(func() {
					units := int64(1)
					if key != "" {
						units = same
					}
					if _, err := e.Restock(e.ctx, "s", units, key); err != nil {
						t.Errorf("key %q: %v", key, err)
					}
				})
			}
		}
		wg.Wait()
		now, _, err := e.Sale(e.ctx, "s")
		if err != nil || now.Stock != 1+each+same || now.Version != 1+each+1 {
			t.Fatalf("stock %d, version %d, %v; want %d and %d", now.Stock, now.Version, err, 1+each+same, 1+each+1)
		}
	})
}

func TestChangesAreInTheAdminLog(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		before := time.Now().Add(-2 * time.Second)
		as := store.WithActor(e.ctx, "ann@example")
		step := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err := e.CreateSale(as, storetest.Sale("s", 2))
		step(err)
		_, err = e.SetSwitch(as, "s", sale.Paused)
		step(err)
		_, err = e.SetSwitch(as, "s", sale.Paused) // no change, not logged
		step(err)
		_, err = e.SetSwitch(e.ctx, "s", sale.On)
		step(err)
		_, err = e.Restock(as, "s", 3, "")
		step(err)
		_, err = e.OpenSale(as, "s", time.Now()) // it is open: no change, not logged
		step(err)
		dead := storetest.Order("s", "bob")
		_, err = e.CancelDead(acting(e.ctx, "ben", "card stolen"), store.DeadOrder{Order: dead})
		step(err)
		step(e.Record(as, "dead.retry", dead.ID.String(), "reason \x00\xff"))

		entries, err := e.Log(e.ctx, store.LogQuery{Limit: 10})
		step(err)
		want := []store.LogEntry{
			{Actor: "ann@example", Action: "dead.retry", Target: dead.ID.String(), Detail: "reason \uFFFD"},
			{Actor: "ben", Action: "order.cancel", Target: dead.ID.String(), SaleID: "s", Detail: "sale s: card stolen"},
			{Actor: "ann@example", Action: "sale.restock", Target: "s", SaleID: "s", Detail: "added 3, stock 5, version 4"},
			{Actor: "unknown", Action: "sale.resume", Target: "s", SaleID: "s", Detail: "version 3"},
			{Actor: "ann@example", Action: "sale.pause", Target: "s", SaleID: "s", Detail: "version 2"},
			{Actor: "ann@example", Action: "sale.create", Target: "s", SaleID: "s", Detail: "stock 2"},
		}
		for i := range entries {
			if entries[i].At.Before(before) || entries[i].At.After(time.Now().Add(time.Minute)) {
				t.Errorf("the time of entry %d is %s", i, entries[i].At)
			}
			entries[i].At, entries[i].Number = time.Time{}, 0
		}
		if !reflect.DeepEqual(entries, want) {
			t.Fatalf("log\n%+v\nwant\n%+v", entries, want)
		}
		if last, err := e.Log(e.ctx, store.LogQuery{Limit: 1}); err != nil || len(last) != 1 {
			t.Fatalf("limit 1: %d entries, %v", len(last), err)
		}
	})
}

func TestLogHasPagesAndFilters(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		for i, line := range []struct{ actor, action, target string }{
			{"ann", "sale.pause", "a"}, {"ben", "sale.resume", "a"}, {"ann", "sales.else", "b"}, {"ann", "dead.retry", "7"},
			{"ann", "sale.pause", "b"},
		} {
			if err := e.Record(store.WithActor(e.ctx, line.actor), line.action, line.target, string(rune('0'+i))); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			q    store.LogQuery
			want string
		}{
			{store.LogQuery{}, "43210"}, {store.LogQuery{Actor: "ann"}, "4320"}, {store.LogQuery{Action: "sale.pause"}, "40"},
			{store.LogQuery{Action: "sale"}, "410"},
			{store.LogQuery{Target: "a"}, "10"}, {store.LogQuery{Target: "a", Actor: "ann"}, "0"},
			{store.LogQuery{Action: "sal"}, ""}, {store.LogQuery{Actor: "a%"}, ""},
		} {
			for _, limit := range []int{1, 2, 100} {
				got, q := "", c.q
				for q.Limit = limit; ; {
					page, err := e.Log(e.ctx, q)
					if err != nil || len(page) > limit {
						t.Fatalf("%+v: %d entries, %v", q, len(page), err)
					}
					for _, line := range page {
						got += line.Detail
						q.Before = line.Number
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

func TestSalesPageFiltersAndPages(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		now := time.Now()
		add := func(id, title string, change func(*sale.Sale)) {
			s := storetest.Sale(id, 2)
			s.Title, s.OpensAt = title, now.Add(-time.Hour)
			change(&s)
			if _, err := e.CreateSale(e.ctx, s); err != nil {
				t.Fatal(err)
			}
		}
		add("a-open", "100% Wool_sock!", func(*sale.Sale) {})
		add("b-later", "The SHOE", func(s *sale.Sale) { s.OpensAt = now.Add(time.Hour) })
		add("c-ended", "The shoe, last year's", func(s *sale.Sale) { s.ClosesAt = now.Add(-time.Minute) })
		add("d-paused", "鞋", func(s *sale.Sale) { s.Switch = sale.Paused })
		add("e-closed", "The sock", func(s *sale.Sale) { s.Switch = sale.Closed })
		add("f-sold", "The boot", func(*sale.Sale) {})
		add("g-open", "Ends in an hour", func(s *sale.Sale) { s.ClosesAt = now.Add(time.Hour) })
		add("h-ended", "Paused, then ended", func(s *sale.Sale) { s.Switch, s.ClosesAt = sale.Paused, now.Add(-time.Minute) })
		e.write(t, storetest.Orders("f-sold", 2)...)
		all, err := e.SalesPage(e.ctx, store.SalesQuery{})
		if err != nil || len(all) != 8 {
			t.Fatalf("%d sales, %v", len(all), err)
		}
		if total, err := e.Totals(e.ctx); err != nil || total != (store.Totals{Sales: 8, Stock: 16, Sold: 2}) {
			t.Errorf("totals %+v, %v", total, err)
		}
		for _, c := range []struct {
			q    store.SalesQuery
			want string
		}{
			{store.SalesQuery{}, "abcdefgh"}, {store.SalesQuery{Text: "shoe"}, "bc"}, {store.SalesQuery{Text: "SHOE"}, "bc"},
			{store.SalesQuery{Text: "鞋"}, "d"}, {store.SalesQuery{Text: "%"}, "a"},
			{store.SalesQuery{Text: "_sock"}, "a"}, {store.SalesQuery{Text: "!"}, "a"}, {store.SalesQuery{Text: "b-l"}, "b"},
			{store.SalesQuery{Text: "'"}, "c"}, {store.SalesQuery{Text: "\\"}, ""},
			{store.SalesQuery{State: sale.StateOpen}, "ag"}, {store.SalesQuery{State: sale.StateScheduled}, "b"},
			{store.SalesQuery{State: sale.StateClosed}, "ceh"},
			{store.SalesQuery{State: sale.StatePaused}, "d"}, {store.SalesQuery{State: sale.StateSoldOut}, "f"},
			{store.SalesQuery{State: "unknown"}, ""},
			{store.SalesQuery{State: sale.StateClosed, Text: "shoe"}, "c"}, {store.SalesQuery{After: "unknown"}, ""},
		} {
			for _, limit := range []int{1, 2, 100} {
				var got []string
				q := c.q
				for q.Limit = limit; ; {
					page, err := e.SalesPage(e.ctx, q)
					if err != nil || len(page) > limit {
						t.Fatalf("%+v: %d sales, %v", q, len(page), err)
					}
					for _, s := range page {
						got = append(got, s.ID[:1])
						q.After = s.ID
					}
					if len(page) < limit {
						break
					}
				}
				slices.Sort(got) // sales created in one millisecond are ordered by id
				if strings.Join(got, "") != c.want {
					t.Errorf("%+v in pages of %d: %v, want %s", c.q, limit, got, c.want)
				}
			}
		}
	})
}

// The details of a sale are stored with it and change its version. Lists do not have them.
func TestDetailsChangeTheVersion(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		n := storetest.Sale("s", 10)
		n.Details = sale.Details{Picture: "https://shop.example/a.jpg", Description: "# 鞋\n"}
		if _, err := e.CreateSale(e.ctx, n); err != nil {
			t.Fatal(err)
		}
		want := func(version int64, d sale.Details) {
			t.Helper()
			got, _, err := e.Sale(e.ctx, "s")
			only, detailsErr := e.Details(e.ctx, "s")
			if err != nil || detailsErr != nil || got.Details != d || only != d || got.Version != version {
				t.Errorf("%+v, %+v, %v, %v, want version %d with %+v", got, only, err, detailsErr, version, d)
			}
		}
		want(1, n.Details)
		other := sale.Details{Description: "other"}
		for range 2 { // the second call changes nothing
			if got, err := e.SetDetails(e.ctx, "s", other); err != nil || got.Version != 2 || got.Details != other {
				t.Errorf("%+v, %v", got, err)
			}
		}
		want(2, other)
		if _, err := e.SetSwitch(e.ctx, "s", sale.Closed); err != nil {
			t.Fatal(err)
		}
		if _, err := e.SetDetails(e.ctx, "s", sale.Details{}); err != nil {
			t.Errorf("a closed sale: %v", err)
		}
		want(4, sale.Details{})
		if _, err := e.SetDetails(e.ctx, "unknown", other); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("an unknown sale: %v", err)
		}
		if _, err := e.Details(e.ctx, "unknown"); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("an unknown sale: %v", err)
		}
		if _, err := e.SetDetails(e.ctx, "s", sale.Details{Picture: "javascript:x"}); !errors.As(err,
			new(*sale.InvalidError)) {
			t.Errorf("an invalid picture: %v", err)
		}
	})
}
