// Package storetest provides empty databases of every engine of package store, and test data.
package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/test/testenv"
)

// Timeout bounds each operation of a database if the configuration sets no timeout. It is longer than the default of
// the store, which some operations exceed on a busy machine.
const Timeout = 30 * time.Second

// Open opens a database and closes it when the test ends.
func Open(t testing.TB, databaseURL string) *store.Store {
	t.Helper()
	return OpenConfig(t, databaseURL, store.Config{})
}

// OpenConfig is Open with a configuration. If its timeout is too short for a connection on a busy machine, OpenConfig
// tries again.
func OpenConfig(t testing.TB, databaseURL string, cfg store.Config) *store.Store {
	t.Helper()
	cfg.Timeout = cmp.Or(cfg.Timeout, Timeout)
	var db *store.DB
	var err error
	testenv.Eventually(t, Timeout, "the database opens within its timeout", func() bool {
		db, err = store.Open(context.Background(), databaseURL, cfg)
		return !errors.Is(err, sale.ErrUnavailable)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return store.New(db)
}

// Engines runs a test on SQLite, on PostgreSQL, and on PostgreSQL behind a connection pooler. Each run gets an empty
// database, db, and its URL. The calling package needs testenv.Main.
func Engines(t *testing.T, test func(t *testing.T, db *store.Store, databaseURL string)) {
	t.Helper()
	t.Parallel()
	for name, newURL := range map[string]func(testing.TB) string{
		"sqlite": SQLite, "postgres": Postgres, "pgbouncer": PgBouncer,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			databaseURL := newURL(t)
			test(t, Open(t, databaseURL), databaseURL)
		})
	}
}

// Sale returns a valid sale that opened an hour ago.
func Sale(id string, stock int64) sale.Sale {
	return sale.Sale{
		ID: id, Title: "Sneaker", Price: sale.Price{Amount: 9900, Currency: "EUR"}, Stock: stock, PerBuyer: 1,
		OpensAt: time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond), Switch: sale.On, Version: 1,
	}
}

// WithHold returns a valid sale with a hold.
func WithHold(id string, stock int64, hold time.Duration) sale.Sale {
	s := Sale(id, stock)
	s.Hold = hold
	return s
}

var sequence atomic.Uint32

// Order returns a valid order in a buyer's first slot, with a new id. Its serial is the id's sequence number.
func Order(saleID, buyer string) sale.Order {
	n := sequence.Add(1)
	return sale.Order{
		ID:     sale.NewOrderID(time.Now(), n),
		SaleID: saleID,
		Buyer:  buyer,
		Slot:   1,
		Serial: int64(n),
		Status: sale.StatusQueued,
	}
}

// Orders returns n orders of n buyers.
func Orders(saleID string, n int) []sale.Order {
	orders := make([]sale.Order, n)
	for i := range orders {
		orders[i] = Order(saleID, "")
		orders[i].Buyer = "buyer-" + strconv.FormatUint(uint64(orders[i].ID.Sequence()), 10)
	}
	return orders
}

var callbacks atomic.Int64

// Payment returns a new callback that pays an order of a Sale in full.
func Payment(o sale.Order, reference string) store.Payment {
	id := fmt.Sprint("msg_", callbacks.Add(1))
	return store.Payment{
		CallbackID: id, Digest: "digest of " + id, OrderID: o.ID, Event: store.EventSucceeded,
		Price: sale.Price{Amount: 9900, Currency: "EUR"}, Reference: reference,
	}
}
