package store

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"sluice/backend/sale"
)

func openPostgres(
	ctx context.Context, databaseURL string, timeout time.Duration, cfg Config,
) (_ *engine, err error) {
	e, pool, err := connectPostgres(ctx, databaseURL, timeout, cfg.Queries)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = e.close()
		}
	}()
	first, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if cfg.Existing {
		err = checkTables(first, e.readers, "postgres", classifyConnect)
	}
	if err == nil { // the migrations below have no timeout
		err = checkEncoding(first, e.readers)
	}
	if err != nil || cfg.Existing {
		return e, err
	}
	slow := pool.Config().ConnConfig
	if _, limited := slow.RuntimeParams["statement_timeout"]; limited {
		slow.RuntimeParams["statement_timeout"] = "0" // without it, a timeout of the role or of the database would apply
	}
	// If ctx ends, a migration waits until the server has cancelled the statement. By default, the process may exit
	// before.
	slow.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: timeout}
	}
	db := stdlib.OpenDB(*slow)
	defer db.Close()
	if err := migratePostgres(ctx, db); err != nil {
		return nil, migrationError(err)
	}
	return e, nil
}

// checkEncoding returns a *URLError unless the encoding of a database is UTF8. With another one, PostgreSQL cannot
// store every text, or interprets the bytes of a text as other characters.
func checkEncoding(ctx context.Context, db *sql.DB) error {
	var encoding string
	if err := db.QueryRowContext(ctx, "SHOW server_encoding").Scan(&encoding); err != nil {
		return classifyConnect(err)
	}
	if encoding != "UTF8" {
		return &URLError{"its encoding is " + encoding + " and must be UTF8: create a database with ENCODING 'UTF8' " +
			"LOCALE 'C' TEMPLATE template0"}
	}
	return nil
}

// connectPostgres returns an engine, which the caller closes, and its pool. Orders are inserted through the pool, all
// other statements run through database/sql, on the same connections. It does not connect yet.
func connectPostgres(
	ctx context.Context, databaseURL string, timeout time.Duration, queries pgx.QueryTracer,
) (*engine, *pgxpool.Pool, error) {
	config, err := postgresConfig(databaseURL, timeout)
	if err != nil {
		return nil, nil, err
	}
	config.ConnConfig.Tracer = queries
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, unavailable(err)
	}
	shared := stdlib.OpenDBFromPool(pool)
	e := &engine{
		readers: shared, writer: shared,
		reads:   sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
		writes:  sql.TxOptions{Isolation: sql.LevelReadCommitted},
		dialect: func() Dialect { return postgresDialect },
		encode:  func(args []any) []any { return args }, classify: classifyPostgres, ping: pingPostgres,
		close: func() error {
			err := shared.Close()
			pool.Close()
			return err
		},
	}
	e.insert = func(ctx context.Context, orders []sale.Order) (int, error) {
		inserted, err := insertPostgres(ctx, pool, orders)
		if inserted > 0 {
			e.onChange()
		}
		return inserted, err
	}
	return e, pool, nil
}

// pingPostgres runs a statement, because a connection pooler accepts connections without a database behind it.
func pingPostgres(ctx context.Context, c Conn) error {
	var readOnly string // "on" at a standby too
	err := Get(ctx, c, []any{&readOnly}, "SELECT current_setting('transaction_read_only')")
	if err == nil && readOnly == "on" {
		err = ErrReadOnly
	}
	return err
}

// poolMode is the parameter of the database URL that names the mode of a connection pooler between this process and
// PostgreSQL, as in the settings of PgBouncer.
const poolMode = "pool_mode"

// atInHost reports whether the name of a host contains an @. It then begins with a part of the password, because pgx
// ends the password at the first @, and the errors of a connection would quote it.
func atInHost(c *pgx.ConnConfig) bool {
	at := func(host string) bool { return strings.Contains(host, "@") && !strings.HasPrefix(host, "/") }
	return at(c.Host) || slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return at(f.Host) })
}

// postgresConfig parses a database URL. With pool_mode=transaction, each transaction may run on another connection of
// the server. The process then changes no state of a connection: it prepares no statement by name, and the timeouts of
// the server are those of the pooler or of the role.
func postgresConfig(databaseURL string, timeout time.Duration) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil || atInHost(config.ConnConfig) { // err is not included: it may quote a part of the password
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
		"client_encoding":                     "UTF8", // of all texts in Go
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

const unknownSale = "an order names an unknown or an archived sale"

// insertNew inserts orders of one sale, none of which is a row yet. The statements of a batch, one for each of its
// sales, are sent together and are one transaction, so the row of a sale, which all batches update, is locked for the
// server's own work only and never during a round trip.
//
// Every batch takes its locks in the same order, so batches cannot deadlock: the sales ascending, and of each sale
// first the order ids, ascending (unnest keeps the order of the arrays), then the sale, because updated needs all rows
// of inserted. (A cancellation of orders of several sales can deadlock with a batch that has one of these orders again.
// PostgreSQL aborts one of the two transactions, which is retried.) A sale without enough units violates
// sales_not_oversold. A sale that does not exist or is archived is missing in updated, and the batch is rejected: a
// suspended worker whose lease has expired can write orders again that were rows and have been archived or removed
// since. PostgreSQL reads the row of the sale after it has locked the row, so it also detects an archiving that began
// after the statement.
//
// The generation of the shard is locked for sharing first, so it does not change before the batch has committed. Orders
// of another generation are not inserted.
//
// Orders of a rehearsal are not appended to the outbox; see appendOutbox.
const insertNew = `
WITH current AS (
    SELECT n FROM counters WHERE name = $7 FOR SHARE -- no row before the first rebuild of the shard
), inserted AS (
    INSERT INTO orders (id, sale_id, buyer, slot, serial, due_at)
    SELECT o.id, $2, o.buyer, o.slot, o.serial,
        (SELECT now() + hold_ms * interval '1 millisecond' FROM sales WHERE id = $2 AND hold_ms > 0)
    FROM unnest($1::bigint[], $3::text[], $4::integer[], $5::bigint[]) AS o (id, buyer, slot, serial)
    WHERE $6::bigint = 0 OR $6::bigint = coalesce((SELECT n FROM current), 0)
    RETURNING id
), written AS (
    SELECT array_agg(id ORDER BY id) AS ids, count(*) AS n FROM inserted
), appended AS (
    INSERT INTO outbox (kind, orders) SELECT 1, ids FROM written
    WHERE n > 0 AND NOT starts_with($2, '` + sale.RehearsalPrefix + `')
), updated AS (
    UPDATE sales SET sold = sold + written.n FROM written WHERE sales.id = $2 AND written.n > 0 AND archived = 0
    RETURNING 1
)
SELECT CASE WHEN $6::bigint <> 0 AND $6::bigint <> coalesce((SELECT n FROM current), 0)
    THEN -1
    WHEN written.n > 0 AND NOT EXISTS (SELECT FROM updated)
    THEN sluice_reject('` + unknownSale + `')
    ELSE written.n END FROM written`

// insertMissing is insertNew, but skips orders that are rows already.
var insertMissing = strings.Replace(insertNew, "RETURNING id", "ON CONFLICT (id) DO NOTHING RETURNING id", 1)

// insertRetries bounds the tries of insertMissing. ON CONFLICT checks the primary key only. If another transaction
// inserts the same order at the same time, PostgreSQL may reach the index orders_slot and report that the slot is
// occupied. It reports this after the other transaction has committed, so the next try finds the row; several
// transactions may require several tries. An order whose slot another order occupies fails every time.
const insertRetries = 5

// insertPostgres is engine.insert.
func insertPostgres(ctx context.Context, pool *pgxpool.Pool, orders []sale.Order) (inserted int, err error) {
	// ON CONFLICT makes an insert about 25% slower (each row is confirmed by a WAL record of its own), and nearly all
	// batches are new. A batch with an order that is a row already fails, is rolled back, and is repeated with ON
	// CONFLICT; the server then logs a duplicate key.
	inserted, err = insertBy(ctx, pool, insertNew, orders)
	for try := 0; try < insertRetries && sqlState(err) == "23505"; try++ { // unique_violation
		inserted, err = insertBy(ctx, pool, insertMissing, orders)
	}
	if err != nil {
		return 0, classifyPostgres(err)
	}
	if inserted < 0 {
		return 0, ErrStale
	}
	return inserted, nil
}

// insertBy runs a statement for each sale, in one transaction. It returns a number below 0 if the generation is not
// current.
func insertBy(
	ctx context.Context, pool *pgxpool.Pool, statement string, orders []sale.Order,
) (inserted int, err error) {
	from := generationOf(ctx)
	bySale := map[string][]sale.Order{}
	for _, o := range orders {
		bySale[o.SaleID] = append(bySale[o.SaleID], o)
	}
	var batch pgx.Batch
	for _, id := range slices.Sorted(maps.Keys(bySale)) {
		part := bySale[id]
		n := len(part)
		ids, serials := make([]int64, n), make([]int64, n)
		buyers, slots := make([]string, n), make([]int32, n)
		for i, o := range part {
			ids[i], buyers[i], slots[i], serials[i] = int64(o.ID), o.Buyer, int32(o.Slot), o.Serial
		}
		batch.Queue(statement, ids, id, buyers, slots, serials, from.number, from.name).QueryRow(func(row pgx.Row) error {
			var n int
			err := row.Scan(&n)
			inserted += n
			return err
		})
	}
	return inserted, pool.SendBatch(ctx, &batch).Close()
}
