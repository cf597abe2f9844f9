package sim

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	_ "modernc.org/sqlite" // the driver of the observer's own connection

	"sluice/backend/admission"
	"sluice/backend/keyspace"
	"sluice/backend/ledger"
	"sluice/backend/queue"
	"sluice/backend/sale"
)

// row is an order in SQL.
type row struct {
	buyer     string
	cancelled bool
}

// books reads SQL beside the order store, by statements of its own.
type books struct{ db *sql.DB }

func openBooks(path string) (*books, error) {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return &books{db}, nil
}

// empty makes the database that of a new run.
func (b *books) empty() error {
	for _, table := range []string{"orders", "restocks", "desk_log", "payments", "sales"} {
		if _, err := b.db.ExecContext(context.Background(), "DELETE FROM "+table); err != nil {
			return fmt.Errorf("empty %s: %w", table, err)
		}
	}
	return nil
}

func (b *books) read() (rows map[sale.OrderID]row, stock, sold int64, err error) {
	rows = map[sale.OrderID]row{}
	found, err := b.db.QueryContext(context.Background(), "SELECT id, buyer, status FROM orders")
	if err != nil {
		return nil, 0, 0, err
	}
	defer found.Close()
	for found.Next() {
		var id int64
		var buyer, status string
		if err := found.Scan(&id, &buyer, &status); err != nil {
			return nil, 0, 0, err
		}
		rows[sale.OrderID(id)] = row{buyer, status == "cancelled"}
	}
	if err := found.Err(); err != nil {
		return nil, 0, 0, err
	}
	const units = "SELECT coalesce(max(stock), 0), coalesce(max(sold), 0) FROM sales"
	return rows, stock, sold, b.db.QueryRowContext(context.Background(), units).Scan(&stock, &sold)
}

func (w *world) list(key string) []string {
	all, err := w.mini.List(key)
	if err != nil {
		return nil // there is none
	}
	return all
}

func (w *world) zset(key string) map[string]float64 {
	all, err := w.mini.SortedSet(key)
	if err != nil {
		return nil // there is none
	}
	return all
}

func (w *world) hash(key string) map[string]string {
	fields, err := w.mini.HKeys(key)
	if err != nil {
		return nil // there is none
	}
	all := make(map[string]string, len(fields))
	for _, f := range fields {
		all[f] = w.mini.HGet(key, f)
	}
	return all
}

// queued is where each order of the queue is; an order in two places is a violation.
func (w *world) queued() map[sale.OrderID]string {
	at := map[sale.OrderID]string{}
	put := func(place, text string) {
		m, err := keyspace.DecodeMessage(text)
		if err != nil {
			w.violate("%s holds %q, which is no message", place, text)
			return
		}
		if other := at[m.ID]; other != "" {
			w.violate("order %s is in %s and in %s", short(m.ID), other, place)
		}
		at[m.ID] = place
	}
	for _, text := range w.list(w.lane.Ready()) {
		put("ready", text)
	}
	for text := range w.zset(w.lane.Delayed()) {
		put("delayed", text)
	}
	leases := w.zset(w.lane.Leases())
	batches := 0
	for id := range leases {
		texts := w.list(w.lane.Batch(id))
		if len(texts) > 0 {
			batches++
		}
		for _, text := range texts {
			put("batch "+id, text)
		}
	}
	for _, key := range w.mini.Keys() {
		if strings.HasPrefix(key, w.lane.BatchPrefix()) {
			batches--
		}
	}
	if batches != 0 {
		w.violate("there are batches without a lease")
	}
	letters := w.hash(w.lane.DeadLetters())
	for id, letter := range letters {
		n, err := sale.ParseOrderID(id)
		if err != nil {
			w.violate("dead letter %q: %s", id, letter)
			continue
		}
		if other := at[n]; other != "" {
			w.violate("order %s is in %s and dead", short(n), other)
		}
		at[n] = "dead"
	}
	if len(w.zset(w.lane.Dead())) != len(letters) {
		w.violate("the dead and their letters differ")
	}
	return at
}

// check holds both stores against the invariants. It is called with every process standing still.
func (w *world) check() {
	w.listen()
	if !w.dirty.Load() {
		return
	}
	w.dirty.Store(false)
	if w.touched.Load() {
		w.touched.Store(false)
		w.checkRows()
	}
	at := w.queued()
	held := map[sale.OrderID]string{}
	for buyer, places := range w.hash(w.lane.Buyers(saleID)) {
		n := 0
		for place := range strings.SplitSeq(places, ",") {
			if place == "" {
				continue
			}
			id, err := sale.ParseOrderID(place)
			if err != nil || held[id] != "" {
				w.violate("buyer %s holds %q", buyer, places)
			}
			held[id] = buyer
			n++
		}
		if n > w.PerBuyer {
			w.violate("buyer %s holds %d orders, and may hold %d", buyer, n, w.PerBuyer)
		}
	}
	def := w.hash(w.lane.Sale(saleID))
	if text, err := w.mini.Get(w.lane.Stock(saleID)); err == nil && def["stock"] != "" {
		left, _ := strconv.Atoi(text)
		stock, _ := strconv.Atoi(def["stock"])
		if left < 0 {
			w.violate("oversold: %d units are left", left)
		}
		if left+len(held) != stock {
			w.violate("stock is %d, but %d are left and %d are held", stock, left, len(held))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(held)) {
		if _, isRow := w.rows[id]; at[id] == "" && !isRow {
			w.violate("order %s of %s is lost: it holds a unit, and is neither queued, nor dead, nor a row", short(id), held[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(at)) {
		if r, isRow := w.rows[id]; held[id] == "" && (!isRow || !r.cancelled) {
			w.violate("order %s is in %s and holds no unit", short(id), at[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.rows)) {
		if r := w.rows[id]; !r.cancelled && held[id] != r.buyer {
			w.violate("order %s is a row of %s and holds no unit of theirs", short(id), r.buyer)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.promised)) {
		if r, isRow := w.rows[id]; at[id] == "" && !isRow || isRow && r.buyer != w.promised[id] {
			w.violate("order %s was accepted for %s, and is lost", short(id), w.promised[id])
		}
	}
}

func (w *world) checkRows() {
	rows, stock, sold, err := w.books.read()
	if err != nil {
		w.violate("the observer cannot read SQL: %v", err)
		return
	}
	count, of := int64(0), map[string]int{}
	for id, r := range rows {
		if !r.cancelled {
			count++
			of[r.buyer]++
		}
		if was, known := w.rows[id]; known && (was.buyer != r.buyer || was.cancelled && !r.cancelled) {
			w.violate("row %s has changed", short(id))
		}
	}
	for id := range w.rows {
		if _, still := rows[id]; !still {
			w.violate("row %s is gone", short(id))
		}
	}
	for buyer, n := range of {
		if n > w.PerBuyer {
			w.violate("SQL has %d orders of %s, who may hold %d", n, buyer, w.PerBuyer)
		}
	}
	if count > stock || count != sold {
		w.violate("SQL has %d units, counts %d as sold, and has %d orders", stock, sold, count)
	}
	w.mu.Lock()
	w.rows = rows
	w.mu.Unlock()
}

// answer is what a buyer was told.
type answer struct {
	buyer, key string
	d          admission.Decision
}

// listen takes note of the answers that came in.
func (w *world) listen() {
	w.mu.Lock()
	answers := w.answers
	w.answers = nil
	w.mu.Unlock()
	slices.SortFunc(answers, func(a, b answer) int { return strings.Compare(a.buyer+a.key, b.buyer+b.key) })
	for _, a := range answers {
		if a.d.OrderID == 0 {
			continue
		}
		w.dirty.Store(true)
		w.promised[a.d.OrderID] = a.buyer
		if a.d.Outcome == sale.AlreadyBought {
			continue
		}
		w.result.Accepted++
		name := a.buyer + " " + a.key
		if before, again := w.seen[name]; again && before != a.d.OrderID {
			w.violate("buyer %s got order %s for request %s, and then order %s", a.buyer, short(before), a.key, short(a.d.OrderID))
		}
		w.seen[name] = a.d.OrderID
	}
}

// rests reports whether there is nothing left to do, and nobody who would make it.
func (w *world) rests() bool {
	synctest.Wait()
	for _, r := range w.roles {
		if r.once && (r.now == nil || !w.over(r.now)) {
			return false
		}
	}
	_, stock, _, err := w.books.read()
	if err != nil || len(w.delayed) > 0 || stock > 0 && w.hash(w.lane.Sale(saleID))["stock"] != strconv.FormatInt(stock, 10) {
		return false
	}
	rows, err := w.store.Returning(context.Background(), 0, 0, 1)
	return err == nil && len(rows) == 0 && len(w.list(w.lane.Ready())) == 0 && len(w.zset(w.lane.Delayed())) == 0 && len(w.zset(w.lane.Leases())) == 0
}

// settled holds a system at rest against what it must have come to.
func (w *world) settled() {
	if _, stock, _, err := w.books.read(); err == nil && stock == 0 && len(w.promised) == 0 {
		return // the operator did not live to create the sale
	}
	w.mini.SetTime(time.Now())
	report, err := ledger.New(admission.NewStock(w.redis, keyspace.Space{}), w.store).Audit(context.Background(), saleID)
	if err != nil {
		w.violate("the audit failed: %v", err)
		return
	}
	w.checkAudit(report)
	_, stock, _, err := w.books.read()
	if err != nil || report.Stock != stock {
		w.violate("Redis has %d units in all and SQL %d, %v", report.Stock, stock, err)
	}
	if report.Ready+report.Delayed+report.Leased+report.Returning != 0 {
		w.violate("not at rest: %+v", report)
	}
	for _, key := range []string{w.lane.Attempts(), w.lane.Crashes()} {
		if left := w.hash(key); len(left) > 0 {
			w.violate("%s still holds %v", key, left)
		}
	}
	stats, err := queue.NewList(w.redis, w.lane, queue.Config{}).Stats(context.Background())
	if err != nil || stats.Dead != report.Dead {
		w.violate("the queue counts %d dead orders and the audit %d, %v", stats.Dead, report.Dead, err)
	}
	w.result.Dead += int(report.Dead)
	w.result.Rows += len(w.rows)
}

func (w *world) checkAudit(r ledger.Report) {
	if !r.Balanced {
		w.violate("the audit does not balance: %+v", r)
	}
}
