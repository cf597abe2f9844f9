package notify_test

import (
	"fmt"
	"testing"
	"time"

	"sluice/backend/events/notify"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// While an old transaction is open, PostgreSQL removes no version of a message. Most leases must not read the versions
// of messages that were leased before.
func TestLeasesBesideAnOldTransactionReadLinearly(t *testing.T) {
	t.Parallel()
	const n, batch, read = 6400, 64, 20 // read: maximum of index entries per message
	url := storetest.Postgres(t)
	sql := storetest.Connect(t, url)
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := sql.Exec(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("ALTER TABLE notifications SET (autovacuum_enabled = false)")
	exec(`INSERT INTO notifications (event_id, subscription_id, body, due_at)
		SELECT n::text, 1, '{}', now() - (10000 - n) * interval '1 minute' FROM generate_series(1, $1) AS n`, n)
	const begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM admin_log"
	if _, err := storetest.Connect(t, url).Exec(t.Context(), begin); err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), url, store.Config{Timeout: storetest.Timeout})
	if err != nil {
		t.Fatal(err)
	}
	messages := notify.NewStore(db)
	for i := range n / batch {
		leased, err := messages.Lease(t.Context(), time.Hour, batch)
		if err != nil || len(leased) != batch || leased[0].EventID != fmt.Sprint(i*batch+1) {
			t.Fatalf("lease %d: %d messages, %v", i, len(leased), err)
		}
		if err := messages.RecordResults(t.Context(), resultsOf(notify.Sent, 0, leased...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil { // the statistics of a session are reported when it ends
		t.Fatal(err)
	}
	fetched := 0
	testenv.Eventually(t, time.Minute, "the statistics are updated", func() bool {
		var updated int
		err := sql.QueryRow(t.Context(), `SELECT n_tup_upd, idx_tup_read FROM pg_stat_user_tables AS t
			JOIN pg_stat_user_indexes AS i ON i.relid = t.relid WHERE i.indexrelname = 'notifications_due'`).
			Scan(&updated, &fetched)
		return err == nil && updated == 2*n
	})
	t.Logf("%d index entries read for %d messages", fetched, n)
	if fetched > n*read {
		t.Errorf("more than %d per message", read)
	}
}
