package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/test/testenv"
)

const (
	written  = 200_000 // orders per measurement
	perBatch = 500     // the worker's default
	singles  = 5_000   // orders one by one, at most; they stop when their time is over
)

// orders compares how fast accepted orders become rows of a PostgreSQL that waits for the disk: the worker's batches,
// one transaction per order that updates the sale's row, and COPY without checks into an equal table. Each has one
// connection. Batches of another size than the worker's are for orientation, with the time of each transaction, and
// River is another side: its workers write the order of one job at a time with the same function.
func orders(s *stage, cfg settings) contest {
	w := newWriters(s, cfg, nil)
	batches := fmt.Sprintf("store.Store.Write, batches of %d", w.cfg.batch)
	copies := fmt.Sprintf("COPY, batches of %d", w.cfg.batch)
	const singles = "one transaction per order"
	c := contest{
		name: "orders", unit: "orders",
		contestants: []contestant{{batches, w.batches}, {singles, w.singles}, {copies, w.copies}},
		ratios: []ratio{
			{"orders", batches, singles, 40, 0},
			{"orders, of COPY", batches, copies, 0.5, 0},
		},
	}
	if w.cfg.batch == perBatch {
		return c
	}
	c.waits = func() []float64 { return w.waits }
	c.contestants = append(c.contestants, contestant{riverBacklog, w.jobs(newRiver(s, w.server.URL))})
	c.ratios = append(c.ratios, ratio{"orders, of River", batches, riverBacklog, 0, 0})
	return c.untargeted()
}

// writers write orders into a database that has their sale.
type writers struct {
	*store.Store

	server *testenv.Postgres
	sql    *pgx.Conn // beside the store
	ids    ids
	cfg    settings
	runs   int // of batches; the first is the warm-up

	waits []float64 // ms that each transaction of the last run took
}

// newWriters starts a PostgreSQL with the sale. onChange is called after each commit.
func newWriters(s *stage, cfg settings, onChange func()) *writers {
	ctx, server := context.Background(), testenv.StartPostgres(s)
	db, sql := openDatabase(s, server.URL, onChange)
	_, err := store.New(db).CreateSale(ctx, benchSale(sale.MaxStock))
	s.check(err)
	_, err = sql.Exec(ctx, "CREATE TABLE copied (LIKE orders INCLUDING ALL)")
	s.check(err)
	cfg.batch = cmp.Or(cfg.batch, perBatch)
	return &writers{Store: store.New(db), server: server, sql: sql, cfg: cfg}
}

// openDatabase opens a store, and a connection beside it.
func openDatabase(s *stage, url string, onChange func()) (*store.DB, *pgx.Conn) {
	db, err := store.Open(context.Background(), url, store.Config{OnChange: onChange})
	s.check(err)
	s.Cleanup(func() { _ = db.Close() })
	return db, s.connect(url)
}

// connect opens a connection to a PostgreSQL.
func (s *stage) connect(url string) *pgx.Conn {
	ctx := context.Background()
	sql, err := pgx.Connect(ctx, url)
	s.check(err)
	s.Cleanup(func() { _ = sql.Close(ctx) })
	return sql
}

// fresh empties the tables and waits for a checkpoint, so that no contestant does work for the one before.
func (w *writers) fresh(ctx context.Context) error {
	for _, sql := range []string{
		"TRUNCATE orders, copied, outbox", "UPDATE sales SET sold = 0", "VACUUM sales", "CHECKPOINT",
	} {
		if _, err := w.sql.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// count checks that all n orders are rows.
func (w *writers) count(ctx context.Context, table string, n int) error {
	var rows int
	if err := w.sql.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&rows); err != nil {
		return err
	}
	if rows != n {
		return fmt.Errorf("%d rows after %d orders", rows, n)
	}
	return nil
}

func (w *writers) batches(ctx context.Context) (float64, error) {
	w.runs++
	if w.cfg.profile != "" && w.runs == 2 {
		stop, err := startProfile(filepath.Join(w.cfg.profile, "orders.cpu.pprof"))
		if err != nil {
			return 0, err
		}
		defer stop()
	}
	return w.each(ctx, "orders", written, w.cfg.batch, w.Write)
}

// each writes at most the given number of orders into an empty table, size of them in a transaction, and returns the
// orders per second. Batches that are smaller than the worker's stop when their time is over.
func (w *writers) each(
	ctx context.Context, table string, most, size int, write func(context.Context, []sale.Order) error,
) (float64, error) {
	all := w.ids.orders(most)
	if err := w.fresh(ctx); err != nil {
		return 0, err
	}
	w.waits = w.waits[:0]
	n, begin := 0, time.Now()
	for batch := range slices.Chunk(all, size) {
		from := time.Now()
		if size < perBatch && from.Sub(begin) > w.cfg.seconds {
			break
		}
		if err := write(ctx, batch); err != nil {
			return 0, err
		}
		n += len(batch)
		w.waits = append(w.waits, time.Since(from).Seconds()*1e3)
	}
	took := time.Since(begin)
	return float64(n) / took.Seconds(), w.count(ctx, table, n)
}

func (w *writers) singles(ctx context.Context) (float64, error) {
	return w.each(ctx, "orders", singles, 1, func(ctx context.Context, one []sale.Order) error {
		return w.single(ctx, one[0])
	})
}

// single writes an order as a store without batches would.
func (w *writers) single(ctx context.Context, o sale.Order) error {
	tx, err := w.sql.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "INSERT INTO orders (id, sale_id, buyer, slot, serial) VALUES ($1, $2, $3, $4, $5)",
		int64(o.ID), o.SaleID, o.Buyer, o.Slot, o.Serial); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, "UPDATE sales SET sold = sold + 1 WHERE id = $1 AND sold < stock", o.SaleID)
	if err != nil {
		return err
	}
	if tag.RowsAffected() != 1 {
		return errors.New("sold out")
	}
	return tx.Commit(ctx)
}

func (w *writers) copies(ctx context.Context) (float64, error) {
	columns := []string{"id", "sale_id", "buyer", "slot", "serial"}
	return w.each(ctx, "copied", written, w.cfg.batch, func(ctx context.Context, batch []sale.Order) error {
		rows := pgx.CopyFromSlice(len(batch), func(i int) ([]any, error) {
			o := batch[i]
			return []any{int64(o.ID), o.SaleID, o.Buyer, o.Slot, o.Serial}, nil
		})
		_, err := w.sql.CopyFrom(ctx, pgx.Identifier{"copied"}, columns, rows)
		return err
	})
}
