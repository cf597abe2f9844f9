package store

import (
	"context"
	"database/sql"
	"errors"

	"sluice/backend/sale"
)

// engine is the part of a DB that differs between PostgreSQL and SQLite. Its errors wrap ErrRejected or
// sale.ErrUnavailable.
type engine interface {
	// insert inserts those orders (valid, distinct, sorted by id) that are not rows yet and adds them to the sold units
	// of their sales, in one transaction. It returns ErrStale if the generation of the context is not current.
	insert(ctx context.Context, orders []sale.Order) (inserted int, err error)
	// transact runs do in a transaction. An error of do rolls it back and is returned unchanged.
	transact(ctx context.Context, mode mode, do func(Conn) error) error
	// conn runs single statements that only read.
	conn() Conn
	close() error
}

type mode int

const (
	snapshot mode = iota // reads only, as of one instant
	writing
)

// driver has the operations that are the same for both engines. They use database/sql.
type driver struct {
	readers, writer *sql.DB
	options         [2]sql.TxOptions       // by mode
	dialect         func() Dialect         // for SQLite with the current time
	encode          func(args []any) []any // converts the arguments that the driver does not accept
	classify        func(err error) error  // see classifyPostgres
}

func (d *driver) transact(ctx context.Context, m mode, do func(Conn) error) error {
	db := d.readers
	if m == writing {
		db = d.writer
	}
	tx, err := db.BeginTx(ctx, &d.options[m])
	if err != nil {
		return d.classify(err)
	}
	defer func() { _ = tx.Rollback() }() // if it fails, the connection is closed and the server rolls back
	if err := do(Conn{tx, d}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return d.classify(err)
	}
	return nil
}

func (d *driver) conn() Conn { return Conn{d.readers, d} }

// Conn runs statements with the placeholders $1, $2, ... on either engine. Arguments may also be of the types time.Time
// (stored to the millisecond), []int64 and []string. Errors wrap ErrRejected or sale.ErrUnavailable.
type Conn struct {
	db interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	}
	driver *driver
}

// Dialect returns the SQL of the engine. For SQLite it contains the current time, so it must not be kept.
func (c Conn) Dialect() Dialect { return c.driver.dialect() }

// Exec returns the number of rows that the statement inserted, updated or deleted.
func (c Conn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := c.db.ExecContext(ctx, query, c.driver.encode(args)...)
	if err != nil {
		return 0, c.driver.classify(err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, c.driver.classify(err)
	}
	return n, nil
}

// Query calls each for every row. An error of each ends the query and is returned unchanged.
func (c Conn) Query(ctx context.Context, each func(Scanner) error, query string, args ...any) error {
	rows, err := c.db.QueryContext(ctx, query, c.driver.encode(args)...)
	if err != nil {
		return c.driver.classify(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			if ctx.Err() != nil && errors.Is(err, ctx.Err()) { // the context ended while the row was read
				return c.driver.classify(err)
			}
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return c.driver.classify(err)
	}
	return nil
}
