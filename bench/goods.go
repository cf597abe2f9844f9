package main

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/admission"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/internal/token"
)

// secret signs the buyers' tokens.
const secret = "bench-bench-bench-bench-bench-bench"

// key is the key of all parts.
var key = func() *token.Key {
	k, err := token.NewKey(secret)
	if err != nil {
		panic(err) // the secret is long enough
	}
	return k
}()

// saleID names the sale that every contest sells from.
const saleID = "bench"

// benchSale is a sale that is open.
func benchSale(stock int64) sale.Sale {
	return sale.Sale{
		ID: saleID, Title: "Bench", Price: sale.Price{Amount: 9990, Currency: "EUR"}, Stock: stock, PerBuyer: 1,
		OpensAt: sale.Epoch, Switch: sale.On, Version: 1,
	}
}

// openSale puts a fresh sale into an emptied Redis. The mark of a verified Redis stays: without it, backends would
// assume that Redis has lost its data.
func openSale(ctx context.Context, client redisconn.Client, stock int64) error {
	guard := keyspace.Shard(0).Guard()
	mark, err := client.HGetAll(ctx, guard).Result()
	if err != nil {
		return err
	}
	if _, err = client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.FlushAll(ctx)
		if len(mark) > 0 {
			p.HSet(ctx, guard, mark)
		}
		return nil
	}); err != nil {
		return err
	}
	loader := admission.NewStock(admission.StockConfig{Client: client})
	none := func(context.Context, spread.Part, func(sale.Order) error) error { return nil }
	return loader.Load(ctx, benchSale(stock), none)
}

// buyerName returns the name of buyer i: 24 characters in no order, like the account ids of a shop.
func buyerName(i int) string {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(i))
	sum := sha256.Sum256(b[:])
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:15]))
}

// ids makes order ids as a Sequencer does, without Redis. It is safe for concurrent use; its zero value is ready.
type ids struct{ sequence atomic.Uint32 }

func (s *ids) next() sale.OrderID { return sale.NewOrderID(time.Now(), s.sequence.Add(1)) }

// orders makes n orders of distinct buyers.
func (s *ids) orders(n int) []sale.Order {
	orders := make([]sale.Order, n)
	for i := range orders {
		orders[i] = sale.Order{
			ID: s.next(), SaleID: saleID, Buyer: buyerName(i), Slot: 1, Serial: int64(i + 1), Status: sale.StatusQueued,
		}
	}
	return orders
}
