package store_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// perBatch is the batch size of the worker.
const perBatch = 500

// BenchmarkWrite measures orders per second with a server that syncs to disk. Compare postgres/batch with one
// transaction per order (single), as in a store without batches, and with COPY, the maximum of PostgreSQL, which has
// none of the guarantees.
func BenchmarkWrite(b *testing.B) {
	b.Run("sqlite/batch", func(b *testing.B) { writeBatches(b, storetest.Open(b, storetest.SQLite(b))) })
	b.Run("sqlite/single", func(b *testing.B) { writeSingles(b, storetest.Open(b, storetest.SQLite(b))) })
	server := testenv.StartPostgres(b)
	b.Run("postgres/batch", func(b *testing.B) { writeBatches(b, storetest.Open(b, server.URL)) })
	pooled := testenv.PooledURL(b, server)
	b.Run("pgbouncer/batch", func(b *testing.B) { writeBatches(b, storetest.Open(b, pooled)) })
	b.Run("postgres/single", func(b *testing.B) { writeSingles(b, storetest.Open(b, server.URL)) })
	b.Run("postgres/copy", func(b *testing.B) { copyBatches(b, server.URL) })
}

func writeBatches(b *testing.B, s *store.Store) {
	id := newSale(b, s)
	written := 0
	for b.Loop() {
		b.StopTimer()
		batch := storetest.Orders(id, perBatch)
		b.StartTimer()
		if err := s.Write(context.Background(), batch); err != nil {
			b.Fatal(err)
		}
		written += perBatch
	}
	b.ReportMetric(float64(written)/b.Elapsed().Seconds(), "orders/s")
}

func writeSingles(b *testing.B, s *store.Store) {
	id := newSale(b, s)
	for b.Loop() {
		if err := s.Write(context.Background(), storetest.Orders(id, 1)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
}

func copyBatches(b *testing.B, databaseURL string) {
	id := newSale(b, storetest.Open(b, databaseURL))
	ctx := context.Background()
	db := storetest.Connect(b, databaseURL)
	written := 0
	for b.Loop() {
		b.StopTimer()
		batch := storetest.Orders(id, perBatch)
		b.StartTimer()
		rows := pgx.CopyFromSlice(perBatch, func(i int) ([]any, error) {
			o := batch[i]
			return []any{int64(o.ID), o.SaleID, o.Buyer, o.Slot, o.Serial}, nil
		})
		if _, err := db.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"id", "sale_id", "buyer", "slot", "serial"},
			rows); err != nil {
			b.Fatal(err)
		}
		written += perBatch
	}
	b.ReportMetric(float64(written)/b.Elapsed().Seconds(), "orders/s")
}

var benchSales int

func newSale(b *testing.B, s *store.Store) string {
	b.Helper()
	benchSales++
	created, err := s.CreateSale(context.Background(), storetest.Sale(sale.NewOrderID(sale.Epoch,
		uint32(benchSales)).String(), sale.MaxStock))
	if err != nil {
		b.Fatal(err)
	}
	return created.ID
}
