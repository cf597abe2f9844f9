package main

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"time"

	"sluice/backend/sale"
)

// benchSale is a sale that is open.
func benchSale(stock int64) sale.Sale {
	return sale.Sale{
		ID: saleID, Title: "Bench", Price: sale.Price{Amount: 9990, Currency: "EUR"}, Stock: stock, PerBuyer: 1,
		OpensAt: sale.Epoch, Switch: sale.On, Version: 1,
	}
}

// buyerName is the name of buyer i: 24 characters in no order, as accounts have them.
func buyerName(i int) string {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(i))
	sum := sha256.Sum256(b[:])
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:15]))
}

// ids makes order ids as a Sequencer does, without Redis. It is safe for concurrent use.
type ids struct{ sequence atomic.Uint32 }

func newIDs() *ids { return &ids{} }

func (s *ids) next() sale.OrderID { return sale.NewOrderID(time.Now(), s.sequence.Add(1)) }

// newOrders makes n orders of distinct buyers, the first one being buyer `first`.
func newOrders(s *ids, first, n int) []sale.Order {
	orders := make([]sale.Order, n)
	for i := range orders {
		orders[i] = sale.Order{
			ID:     s.next(),
			SaleID: saleID,
			Buyer:  buyerName(first + i),
			Slot:   1,
			Serial: int64(first + i + 1),
			Status: sale.StatusQueued,
		}
	}
	return orders
}
