// Package storetest provides the conformance suite of package store, empty databases of every engine, and test data.
package storetest

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"sluice/backend/sale"
	"sluice/backend/store"
)

// Store bundles a database with the types of package store.
type Store struct {
	*store.DB
	*store.Sales
	*store.Orders
	*store.Payments
	*store.AdminLog
	*store.Generations
}

// New returns a Store of an open database.
func New(db *store.DB) *Store {
	return &Store{
		db, store.NewSales(db), store.NewOrders(db), store.NewPayments(db), store.NewAdminLog(db), store.NewGenerations(db),
	}
}

// Open opens a database and closes it when the test ends.
func Open(t testing.TB, databaseURL string) *Store {
	t.Helper()
	return OpenConfig(t, databaseURL, store.Config{})
}

// OpenConfig is Open with a configuration.
func OpenConfig(t testing.TB, databaseURL string, cfg store.Config) *Store {
	t.Helper()
	db, err := store.Open(context.Background(), databaseURL, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return New(db)
}

// Engines runs a test on an empty database of each engine, which is at databaseURL too. The calling package needs
// testenv.Main.
func Engines(t *testing.T, test func(t *testing.T, db *Store, databaseURL string)) {
	t.Helper()
	t.Parallel()
	for name, newURL := range map[string]func(testing.TB) string{"sqlite": SQLite, "postgres": Postgres} {
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
