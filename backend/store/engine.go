package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sluice/backend/sale"
)

// engine is what PostgreSQL and SQLite do differently. The errors of an engine are classified: they wrap ErrRejected or sale.ErrUnavailable.
type engine interface {
	// insert writes the orders (valid, distinct, sorted by id) that are not rows yet and counts them in their sales, in one transaction. It returns
	// ErrStale when generation is neither 0 nor the present one.
	insert(ctx context.Context, generation int64, orders []sale.Order) (inserted int, err error)
	// within runs do in one transaction: one that writes, or a snapshot. An error of do undoes it and is returned as it is.
	within(ctx context.Context, mode mode, do func(conn) error) error
	// direct runs single statements that read.
	direct() conn
	dialect() dialect
	close() error
}

type mode int

const (
	snapshot mode = iota // reads only, all of one instant
	writing
)

// conn runs statements, with $1, $2, ... for their arguments in both engines. A time.Time, a []int64 and a []string may be arguments.
type conn interface {
	exec(ctx context.Context, sql string, args ...any) (rows int64, err error)
	// query calls each for every row; an error of each ends it and is returned as it is.
	query(ctx context.Context, each func(row) error, sql string, args ...any) error
}

type row interface{ Scan(into ...any) error }

// dialect holds the few words of SQL that differ.
type dialect struct {
	forUpdate  string // locks the rows of a SELECT
	forShare   string // keeps others from changing them
	skip       string // the same, and leaves out rows that somebody else has locked
	now        string // the database's clock, as its tables hold times
	pairs      string // reads a JSON array of pairs of integers, with %s for its placeholder, as rows of a and b
	before     string // the instant so many milliseconds before now, with %s for their placeholder
	count      string // how many orders a row of the outbox has
	items      string // the orders of the row part of the outbox, to be joined with it: item.value is the order id
	nth        string // the place of an item in its row, from 1
	credits    string // reads a JSON array of lines of the ledger of points, sorted by its key
	pushes     string // reads a JSON array of lines of push_deliveries, with %s for its placeholder
	deliveries string // reads a JSON array of new lines of webhook_deliveries, from $1
	results    string // reads a JSON array of what became of deliveries, from $1
	in         string // what to write after a column, with %s for the placeholder of a []int64 or a []string
}

func (d dialect) ago(placeholder string) string { return fmt.Sprintf(d.before, placeholder) }

func (d dialect) among(placeholder string) string { return fmt.Sprintf(d.in, placeholder) }

// instant scans a time in either form: timestamptz, or milliseconds since 1970. NULL is the zero time.
type instant struct{ time.Time }

func (i *instant) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		i.Time = time.Time{}
	case time.Time:
		i.Time = v.UTC()
	case int64:
		i.Time = time.UnixMilli(v).UTC()
	default:
		return fmt.Errorf("order: a time cannot be read from %T", src)
	}
	return nil
}

// orNull is the time to the millisecond, or NULL for the zero time.
func orNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.Truncate(time.Millisecond)
}

// errNoRow is what one returns when there is nothing to read.
var errNoRow = errors.New("no row")

// one runs a query for at most one row and scans it.
func one(ctx context.Context, c conn, into []any, sql string, args ...any) error {
	err := errNoRow
	if qerr := c.query(ctx, func(r row) error {
		err = r.Scan(into...)
		return err
	}, sql, args...); qerr != nil {
		return qerr
	}
	return err
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", sale.ErrUnavailable, oneLine{err}) }

// oneLine shows an error whose text may have several lines in one.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLine) Unwrap() error { return e.error }
