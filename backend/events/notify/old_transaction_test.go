package notify_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/backend/events/notify"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// backlog is a PostgreSQL database with due messages, and without statistics of them.
type backlog struct {
	*testing.T
	*notify.Store
	url    string
	sql    *pgx.Conn
	tables *store.DB
}

func newBacklog(t *testing.T, n int) *backlog {
	t.Helper()
	url := storetest.Postgres(t)
	w := &backlog{T: t, url: url, sql: storetest.Connect(t, url)}
	for _, statement := range []string{
		"ALTER TABLE notifications SET (autovacuum_enabled = false)",
		fmt.Sprintf(`INSERT INTO notifications (event_id, subscription_id, body, due_at)
			SELECT n::text, 1, repeat('x', 200), now() - (100000 - n) * interval '1 minute'
			FROM generate_series(1, %d) AS n`, n),
	} {
		if _, err := w.sql.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if w.tables, err = store.Open(t.Context(), url, store.Config{Timeout: storetest.Timeout}); err != nil {
		t.Fatal(err)
	}
	w.Store = notify.NewStore(w.tables)
	return w
}

// send leases messages in the order of their due_at, and records them as sent.
func (w *backlog) send(leases, batch int) {
	w.Helper()
	for i := range leases {
		leased, err := w.Lease(w.Context(), time.Hour, batch)
		first := func(v notify.Message) bool { return v.EventID == fmt.Sprint(i*batch+1) }
		if err != nil || len(leased) != batch || !slices.ContainsFunc(leased, first) {
			w.Fatalf("lease %d: %d messages, %v", i, len(leased), err)
		}
		if err := w.RecordResults(w.Context(), resultsOf(notify.Sent, 0, leased...)); err != nil {
			w.Fatal(err)
		}
	}
}

// wantRead closes the database, in which n messages were sent, and compares the number of index entries that leases
// have read with a maximum.
func (w *backlog) wantRead(n, maximum int) {
	w.Helper()
	if err := w.tables.Close(); err != nil { // the statistics of a session are reported when it ends
		w.Fatal(err)
	}
	read := 0
	testenv.Eventually(w, time.Minute, "the statistics are updated", func() bool {
		var updated int
		err := w.sql.QueryRow(w.Context(), `SELECT n_tup_upd, idx_tup_read FROM pg_stat_user_tables AS t
			JOIN pg_stat_user_indexes AS i ON i.relid = t.relid WHERE i.indexrelname = 'notifications_due'`).
			Scan(&updated, &read)
		return err == nil && updated == 2*n
	})
	if w.Logf("%d index entries read for %d messages", read, n); read > maximum {
		w.Errorf("more than %d", maximum)
	}
}

// While an old transaction is open, PostgreSQL removes no version of a message. Most leases must not read the versions
// of messages that were leased before.
func TestLeasesBesideAnOldTransactionReadLinearly(t *testing.T) {
	t.Parallel()
	const leases, batch, perMessage = 100, 64, 20
	w := newBacklog(t, leases*batch)
	const begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM admin_log"
	if _, err := storetest.Connect(t, w.url).Exec(t.Context(), begin); err != nil {
		t.Fatal(err)
	}
	w.send(leases, batch)
	w.wantRead(leases*batch, leases*batch*perMessage)
}

// A lease reads no more of a large backlog than it leases, also without statistics.
func TestLeasesOfALargeBacklogReadFewMessages(t *testing.T) {
	t.Parallel()
	const leases, batch, perMessage = 10, 64, 20
	w := newBacklog(t, 90_000)
	w.send(leases, batch)
	w.wantRead(leases*batch, leases*batch*perMessage)
}
