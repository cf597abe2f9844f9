package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sluice/backend/sale"
)

// Scanner reads the columns of a row.
type Scanner interface{ Scan(into ...any) error }

// Get runs a query for at most one row and scans its columns. It returns sale.ErrNotFound if there is no row.
func Get(ctx context.Context, c Conn, into []any, sql string, args ...any) error {
	_, err := GetRow(ctx, c, func(row Scanner) (none struct{}, err error) { return none, row.Scan(into...) }, sql, args...)
	return err
}

// GetRow runs a query for at most one row and returns the result of scan, or sale.ErrNotFound.
func GetRow[T any](ctx context.Context, c Conn, scan func(Scanner) (T, error), sql string, args ...any) (T, error) {
	found, err := Select(ctx, c, scan, sql, args...)
	if err == nil && len(found) == 0 {
		err = sale.ErrNotFound
	}
	if err != nil {
		var none T
		return none, err
	}
	return found[0], nil
}

// Exists reports whether a query returns a row.
func Exists(ctx context.Context, c Conn, sql string, args ...any) (found bool, err error) {
	err = c.Query(ctx, func(Scanner) error { found = true; return nil }, sql, args...)
	return found, err
}

// Select runs a query and returns the result of scan for each row.
func Select[T any](ctx context.Context, c Conn, scan func(Scanner) (T, error), sql string, args ...any) ([]T, error) {
	var all []T
	err := c.Query(ctx, func(row Scanner) error {
		v, err := scan(row)
		all = append(all, v)
		return err
	}, sql, args...)
	return all, err
}

// SelectMap runs a query for rows of a key and a value, and returns the values by key.
func SelectMap[K comparable, V any](ctx context.Context, c Conn, sql string, args ...any) (map[K]V, error) {
	found := map[K]V{}
	return found, c.Query(ctx, func(row Scanner) error {
		var key K
		var value V
		err := row.Scan(&key, &value)
		found[key] = value
		return err
	}, sql, args...)
}

// Value runs do with run, which is DB.View, DB.Snapshot or DB.Update, and returns its value, or the zero value with an
// error.
func Value[T any](
	ctx context.Context, run func(context.Context, string, func(context.Context, Conn) error) error, op string,
	do func(context.Context, Conn) (T, error),
) (T, error) {
	var value, none T
	err := run(ctx, op, func(ctx context.Context, c Conn) (err error) {
		value, err = do(ctx, c)
		return err
	})
	if err != nil {
		return none, err
	}
	return value, nil
}

// ViewRows is Select in a View of its own.
func ViewRows[T any](
	ctx context.Context, db *DB, op string, scan func(Scanner) (T, error), sql string, args ...any,
) ([]T, error) {
	return Value(ctx, db.View, op, func(ctx context.Context, c Conn) ([]T, error) {
		return Select(ctx, c, scan, sql, args...)
	})
}

// ViewRow is GetRow in a View of its own.
func ViewRow[T any](
	ctx context.Context, db *DB, op string, scan func(Scanner) (T, error), sql string, args ...any,
) (T, error) {
	return Value(ctx, db.View, op, func(ctx context.Context, c Conn) (T, error) {
		return GetRow(ctx, c, scan, sql, args...)
	})
}

// UpdateRows runs one statement in an Update of its own. It returns the number of rows that the statement inserted,
// updated or deleted.
func UpdateRows(ctx context.Context, db *DB, op, sql string, args ...any) (int64, error) {
	return Value(ctx, db.Update, op, func(ctx context.Context, c Conn) (int64, error) { return c.Exec(ctx, sql, args...) })
}

// UpdateRowsIf runs UpdateRows if the query exists returns a row. Both get the same arguments. See UpdateIf.
func UpdateRowsIf(ctx context.Context, db *DB, op, exists, sql string, args ...any) (rows int64, err error) {
	_, err = db.UpdateIf(ctx, op, func(ctx context.Context, c Conn) (bool, error) {
		return Exists(ctx, c, exists, args...)
	}, func(ctx context.Context, c Conn) error {
		rows, err = c.Exec(ctx, sql, args...)
		return err
	})
	return rows, err
}

// Column scans a row of one column, for Select.
func Column[T any](row Scanner) (v T, err error) {
	err = row.Scan(&v)
	return v, err
}

// Time returns the argument of Scan for a time of either engine: a timestamptz, or milliseconds since 1970. NULL
// becomes the zero time.
func Time(into *time.Time) sql.Scanner { return (*timestamp)(into) }

type timestamp time.Time

func (t *timestamp) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*t = timestamp{}
	case time.Time:
		*t = timestamp(v.UTC())
	case int64:
		*t = timestamp(time.UnixMilli(v).UTC())
	default:
		return fmt.Errorf("store: a time cannot be read from %T", src)
	}
	return nil
}

// nullTime is the argument for a column that is NULL for the zero time.
func nullTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.Truncate(time.Millisecond)
}

// Text removes NUL bytes, which PostgreSQL's type text cannot hold, and replaces invalid UTF-8.
func Text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}

// JSON encodes a list of structs as the argument of Dialect.Records. It panics for a type that JSON cannot encode.
func JSON(records any) string {
	b, err := json.Marshal(records)
	if err != nil {
		panic(err)
	}
	return string(b)
}
