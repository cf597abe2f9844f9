package store

import (
	"context"
	"database/sql"
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

// postgres inserts through pool and runs all other statements through database/sql, on the same connections.
type postgres struct {
	driver
	pool *pgxpool.Pool
}

func openPostgres(
	ctx context.Context, databaseURL string, timeout time.Duration, queries pgx.QueryTracer,
) (engine, error) {
	config, err := postgresConfig(databaseURL, timeout)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.Tracer = queries
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, unavailable(err)
	}
	first, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := pool.Ping(first); err != nil { // the migrations below have no timeout
		pool.Close()
		return nil, classifyPostgres(err)
	}
	slow := config.ConnConfig.Copy()
	delete(slow.RuntimeParams, "statement_timeout")
	db := stdlib.OpenDB(*slow)
	defer db.Close()
	if err := migratePostgres(ctx, db); err != nil {
		pool.Close()
		return nil, fmt.Errorf("migrate: %w", unavailable(err))
	}
	shared := stdlib.OpenDBFromPool(pool)
	return &postgres{pool: pool, driver: driver{
		readers: shared, writer: shared,
		options: [2]sql.TxOptions{
			snapshot: {Isolation: sql.LevelRepeatableRead, ReadOnly: true}, writing: {Isolation: sql.LevelReadCommitted},
		},
		dialect: func() Dialect { return postgresDialect },
		encode:  func(args []any) []any { return args }, classify: classifyPostgres,
	}}, nil
}

// poolMode is the parameter of the database URL that names the mode of a connection pooler between this process and
// PostgreSQL, as in the settings of PgBouncer.
const poolMode = "pool_mode"

// postgresConfig parses a database URL. With pool_mode=transaction, each transaction may run on another connection of the
// server. The process then sets nothing for the time of a connection: statements are not prepared by name, and the
// timeouts of the server are those of the pooler or of the role.
func postgresConfig(databaseURL string, timeout time.Duration) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil { // not repeated, because it may quote a part of the password
		return nil, &URLError{"must look like postgres://user:password@host:5432/name?sslmode=require, " +
			"with special characters of the password percent-encoded (%XX)"}
	}
	c := config.ConnConfig
	if c.ConnectTimeout <= 0 || c.ConnectTimeout > timeout {
		c.ConnectTimeout = timeout
	}
	limit := strconv.FormatInt(timeout.Milliseconds(), 10)
	parameters := map[string]string{
		"application_name":                    "sluice",
		"statement_timeout":                   limit,
		"idle_in_transaction_session_timeout": limit,
	}
	mode := c.RuntimeParams[poolMode]
	delete(c.RuntimeParams, poolMode)
	switch mode {
	case "", "session":
	case "transaction":
		delete(parameters, "statement_timeout")
		delete(parameters, "idle_in_transaction_session_timeout")
		if !strings.Contains(databaseURL, "default_query_exec_mode=") {
			c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
	default:
		return nil, &URLError{"pool_mode must be session or transaction"}
	}
	for name, value := range parameters {
		if _, set := c.RuntimeParams[name]; !set {
			c.RuntimeParams[name] = value
		}
	}
	return config, nil
}

const unknownSale = "an order names an unknown sale"

// insertNew inserts orders none of which is a row yet. It is one statement and therefore one transaction, so the row of
// the sale, which all batches update, is locked for the server's own work only and never during a round trip.
//
// Every batch takes its locks in the same order, so batches cannot deadlock: first the order ids, ascending (unnest
// keeps the order of the arrays), then the sales, ascending, because the step locked needs all rows of units. A sale
// without enough units violates sales_not_oversold. A sale that does not exist is missing in updated.
//
// The generation of the shard is locked for sharing first, so it does not change before the batch has committed. A batch of another
// generation inserts nothing.
//
// Orders of a rehearsal are not appended to the outbox; see appendOutbox.
const insertNew = `
WITH current AS (
    SELECT n FROM counters WHERE name = $7 FOR SHARE -- no row before the first rebuild of the shard
), holds AS MATERIALIZED (
    SELECT id, now() + hold_ms * interval '1 millisecond' AS due_at FROM sales WHERE id = ANY ($2) AND hold_ms > 0
), inserted AS (
    INSERT INTO orders (id, sale_id, buyer, slot, serial, due_at)
    SELECT o.*, (SELECT due_at FROM holds WHERE holds.id = o.sale_id)
    FROM unnest($1::bigint[], $2::text[], $3::text[], $4::integer[], $5::bigint[])
        AS o (id, sale_id, buyer, slot, serial)
    WHERE $6::bigint = 0 OR $6::bigint = coalesce((SELECT n FROM current), 0)
    RETURNING id, sale_id
), appended AS (
    INSERT INTO outbox (kind, orders) SELECT 1, array_agg(id ORDER BY id) FROM inserted
    WHERE NOT starts_with(sale_id, '` + sale.RehearsalPrefix + `') HAVING count(*) > 0
), units AS (
    SELECT sale_id, count(*) AS n FROM inserted GROUP BY sale_id
), locked AS (
    SELECT sales.id, units.n FROM sales JOIN units ON units.sale_id = sales.id ORDER BY sales.id FOR UPDATE OF sales
), updated AS (
    UPDATE sales SET sold = sales.sold + locked.n FROM locked WHERE locked.id = sales.id RETURNING sales.id
)
SELECT CASE WHEN $6::bigint <> 0 AND $6::bigint <> coalesce((SELECT n FROM current), 0)
    THEN -1
    WHEN (SELECT count(*) FROM updated) < (SELECT count(*) FROM units)
    THEN sluice_reject('` + unknownSale + `')
    ELSE (SELECT coalesce(sum(n), 0)::bigint FROM units) END`

// insertMissing is insertNew that skips orders which are rows already.
var insertMissing = strings.Replace(insertNew, "RETURNING id, sale_id",
	"ON CONFLICT (id) DO NOTHING RETURNING id, sale_id", 1)

// insertRetries bounds the tries of insertMissing. ON CONFLICT checks the primary key only. If another transaction
// inserts the same order at the same time, PostgreSQL may reach the index orders_slot and report that the slot is
// occupied. It reports this after the other transaction has committed, so the next try finds the row; several
// transactions may require several tries. An order whose slot another order occupies fails every time.
const insertRetries = 5

func (p *postgres) insert(ctx context.Context, from generation, orders []sale.Order) (inserted int, err error) {
	n := len(orders)
	ids, serials := make([]int64, n), make([]int64, n)
	sales, buyers := make([]string, n), make([]string, n)
	slots := make([]int32, n)
	for i, o := range orders {
		ids[i], sales[i], buyers[i], slots[i], serials[i] = int64(o.ID), o.SaleID, o.Buyer, int32(o.Slot), o.Serial
	}
	// ON CONFLICT makes an insert about 25% slower (each row is confirmed by a WAL record of its own), and nearly all
	// batches are new. A batch that is not new fails, is rolled back and is tried again with ON CONFLICT; the server then
	// logs a duplicate key.
	err = p.pool.QueryRow(ctx, insertNew, ids, sales, buyers, slots, serials, from.number, from.name).Scan(&inserted)
	for try := 0; try < insertRetries && violatesUnique(err); try++ {
		err = p.pool.QueryRow(ctx, insertMissing, ids, sales, buyers, slots, serials, from.number, from.name).Scan(&inserted)
	}
	if err != nil {
		return 0, classifyPostgres(err)
	}
	if inserted < 0 {
		return 0, ErrStale
	}
	return inserted, nil
}

func violatesUnique(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "23505" // SQLSTATE unique_violation
}

func (p *postgres) close() error {
	err := p.readers.Close()
	p.pool.Close()
	return err
}

// classifyPostgres separates errors caused by the data, which wrap ErrRejected, from all others, by SQLSTATE class: 22
// is a value that does not fit, 23 a violated constraint. A missing table or permission (42) is an error of the
// deployment and must not turn orders into dead letters, so it wraps sale.ErrUnavailable like all others.
func classifyPostgres(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && len(pg.Code) == 5 && (pg.Code[:2] == "22" || pg.Code[:2] == "23") {
		return rejected(pg.ConstraintName, pg.Message)
	}
	if needsPoolMode(pg) {
		err = fmt.Errorf("%w: %s", err, addPoolMode)
	}
	return unavailable(err)
}

const addPoolMode = "a connection pooler in transaction mode requires pool_mode=transaction in the database URL"

// needsPoolMode reports whether an error is that of a pooler without pool_mode=transaction in the URL: it rejects the
// timeouts of the connection, or a prepared statement is on another connection of the server.
func needsPoolMode(err *pgconn.PgError) bool {
	if err == nil {
		return false
	}
	return strings.Contains(err.Message, "unsupported startup parameter") || // of PgBouncer
		err.Code == "26000" || err.Code == "42P05" // invalid_sql_statement_name, duplicate_prepared_statement
}
