package main

import (
	"context"
	"crypto/md5"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/test/testenv"
)

// year fills databases with the orders and payments of a year of closed sales: the last database has all orders, each
// one before has a tenth of the next. It measures, alternating between them, the reads and writes of purchases, status
// queries, the console and a rebuild. One open sale runs beside the closed ones.
func year(ctx context.Context, s *stage, args []string) error {
	flags := flag.NewFlagSet("year", flag.ContinueOnError)
	rows := flags.Int("rows", 1_000_000, "orders of the year; nearly as many payments are added")
	sales := flags.Int("sales", 365, "sales over which they are spread")
	sizes := flags.Int("sizes", 3, "databases: all orders in the last one, in each one before a tenth of the next")
	times := flags.Int("times", 100, "repetitions of each query")
	if err := parse(flags, args); err != nil {
		return err
	}
	server := testenv.StartPostgres(s, "-c", "shared_buffers=1GB", "-c", "max_wal_size=2GB")
	t := &yearTable{times: *times, cells: map[string][]string{}}
	for size := *sales; len(t.years) < *sizes; size = max(size/10, 1) {
		url := server.Create("year" + strconv.Itoa(size))
		db, sql := openDatabase(s, url, nil)
		y := &yearOfSales{sql: sql, store: store.New(db), sales: size, perSale: max(*rows / *sales, 1)}
		y.buyers = 2 * max(y.perSale, 1000)
		t.years = append(t.years, y)
	}
	slices.Reverse(t.years)
	for _, y := range t.years {
		if err := y.fill(ctx); err != nil {
			return err
		}
	}
	if err := t.measure(ctx); err != nil {
		return err
	}
	t.print()
	return nil
}

// yearOfSales is a database with closed sales.
type yearOfSales struct {
	sql     *pgx.Conn
	store   *store.Store
	sales   int
	perSale int // orders
	buyers  int // each buys in about half of the sales
	ids     ids
}

// yearTable has a column for each database, and a line for each value.
type yearTable struct {
	years []*yearOfSales
	times int
	lines []string
	cells map[string][]string
}

const (
	runningSale = "now"
	yearBegin   = 157766400 // of the ids: 2025-01-01 in seconds since 2020
	yearBetween = 6 * 3600  // seconds between two sales
)

// yearSale is the id of the n-th sale, from 1.
func yearSale(n int) string { return fmt.Sprintf("day-%05d", n) }

// fill adds an open sale and the closed ones. Of a closed sale's orders 94% are paid, 1% are not, and 5% were
// cancelled.
func (y *yearOfSales) fill(ctx context.Context) error {
	began := time.Now()
	now := benchSale(sale.MaxStock)
	now.ID = runningSale
	if _, err := y.store.CreateSale(ctx, now); err != nil {
		return err
	}
	for at := 1; at <= y.sales; at++ {
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
				"{second}", strconv.Itoa(yearBegin+at*yearBetween), "{at}", strconv.Itoa(at),
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
	fmt.Fprintf(os.Stderr, "year: %s orders after %s\n", number(float64(y.orders())), time.Since(began).Round(time.Second))
	return nil
}

func (y *yearOfSales) orders() int { return y.sales * y.perSale }

// orderID and buyer are those of the n-th order of a sale, from 1, as fill writes them.
func (y *yearOfSales) orderID(saleNumber, n int) sale.OrderID {
	return sale.OrderID((yearBegin+saleNumber*yearBetween+n/1000)<<32 | (saleNumber*y.perSale + n))
}

func (y *yearOfSales) buyer(saleNumber, n int) string {
	return fmt.Sprintf("%x", md5.Sum([]byte(strconv.Itoa((saleNumber*7919+n)%y.buyers))))
}

// yearQuery is a read of a year's database.
type yearQuery struct {
	name string
	run  func() error
}

// queries returns the reads of the processes. Each call reads another order, buyer or sale of the year, so a database
// that is larger than the memory is read from disk.
func (y *yearOfSales) queries(ctx context.Context) []yearQuery {
	random := rand.New(rand.NewPCG(1, 2))
	last := yearSale(y.sales)
	some := func() (saleNumber, n int) { return 1 + random.IntN(y.sales), 1 + random.IntN(y.perSale) }
	order := func() sale.OrderID { return y.orderID(some()) }
	buyer := func() string { return y.buyer(some()) }
	aSale := func() string { n, _ := some(); return yearSale(n) }
	orders := func(q func() store.OrderQuery) func() error {
		return func() error { _, err := y.store.OrderRows(ctx, q()); return err }
	}
	payments := func(q func() store.CallbackQuery) func() error {
		return func() error { _, err := y.store.Callbacks(ctx, q()); return err }
	}
	audit := func(saleID func() string) func() error {
		return func() error {
			_, err := y.store.Count(ctx, spread.Part{SaleID: saleID()}, store.Always, nil)
			return err
		}
	}
	return []yearQuery{
		{"status of an order", func() error { _, err := y.store.Order(ctx, order()); return err }},
		{"a buyer's orders in a sale", func() error {
			at, n := some()
			_, err := y.store.OrdersInSale(ctx, y.buyer(at, n), yearSale(at), 20)
			return err
		}},
		{"expired holds, none", func() error { _, err := y.store.CancelOverdue(ctx, 1000); return err }},
		{"units to return, none", func() error { _, err := y.store.Returning(ctx, 0, 0, 1000); return err }},
		{"audit of the open sale", audit(func() string { return runningSale })},
		{"audit of a closed sale", audit(aSale)},
		{"console: sales", func() error { _, err := y.store.SalesPage(ctx, store.SalesQuery{}); return err }},
		{"console: newest orders", orders(func() store.OrderQuery { return store.OrderQuery{Newest: true} })},
		{"console: orders of the newest sale", orders(func() store.OrderQuery { return store.OrderQuery{SaleID: last} })},
		{"console: newest orders of a sale", orders(func() store.OrderQuery {
			return store.OrderQuery{SaleID: aSale(), Newest: true}
		})},
		{"console: unpaid orders of a sale", orders(func() store.OrderQuery {
			return store.OrderQuery{SaleID: aSale(), Status: sale.StatusCreated}
		})},
		{"console: paid orders of the open sale, none", orders(func() store.OrderQuery {
			return store.OrderQuery{SaleID: runningSale, Status: sale.StatusPaid}
		})},
		{"console: cancelled orders", orders(func() store.OrderQuery {
			return store.OrderQuery{Status: sale.StatusCancelled, Newest: true}
		})},
		{"console: unpaid orders", orders(func() store.OrderQuery {
			return store.OrderQuery{Status: sale.StatusCreated, Newest: true}
		})},
		{"console: orders of a buyer", orders(func() store.OrderQuery {
			return store.OrderQuery{Buyer: buyer(), Newest: true}
		})},
		{"console: payments of an order", payments(func() store.CallbackQuery {
			return store.CallbackQuery{OrderID: order()}
		})},
		{"console: payments of a sale", payments(func() store.CallbackQuery { return store.CallbackQuery{SaleID: aSale()} })},
		{"console: payments of the open sale, none", payments(func() store.CallbackQuery {
			return store.CallbackQuery{SaleID: runningSale}
		})},
		{"console: open refunds, none", payments(func() store.CallbackQuery {
			return store.CallbackQuery{OpenRefunds: true}
		})},
	}
}

// write writes a batch of orders of the open sale as a worker does.
func (y *yearOfSales) write(ctx context.Context) error {
	batch := y.ids.orders(perBatch)
	for i := range batch {
		batch[i].SaleID, batch[i].Buyer = runningSale, batch[i].ID.String()
	}
	return y.store.Write(ctx, batch)
}

// rebuild reads what a rebuild of an empty Redis reads: the orders of every sale.
func (y *yearOfSales) rebuild(ctx context.Context) (orders int, err error) {
	summaries, err := y.store.SaleSummaries(ctx)
	if err != nil {
		return 0, err
	}
	for _, summary := range summaries {
		count := func(sale.Order) error { orders++; return nil }
		if err := y.store.OrdersOf(ctx, spread.Part{SaleID: summary.ID}, count); err != nil {
			return 0, err
		}
	}
	return orders, nil
}

// measure adds the lines: each query once in every database, and again.
func (t *yearTable) measure(ctx context.Context) error {
	for _, y := range t.years {
		var orders, all string
		if err := y.sql.QueryRow(ctx, `SELECT pg_size_pretty(pg_total_relation_size('orders')),
			pg_size_pretty(pg_database_size(current_database()))`).Scan(&orders, &all); err != nil {
			return err
		}
		t.add("orders", number(float64(y.orders())))
		t.add("size of the orders with indexes", orders)
		t.add("size of the database", all)
	}
	alternatives := make([][]yearQuery, len(t.years))
	for i, y := range t.years {
		alternatives[i] = append([]yearQuery{
			{fmt.Sprintf("a batch of %d orders", perBatch), func() error { return y.write(ctx) }},
		}, y.queries(ctx)...)
	}
	for q := range alternatives[0] {
		took := make([][]float64, len(t.years))
		for began, round := time.Now(), 0; round < t.times && (round < 3 || time.Since(began) < 20*time.Second); round++ {
			for i := range t.years {
				one := time.Now()
				if err := alternatives[i][q].run(); err != nil { // for example after 5 s; the other lines remain valid
					fmt.Fprintf(os.Stderr, "year: %s: %v\n", alternatives[i][q].name, err)
				}
				took[i] = append(took[i], float64(time.Since(one).Microseconds())/1000)
			}
		}
		for i := range t.years {
			p50, p99 := percentiles(took[i])
			t.add(alternatives[i][q].name, fmt.Sprintf("%.2f ms (%.1f)", p50, p99))
		}
	}
	for _, y := range t.years {
		began := time.Now()
		orders, err := y.rebuild(ctx)
		if err != nil {
			return err
		}
		took := time.Since(began)
		t.add("rebuild: orders read", number(float64(orders)))
		t.add("rebuild: time to read them", took.Round(10*time.Millisecond).String())
	}
	return nil
}

// add adds a value to a line, for the next column.
func (t *yearTable) add(line, value string) {
	if _, known := t.cells[line]; !known {
		t.lines = append(t.lines, line)
	}
	t.cells[line] = append(t.cells[line], value)
}

// print prints the median of each query, and its 99th percentile in parentheses, as a table of a document.
func (t *yearTable) print() {
	fmt.Printf("| |%s\n", strings.Repeat(" |", len(t.years)))
	fmt.Printf("|%s\n", strings.Repeat(" --- |", 1+len(t.years)))
	for _, line := range t.lines {
		fmt.Printf("| %s | %s |\n", line, strings.Join(t.cells[line], " | "))
	}
}
