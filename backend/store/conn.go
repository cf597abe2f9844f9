package store

import (
	"context"
	"database/sql"
	"errors"
)

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
