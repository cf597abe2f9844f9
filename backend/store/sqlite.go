package store

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"sluice/backend/sale"
)

// sqliteReaders is the number of connections that read. Each uses at most about 2 MB of page cache.
const sqliteReaders = 4

// sqliteEngine has one connection that writes, because SQLite permits one writer at a time and database/sql queues
// callers fairly, and several that read concurrently (WAL). Other processes may use the same file; all wait for locks,
// at most for the timeout.
type sqliteEngine struct {
	driver
	order, sold *sql.Stmt // of the writer
	lock        *os.File  // of Config.Exclusive; nil without
}

func openSQLite(
	ctx context.Context, databaseURL string, timeout time.Duration, cfg Config,
) (_ engine, err error) {
	path, err := sqlitePath(databaseURL)
	if err != nil {
		return nil, err
	}
	if cfg.Existing {
		if err := checkSQLite(ctx, path, timeout); err != nil {
			return nil, err
		}
	}
	if err := createFile(path); err != nil {
		return nil, err
	}

	e := &sqliteEngine{driver: driver{
		writer:  openFile(path, timeout, url.Values{"_txlock": {"immediate"}}),
		readers: openFile(path, timeout, url.Values{"_pragma": {"query_only(1)"}}),
		dialect: func() Dialect { // one transaction writes, so LockText locks nothing
			return Dialect{Now: strconv.FormatInt(sqliteNow(), 10), LockText: "SELECT $1"}
		},
		encode: sqliteArgs, classify: classifySQLite,
	}}
	defer func() {
		if err != nil {
			_ = e.close()
		}
	}()
	if cfg.Exclusive {
		if e.lock, err = lockFile(path); err != nil {
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
	if e.order, err = e.writer.PrepareContext(ctx, insertOrder); err != nil {
		return nil, unavailable(err)
	}
	if e.sold, err = e.writer.PrepareContext(ctx, addSold); err != nil {
		return nil, unavailable(err)
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

const insertOrder = `INSERT INTO orders (id, sale_id, buyer, slot, serial, due_at)
	VALUES ($1, $2, $3, $4, $5,
		(SELECT $6 + hold_ms FROM sales WHERE id = $2 AND hold_ms > 0)) ON CONFLICT (id) DO NOTHING`

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

func (e *sqliteEngine) insert(ctx context.Context, orders []sale.Order) (int, error) {
	var inserted []sale.Order
	err := e.transact(ctx, writing, func(c Conn) error {
		// The driver starts a goroutine for each statement with a context that can end. The transaction watches ctx
		// already.
		steady := context.WithoutCancel(ctx)
		if err := checkGeneration(steady, c); err != nil {
			return err
		}
		tx := c.db.(*sql.Tx)
		order, sold := tx.StmtContext(steady, e.order), tx.StmtContext(steady, e.sold)
		defer order.Close()
		defer sold.Close()
		units, now := map[string]int{}, sqliteNow()
		for _, o := range orders {
			result, err := order.ExecContext(steady, int64(o.ID), o.SaleID, o.Buyer, o.Slot, o.Serial, now)
			if err != nil {
				return classifySQLite(err)
			}
			if n, _ := result.RowsAffected(); n == 1 {
				inserted = append(inserted, o)
				units[o.SaleID]++
			}
		}
		for id, n := range units {
			result, err := sold.ExecContext(steady, id, n)
			if err != nil {
				return classifySQLite(err)
			}
			if n, _ := result.RowsAffected(); n == 0 {
				return rejected("", unknownSale)
			}
		}
		return appendOutbox(steady, c, OutboxCreated, inserted...)
	})
	if err != nil && ctx.Err() != nil { // the cause; err only reports that the transaction has ended
		err = classifySQLite(ctx.Err())
	}
	if err != nil {
		return 0, err
	}
	return len(inserted), nil
}

func (e *sqliteEngine) close() error {
	err := errors.Join(e.readers.Close(), e.writer.Close())
	if e.lock != nil {
		err = errors.Join(err, e.lock.Close())
	}
	return err
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
