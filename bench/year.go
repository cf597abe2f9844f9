package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/test/testenv"
)

// year fills PostgreSQL with the orders and payments of a year of closed sales, in steps, and measures after each step
// what purchases, status queries, the console and a rebuild read and write. One open sale runs beside the closed ones.
func year(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("year", flag.ContinueOnError)
	rows := flags.Int("rows", 1_000_000, "orders of the year")
	sales := flags.Int("sales", 365, "sales over which they are spread")
	steps := flags.Int("steps", 3, "measurements: at the last step all orders, at each one before a tenth of the next")
	times := flags.Int("times", 100, "repetitions of each query")
	url := flags.String("database", "", "empty database (default: a server of its own, in the directory of TMPDIR)")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *url == "" {
		*url = testenv.StartPostgres(s, "-c", "shared_buffers=1GB", "-c", "max_wal_size=2GB").URL
	}
	db, sql := openDatabase(s, *url, nil)
	y := &yearRun{sql: sql, store: store.New(db), times: *times}
	y.perSale = max(*rows / *sales, 1)
	y.buyers = 2 * max(y.perSale, 1000)
	if err := y.open(ctx); err != nil {
		return err
	}
	sizes := []int{*sales}
	for len(sizes) < *steps {
		sizes = append(sizes, max(sizes[len(sizes)-1]/10, 1))
	}
	slices.Reverse(sizes)
	for _, size := range sizes {
		if err := y.fill(ctx, size); err != nil {
			return err
		}
		if err := y.measure(ctx); err != nil {
			return err
		}
	}
	y.print()
	return nil
}

type yearRun struct {
	sql     *pgx.Conn
	store   *store.Store
	times   int
	perSale int
	buyers  int // that buy in a year, each in about half of the sales
	filled  int // sales
	ids     ids

	columns []string // by step
	lines   []string // of the table
	cells   map[string][]string
}

const runningSale = "now"

// yearSale is the id of the n-th sale, from 1.
func yearSale(n int) string { return fmt.Sprintf("day-%05d", n) }

func (y *yearRun) open(ctx context.Context) error {
	y.cells = map[string][]string{}
	now := benchSale(sale.MaxStock)
	now.ID = runningSale
	_, err := y.store.CreateSale(ctx, now)
	return err
}

// fill adds closed sales until there are n. Of a sale's orders 94% are paid, 1% are not, and 5% were cancelled.
func (y *yearRun) fill(ctx context.Context, n int) error {
	began := time.Now()
	for ; y.filled < n; y.filled++ {
		at := y.filled + 1
		for _, statement := range []string{
			"SET synchronous_commit = off",
			`INSERT INTO sales (id, title, price_amount, currency, stock, sold, per_buyer, opens_at, closes_at, switch, version,
				created_at)
			VALUES ('{sale}', 'A sale of the year', 4900, 'EUR', {orders}, {orders} - {orders} / 20, 1, {begin}, {begin} + interval '1 hour',
				'closed', 2, {begin})`,
			`INSERT INTO orders (id, sale_id, buyer, slot, serial, status, reference, return_number, updated_at)
			SELECT ({second}::bigint + n / 1000) << 32 | ({at}::bigint * {orders} + n), '{sale}',
				md5((({at}::bigint * 7919 + n) % {buyers})::text), 1, n,
				CASE WHEN n % 20 = 0 THEN 'cancelled' WHEN n % 100 = 1 THEN 'created' ELSE 'paid' END,
				CASE WHEN n % 20 <> 0 AND n % 100 <> 1 THEN 'pay_' || n END,
				CASE WHEN n % 20 = 0 THEN n / 20 ELSE -1 END, {begin} + interval '1 hour'
			FROM generate_series(1, {orders}) AS n`,
			`INSERT INTO payments (callback_id, digest, at, order_id, sale_id, event, amount, currency, reference, outcome, refund)
			SELECT 'msg_' || id, md5(id::text), updated_at, id, sale_id, 'succeeded', 4900, 'EUR', reference, 'paid', 0
			FROM orders WHERE sale_id = '{sale}' AND status = 'paid'`,
		} {
			statement = strings.NewReplacer("{sale}", yearSale(at), "{orders}", strconv.Itoa(y.perSale),
				"{begin}", fmt.Sprintf("timestamptz '2025-01-01' + %d * interval '1 day' / 4", at),
				"{second}", strconv.Itoa(157766400+at*21600), "{at}", strconv.Itoa(at),
				"{buyers}", strconv.Itoa(y.buyers)).Replace(statement)
			if _, err := y.sql.Exec(ctx, statement); err != nil {
				return fmt.Errorf("fill: %w", err)
			}
		}
	}
	for _, statement := range []string{"SET synchronous_commit = on", "VACUUM ANALYZE", "CHECKPOINT"} {
		if _, err := y.sql.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	fmt.Fprintf(
		os.Stderr,
		"year: %s orders after %s\n",
		number(float64(n*y.perSale)),
		time.Since(began).Round(time.Second),
	)
	return nil
}

func (y *yearRun) measure(ctx context.Context) error {
	y.columns = append(y.columns, number(float64(y.filled*y.perSale))+" orders")
	var orders, all string
	if err := y.sql.QueryRow(ctx, `SELECT pg_size_pretty(pg_total_relation_size('orders')),
		pg_size_pretty(pg_database_size(current_database()))`).Scan(&orders, &all); err != nil {
		return err
	}
	y.cell("size of the orders with indexes", orders)
	y.cell("size of the database", all)
	if err := y.writes(ctx); err != nil {
		return err
	}
	last, middle := yearSale(y.filled), yearSale((y.filled+1)/2)
	var order, buyer = int64(0), ""
	if err := y.sql.QueryRow(ctx, "SELECT id, buyer FROM orders WHERE sale_id = $1 AND serial = $2 AND status = 'paid'",
		middle, 2).Scan(&order, &buyer); err != nil {
		return err
	}
	orderRows := func(q store.OrderQuery) func() error {
		return func() error { _, err := y.store.OrderRows(ctx, q); return err }
	}
	callbacks := func(q store.CallbackQuery) func() error {
		return func() error { _, err := y.store.Callbacks(ctx, q); return err }
	}
	for _, query := range []struct {
		name string
		run  func() error
	}{
		{"status of an order", func() error { _, err := y.store.Order(ctx, sale.OrderID(order)); return err }},
		{"a buyer's orders in a sale", func() error { _, err := y.store.OrdersInSale(ctx, buyer, middle, 20); return err }},
		{"expired holds, none", func() error { _, err := y.store.CancelOverdue(ctx, 1000); return err }},
		{"units to return, none", func() error { _, err := y.store.Returning(ctx, 0, 0, 1000); return err }},
		{"audit of the open sale", func() error {
			_, err := y.store.Count(ctx, spread.Part{SaleID: runningSale}, store.Always, nil)
			return err
		}},
		{"audit of a closed sale", func() error { _, err := y.store.Count(ctx, spread.Part{SaleID: middle}, store.Always, nil); return err }},
		{"console: sales", func() error { _, err := y.store.SalesPage(ctx, store.SalesQuery{}); return err }},
		{"console: newest orders", orderRows(store.OrderQuery{Newest: true})},
		{"console: orders of the newest sale", orderRows(store.OrderQuery{SaleID: last})},
		{"console: newest orders of an old sale", orderRows(store.OrderQuery{SaleID: middle, Newest: true})},
		{"console: unpaid orders of a sale", orderRows(store.OrderQuery{SaleID: last, Status: sale.StatusCreated})},
		{"console: paid orders of the open sale, none", orderRows(store.OrderQuery{SaleID: runningSale, Status: sale.StatusPaid})},
		{"console: cancelled orders", orderRows(store.OrderQuery{Status: sale.StatusCancelled, Newest: true})},
		{"console: unpaid orders", orderRows(store.OrderQuery{Status: sale.StatusCreated, Newest: true})},
		{"console: orders of a buyer", orderRows(store.OrderQuery{Buyer: buyer, Newest: true})},
		{"console: payments of an order", callbacks(store.CallbackQuery{OrderID: sale.OrderID(order)})},
		{"console: payments of the newest sale", callbacks(store.CallbackQuery{SaleID: last})},
		{"console: payments of the open sale, none", callbacks(store.CallbackQuery{SaleID: runningSale})},
		{"console: open refunds, none", callbacks(store.CallbackQuery{OpenRefunds: true})},
	} {
		took := make([]float64, 0, y.times)
		began := time.Now()
		for len(took) < y.times && (len(took) < 3 || time.Since(began) < 10*time.Second) {
			one := time.Now()
			if err := query.run(); err != nil {
				y.cell(query.name, "> 5 s")
				fmt.Fprintf(os.Stderr, "year: %s: %v\n", query.name, err)
				took = nil
				break
			}
			took = append(took, float64(time.Since(one).Microseconds())/1000)
		}
		if took != nil {
			slices.Sort(took)
			y.cell(query.name, fmt.Sprintf("%.1f ms (%.1f)", quantile(took, 0.5), quantile(took, 0.99)))
		}
	}
	return y.rebuild(ctx)
}

// writes measures batches of the worker into the open sale.
func (y *yearRun) writes(ctx context.Context) error {
	const batches = 100
	took := make([]float64, 0, batches)
	begin := time.Now()
	for range batches {
		batch := y.ids.orders(perBatch)
		for i := range batch {
			batch[i].SaleID, batch[i].Buyer = runningSale, batch[i].ID.String()
		}
		one := time.Now()
		if err := y.store.Write(ctx, batch); err != nil {
			return err
		}
		took = append(took, float64(time.Since(one).Microseconds())/1000)
	}
	rate := batches * perBatch / time.Since(begin).Seconds()
	slices.Sort(took)
	y.cell("orders written per second", number(rate))
	y.cell("a batch of 500 orders", fmt.Sprintf("%.1f ms (%.1f)", quantile(took, 0.5), quantile(took, 0.99)))
	return nil
}

// rebuild reads what a rebuild of an empty Redis reads: the orders of every sale.
func (y *yearRun) rebuild(ctx context.Context) error {
	began, n := time.Now(), 0
	summaries, err := y.store.SaleSummaries(ctx)
	if err != nil {
		return err
	}
	for _, summary := range summaries {
		if err := y.store.OrdersOf(
			ctx,
			spread.Part{SaleID: summary.ID},
			func(sale.Order) error { n++; return nil },
		); err != nil {
			return err
		}
	}
	y.cell("rebuild: rows read", number(float64(n)))
	y.cell("rebuild: time to read them", time.Since(began).Round(10*time.Millisecond).String())
	return nil
}

func (y *yearRun) cell(line, value string) {
	if _, known := y.cells[line]; !known {
		y.lines = append(y.lines, line)
	}
	y.cells[line] = append(y.cells[line], value)
}

// print prints the median of each query, and its 99th percentile in parentheses.
func (y *yearRun) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\t"+strings.Join(y.columns, "\t"))
	for _, line := range y.lines {
		fmt.Fprintln(w, line+"\t"+strings.Join(y.cells[line], "\t"))
	}
	_ = w.Flush()
}
