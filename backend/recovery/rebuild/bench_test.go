package rebuild_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/backend/audit"
	"sluice/backend/recovery/journal"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"

	"sluice/backend/admission"
)

// BenchmarkRebuild measures the time from a restarted Redis to a sale that can be bought, by number of rows and of
// queued orders.
//
//	go test -run '^$' -bench Rebuild -benchtime 1x ./backend/recovery/rebuild
func BenchmarkRebuild(b *testing.B) {
	for _, size := range []struct {
		name         string
		rows, queued int
		empty        bool
	}{
		{"rows=100k/redis=intact", 100_000, 0, false},
		{"rows=1M/redis=intact", 1_000_000, 0, false},
		{"rows=1M/redis=empty", 1_000_000, 0, true},
		{"rows=200k,queued=800k/redis=intact", 200_000, 800_000, false},
	} {
		b.Run(size.name, func(b *testing.B) {
			ctx := context.Background()
			pg := testenv.StartPostgres(b)
			tables := storetest.Open(b, pg.URL)
			db := &database{tables, journal.NewRegistry(tables.DB)}
			s := storetest.Sale("s", int64(size.rows+size.queued+1000))
			if _, err := db.CreateSale(ctx, s); err != nil {
				b.Fatal(err)
			}
			conn, err := pgx.Connect(ctx, pg.URL)
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close(ctx)
			for _, statement := range []string{
				fmt.Sprintf(`INSERT INTO orders (id, sale_id, buyer, slot, serial)
					SELECT (200000000::bigint + n/4000) << 32 | n, 's', 'buyer-' || lpad(n::text, 8, '0'), 1, n
					FROM generate_series(1, %d) AS n`, size.rows),
				fmt.Sprintf(`UPDATE sales SET sold = %d WHERE id = 's'`, size.rows),
				"VACUUM ANALYZE orders", "CHECKPOINT", // as in a database in use
			} {
				if _, err := conn.Exec(ctx, statement); err != nil {
					b.Fatal(err)
				}
			}
			server := testenv.StartRedis(b, "--save", "", "--appendonly", "no")
			g := openGuards(b, server.URL, keyspace.Space{})
			shard := keyspace.Shard(0)
			r := newRebuilder(b, rebuild.Config{
				Pinner: g, Store: db, Step: steps(b),
				Pause: func(_ context.Context, id, reason string) error {
					b.Errorf("sale %s was paused: %s", id, reason)
					return nil
				},
			})
			if err := r.Run(ctx); err != nil { // stores the buyers of the rows
				b.Fatal(err)
			}
			pipe := g.Raw().Pipeline()
			for n := size.rows + 1; n <= size.rows+size.queued; n++ {
				o := sale.Order{
					ID: sale.OrderID((200000000+int64(n)/4000)<<32 | int64(n)), SaleID: "s", Buyer: fmt.Sprintf("buyer-%08d", n),
					Slot: 1, Serial: int64(n),
				}
				pipe.LPush(ctx, shard.Ready(), keyspace.EncodeMessage(o))
				pipe.HSet(ctx, shard.Buyers("s"), o.Buyer, o.ID.String())
				if pipe.Len() >= 20_000 || n == size.rows+size.queued {
					if _, err := pipe.Exec(ctx); err != nil {
						b.Fatal(err)
					}
				}
			}
			g.Raw().DecrBy(ctx, shard.Stock("s"), int64(size.queued))
			g.Raw().HSet(ctx, shard.Sale("s"), "accepted", size.rows+size.queued)
			b.ResetTimer()
			for b.Loop() {
				b.StopTimer()
				if size.empty {
					g.Raw().FlushAll(ctx)
				}
				b.StartTimer()
				if err := r.Run(ctx); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			stock := admission.NewStock(admission.StockConfig{Client: g.Raw(), Space: keyspace.Space{}})
			began := time.Now()
			report, err := audit.New(stock, db).Audit(ctx, "s")
			if err != nil || !report.Balanced || report.Left != 1000 {
				b.Errorf("%+v, %v", report, err)
			}
			b.ReportMetric(time.Since(began).Seconds(), "audit-s")
		})
	}
}

// steps logs the duration of each step, with -v.
func steps(b *testing.B) func(string) error {
	last, began := "", time.Now()
	return func(name string) error {
		if took := time.Since(began); took > 10*time.Millisecond && last != "" && last != "finish" {
			b.Logf("%s took %v", last, took.Round(time.Millisecond))
		}
		last, began = name, time.Now()
		return nil
	}
}
