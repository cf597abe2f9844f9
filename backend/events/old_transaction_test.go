package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"sluice/backend/events"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// onPostgres returns an empty PostgreSQL database.
func onPostgres(t *testing.T) *env {
	t.Helper()
	url := storetest.Postgres(t)
	db := storetest.Open(t, url)
	return &env{db, events.NewStore(db.DB), url, t.Context()}
}

// While an old transaction is open, PostgreSQL removes no row version. The relay of new orders must not read more rows
// with each batch. The tables have no statistics, as when a first sale opens, and the statements were planned while the
// tables were empty.
func TestEventsBesideAnOldTransactionReadLinearly(t *testing.T) {
	t.Parallel()
	const batches, perBatch, read = 2000, 2, 100 // read: maximum of rows and index entries per batch
	ctx, url := t.Context(), storetest.Postgres(t)
	db, err := store.Open(ctx, url, store.Config{Timeout: storetest.Timeout})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{store.New(db), events.NewStore(db), url, ctx}
	e.create(t, "s", batches*perBatch)
	old, sql := storetest.Connect(t, e.url), storetest.Connect(t, e.url)
	for _, table := range []string{"orders", "outbox"} {
		if _, err := sql.Exec(ctx, "ALTER TABLE "+table+" SET (autovacuum_enabled = false)"); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 { // so that PostgreSQL plans the statements now
		e.allChanges(t, 0, 100)
	}
	if _, err := old.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM admin_log"); err != nil {
		t.Fatal(err)
	}
	position := int64(0)
	for i := range batches {
		e.write(t, storetest.Orders("s", perBatch)...)
		position += int64(len(e.allChanges(t, position, 100)))
		if position != int64(i+1)*perBatch {
			t.Fatalf("%d changes after %d orders", position, (i+1)*perBatch)
		}
		if err := e.DeleteChanges(ctx, position); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil { // the statistics of a session are reported when it ends
		t.Fatal(err)
	}
	const orders = batches * perBatch
	var written, fetched int64
	testenv.Eventually(t, time.Minute, "the statistics are updated", func() bool {
		err := sql.QueryRow(ctx, `SELECT sum(n_tup_ins), sum(coalesce(seq_tup_read, 0) +
				(SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relid = t.relid))
			FROM pg_stat_user_tables AS t WHERE relname IN ('orders', 'outbox')`).Scan(&written, &fetched)
		return err == nil && written == orders+batches
	})
	if fetched > batches*read {
		t.Errorf("%d batches read %d rows and index entries: more than %d per batch", batches, fetched, read)
	}
	t.Logf("%d rows and index entries read for %d batches", fetched, batches)
}

// A change of a transaction that commits after newer changes have positions gets the next position.
func TestLateCommitGetsAPosition(t *testing.T) {
	t.Parallel()
	ctx, e := t.Context(), onPostgres(t)
	e.create(t, "s", 100)
	sql := storetest.Connect(t, e.url)
	e.write(t, storetest.Orders("s", 1)...)
	if n := len(e.allChanges(t, 0, 100)); n != 1 {
		t.Fatalf("%d changes", n)
	}
	late := storetest.Order("s", "late")
	tx, err := sql.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const insert = "INSERT INTO outbox (kind, orders) VALUES (1, ARRAY[$1::bigint])"
	if _, err := tx.Exec(ctx, insert, int64(late.ID)); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		e.write(t, storetest.Orders("s", 1)...)
	}
	if n := len(e.allChanges(t, 1, 100)); n != 10 {
		t.Fatalf("%d changes", n)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if got := e.allChanges(t, 11, 100); len(got) != 1 || got[0].OrderID != late.ID || got[0].Position != 12 {
		t.Fatalf("changes after the late commit: %+v", got)
	}
}

// A change of a transaction that commits after hundreds of newer changes have positions gets its position before the
// next change of its order.
func TestLateCommitIsBeforeTheNextChangeOfItsOrder(t *testing.T) {
	t.Parallel()
	ctx, e := t.Context(), onPostgres(t)
	e.create(t, "s", 1000)
	sql := storetest.Connect(t, e.url)
	e.write(t, storetest.Orders("s", 1)...)
	last := int64(len(e.allChanges(t, 0, 100)))
	other := storetest.Connect(t, e.url)
	const insert = "INSERT INTO outbox (kind, orders) VALUES ($1, ARRAY[$2::bigint])"
	const newer = "INSERT INTO outbox (kind, orders) SELECT $1, ARRAY[$2 + n] FROM generate_series(1::bigint, 10) AS n"
	for round := range 3 { // a scan from the beginning may find the change of one round, and not of all
		late := storetest.Order("s", fmt.Sprint("late", round))
		tx, err := sql.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, insert, store.OutboxCreated, int64(late.ID)); err != nil {
			t.Fatal(err)
		}
		for i := range 25 {
			if round == 1 && i == 24 { // another process takes over
				e.Store = events.NewStore(e.sqlTables.DB)
			}
			if _, err := other.Exec(ctx, newer, store.OutboxCreated, int64(round*250+i*10)); err != nil {
				t.Fatal(err)
			}
			last += int64(len(e.allChanges(t, last, 100)))
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := sql.Exec(ctx, insert, store.OutboxPaid, int64(late.ID)); err != nil {
			t.Fatal(err)
		}
		got := e.allChanges(t, last, 100)
		if len(got) != 2 || got[0].Type != events.Created || got[1].Type != events.Paid {
			t.Fatalf("changes after the late commit: %+v", got)
		}
		last += 2
	}
}

// A change that becomes visible after DropChanges has found no reader is not dropped: the reader may have begun since.
func TestChangeThatBecomesVisibleAfterTheCheckIsNotDropped(t *testing.T) {
	t.Parallel()
	ctx, e := t.Context(), onPostgres(t)
	e.create(t, "s", 100)
	sql := storetest.Connect(t, e.url)
	tx, err := sql.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	late := storetest.Order("s", "late")
	const insert = "INSERT INTO outbox (kind, orders) VALUES (1, ARRAY[$1::bigint])"
	if _, err := tx.Exec(ctx, insert, int64(late.ID)); err != nil {
		t.Fatal(err)
	}
	orders := storetest.Orders("s", 3)
	for _, o := range orders {
		e.write(t, o)
	}
	check := func(ctx context.Context) (bool, error) { return false, tx.Commit(ctx) }
	if err := e.DropChanges(ctx, 1, check); err != nil {
		t.Fatal(err)
	}
	changes, err := e.Changes(ctx, 0, 100)
	if err != nil || len(changes) != 2 || changes[0].OrderID != late.ID || changes[1].OrderID != orders[2].ID {
		t.Errorf("changes %+v, %v; want the late one and the last", changes, err)
	}
}

// A group that is added while changes are dropped waits, so it does not miss changes that were stored when it was
// added.
func TestGroupIsNotAddedWhileChangesAreDropped(t *testing.T) {
	t.Parallel()
	for _, fromNow := range []bool{false, true} {
		ctx, e := t.Context(), onPostgres(t)
		e.create(t, "s", 100)
		for _, o := range storetest.Orders("s", 3) {
			e.write(t, o)
		}
		sql := storetest.Connect(t, e.url)
		added, early := make(chan error, 1), false
		check := func(context.Context) (bool, error) {
			go func() { _, err := e.AddGroup(t.Context(), "a", fromNow); added <- err }()
			testenv.Eventually(t, time.Minute, "the group is added or waits", func() bool {
				early = len(added) > 0
				return early || storetest.Waiting(t, sql) > 0
			})
			return false, nil
		}
		if err := e.DropChanges(ctx, 1, check); err != nil || early {
			t.Errorf("from now %v: the group was added while changes were dropped: %v, %v", fromNow, early, err)
		}
		if err := <-added; err != nil {
			t.Error(err)
		}
	}
}

// After the removal of a group that was far behind, millions of changes may be deleted. A transaction that deletes too
// many exceeds the timeout each time, and the relay waits for it.
func TestTransactionsOfDeleteChangesAreBounded(t *testing.T) {
	t.Parallel()
	ctx, e := t.Context(), onPostgres(t)
	boundDeletions(t, e, "outbox")
	storetest.Exec(t, e.url, "INSERT INTO outbox (kind, orders, position) "+
		"SELECT 1, ARRAY[n], n FROM generate_series(1, 45000) AS n")
	if err := e.DeleteChanges(ctx, 44_999); err != nil {
		t.Fatal(err)
	}
	if left, err := e.Changes(ctx, 0, 100); err != nil || len(left) != 1 || left[0].Position != 45_000 {
		t.Errorf("changes %+v, %v; want the last one", left, err)
	}
}

// An endpoint that failed during a sale leaves a dead letter for each order. SQLite deletes a million of them in twelve
// seconds, and other transactions wait for that.
func TestTransactionsOfRemoveGroupAreBounded(t *testing.T) {
	t.Parallel()
	ctx, e := t.Context(), onPostgres(t)
	if _, err := e.AddGroup(ctx, "g", false); err != nil {
		t.Fatal(err)
	}
	boundDeletions(t, e, "event_dead_letters")
	storetest.Exec(t, e.url, "INSERT INTO event_dead_letters (group_name, event_id, position, body, reason, deliveries) "+
		"SELECT 'g', n || '.paid', n, '{}', 'r', 1 FROM generate_series(1, 45000) AS n")
	if err := e.RemoveGroup(ctx, "g", false); err != nil {
		t.Fatal(err)
	}
	if n, err := e.CountDeadLetters(ctx); err != nil || len(n) > 0 {
		t.Errorf("dead letters %v, %v", n, err)
	}
	e.expectLog(t, "with 45000 dead letters", "so far 40000 dead letters", "so far 20000 dead letters")
}

// The dead letters of a part are deleted in one transaction with an entry in the log. A repeated call deletes the rest.
func TestRemovalOfAGroupThatEndsEarlyIsLogged(t *testing.T) {
	t.Parallel()
	ctx, e := t.Context(), onPostgres(t)
	if _, err := e.AddGroup(ctx, "g", false); err != nil {
		t.Fatal(err)
	}
	storetest.Exec(t, e.url, "INSERT INTO event_dead_letters (group_name, event_id, position, body, reason, deliveries) "+
		"SELECT 'g', n || '.paid', n, '{}', 'r', 1 FROM generate_series(1, 20100) AS n")
	storetest.Exec(t, e.url, "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "+
		"RAISE 'x' USING ERRCODE = 'lock_not_available'; END $$")
	storetest.Exec(t, e.url, "CREATE TRIGGER fails BEFORE DELETE ON event_groups FOR EACH ROW EXECUTE FUNCTION fail()")
	if err := e.RemoveGroup(ctx, "g", false); !errors.Is(err, sale.ErrUnavailable) {
		t.Fatal(err)
	}
	e.expectLog(t, "so far 20000 dead letters")
	if n, err := e.CountDeadLetters(ctx); err != nil || n["g"] != 100 {
		t.Errorf("dead letters %v, %v; want those of the second part", n, err)
	}
	storetest.Exec(t, e.url, "DROP TRIGGER fails ON event_groups")
	if err := e.RemoveGroup(ctx, "g", false); err != nil {
		t.Fatal(err)
	}
	e.expectLog(t, "with 100 dead letters", "so far 20000 dead letters")
}

// expectLog compares the details of the log entries about groups, newest first.
func (e *env) expectLog(t *testing.T, want ...string) {
	t.Helper()
	log, err := e.Log(e.ctx, store.LogQuery{Action: "group"})
	var got []string
	for _, entry := range log {
		got = append(got, entry.Detail)
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("log %q, %v; want %q", got, err, want)
	}
}

// boundDeletions makes statements fail that delete more rows of a table than one transaction should.
func boundDeletions(t *testing.T, e *env, table string) {
	t.Helper()
	storetest.Exec(t, e.url, `CREATE FUNCTION check_deleted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF (SELECT count(*) FROM deleted) > 20000 THEN RAISE 'too many rows'; END IF; RETURN NULL; END $$`)
	storetest.Exec(t, e.url, "CREATE TRIGGER bounded AFTER DELETE ON "+table+
		" REFERENCING OLD TABLE AS deleted FOR EACH STATEMENT EXECUTE FUNCTION check_deleted()")
}
