// Package store keeps sales, orders, payments and the action log in SQL: PostgreSQL, or SQLite for a single machine.
// SQL is the source of truth; the data in Redis is derived from it and can be rebuilt from it.
//
// # Domain model
//
// A sale (table sales) has a stock of units and a limit of units per buyer. The columns stock and sold count units:
// sold is the number of orders of the sale that are not cancelled. A check constraint keeps sold between 0 and stock,
// so no transaction can oversell a sale. An order (table orders) is one unit bought by one buyer. Its slot, from 1 to
// the sale's limit per buyer, is unique among the buyer's orders that are not cancelled, so no transaction can exceed
// that limit.
//
// An order is accepted in Redis and becomes a row here through Store.Write. From then on its status is created, paid
// or cancelled. An unpaid order whose hold has ended is cancelled by Store.CancelOverdue. The unit of a cancelled row
// goes back to Redis in three steps (see returns.go), and the row records the progress. An order that failed
// permanently in the queue is settled by Store.CancelDead, which inserts a cancelled row without counting a unit.
//
// Each transaction that changes orders also appends them to the table outbox, which package events relays to other
// services.
//
// # Structure
//
// DB holds the connections and runs transactions; it is the same for both engines, which differ in a Dialect only.
// Store has the queries. Packages that own further tables (events, webhook, notify, points, journal) keep their queries
// themselves and run them through a DB. All migrations are here.
//
// The package does not use Redis and does not decide purchases. It rejects orders that would violate a constraint.
package store

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/backend/sale"
)

// defaultTimeout is the default of Config.Timeout.
const defaultTimeout = 5 * time.Second

// Config configures Open. The zero value is valid.
type Config struct {
	// Timeout bounds each operation; 0 or less: defaultTimeout. PostgreSQL cancels a statement after the same time, so
	// that a statement does not outlive a lost client.
	Timeout time.Duration
	// OnChange is called after each transaction that appended to the outbox; nil: not called. It runs on the goroutine of
	// the operation and must not block. A crash can skip the call, so its receiver must also poll.
	OnChange func()
	// Existing requires the tables of a running deployment: Open creates and migrates nothing, and returns a *URLError if
	// the database does not exist or no process of a deployment has used it.
	Existing bool
	// Exclusive locks an SQLite file for this process: Open returns a *URLError while another DB with Exclusive is open.
	// A process with a Redis of its own needs it, because no other Redis may sell the same units.
	Exclusive bool
	// Queries records the statements of PostgreSQL; nil: not recorded. SQLite does not use it.
	Queries pgx.QueryTracer
}

// DB is a pool of connections to one database. It is safe for concurrent use. Every operation ends within the timeout,
// or earlier with its context, and has either its whole effect or none. Errors wrap ErrRejected, one of sale's errors,
// or sale.ErrUnavailable if the database is unreachable, locked, full, read-only or too slow.
type DB struct {
	engine  *engine
	timeout time.Duration
}

// Store has all queries of this package on one database.
type Store struct{ *DB }

// New returns the queries on db.
func New(db *DB) *Store { return &Store{db} }

// Open connects to the database at databaseURL and applies pending migrations. The URL has one of these forms:
//
//	postgres://user:password@host:5432/name   (also postgresql://; with ?pool_mode=transaction behind such a pooler)
//	sqlite:///var/lib/sluice/orders.db        (absolute path)
//	sqlite:orders.db                          (path relative to the working directory)
//
// The error is one line without the password: a *URLError; an error that wraps sale.ErrUnavailable if the database does
// not respond; or, with Config.Existing, that the tables are of another version than the program.
func Open(ctx context.Context, databaseURL string, cfg Config) (*DB, error) {
	db := &DB{timeout: cmp.Or(max(cfg.Timeout, 0), defaultTimeout)}
	if cfg.OnChange == nil {
		cfg.OnChange = func() {}
	}
	postgres, err := isPostgres(databaseURL)
	open := openSQLite
	if postgres {
		open = openPostgres
	}
	if err == nil {
		db.engine, err = open(ctx, databaseURL, db.timeout, cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("store: open: %w", err)
	}
	db.engine.onChange = cfg.OnChange
	return db, nil
}

// CheckURL returns a *URLError if a database URL is malformed. It does not connect.
func CheckURL(databaseURL string) error {
	postgres, err := isPostgres(databaseURL)
	switch {
	case postgres:
		_, err = postgresConfig(databaseURL, defaultTimeout)
	case err == nil:
		_, err = sqlitePath(databaseURL)
	}
	return err
}

// isPostgres reports whether a database URL is that of PostgreSQL, otherwise of SQLite, by its scheme.
func isPostgres(databaseURL string) (bool, error) {
	switch scheme, _, _ := strings.Cut(databaseURL, ":"); scheme {
	case "postgres", "postgresql":
		return true, nil
	case "sqlite":
		return false, nil
	}
	return false, &URLError{"must begin with postgres:// or sqlite:"}
}

// Dialect returns the SQL of the engine; see Conn.
func (db *DB) Dialect() Dialect { return db.engine.conn().Dialect() }

// Errors of a database that responds and accepts no writes. They wrap sale.ErrUnavailable.
var (
	ErrReadOnly = fmt.Errorf("%w: the database is read-only: it is a standby, or default_transaction_read_only is on",
		sale.ErrUnavailable)
	ErrFull = fmt.Errorf("%w: the disk of the database is full", sale.ErrUnavailable)
)

// Ping returns nil if the database responds and accepts writes. It returns ErrReadOnly if PostgreSQL is read-only, and
// ErrFull if the disk of SQLite is full. It does not detect that the disk of PostgreSQL is full.
func (db *DB) Ping(ctx context.Context) error { return db.View(ctx, "store: ping", db.engine.ping) }

// Close closes the connections. It waits for running operations, at most for the timeout.
func (db *DB) Close() error {
	done := make(chan error, 1)
	go func() { done <- db.engine.close() }()
	select {
	case err := <-done:
		return err
	case <-time.After(db.timeout):
		return fmt.Errorf("store: close: %w: connections are still in use", sale.ErrUnavailable)
	}
}

// View runs single statements that only read; each may use another connection. An error is wrapped with the name of the
// operation, op.
func (db *DB) View(ctx context.Context, op string, do func(context.Context, Conn) error) error {
	return db.run(ctx, op, func(ctx context.Context) error { return do(ctx, db.engine.conn()) })
}

// Snapshot runs statements that read, in one transaction: all see the database as of one instant.
func (db *DB) Snapshot(ctx context.Context, op string, do func(context.Context, Conn) error) error {
	e := db.engine
	return db.run(ctx, op, func(ctx context.Context) error { return e.transact(ctx, e.readers, &e.reads, do) })
}

// Update runs a read-write transaction. It commits if do returns nil, otherwise it rolls back. An error is wrapped with
// the name of the operation, op.
func (db *DB) Update(ctx context.Context, op string, do func(context.Context, Conn) error) error {
	return db.run(ctx, op, func(ctx context.Context) error { return db.engine.update(ctx, do) })
}

// UpdateIf calls needed as View does, and then Update if needed returns true. ran is the result of needed. A job
// without work therefore takes no lock, which matters because SQLite permits one writer at a time.
func (db *DB) UpdateIf(
	ctx context.Context, op string, needed func(context.Context, Conn) (bool, error), do func(context.Context, Conn) error,
) (ran bool, err error) {
	if ran, err = Value(ctx, db.View, op, needed); ran {
		err = db.Update(ctx, op, do)
	}
	return ran, err
}

func (db *DB) run(ctx context.Context, op string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, db.timeout)
	defer cancel()
	if err := do(ctx); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}
