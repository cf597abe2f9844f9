package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
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

// orders compares how fast accepted orders become rows of a PostgreSQL that waits for the disk: as the worker writes
// them, one transaction per order on the sale's row, and COPY, which checks nothing, into an equal table. Each has
// one connection.
func orders(ctx context.Context, s *stage, cfg settings) ([]result, error) {
	w, err := newWriters(ctx, s, testenv.StartPostgres(s).URL, cfg)
	if err != nil {
		return nil, err
	}
	c := contest{
		name: "orders", unit: "orders",
		contestants: []contestant{
			{"store.Orders.Write, batches of 500", w.batches},
			{"one transaction per order", w.singles},
			{"COPY, batches of 500", w.copies},
		},
		ratios: []ratio{
			{"orders", "store.Orders.Write, batches of 500", "one transaction per order", 40, 0},
			{"orders, of COPY", "store.Orders.Write, batches of 500", "COPY, batches of 500", 0.5, 0},
		},
	}
	return c.only(cfg.match).hold(ctx, cfg.rounds)
}

// database is an open order store.
type database struct {
	*store.DB
	*store.Sales
	*store.Orders
}

func openDatabase(ctx context.Context, s *stage, url string, cfg store.Config) (*database, error) {
	db, err := store.Open(ctx, url, cfg)
	if err != nil {
		return nil, err
	}
	s.Cleanup(func() { _ = db.Close() })
	return &database{db, store.NewSales(db), store.NewOrders(db)}, nil
}

type writers struct {
	store *database
	db    *pgx.Conn
	ids   *ids
	cfg   settings
	runs  int // of batches; the first is the warm-up
}

func newWriters(ctx context.Context, s *stage, url string, cfg settings) (*writers, error) {
	w := &writers{ids: newIDs(), cfg: cfg}
	var err error
	if w.store, err = openDatabase(ctx, s, url, store.Config{}); err != nil {
		return nil, err
	}
	if _, err = w.store.CreateSale(ctx, benchSale(sale.MaxStock)); err != nil {
		return nil, err
	}
	if w.db, err = pgx.Connect(ctx, url); err != nil {
		return nil, err
	}
	s.Cleanup(func() { _ = w.db.Close(context.WithoutCancel(ctx)) })
	_, err = w.db.Exec(ctx, "CREATE TABLE copied (LIKE orders INCLUDING ALL)")
	return w, err
}

// fresh empties the tables and waits for a checkpoint, so that no contestant pays for the one before.
func (w *writers) fresh(ctx context.Context) error {
	for _, sql := range []string{
		"TRUNCATE orders, copied, outbox", "UPDATE sales SET sold = 0", "VACUUM sales", "CHECKPOINT",
	} {
		if _, err := w.db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// count checks that all n orders are rows.
func (w *writers) count(ctx context.Context, table string, n int) error {
	var rows int
	if err := w.db.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&rows); err != nil {
		return err
	}
	if rows != n {
		return fmt.Errorf("%d rows after %d orders", rows, n)
	}
	return nil
}

func (w *writers) batches(ctx context.Context) (float64, error) {
	all := newOrders(w.ids, 0, written)
	if err := w.fresh(ctx); err != nil {
		return 0, err
	}
	w.runs++
	if w.cfg.profile != "" && w.runs == 2 {
		f, err := os.Create(filepath.Join(w.cfg.profile, "orders.cpu.pprof"))
		if err != nil {
			return 0, err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return 0, err
		}
		defer pprof.StopCPUProfile()
	}
	begin := time.Now()
	for batch := range slices.Chunk(all, perBatch) {
		if err := w.store.Write(ctx, batch); err != nil {
			return 0, err
		}
	}
	took := time.Since(begin)
	return written / took.Seconds(), w.count(ctx, "orders", written)
}

func (w *writers) singles(ctx context.Context) (float64, error) {
	all := newOrders(w.ids, 0, singles)
	if err := w.fresh(ctx); err != nil {
		return 0, err
	}
	begin := time.Now()
	n := 0
	for n < singles && time.Since(begin) < w.cfg.seconds {
		if err := w.single(ctx, all[n]); err != nil {
			return 0, err
		}
		n++
	}
	took := time.Since(begin)
	return float64(n) / took.Seconds(), w.count(ctx, "orders", n)
}

// single is what a store without batches does for an order.
func (w *writers) single(ctx context.Context, o sale.Order) error {
	tx, err := w.db.Begin(ctx)
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
	all := newOrders(w.ids, 0, written)
	if err := w.fresh(ctx); err != nil {
		return 0, err
	}
	columns := []string{"id", "sale_id", "buyer", "slot", "serial"}
	begin := time.Now()
	for batch := range slices.Chunk(all, perBatch) {
		rows := pgx.CopyFromSlice(len(batch), func(i int) ([]any, error) {
			o := batch[i]
			return []any{int64(o.ID), o.SaleID, o.Buyer, o.Slot, o.Serial}, nil
		})
		if _, err := w.db.CopyFrom(ctx, pgx.Identifier{"copied"}, columns, rows); err != nil {
			return 0, err
		}
	}
	took := time.Since(begin)
	return written / took.Seconds(), w.count(ctx, "copied", written)
}
