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
			w := newBurst(t, storetest.Postgres(t), strict)
			w.add(n, 500)
			limit := 32
			if strict {
				limit = 1
			}
			for range leases {
				w.send(limit)
			}
			if fetched := w.fetched(n); fetched > n*read {
				t.Errorf("%d deliveries were added and some sent, which read %d rows and index entries: more than %d per delivery",
					n, fetched, read)
			}
		})
	}
}

// burst is an endpoint in a PostgreSQL database without statistics of its tables.
type burst struct {
	*testing.T
	*Store
	sql      *pgx.Conn
	tables   *store.DB
	endpoint Endpoint
}

func newBurst(t *testing.T, url string, strict bool) *burst {
	t.Helper()
	tables, err := store.Open(t.Context(), url, store.Config{Timeout: storetest.Timeout})
	if err != nil {
		t.Fatal(err)
	}
	w := &burst{T: t, Store: NewStore(tables), sql: storetest.Connect(t, url), tables: tables}
	for _, table := range []string{"webhook_deliveries", "webhook_attempts"} {
		if _, err := w.sql.Exec(t.Context(), "ALTER TABLE "+table+" SET (autovacuum_enabled = false)"); err != nil {
			t.Fatal(err)
		}
	}
	w.endpoint, err = w.AddEndpoint(t.Context(),
		Endpoint{ID: "ep_1", URL: "https://shop.example", Secret: "whsec_", Strict: strict})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// add adds n deliveries of n orders, in batches.
func (w *burst) add(n, perBatch int) {
	w.Helper()
	all := make([]NewDelivery, n)
	for i := range all {
		all[i] = NewDelivery{
			ID: fmt.Sprint("d", i), EndpointID: w.endpoint.ID, Position: int64(i + 1), Sequence: int64(1000 + i),
			Type: "order.created", Body: "{}",
		}
		if w.endpoint.Strict {
			all[i].Sequence = SequenceStrict
		}
	}
	for batch := range slices.Chunk(all, perBatch) {
		if _, err := w.AddDeliveries(w.Context(), batch); err != nil {
			w.Fatal(err)
		}
	}
}

// send leases deliveries and records them as delivered.
func (w *burst) send(limit int) {
	w.Helper()
	if due, err := w.DueEndpoints(w.Context(), nil); err != nil || !slices.Contains(due, w.endpoint.ID) {
		w.Fatalf("due endpoints: %v, %v", due, err)
	}
	_, leased, err := w.LeaseDeliveries(w.Context(), w.endpoint.ID, math.MaxInt64, time.Minute, limit)
	if err != nil || len(leased) != limit {
		w.Fatalf("%d leased, %v; want %d", len(leased), err, limit)
	}
	results := make([]Result, len(leased))
	for i, d := range leased {
		results[i] = delivered(d)
	}
	if recorded, err := w.RecordResults(w.Context(), w.endpoint.ID, results); err != nil || len(recorded) != len(leased) {
		w.Fatalf("%d of %d results recorded, %v", len(recorded), len(leased), err)
	}
}

// fetched closes the database, to which n deliveries were added, and returns how many rows and index entries of
// deliveries PostgreSQL has read.
func (w *burst) fetched(n int) (fetched int) {
	w.Helper()
	if err := w.tables.Close(); err != nil { // the statistics of a session are reported when it ends
		w.Fatal(err)
	}
	testenv.Eventually(w, time.Minute, "the statistics are updated", func() bool {
		var written int
		err := w.sql.QueryRow(w.Context(), `SELECT n_tup_ins, coalesce(seq_tup_read, 0) +
				(SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relid = t.relid)
			FROM pg_stat_user_tables AS t WHERE relname = 'webhook_deliveries'`).Scan(&written, &fetched)
		return err == nil && written == n
	})
	w.Logf("%d rows and index entries read for %d deliveries", fetched, n)
	return fetched
}
