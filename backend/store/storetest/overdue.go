package storetest

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"sluice/backend/sale"
)

// WithHold is a valid sale whose orders are cancelled when they are not paid in time.
func WithHold(id string, stock int64, hold time.Duration) sale.Sale {
	s := Sale(id, stock)
	s.Hold = hold
	return s
}

// Elapse lets the holds of orders end at once: the database's clock is not a test's to turn. Ids of orders without a hold are left alone.
func Elapse(t testing.TB, databaseURL string, orders ...sale.Order) {
	t.Helper()
	ids := make([]string, len(orders))
	for i, o := range orders {
		ids[i] = o.ID.String()
	}
	Exec(t, databaseURL, "UPDATE orders SET due_at = created_at WHERE due_at IS NOT NULL AND id IN ("+strings.Join(ids, ",")+")")
}

// Exec runs a statement that both kinds of database understand, past the store.
func Exec(t testing.TB, databaseURL, statement string) {
	t.Helper()
	ctx := context.Background()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	if u.Scheme != "sqlite" {
		db, err := pgx.Connect(ctx, databaseURL)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close(ctx)
		if _, err := db.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
		return
	}
	db, err := sql.Open("sqlite", "file:"+u.Path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, statement); err != nil {
		t.Fatal(err)
	}
}
