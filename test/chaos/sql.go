package chaos

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// sqlConn is a connection that is opened at first use, and again after an error. It is not safe for concurrent use.
type sqlConn struct {
	url  string
	conn *pgx.Conn
}

func (c *sqlConn) one(ctx context.Context, sql string, into any, args ...any) error {
	return c.query(ctx, sql, args, into)
}

// row reads the columns of one row.
func (c *sqlConn) row(ctx context.Context, sql string, into ...any) error {
	return c.query(ctx, sql, nil, into...)
}

func (c *sqlConn) query(ctx context.Context, sql string, args []any, into ...any) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if c.conn == nil || c.conn.IsClosed() {
		conn, err := pgx.Connect(ctx, c.url)
		if err != nil {
			return err
		}
		c.conn = conn
	}
	err := c.conn.QueryRow(ctx, sql, args...).Scan(into...)
	if err != nil {
		c.close()
	}
	return err
}

func (c *sqlConn) close() {
	if c.conn != nil {
		_ = c.conn.Close(context.Background())
		c.conn = nil
	}
}
