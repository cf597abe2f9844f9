package servertest

import (
	"fmt"
	"time"

	"sluice/backend/sale"
)

// ErrRedisDown wraps sale.ErrUnavailable and names an internal address, which no response may contain.
var ErrRedisDown = fmt.Errorf("redis at 10.0.0.7:6379: connection refused: %w", sale.ErrUnavailable)

// OrderID returns the n-th order id of 2026-11-27 10:00:07 UTC.
func OrderID(n uint32) sale.OrderID {
	return sale.NewOrderID(time.Date(2026, 11, 27, 10, 0, 7, 0, time.UTC), n)
}

// Order returns an order of the sale "drop" with the id OrderID(n).
func Order(n uint32, buyer string, status sale.Status) sale.Order {
	return sale.Order{ID: OrderID(n), SaleID: "drop", Buyer: buyer, Slot: 1, Serial: int64(n), Status: status}
}

// Sale returns the sale "drop", which is open since 2026-11-27.
func Sale() sale.Sale {
	return sale.Sale{
		ID: "drop", Title: "Tea & <cups>", Price: sale.Price{Amount: 1999, Currency: "EUR"}, Stock: 100, PerBuyer: 1,
		OpensAt: time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC), Switch: sale.On, Version: 3,
	}
}
