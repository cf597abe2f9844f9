package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"sluice/backend/sale"
)

// sqliteReaders is the number of connections that read. Each uses at most about 2 MB of page cache.
const sqliteReaders = 4

// openSQLite opens one connection that writes, because SQLite permits one writer at a time and database/sql queues
// callers fairly, and several that read concurrently (WAL). Other processes may use the same file; all wait for locks,
// at most for the timeout.
func openSQLite(
	ctx context.Context, databaseURL string, timeout time.Duration, cfg Config,
) (_ *engine, err error) {
	path, err := sqlitePath(databaseURL)
	if err != nil {
		return nil, err
	}
	if cfg.Existing {
		if err := checkSQLite(ctx, path, timeout); err != nil {
			return nil, err
		}
	}
	file, err := openOrCreate(path) // SQLite would create it with other permissions
	if err != nil {
		return nil, err
	}
	_ = file.Close() // nothing was written

	e := &engine{
		writer:  openFile(path, timeout, url.Values{"_txlock": {"immediate"}}),
		readers: openFile(path, timeout, url.Values{"_pragma": {"query_only(1)"}}),
		dialect: func() Dialect { // LockText locks nothing, because one transaction writes at a time
			return Dialect{Now: strconv.FormatInt(sqliteNow(), 10), LockText: "SELECT $1"}
		},
		encode: sqliteArgs, classify: classifySQLite,
		ping: func(ctx context.Context, c Conn) error {
			_, err := c.Exec(ctx, "SELECT 1")
			return cmp.Or(err, checkFile(path))
		},
	}
	e.insert = e.insertSQLite
	var lock *os.File
	e.close = func() error {
		err := errors.Join(e.readers.Close(), e.writer.Close())
		if lock != nil {
			err = errors.Join(err, lock.Close())
		}
		return err
	}
	defer func() {
		if err != nil {
			_ = e.close()
		}
	}()
	if cfg.Exclusive {
		if lock, err = lockFile(path); err != nil {
			return nil, err
		}
	}
	e.writer.SetMaxOpenConns(1)
	e.readers.SetMaxOpenConns(sqliteReaders)
	e.readers.SetMaxIdleConns(sqliteReaders)
	if !cfg.Existing {
		if err := migrateSQLite(ctx, e.writer); err != nil {
			return nil, migrationError(fileError(path, err))
		}
	}
	return e, nil
}

// fileError returns an error of the first statements: a *URLError if an admin has to change the file or its directory.
func fileError(path string, err error) error {
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		switch lite.Code() & 0xff { // the primary code
		case sqlite3.SQLITE_NOTADB:
			return &URLError{path + " is not an SQLite database: name another file"}
		case sqlite3.SQLITE_READONLY: // the file itself is writable
			return &URLError{"no permission to write beside " + path + ": change the owner of its directory and of the " +
				"files there, or name another file"}
		}
	}
	return err
}

// checkSQLite is checkTables for a file, which it does not change.
func checkSQLite(ctx context.Context, path string, timeout time.Duration) error {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return notDeployed(path + " does not exist")
	case err != nil:
		return unavailable(err)
	case !info.Mode().IsRegular():
		return notDeployed(path + " is not a file")
	}
	db := openSQLiteFile(path, timeout, url.Values{"mode": {"rw"}, "_pragma": {"query_only(1)"}})
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return checkTables(ctx, db, "sqlite", classifySQLite)
}

// insertOrders inserts the orders of a JSON array (see sale.Order) at the time $2.
const insertOrders = `INSERT INTO orders (id, sale_id, buyer, slot, serial, due_at)
	SELECT value->>'order_id', value->>'sale_id', value->>'buyer', value->>'nth', value->>'serial',
		(SELECT $2 + hold_ms FROM sales WHERE id = value->>'sale_id' AND hold_ms > 0)
	FROM json_each($1) WHERE true ON CONFLICT (id) DO NOTHING RETURNING id, sale_id`

const addSold = "UPDATE sales SET sold = sold + $2 WHERE id = $1 AND archived = 0"

// sqliteNow returns milliseconds since 1970. It reads the clock of Go instead of that of SQLite, which a test with a
// fake clock cannot control.
func sqliteNow() int64 { return time.Now().UnixMilli() }

func openFile(path string, timeout time.Duration, query url.Values) *sql.DB {
	for _, pragma := range []string{
		"journal_mode(WAL)",
		"synchronous(FULL)", // a commit is on disk before the batch is acknowledged
		"foreign_keys(1)",
		"trusted_schema(0)",
		"journal_size_limit(67108864)", // 64 MB: the write-ahead log shrinks again after a burst
	} {
		query.Add("_pragma", pragma)
	}
	return openSQLiteFile(path, timeout, query)
}

// openSQLiteFile opens a file with the parameters of the driver in query.
func openSQLiteFile(path string, timeout time.Duration, query url.Values) *sql.DB {
	// first, because another pragma may have to wait for a lock
	query["_pragma"] = append([]string{"busy_timeout(" + strconv.FormatInt(timeout.Milliseconds(), 10) + ")"},
		query["_pragma"]...)
	name := "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + query.Encode()
	connector, err := sqlite.NewConnector(name)
	if err != nil { // unreachable: the name is well formed
		panic(err)
	}
	return sql.OpenDB(connector)
}

// insertSQLite is engine.insert.
func (e *engine) insertSQLite(ctx context.Context, orders []sale.Order) (int, error) {
	var inserted []sale.Order
	err := e.update(ctx, func(ctx context.Context, c Conn) error {
		if err := checkGeneration(ctx, c); err != nil {
			return err
		}
		var err error
		inserted, err = Select(ctx, c, func(row Scanner) (o sale.Order, err error) {
			return o, row.Scan(&o.ID, &o.SaleID)
		}, insertOrders, JSON(orders), sqliteNow())
		if err != nil {
			return err
		}
		slices.SortFunc(inserted, byID) // RETURNING has no order
		units := map[string]int{}
		for _, o := range inserted {
			units[o.SaleID]++
		}
		for id, n := range units {
			sales, err := c.Exec(ctx, addSold, id, n)
			if err == nil && sales == 0 {
				err = rejected("", unknownSale)
			}
			if err != nil {
				return err
			}
		}
		return appendOutbox(ctx, c, OutboxCreated, inserted...)
	})
	if err != nil {
		return 0, err
	}
	return len(inserted), nil
}

// sqliteArgs converts times to milliseconds since 1970, and lists to JSON, whose integers SQLite reads exactly.
func sqliteArgs(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case time.Time:
			out[i] = v.UnixMilli()
		case []int64, []string:
			out[i] = JSON(v)
		default:
			out[i] = arg
		}
	}
	return out
}

// classifySQLite separates errors caused by the data from all others; see classifyPostgres.
func classifySQLite(err error) error {
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		switch lite.Code() & 0xff { // the primary code
		case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH:
			return rejected("", lite.Error())
		}
	}
	return unavailable(err)
}
