package store

import (
	"context"
	"database/sql"

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
