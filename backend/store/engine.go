package store

import (
	"context"
	"database/sql"
	"errors"

	"sluice/backend/sale"
)

// engine has the connections to a database, and what differs between PostgreSQL and SQLite. Its errors wrap ErrRejected
// or sale.ErrUnavailable.
type engine struct {
	readers, writer *sql.DB
	reads, writes   sql.TxOptions                     // of transactions; those of reads see the database as of one instant
	dialect         func() Dialect                    // that of SQLite contains the current time
	encode          func(args []any) []any            // converts the arguments that the driver does not accept
	classify        func(err error) error             // see classifyPostgres
	ping            func(context.Context, Conn) error // see DB.Ping
	// insert inserts those orders (valid, distinct, sorted by id) that are not rows yet and adds them to the sold units
	// of their sales, in one transaction. It returns ErrStale if the generation of the context is not current.
	insert   func(ctx context.Context, orders []sale.Order) (inserted int, err error)
	close    func() error
	onChange func() // of Config
}

// conn runs single statements that only read.
func (e *engine) conn() Conn { return Conn{e.readers, e, nil} }

// update runs do in a transaction that writes; see transact.
func (e *engine) update(ctx context.Context, do func(context.Context, Conn) error) error {
	return e.transact(ctx, e.writer, &e.writes, do)
}

// transact runs do in a transaction. An error of do rolls it back and is returned unchanged.
func (e *engine) transact(
	ctx context.Context, db *sql.DB, options *sql.TxOptions, do func(context.Context, Conn) error,
) error {
	tx, err := db.BeginTx(ctx, options)
	if err != nil {
		return e.classify(err)
	}
	defer func() { _ = tx.Rollback() }() // if it fails, the connection is closed and the server rolls back
	c := Conn{tx, e, new(bool)}
	if err := do(ctx, c); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return e.classify(err)
	}
	if *c.changed {
		e.onChange()
	}
	return nil
}

// Conn runs statements with the placeholders $1, $2, ... on either engine. Arguments may also be of the types time.Time
// (stored to the millisecond), []int64 and []string. Errors wrap ErrRejected or sale.ErrUnavailable.
type Conn struct {
	db interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	}
	engine  *engine
	changed *bool // set by appendOutbox in a transaction
}

// Dialect returns the SQL of the engine. For SQLite it contains the current time, so it must not be kept.
func (c Conn) Dialect() Dialect { return c.engine.dialect() }

// Exec returns the number of rows that the statement inserted, updated or deleted.
func (c Conn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := c.db.ExecContext(ctx, query, c.engine.encode(args)...)
	if err != nil {
		return 0, c.engine.classify(err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, c.engine.classify(err)
	}
	return n, nil
}

// Query calls each for every row. An error of each ends the query and is returned unchanged.
func (c Conn) Query(ctx context.Context, each func(Scanner) error, query string, args ...any) error {
	rows, err := c.db.QueryContext(ctx, query, c.engine.encode(args)...)
	if err != nil {
		return c.engine.classify(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			if ctx.Err() != nil && errors.Is(err, ctx.Err()) { // the context ended while the row was read
				return c.engine.classify(err)
			}
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return c.engine.classify(err)
	}
	return nil
}
