package store

import (
	"context"

	"sluice/backend/sale"
)

// engine is the part of a DB that differs between PostgreSQL and SQLite. Its errors wrap ErrRejected or
// sale.ErrUnavailable.
type engine interface {
	// insert inserts those orders (valid, distinct, sorted by id) that are not rows yet and adds them to the sold units of
	// their sales, in one transaction. It returns ErrStale if generation is neither 0 nor the current one.
	insert(ctx context.Context, generation int64, orders []sale.Order) (inserted int, err error)
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
