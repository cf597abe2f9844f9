package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"sluice/backend/sale"
)

type postgres struct{ pool *pgxpool.Pool }

func openPostgres(ctx context.Context, databaseURL string, timeout time.Duration) (engine, error) {
	config, err := postgresConfig(databaseURL, timeout)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, unavailable(err)
	}
	first, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := pool.Ping(first); err != nil { // before the migrations, which may take longer than one call
		pool.Close()
		return nil, unavailable(err)
	}
	slow := config.ConnConfig.Copy()
	delete(slow.RuntimeParams, "statement_timeout")
	db := stdlib.OpenDB(*slow)
	defer db.Close()
	if err := migratePostgres(ctx, db); err != nil {
		pool.Close()
		return nil, fmt.Errorf("migrate: %w", unavailable(err))
	}
	return &postgres{pool}, nil
}

func postgresConfig(databaseURL string, timeout time.Duration) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil { // which may quote a part of the password, so its words are not repeated
		return nil, &URLError{"must look like postgres://user:password@host:5432/name?sslmode=require, with the special characters of a password written %XX"}
	}
	c := config.ConnConfig
	if c.ConnectTimeout <= 0 || c.ConnectTimeout > timeout {
		c.ConnectTimeout = timeout
	}
	limit := strconv.FormatInt(timeout.Milliseconds(), 10)
	for name, value := range map[string]string{
		"application_name":                    "sluice",
		"statement_timeout":                   limit,
		"idle_in_transaction_session_timeout": limit,
	} {
		if _, set := c.RuntimeParams[name]; !set {
			c.RuntimeParams[name] = value
		}
	}
	return config, nil
}

// insertNew writes orders none of which is a row yet. It is one statement, so it is one transaction, and the hot row of a sale is locked for the
// server's own work only, never for a round trip.
//
// Locks are taken in one order by every batch, so two batches cannot wait for each other in a circle: order ids ascending (unnest keeps the order of the
// arrays), then, because locked needs all of counted, sales ascending. A sale without the units breaks sales_not_oversold, and one that does not
// exist is missing from updated.
//
// Orders of a rehearsal are not noted: see Store.note.
//
// The generation is locked first, for sharing: it does not change until the batch is committed. A batch of another generation inserts nothing.
const insertNew = `
WITH present AS (
    SELECT n FROM counters WHERE name = 'generation' FOR SHARE
), holds AS MATERIALIZED (
    SELECT id, now() + hold_ms * interval '1 millisecond' AS due_at FROM sales WHERE id = ANY ($2) AND hold_ms > 0
), fresh AS (
    INSERT INTO orders (id, sale_id, buyer, nth, serial, due_at)
    SELECT o.*, (SELECT due_at FROM holds WHERE holds.id = o.sale_id)
    FROM unnest($1::bigint[], $2::text[], $3::text[], $4::integer[], $5::bigint[]) AS o (id, sale_id, buyer, nth, serial)
    WHERE $6::bigint = 0 OR $6::bigint = (SELECT n FROM present)
    RETURNING id, sale_id
), noted AS (
    INSERT INTO outbox (kind, orders) SELECT 1, array_agg(id ORDER BY id) FROM fresh WHERE NOT starts_with(sale_id, '` + sale.RehearsalPrefix + `') HAVING count(*) > 0
), counted AS (
    SELECT sale_id, count(*) AS n FROM fresh GROUP BY sale_id
), locked AS (
    SELECT sales.id, counted.n FROM sales JOIN counted ON counted.sale_id = sales.id ORDER BY sales.id FOR UPDATE OF sales
), updated AS (
    UPDATE sales SET sold = sales.sold + locked.n FROM locked WHERE locked.id = sales.id RETURNING sales.id
)
SELECT CASE WHEN $6::bigint <> 0 AND $6::bigint <> (SELECT n FROM present)
    THEN -1
    WHEN (SELECT count(*) FROM updated) < (SELECT count(*) FROM counted)
    THEN sluice_reject('an order names an unknown sale')
    ELSE (SELECT coalesce(sum(n), 0)::bigint FROM counted) END`

// insertMissing leaves alone what is a row.
var insertMissing = strings.Replace(insertNew, "RETURNING id, sale_id", "ON CONFLICT (id) DO NOTHING RETURNING id, sale_id", 1)

func (p *postgres) insert(ctx context.Context, generation int64, orders []sale.Order) (inserted int, err error) {
	n := len(orders)
	ids, serials := make([]int64, n), make([]int64, n)
	sales, buyers := make([]string, n), make([]string, n)
	nths := make([]int32, n)
	for i, o := range orders {
		ids[i], sales[i], buyers[i], nths[i], serials[i] = int64(o.ID), o.SaleID, o.Buyer, int32(o.Nth), o.Serial
	}
	// ON CONFLICT makes an insert a quarter dearer (each row is confirmed by a record of its own in the log), and nearly all batches are new. One that is not
	// fails, is undone, and is written again with care; the server logs a duplicate key then.
	err = p.pool.QueryRow(ctx, insertNew, ids, sales, buyers, nths, serials, generation).Scan(&inserted)
	for try := 0; try < triesWithCare && violatesUnique(err); try++ {
		err = p.pool.QueryRow(ctx, insertMissing, ids, sales, buyers, nths, serials, generation).Scan(&inserted)
	}
	if err != nil {
		return 0, classifyPostgres(err)
	}
	if inserted < 0 {
		return 0, ErrStale
	}
	return inserted, nil
}

// triesWithCare is how often a batch is written with care. ON CONFLICT looks at the index of ids alone: when somebody else inserts the same order at the
// same instant, PostgreSQL may get as far as the index of places, and say that the place is taken. It says so when the other one is done, so the next
// try finds a row; but there may be several others. An order whose place really is taken is refused each time.
const triesWithCare = 5

func violatesUnique(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "23505" // SQLSTATE
}

func (p *postgres) within(ctx context.Context, m mode, do func(conn) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	if m == snapshot {
		options = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	}
	tx, err := p.pool.BeginTx(ctx, options)
	if err != nil {
		return classifyPostgres(err)
	}
	if err := do(postgresConn{tx}); err != nil {
		_ = tx.Rollback(ctx) // should it fail, the pool drops the connection, and the server undoes the work
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return classifyPostgres(err)
	}
	return nil
}

func (p *postgres) direct() conn { return postgresConn{p.pool} }

func (p *postgres) dialect() dialect {
	return dialect{
		forUpdate: " FOR UPDATE", forShare: " FOR SHARE", skip: " FOR UPDATE SKIP LOCKED", now: "now()",
		before: "now() - %s * interval '1 millisecond'",
		in:     "= ANY(%s)",
		count:  "cardinality(orders)", items: "unnest(part.orders) WITH ORDINALITY AS item (value, key)", nth: "item.key",
		credits:    "SELECT o, k, b, p FROM jsonb_to_recordset($1::jsonb) AS line (o bigint, k smallint, b text, p bigint) ORDER BY o, k",
		pushes:     "SELECT e, c, t, b FROM jsonb_to_recordset(%s::jsonb) AS list (e text, c text, t bigint, b text) ORDER BY e, c, t",
		deliveries: "SELECT i, e, p, l, t, b FROM jsonb_to_recordset($1::jsonb) AS list (i text, e text, p bigint, l bigint, t text, b text)",
		results:    "SELECT n, f, s, a, w, ms, c, e, b FROM jsonb_to_recordset($1::jsonb) AS list (n bigint, f bigint, s smallint, a integer, w bigint, ms bigint, c integer, e text, b text)",
		pairs:      "SELECT (pair->>0)::bigint AS a, (pair->>1)::bigint AS b FROM jsonb_array_elements(%s::jsonb) AS list (pair)",
	}
}

func (p *postgres) close() error {
	p.pool.Close()
	return nil
}

type postgresConn struct {
	db interface {
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
		Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	}
}

func (c postgresConn) exec(ctx context.Context, sql string, args ...any) (int64, error) {
	tag, err := c.db.Exec(ctx, sql, args...)
	if err != nil {
		return 0, classifyPostgres(err)
	}
	return tag.RowsAffected(), nil
}

func (c postgresConn) query(ctx context.Context, each func(row) error, sql string, args ...any) error {
	rows, err := c.db.Query(ctx, sql, args...)
	if err != nil {
		return classifyPostgres(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return classifyPostgres(err)
	}
	return nil
}

// classifyPostgres tells the data's fault from everybody else's by SQLSTATE class: 22 is a value that does not fit, 23 a broken constraint. A missing table
// or right (42) is the operator's fault and must not kill orders, so it counts as unavailable, like all the rest.
func classifyPostgres(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && len(pg.Code) == 5 && (pg.Code[:2] == "22" || pg.Code[:2] == "23") {
		return rejected(pg.ConstraintName, pg.Message)
	}
	return unavailable(err)
}
