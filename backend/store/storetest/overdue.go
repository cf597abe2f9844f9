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

// WithHold returns a valid sale with a hold.
func WithHold(id string, stock int64, hold time.Duration) sale.Sale {
	s := Sale(id, stock)
	s.Hold = hold
	return s
}

// Elapse ends the holds of orders now, because a test cannot set the database's clock. Orders without a hold are not
// changed.
func Elapse(t testing.TB, databaseURL string, orders ...sale.Order) {
	t.Helper()
	ids := make([]string, len(orders))
	for i, o := range orders {
		ids[i] = o.ID.String()
	}
	Exec(t, databaseURL, "UPDATE orders SET due_at = created_at WHERE due_at IS NOT NULL AND id IN ("+strings.Join(ids,
		",")+")")
}

// Exec runs a statement that both engines support, on a connection of its own.
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
