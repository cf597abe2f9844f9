package archive_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/admission/admissiontest"
	"sluice/backend/archive"
	"sluice/backend/audit"
	"sluice/backend/events"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// world is a database, and a Redis with its sales.
type world struct {
	*testing.T
	ctx   context.Context
	db    *store.Store
	stock *admission.Stock
	admit *admission.Admitter
	cfg   archive.Config
}

func newWorld(t *testing.T, db *store.Store) *world {
	t.Helper()
	client := testenv.OpenPatient(t, testenv.StartRedis(t).URL)
	w := &world{T: t, ctx: t.Context(), db: db}
	space := keyspace.Space{Shards: 2}
	w.stock = admission.NewStock(admission.StockConfig{Client: client, Space: space, Claimer: db})
	w.admit = admissiontest.NewAdmitter(t, client, space, func(c *admission.Config) {
		c.Refillers = spread.NewRefillers(spread.NewMover(admission.NewSegments(client, space, nil), db))
	})
	w.cfg = archive.Config{
		Store: db, Stock: w.stock, Audit: audit.New(w.stock, db).Audit, Dir: t.TempDir(),
		Undelivered: func(context.Context, string) (bool, error) { return false, nil },
		Log:         slog.New(slog.DiscardHandler),
	}
	return w
}

// buy returns the outcome of a purchase by a buyer of one part of a sale.
func (w *world) buy(from spread.Part) sale.Outcome {
	w.Helper()
	buyer := "late"
	for spread.Home(buyer, from.Spread) != from.Segment {
		buyer += "r"
	}
	d, err := w.admit.Admit(w.ctx, admission.Request{
		SaleID: from.SaleID, Spread: from.Spread, Buyer: buyer, Key: buyer, KeyTTL: time.Minute,
	})
	w.check(err)
	return d.Outcome
}

// sale makes a closed sale with n orders: one is paid, one cancelled, and the others are created.
func (w *world) sale(id string, n int) []sale.Order {
	w.Helper()
	return w.sell(storetest.Sale(id, int64(n)+10), n)
}

// sell makes a closed sale as sale does.
func (w *world) sell(def sale.Sale, n int) []sale.Order {
	w.Helper()
	id := def.ID
	def, err := w.db.CreateSale(w.ctx, def)
	w.check(err)
	orders := storetest.Orders(id, n)
	orders[0].Buyer = "<b>&\u2028" // is escaped in JSON
	for i := range orders {
		orders[i].Serial = spread.HomePart(id, orders[i].Buyer, def.Spread).Base() + int64(i) + 1
	}
	w.check(w.db.Write(w.ctx, orders))
	w.check(w.stock.Load(w.ctx, def, w.db.OrdersOf))
	_, _, err = w.db.Pay(w.ctx, storetest.Payment(orders[0], "pay_1"))
	w.check(err)
	o, _, err := w.db.CancelOrder(store.WithReason(store.WithActor(w.ctx, "eve"), "test"), orders[1].ID)
	w.check(err)
	numbers, err := w.stock.ReturnUnits(w.ctx, spread.HomePart(id, o.Buyer, def.Spread), []sale.Order{o})
	w.check(err)
	w.check(w.db.MarkReturned(w.ctx, []store.Return{{ID: o.ID, Number: numbers[0]}}))
	closed, err := w.db.SetSwitch(w.ctx, id, sale.Closed)
	w.check(err)
	w.check(w.stock.Update(w.ctx, closed))
	w.handleEvents()
	return orders
}

// handleEvents removes the changes from the outbox, as when every group has handled them.
func (w *world) handleEvents() {
	w.Helper()
	all := events.NewStore(w.db.DB)
	for after := int64(0); ; {
		changes, err := all.Changes(w.ctx, after, 10_000)
		w.check(err)
		if len(changes) == 0 {
			break
		}
		after = changes[len(changes)-1].Position
		w.check(all.DeleteChanges(w.ctx, after))
	}
}

// files returns the paths in the output directory that match a pattern.
func (w *world) files(pattern string) []string {
	w.Helper()
	paths, err := filepath.Glob(filepath.Join(w.cfg.Dir, pattern))
	w.check(err)
	return paths
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) rows(saleID string) []store.OrderRow {
	w.Helper()
	var rows []store.OrderRow
	for q := (store.OrderQuery{SaleID: saleID, Limit: 1000}); ; q.After = rows[len(rows)-1].ID {
		page, err := w.db.OrderRows(w.ctx, q)
		w.check(err)
		rows = append(rows, page...)
		if len(page) < q.Limit {
			return rows
		}
	}
}

// lines returns the lines of a file without the header and the footer.
func (w *world) lines(name string) (all []json.RawMessage) {
	w.Helper()
	file, err := os.Open(filepath.Join(w.cfg.Dir, name))
	w.check(err)
	defer file.Close()
	plain, err := gzip.NewReader(file)
	w.check(err)
	for lines := bufio.NewScanner(plain); lines.Scan(); {
		all = append(all, slices.Clone(lines.Bytes()))
	}
	return all[1 : len(all)-1]
}

// inFiles returns the statuses of the orders in the recorded parts of a sale.
func (w *world) inFiles(saleID string) map[sale.OrderID]sale.Status {
	w.Helper()
	found := map[sale.OrderID]sale.Status{}
	a, err := w.db.Archive(w.ctx, saleID)
	if errors.Is(err, sale.ErrNotFound) {
		return found
	}
	w.check(err)
	for _, part := range a.Parts {
		for _, text := range w.lines(part.File) {
			var line struct{ Order *store.OrderRow }
			w.check(json.Unmarshal(text, &line))
			if line.Order != nil {
				found[line.Order.ID] = line.Order.Status
			}
		}
	}
	return found
}

func TestArchiveMovesAllRows(t *testing.T) {
	storetest.Engines(t, func(t *testing.T, db *store.Store, _ string) {
		w := newWorld(t, db)
		orders := w.sale("old", 2500)
		other := w.sale("other", 10)
		a, err := archive.New(w.cfg).Archive(w.ctx, "old")
		w.check(err)
		if a.Orders != 2500 || a.Paid != 1 || a.Cancelled != 1 || a.Payments != 1 || len(a.Parts) != 1 || a.EndedAt.IsZero() {
			t.Errorf("%+v", a)
		}
		if left := w.rows("old"); len(left) != 0 {
			t.Errorf("%d rows are left", len(left))
		}
		files := w.inFiles("old")
		for i, want := range map[int]sale.Status{0: sale.StatusPaid, 1: sale.StatusCancelled, 2499: sale.StatusCreated} {
			if files[orders[i].ID] != want {
				t.Errorf("order %d is %q in the file, want %s", i, files[orders[i].ID], want)
			}
		}
		if len(files) != 2500 || len(w.rows("other")) != len(other) {
			t.Errorf("%d orders in the file, %d rows of the other sale", len(files), len(w.rows("other")))
		}
		if s, sold, err := db.Sale(w.ctx, "old"); err != nil || sold != 2499 || s.Switch != sale.Closed {
			t.Errorf("%+v, sold %d, %v", s, sold, err)
		}
		if _, err := w.stock.View(w.ctx, "old"); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("Redis has the sale: %v", err)
		}
		summaries, err := db.SaleSummaries(w.ctx)
		if err != nil || len(summaries) != 1 || summaries[0].ID != "other" {
			t.Errorf("%+v, %v", summaries, err)
		}
		again, err := archive.New(w.cfg).Archive(w.ctx, "old")
		if err != nil || fmt.Sprint(again) != fmt.Sprint(a) {
			t.Errorf("a repeated call: %+v, %v", again, err)
		}
		ids, err := db.EndedSales(w.ctx, time.Now().Add(time.Hour))
		if err != nil || len(ids) != 1 || ids[0] != "other" {
			t.Errorf("ended sales %v, %v", ids, err)
		}
	})
}

// The fields of the lines are a format that other programs read.
func TestFieldsOfTheLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, storetest.Open(t, storetest.SQLite(t)))
	orders := w.sell(storetest.WithHold("old", 10, time.Hour), 2)
	_, _, err := w.db.Pay(w.ctx, storetest.Payment(orders[1], "pay_2"))
	w.check(err)
	open, err := w.db.Callbacks(w.ctx, store.CallbackQuery{OpenRefunds: true})
	w.check(err)
	_, err = w.db.SettleRefund(store.WithActor(w.ctx, "eve"), open[0].Number, "refunded")
	w.check(err)
	a, err := archive.New(w.cfg).Archive(w.ctx, "old")
	w.check(err)
	var got []string
	for _, line := range w.lines(a.Parts[0].File) {
		var fields any
		w.check(json.Unmarshal(line, &fields))
		sorted, err := json.Marshal(fields)
		w.check(err)
		got = append(got, string(sorted))
	}
	varying := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|\d{10,}|msg_\d+|buyer-\d+`)
	text := varying.ReplaceAllString(strings.Join(got, "\n"), "*")
	const want = `{"order":{"buyer":"\u003cb\u003e\u0026\u2028","created_at":"*","due_at":"*","nth":1,"order_id":"*",` +
		`"reference":"pay_1","return_number":-1,"sale_id":"old","serial":1,"status":"paid","updated_at":"*"}}` + "\n" +
		`{"order":{"buyer":"*","cancel_reason":"test","cancelled_by":"eve","created_at":"*","due_at":"*","nth":1,` +
		`"order_id":"*","return_number":*,"sale_id":"old","serial":2,"status":"cancelled","updated_at":"*"}}` + "\n" +
		`{"payment":{"amount":9900,"at":"*","callback_id":"*","currency":"EUR","digest":"digest of *",` +
		`"event":"succeeded","number":1,"order_id":"*","outcome":"paid","reference":"pay_1","sale_id":"old"}}` + "\n" +
		`{"payment":{"amount":9900,"at":"*","callback_id":"*","currency":"EUR","digest":"digest of *",` +
		`"event":"succeeded","note":"refunded","number":2,"order_id":"*","outcome":"order_cancelled",` +
		`"reference":"pay_2","refund":true,"sale_id":"old","settled_at":"*","settled_by":"eve"}}`
	if text != want {
		t.Errorf("got:\n%s\nwant:\n%s", text, want)
	}
}

// A sale with several segments is archived like any other: its audit sums the segments, and all of them are removed
// from Redis.
func TestArchiveOfASpreadSale(t *testing.T) {
	storetest.Engines(t, func(t *testing.T, db *store.Store, _ string) {
		w := newWorld(t, db)
		def := storetest.Sale("wide", 600) // each half has enough for all buyers
		def.Spread = 2
		orders := w.sell(def, 300)
		report, err := w.cfg.Audit(w.ctx, "wide")
		if err != nil || !report.Balanced || len(report.Segments) != 2 || report.Segments[0].Ordered == 0 ||
			report.Segments[1].Ordered == 0 {
			t.Fatalf("the sale before the archive: %+v, %v", report, err)
		}
		a, err := archive.New(w.cfg).Archive(w.ctx, "wide")
		w.check(err)
		if files := w.inFiles("wide"); a.Orders != 300 || a.Paid != 1 || len(files) != len(orders) ||
			len(w.rows("wide")) != 0 {
			t.Errorf("%+v, %d orders in the files, %d rows are left", a, len(files), len(w.rows("wide")))
		}
		if _, err := w.stock.View(w.ctx, "wide"); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("Redis has the sale: %v", err)
		}
	})
}

// Redis accepts no order after the audit: neither if a Close has not reached all shards, nor if the sale ended at its
// closing time and a server's clock is set back later.
func TestNoOrderIsAcceptedAfterTheAudit(t *testing.T) {
	storetest.Engines(t, func(t *testing.T, db *store.Store, databaseURL string) {
		for name, c := range map[string]struct {
			spread int
			end    func(w *world, on sale.Sale)
		}{
			"close": {0, func(w *world, on sale.Sale) {
				_, err := db.SetSwitch(w.ctx, on.ID, sale.Closed)
				w.check(err)
			}},
			"segment": {2, func(w *world, on sale.Sale) {
				closed, err := db.SetSwitch(w.ctx, on.ID, sale.Closed)
				w.check(err)
				w.check(w.stock.UpdatePart(w.ctx, admission.SalePart{Sale: closed, Segment: 1}))
			}},
			"time": {0, func(w *world, on sale.Sale) {
				storetest.Exec(t, databaseURL, "UPDATE sales SET closes_at = opens_at WHERE id = '"+on.ID+"'")
				on.ClosesAt = on.OpensAt
				w.check(w.stock.Remove(w.ctx, on))
				w.check(w.stock.Load(w.ctx, on, db.OrdersOf))
			}},
		} {
			w := newWorld(t, db)
			def := storetest.Sale(name, 10)
			def.Spread = c.spread
			def, err := db.CreateSale(w.ctx, def)
			w.check(err)
			w.check(w.stock.Load(w.ctx, def, db.OrdersOf))
			c.end(w, def)
			w.cfg.Step = func(step string) {
				if step != "write" {
					return
				}
				for _, part := range spread.PartsOf(def) {
					if got := w.buy(part); got != sale.SaleClosed {
						t.Errorf("%+v: a purchase after the audit is %s", part, got)
					}
				}
				view, err := w.stock.View(w.ctx, name)
				if err != nil || view.Switch != sale.Closed {
					t.Errorf("%s: the switch in Redis is %q, %v", name, view.Switch, err)
				}
			}
			_, err = archive.New(w.cfg).Archive(w.ctx, name)
			w.check(err)
		}
	})
}

func TestArchiveRejectsUnsettledSales(t *testing.T) {
	storetest.Engines(t, func(t *testing.T, db *store.Store, databaseURL string) {
		w := newWorld(t, db)
		_, err := events.NewStore(db.DB).AddGroup(w.ctx, "group", false)
		w.check(err)
		for name, c := range map[string]struct {
			prepare func(orders []sale.Order)
			want    string
		}{
			"open": {func(o []sale.Order) {
				storetest.Exec(t, databaseURL, "UPDATE sales SET switch = 'on' WHERE id = '"+o[0].SaleID+"'")
			}, "is not closed"},
			"hold": {func(o []sale.Order) {
				storetest.Exec(t, databaseURL, "UPDATE orders SET due_at = updated_at WHERE id = "+o[2].ID.String())
			}, "unpaid orders"},
			"returning": {func(o []sale.Order) {
				storetest.Exec(t, databaseURL, "UPDATE orders SET return_number = NULL WHERE id = "+o[1].ID.String())
			}, "not back in Redis"},
			"refund": {func(o []sale.Order) {
				_, _, err := db.Pay(w.ctx, storetest.Payment(o[1], "pay_2"))
				w.check(err)
			}, "open refunds"},
			"event": {func(o []sale.Order) {
				_, _, err := db.Pay(w.ctx, storetest.Payment(o[2], "pay_3"))
				w.check(err)
			}, "group of consumers"},
			"webhook": {func([]sale.Order) {
				w.cfg.Undelivered = func(context.Context, string) (bool, error) { return true, nil }
			}, "webhooks"},
			"lost": {func(o []sale.Order) {
				def, _, err := db.Sale(w.ctx, o[0].SaleID)
				w.check(err)
				w.check(w.stock.Remove(w.ctx, def))
			}, "Redis does not hold it"},
			"unbalanced": {func([]sale.Order) {
				w.cfg.Audit = func(context.Context, string) (audit.Report, error) { return audit.Report{}, nil }
			}, "does not balance"},
			"clock": {func(o []sale.Order) {
				def := storetest.Sale("another", 13)
				def.ID, def.ClosesAt = o[0].SaleID, time.Now().Add(time.Hour)
				w.check(w.stock.Remove(w.ctx, def))
				w.check(w.stock.Load(w.ctx, def, db.OrdersOf))
				storetest.Exec(t, databaseURL, "UPDATE sales SET switch = 'on', closes_at = opens_at WHERE id = '"+def.ID+"'")
			}, "by the clock of Redis it has not ended"},
			"queued": {func([]sale.Order) {
				w.cfg.Audit = func(context.Context, string) (audit.Report, error) {
					return audit.Report{Balanced: true, Leased: 3}, nil
				}
			}, "orders in the queue or dead: 3"},
		} {
			cfg := w.cfg
			orders := w.sale(name, 3)
			c.prepare(orders)
			_, err := archive.New(w.cfg).Archive(w.ctx, name)
			w.cfg = cfg
			if !errors.Is(err, sale.ErrConflict) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
			if _, err := db.Archive(w.ctx, name); !errors.Is(err, sale.ErrNotFound) || len(w.rows(name)) != 3 {
				t.Errorf("%s: something has changed: %v", name, err)
			}
			w.handleEvents()
		}
		if _, err := archive.New(w.cfg).Archive(w.ctx, "unknown"); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("unknown sale: %v", err)
		}
		if _, err := archive.New(w.cfg).Archive(w.ctx, sale.RehearsalPrefix+"x"); !errors.Is(err, sale.ErrConflict) {
			t.Errorf("rehearsal: %v", err)
		}
	})
}

// At every instant, each order is a row or in a recorded file. A run that ends before any step can be repeated.
func TestArchiveContinuesAfterACrashAtEachStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, storetest.Open(t, storetest.SQLite(t)))
	for at, done := 0, false; !done; at++ {
		id := fmt.Sprint("sale-", at)
		orders := w.sale(id, 1100)
		steps, crashes := 0, 0
		w.cfg.Step = func(string) {
			if steps++; steps > at && crashes < 2 { // the second run ends immediately after the first
				steps, crashes = 0, crashes+1
				runtime.Goexit()
			}
		}
		var a store.Archive
		for {
			ended := false
			var run sync.WaitGroup
			run.Go(func() {
				var err error
				a, err = archive.New(w.cfg).Archive(w.ctx, id)
				w.check(err)
				ended = true
			})
			run.Wait()
			if ended || t.Failed() {
				break
			}
			all := w.inFiles(id)
			for _, row := range w.rows(id) {
				all[row.ID] = row.Status
			}
			if len(all) != len(orders) {
				t.Fatalf("after a crash at step %d: %d of %d orders are rows or in a file", at, len(all), len(orders))
			}
		}
		done = crashes == 0
		if all := w.inFiles(id); len(all) != len(orders) || a.Orders != 1100 || a.Payments != 1 || len(w.rows(id)) > 0 {
			t.Fatalf("step %d: %d orders in files; %+v", at, len(all), a)
		}
		if done && at < 6 { // write, verify, record, redis, two batches of orders, one of payments
			t.Errorf("only %d steps", at)
		}
	}
}

func TestRowsThatChangeMeanwhileAreInALaterPart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, storetest.Open(t, storetest.SQLite(t)))
	orders := w.sale("old", 20)
	late := false
	w.cfg.Step = func(name string) {
		if name == "redis" && !late {
			late = true
			_, _, err := w.db.Pay(w.ctx, storetest.Payment(orders[5], "late"))
			w.check(err)
			w.handleEvents()
		}
	}
	a, err := archive.New(w.cfg).Archive(w.ctx, "old")
	w.check(err)
	if files := w.inFiles("old"); len(a.Parts) != 2 || a.Orders != 20 || a.Paid != 2 ||
		files[orders[5].ID] != sale.StatusPaid {
		t.Errorf("%+v; the order is %s", a, files[orders[5].ID])
	}
}

// Payments that arrive while rows are removed stay rows until their refunds are settled and their events are handled.
func TestLatePaymentIsArchivedAfterItIsSettled(t *testing.T) {
	storetest.Engines(t, func(t *testing.T, db *store.Store, _ string) {
		w := newWorld(t, db)
		_, err := events.NewStore(db.DB).AddGroup(w.ctx, "group", false)
		w.check(err)
		orders := w.sale("old", 20)
		cfg, late := w.cfg, false
		cfg.Step = func(name string) {
			if name == "redis" && !late {
				late = true
				for order, callback := range map[int]string{1: "refund", 5: "paid"} { // the order 1 is cancelled
					_, _, err := db.Pay(w.ctx, storetest.Payment(orders[order], callback))
					w.check(err)
				}
			}
		}
		for _, c := range []struct {
			settle func()
			want   string
		}{
			{func() {}, "open refunds"},
			{func() {
				open, err := db.Callbacks(w.ctx, store.CallbackQuery{OpenRefunds: true})
				if err != nil || len(open) != 1 || open[0].OrderID != orders[1].ID {
					t.Fatalf("open refunds: %+v, %v", open, err)
				}
				_, err = db.SettleRefund(w.ctx, open[0].Number, "")
				w.check(err)
			}, "group of consumers"},
		} {
			c.settle()
			if _, err := archive.New(cfg).Archive(w.ctx, "old"); !errors.Is(err, sale.ErrConflict) ||
				!strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
		}
		w.handleEvents()
		if a, err := archive.New(cfg).Archive(w.ctx, "old"); err != nil || a.Orders != 20 || a.Paid != 2 || a.Payments != 3 {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

func TestDamagedFileRemovesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, storetest.Open(t, storetest.SQLite(t)))
	w.sale("old", 20)
	for name, damage := range map[string]func(b []byte) []byte{
		"empty":     func([]byte) []byte { return nil },
		"truncated": func(b []byte) []byte { return b[:len(b)-20] },
		"changed":   func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
		"appended":  func(b []byte) []byte { return append(b, "more"...) },
	} {
		w.cfg.Step = func(step string) {
			if step != "verify" {
				return
			}
			path := w.files("old-1-*.ndjson.gz")[0]
			b, err := os.ReadFile(path)
			w.check(err)
			w.check(os.WriteFile(path, damage(b), 0o600))
		}
		_, err := archive.New(w.cfg).Archive(w.ctx, "old")
		if err == nil || !strings.Contains(err.Error(), "cannot be verified") || len(w.rows("old")) != 20 {
			t.Errorf("%s: %v, %d rows", name, err, len(w.rows("old")))
		}
	}
	w.cfg.Step = nil
	if a, err := archive.New(w.cfg).Archive(w.ctx, "old"); err != nil || a.Orders != 20 {
		t.Errorf("%+v, %v", a, err)
	}
}

// A run during which another one completes fails, and does not replace its file.
func TestTwoRunsDoNotReplaceEachOthersFiles(t *testing.T) {
	storetest.Engines(t, func(t *testing.T, db *store.Store, _ string) {
		w := newWorld(t, db)
		w.sale("old", 20)
		late := w.cfg
		late.Step = func(string) {
			if len(w.inFiles("old")) == 0 {
				_, err := archive.New(w.cfg).Archive(w.ctx, "old")
				w.check(err)
			}
		}
		_, err := archive.New(late).Archive(w.ctx, "old")
		if !errors.Is(err, sale.ErrConflict) || !strings.Contains(err.Error(), "another run") {
			t.Errorf("the late run: %v", err)
		}
		if n := len(w.inFiles("old")); n != 20 {
			t.Errorf("%d of 20 orders are in the recorded file", n)
		}
	})
}

// Two deployments with a sale of the same id archive it to one directory.
func TestDeploymentsShareAnArchiveDirectory(t *testing.T) {
	t.Parallel()
	a, b := newWorld(t, storetest.Open(t, storetest.SQLite(t))), newWorld(t, storetest.Open(t, storetest.SQLite(t)))
	b.cfg.Dir = a.cfg.Dir
	for n, w := range map[int]*world{30: a, 20: b} {
		w.sale("old", n)
		_, err := archive.New(w.cfg).Archive(w.ctx, "old")
		w.check(err)
	}
	if of, other := len(a.inFiles("old")), len(b.inFiles("old")); of != 30 || other != 20 {
		t.Errorf("the files have %d and %d orders, want 30 and 20", of, other)
	}
	if left := a.files("*.tmp"); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
}
