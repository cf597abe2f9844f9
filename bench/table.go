package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// table compares sluice with a shop that sells from a table of its PostgreSQL. sluice is a backend with a Redis that
// writes each order to the disk before its answer, and a worker that writes it to PostgreSQL; the shop is a handler
// that runs one transaction for each purchase. Every request is from a new buyer, every one is accepted, and the time
// ends when all orders are rows. The shop verifies no token and limits no buyer.
func table(s *stage, cfg settings) contest {
	h := &deployment{shop: newShopOf(s, s.build(), "--appendonly", "yes", "--appendfsync", "always"), cfg: cfg}
	h.wrk, h.client = s.wrk(), h.redis.Client()
	h.at = h.backend()
	worker := s.start(h.env, h.bin, "worker")
	h.parts = newMeter("backend", h.at.pid, "redis", redisPID(s, h.client), "worker", worker.Pid(),
		"PostgreSQL", h.sql.Pid())
	sql := s.connect(h.sql.URL)
	const ours = "sluice, orders on disk and as rows"
	c := contest{name: "table", unit: "orders", contestants: []contestant{{ours, h.throughQueue(sql)}}}
	for _, way := range tableWays {
		at := s.child(childConfig{what: "table", table: way.name, database: h.sql.URL})
		parts := newMeter("handler", at.pid, "PostgreSQL", h.sql.Pid())
		c.contestants = append(c.contestants, contestant{way.name, h.fromTable(sql, way, at, parts)})
		c.ratios = append(c.ratios, ratio{"purchases, of " + way.name, ours, way.name, 0, 0})
	}
	return c
}

// throughQueue sells a new sale by sluice.
func (h *deployment) throughQueue(sql *pgx.Conn) measurement {
	return h.wrk.fresh(10_000, h.cfg,
		func(_ context.Context, path string, n int) error {
			h.sales++
			return writeRequests(path, n, func(b []byte, i int) []byte { return signedRequest(b, h.saleID(), i) })
		},
		func(ctx context.Context, requests string, n int) (float64, error) {
			if err := checkpoint(ctx, sql); err != nil {
				return 0, err
			}
			if err := h.createSale(ctx, h.at, h.saleID(), n+connections, "-1s"); err != nil {
				return 0, err
			}
			return sellAll(ctx, h.wrk, h.at.addr, requests, h.cfg.seconds, h.parts, func() (rows int64, err error) {
				if _, err = h.settle(ctx); err == nil {
					err = sql.QueryRow(ctx, "SELECT count(*) FROM orders WHERE sale_id = $1", h.saleID()).Scan(&rows)
				}
				return rows, err
			})
		})
}

// saleID is the id of the current sale.
func (h *deployment) saleID() string { return saleID + strconv.Itoa(h.sales) }

// fromTable sells from freshly filled tables.
func (h *deployment) fromTable(sql *pgx.Conn, way tableWay, at server, parts *meter) measurement {
	return h.wrk.fresh(2_000, h.cfg,
		func(_ context.Context, path string, n int) error { return writeRequests(path, n, bareRequest) },
		func(ctx context.Context, requests string, n int) (float64, error) {
			if err := way.fill(ctx, sql, n+connections); err != nil {
				return 0, err
			}
			return sellAll(ctx, h.wrk, at.addr, requests, h.cfg.seconds, parts, func() (rows int64, err error) {
				err = sql.QueryRow(ctx, "SELECT count(*) FROM shop_orders").Scan(&rows)
				return rows, err
			})
		})
}

// sellAll sends purchases that must all be accepted, and returns the orders per second until all are rows. rows waits
// for that and returns their number.
func sellAll(
	ctx context.Context, w *wrk, addr, requests string, length time.Duration, parts *meter, rows func() (int64, error),
) (float64, error) {
	defer os.Remove(requests)
	began := time.Now()
	got, err := w.load(ctx, addr, requests, length, parts)
	if err != nil {
		return got.perSecond, err
	}
	n, err := rows()
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	// A purchase in progress at the end of the load is a row and no answer.
	if got.refused > 0 || n < got.answers || n > got.answers+connections {
		return 0, fmt.Errorf("%d answers, %d of them refusals, and %d rows", got.answers, got.refused, n)
	}
	return float64(n) / took.Seconds(), nil
}

// checkpoint writes what earlier work has left to the disk.
func checkpoint(ctx context.Context, sql *pgx.Conn) error {
	_, err := sql.Exec(ctx, "CHECKPOINT")
	return err
}

// tableWay is a way to sell from a table. Its statement is a transaction: it takes a unit and inserts the order $1 of
// the buyer $2, or does neither.
type tableWay struct {
	name        string
	stock       string // fills the table of the stock with $1 units
	statement   string
	connections int32 // to PostgreSQL, at most; 8, 32 and 64 are not faster
}

var tableWays = []tableWay{
	{
		"one row per unit, SKIP LOCKED",
		"INSERT INTO shop_units (id, sold) SELECT id, false FROM generate_series(1, $1::bigint) AS id",
		`WITH unit AS (SELECT id FROM shop_units WHERE NOT sold LIMIT 1 FOR UPDATE SKIP LOCKED),
			taken AS (UPDATE shop_units AS u SET sold = true FROM unit WHERE u.id = unit.id RETURNING u.id)
			INSERT INTO shop_orders (id, buyer) SELECT $1, $2 FROM taken`,
		16,
	},
	{
		"one row with the stock",
		"INSERT INTO shop_stock (remaining) VALUES ($1)",
		`WITH taken AS (UPDATE shop_stock SET remaining = remaining - 1 WHERE remaining > 0 RETURNING remaining)
			INSERT INTO shop_orders (id, buyer) SELECT $1, $2 FROM taken`,
		16,
	},
}

// fill makes the tables with n units and no orders.
func (way tableWay) fill(ctx context.Context, sql *pgx.Conn, n int) error {
	const tables = `DROP TABLE IF EXISTS shop_orders, shop_units, shop_stock;
		CREATE TABLE shop_orders (id bigint PRIMARY KEY, buyer text NOT NULL UNIQUE, at timestamptz NOT NULL DEFAULT now());
		CREATE TABLE shop_units (id bigint PRIMARY KEY, sold boolean NOT NULL);
		CREATE INDEX ON shop_units (id) WHERE NOT sold;
		CREATE TABLE shop_stock (remaining bigint NOT NULL CHECK (remaining >= 0))`
	if err := awaitIdle(ctx, sql); err != nil {
		return err
	}
	if _, err := sql.Exec(ctx, tables); err != nil {
		return err
	}
	if _, err := sql.Exec(ctx, way.stock, n); err != nil {
		return err
	}
	if _, err := sql.Exec(ctx, "VACUUM ANALYZE"); err != nil {
		return err
	}
	return checkpoint(ctx, sql)
}

// awaitIdle waits until no purchase of the load before is in progress: it would block the change of the tables.
func awaitIdle(ctx context.Context, sql *pgx.Conn) error {
	const active = `SELECT count(*) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND state <> 'idle' AND pid <> pg_backend_pid()`
	for n := 1; n > 0; time.Sleep(10 * time.Millisecond) {
		if err := sql.QueryRow(ctx, active).Scan(&n); err != nil {
			return err
		}
	}
	return nil
}

// serveTable answers purchases from a table. It trusts the Buyer header and has no limits.
func serveTable(ctx context.Context, database, name string) (fiber.Handler, error) {
	cfg, err := pgxpool.ParseConfig(database)
	if err != nil {
		return nil, err
	}
	way := tableWays[slices.IndexFunc(tableWays, func(w tableWay) bool { return w.name == name })]
	cfg.MaxConns = way.connections
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	var ids ids
	return func(f *fiber.Ctx) error {
		id := ids.next()
		done, err := pool.Exec(f.Context(), way.statement, int64(id), string(f.Request().Header.Peek(buyerHeader)))
		if err != nil {
			return err
		}
		if done.RowsAffected() == 0 {
			return fiber.NewError(fiber.StatusConflict, "sold out")
		}
		return f.Status(fiber.StatusAccepted).SendString(id.String())
	}, nil
}
