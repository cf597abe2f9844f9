// Package ordertest holds the one suite that every kind of order store must pass, and makes empty databases for the tests of other packages.
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

// Open opens the database and closes it when the test ends.
func Open(t testing.TB, databaseURL string, options ...store.Option) *store.Store {
	t.Helper()
	s, err := store.Open(context.Background(), databaseURL, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// Sale is a valid sale that opened an hour ago.
func Sale(id string, stock int64) sale.Sale {
	return sale.Sale{
		ID: id, Title: "Sneaker", Price: sale.Price{Amount: 9900, Currency: "EUR"}, Stock: stock, PerBuyer: 1,
		OpensAt: time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond), Switch: sale.On, Version: 1,
	}
}

var sequence atomic.Uint32

// Order is a valid order of a buyer's first place with a new id; its serial is the id's sequence number.
func Order(saleID, buyer string) sale.Order {
	n := sequence.Add(1)
	return sale.Order{ID: sale.NewOrderID(time.Now(), n), SaleID: saleID, Buyer: buyer, Nth: 1, Serial: int64(n), Status: sale.StatusQueued}
}

// Orders are n orders of n buyers.
func Orders(saleID string, n int) []sale.Order {
	orders := make([]sale.Order, n)
	for i := range orders {
		orders[i] = Order(saleID, "")
		orders[i].Buyer = "buyer-" + strconv.FormatUint(uint64(orders[i].ID.Sequence()), 10)
	}
	return orders
}
