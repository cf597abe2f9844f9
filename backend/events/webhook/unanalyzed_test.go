package webhook

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// A burst of deliveries is inserted into tables of which PostgreSQL has no statistics yet. The rows that it reads must
// grow linearly with the deliveries.
func TestBurstIntoTablesWithoutStatisticsReadsLinearly(t *testing.T) {
	t.Parallel()
	for name, strict := range map[string]bool{"in the order of each order": false, "in strict order": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n, leases, read = 4000, 20, 60 // read: maximum of rows and index entries per delivery
			url := storetest.Postgres(t)
			conn, err := pgx.Connect(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close(t.Context()) })
			tables, err := store.Open(t.Context(), url, store.Config{})
			if err != nil {
				t.Fatal(err)
			}
			db := NewStore(tables)
			for _, table := range []string{"webhook_deliveries", "webhook_attempts"} {
				if _, err := conn.Exec(t.Context(), "ALTER TABLE "+table+" SET (autovacuum_enabled = false)"); err != nil {
					t.Fatal(err)
				}
			}
			e, err := db.AddEndpoint(t.Context(),
				Endpoint{ID: "ep_1", URL: "https://shop.example", Secret: "whsec_", Strict: strict})
			if err != nil {
				t.Fatal(err)
			}
			all := make([]Delivery, n)
			for i := range all {
				all[i] = Delivery{
					ID:         fmt.Sprint("d", i),
					EndpointID: e.ID,
					Position:   int64(i + 1),
					Sequence:   int64(1000 + i),
					Type:       "order.created",
					Body:       "{}",
				}
				if strict {
					all[i].Sequence = SequenceStrict
				}
			}
			for batch := range slices.Chunk(all, 500) {
				if _, err := db.AddDeliveries(t.Context(), batch); err != nil {
					t.Fatal(err)
				}
			}
			limit := 32
			if strict {
				limit = 1
			}
			for range leases {
				sendSome(t, db, e.ID, limit)
			}
			if err := tables.Close(); err != nil { // the statistics of a session are reported when it ends
				t.Fatal(err)
			}
			var written, fetched int64
			testenv.Eventually(t, time.Minute, "the statistics are updated", func() bool {
				err := conn.QueryRow(
					t.Context(),
					`SELECT n_tup_ins, coalesce(seq_tup_read, 0) +
						(SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relid = t.relid)
					FROM pg_stat_user_tables AS t WHERE relname = 'webhook_deliveries'`,
				).Scan(&written, &fetched)
				return err == nil && written == n
			})
			if fetched > n*read {
				t.Errorf("%d deliveries were added and some sent, which read %d rows and index entries: more than %d per delivery",
					n, fetched, read)
			}
			t.Logf("%d rows and index entries read for %d deliveries", fetched, n)
		})
	}
}

// sendSome leases deliveries and records them as delivered.
func sendSome(t *testing.T, db *Store, endpoint string, limit int) {
	t.Helper()
	if due, err := db.DueEndpoints(t.Context(), nil); err != nil || !slices.Contains(due, endpoint) {
		t.Fatalf("due endpoints: %v, %v", due, err)
	}
	_, leased, err := db.LeaseDeliveries(t.Context(), endpoint, math.MaxInt64, time.Minute, limit)
	if err != nil || len(leased) != limit {
		t.Fatalf("%d leased, %v; want %d", len(leased), err, limit)
	}
	results := make([]Result, len(leased))
	for i, d := range leased {
		results[i] = Result{Delivery: d, State: DeliveryDelivered, Status: 204}
	}
	if lost, err := db.RecordResults(t.Context(), endpoint, results); err != nil || lost != 0 {
		t.Fatalf("%d lost, %v", lost, err)
	}
}
