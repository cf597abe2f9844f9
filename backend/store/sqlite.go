package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"sluice/backend/sale"
)

// sqliteReaders is how many queries run side by side; each connection costs about 2 MB of page cache at most.
const sqliteReaders = 4

// sqliteEngine has one connection that writes, because SQLite has one writer at a time and a queue in Go is fair, and several that read beside it (WAL).
// Other processes may use the same file: they wait for each other up to the timeout.
type sqliteEngine struct {
	writer, readers *sql.DB
	order, sold     *sql.Stmt // of the writer
}

func openSQLite(ctx context.Context, databaseURL string, timeout time.Duration) (_ engine, err error) {
	path, err := sqlitePath(databaseURL)
	if err != nil {
		return nil, err
	}
	// Made here, so that a file with the names of buyers is readable by its owner only and a missing folder is a plain message.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, unavailable(err)
	}
	f.Close()

	e := &sqliteEngine{
		writer:  openFile(path, timeout, url.Values{"_txlock": {"immediate"}}),
		readers: openFile(path, timeout, url.Values{"_pragma": {"query_only(1)"}}),
	}
	defer func() {
		if err != nil {
			_ = e.close()
		}
	}()
	e.writer.SetMaxOpenConns(1)
	e.readers.SetMaxOpenConns(sqliteReaders)
	e.readers.SetMaxIdleConns(sqliteReaders)
	if err := migrateSQLite(ctx, e.writer); err != nil {
		return nil, fmt.Errorf("migrate: %w", unavailable(err))
	}
	if e.order, err = e.writer.PrepareContext(ctx, insertOrder); err != nil {
		return nil, unavailable(err)
	}
	if e.sold, err = e.writer.PrepareContext(ctx, `UPDATE sales SET sold = sold + $2 WHERE id = $1`); err != nil {
		return nil, unavailable(err)
	}
	return e, nil
}

const insertOrder = `INSERT INTO orders (id, sale_id, buyer, nth, serial, due_at)
	VALUES ($1, $2, $3, $4, $5, (SELECT $6 + hold_ms FROM sales WHERE id = $2 AND hold_ms > 0)) ON CONFLICT (id) DO NOTHING`

// sqliteNow is milliseconds since 1970 by Go's clock. SQLite reads the clock of this machine itself; but a test that turns Go's must turn both.
func sqliteNow() int64 { return time.Now().UnixMilli() }

// sqlitePath reads sqlite:///abs/path.db, sqlite:/abs/path.db and sqlite:rel/path.db, with %XX for special characters.
func sqlitePath(databaseURL string) (string, error) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return "", &URLError{"is not a URL; special characters are written %XX"}
	}
	path := u.Path
	if u.Opaque != "" {
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return "", &URLError{"is not a URL; special characters are written %XX"}
		}
	}
	switch {
	case u.Host != "" || u.User != nil:
		return "", &URLError{"an absolute SQLite path needs three slashes (sqlite:///var/lib/orders.db), a relative one none (sqlite:orders.db)"}
	case u.RawQuery != "" || u.Fragment != "":
		return "", &URLError{"a SQLite URL takes no parameters"}
	case path == "" || strings.HasSuffix(path, "/"):
		return "", &URLError{"a SQLite URL must name a file"}
	case path == ":memory:":
		return "", &URLError{"SQLite needs a file: what is kept in memory only would lose accepted orders"}
	}
	return path, nil
}

func openFile(path string, timeout time.Duration, query url.Values) *sql.DB {
	for _, pragma := range []string{
		"busy_timeout(" + strconv.FormatInt(timeout.Milliseconds(), 10) + ")", // first: the next one may have to wait
		"journal_mode(WAL)",
		"synchronous(FULL)", // a commit is on disk before the queue is told
		"foreign_keys(1)",
		"trusted_schema(0)",
		"journal_size_limit(67108864)", // 64 MB: the log shrinks again after a flood
	} {
		query.Add("_pragma", pragma)
	}
	name := "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + query.Encode()
	connector, err := sqlite.NewConnector(name)
	if err != nil { // unreachable: the name is well formed
		panic(err)
	}
	return sql.OpenDB(connector)
}

func (e *sqliteEngine) insert(ctx context.Context, generation int64, orders []sale.Order) (int, error) {
	tx, err := e.writer.BeginTx(ctx, nil)
	if err != nil {
		return 0, classifySQLite(err)
	}
	defer func() { _ = tx.Rollback() }()

	// The driver starts a goroutine for each statement whose context can end. The transaction watches ctx already.
	steady := context.WithoutCancel(ctx)
	fail := func(err error) (int, error) {
		if ctx.Err() != nil { // says more than that the transaction is gone
			err = ctx.Err()
		}
		return 0, classifySQLite(err)
	}
	if generation != 0 {
		var present int64
		if err := tx.QueryRowContext(steady, "SELECT n FROM counters WHERE name = 'generation'").Scan(&present); err != nil {
			return fail(err)
		}
		if present != generation {
			return 0, ErrStale
		}
	}
	order, sold := tx.StmtContext(steady, e.order), tx.StmtContext(steady, e.sold)
	defer order.Close()
	defer sold.Close()
	counted, now := map[string]int{}, sqliteNow()
	var told []int64 // see Store.note
	inserted := 0
	for _, o := range orders {
		result, err := order.ExecContext(steady, int64(o.ID), o.SaleID, o.Buyer, o.Nth, o.Serial, now)
		if err != nil {
			return fail(err)
		}
		if n, _ := result.RowsAffected(); n == 1 {
			inserted++
			if !sale.IsRehearsal(o.SaleID) {
				told = append(told, int64(o.ID))
			}
			counted[o.SaleID]++
		}
	}
	for id, n := range counted {
		result, err := sold.ExecContext(steady, id, n)
		if err != nil {
			return fail(err)
		}
		if n, _ := result.RowsAffected(); n == 0 {
			return 0, rejected("", "an order names an unknown sale")
		}
	}
	if inserted == 0 {
		return 0, nil
	}
	if len(told) > 0 {
		if _, err := tx.ExecContext(steady, "INSERT INTO outbox (kind, orders, at) VALUES (1, $1, $2)", sqliteArgs([]any{told, now})...); err != nil {
			return fail(err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fail(err)
	}
	return inserted, nil
}

func (e *sqliteEngine) within(ctx context.Context, m mode, do func(conn) error) error {
	db := e.readers
	if m == writing {
		db = e.writer
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return classifySQLite(err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := do(sqliteConn{tx}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return classifySQLite(err)
	}
	return nil
}

func (e *sqliteEngine) direct() conn { return sqliteConn{e.readers} }

func (e *sqliteEngine) dialect() dialect {
	now := strconv.FormatInt(sqliteNow(), 10)
	return dialect{
		now: now, before: now + " - %s",
		in:    "IN (SELECT value FROM json_each(%s))",
		count: "json_array_length(orders)", items: "json_each(part.orders) AS item", nth: "item.key + 1",
		credits:    "SELECT value->>'o', value->>'k', value->>'b', value->>'p' FROM json_each($1) WHERE true ORDER BY 1, 2",
		pushes:     "SELECT value->>'e' AS e, value->>'c' AS c, value->>'t' AS t, value->>'b' AS b FROM json_each(%s)",
		deliveries: "SELECT value->>'i' AS i, value->>'e' AS e, value->>'p' AS p, value->>'l' AS l, value->>'t' AS t, value->>'b' AS b FROM json_each($1)",
		results:    "SELECT value->>'n' AS n, value->>'f' AS f, value->>'s' AS s, value->>'a' AS a, value->>'w' AS w, value->>'ms' AS ms, value->>'c' AS c, value->>'e' AS e, value->>'b' AS b FROM json_each($1)",
		pairs:      "SELECT json_extract(value, '$[0]') AS a, json_extract(value, '$[1]') AS b FROM json_each(%s)",
	}
}

func (e *sqliteEngine) close() error { return errors.Join(e.readers.Close(), e.writer.Close()) }

type sqliteConn struct {
	db interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	}
}

func (c sqliteConn) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := c.db.ExecContext(ctx, query, sqliteArgs(args)...)
	if err != nil {
		return 0, classifySQLite(err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, classifySQLite(err)
	}
	return n, nil
}

func (c sqliteConn) query(ctx context.Context, each func(row) error, query string, args ...any) error {
	rows, err := c.db.QueryContext(ctx, query, sqliteArgs(args)...)
	if err != nil {
		return classifySQLite(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			if ctx.Err() != nil && errors.Is(err, ctx.Err()) { // the row was taken away while it was read
				return classifySQLite(err)
			}
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return classifySQLite(err)
	}
	return nil
}

// sqliteArgs writes times as milliseconds since 1970 and lists as JSON, whose integers SQLite reads exactly.
func sqliteArgs(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case time.Time:
			out[i] = v.UnixMilli()
		case []int64, []string:
			b, _ := json.Marshal(v) // neither can fail
			out[i] = string(b)
		default:
			out[i] = arg
		}
	}
	return out
}

// classifySQLite tells the data's fault from everybody else's; see classifyPostgres.
func classifySQLite(err error) error {
	var lite *sqlite.Error
	if errors.As(err, &lite) {
		switch lite.Code() & 0xff { // the primary code
		case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH:
			return rejected("", lite.Error())
		}
	}
	return unavailable(err)
}
