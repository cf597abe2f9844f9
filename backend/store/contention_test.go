package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// rival is another session with an open transaction.
type rival struct {
	t    *testing.T
	conn *pgx.Conn
}

func newRival(t *testing.T, url string) rival {
	t.Helper()
	r := rival{t, storetest.Connect(t, url)}
	r.exec("BEGIN")
	return r
}

func (r rival) exec(sql string) {
	r.t.Helper()
	if _, err := r.conn.Exec(r.t.Context(), sql); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

// A write that PostgreSQL aborts because of a deadlock is rolled back, returns ErrUnavailable, and succeeds when it is
// repeated.
func TestPostgresDeadlockIsUnavailableAndLeavesNothing(t *testing.T) {
	url := testenv.SharedPostgres(t).URL
	// PostgreSQL checks for a deadlock once per wait, after deadlock_timeout. On a slow machine too, the second session
	// must wait for the sale a before the check of the write.
	s := open(t, url+"&deadlock_timeout=2s", store.Config{Timeout: storetest.Timeout})
	s.create(t, "a", 10)
	s.create(t, "b", 10)
	first, second := newRival(t, url), newRival(t, url+"&deadlock_timeout=60s")
	first.exec("SELECT FROM sales WHERE id = 'a' FOR UPDATE")
	second.exec("SELECT FROM sales WHERE id = 'b' FOR UPDATE")
	batch := append(storetest.Orders("a", 2), storetest.Orders("b", 2)...)
	written, done := make(chan error, 1), make(chan error, 1)
	go func() { written <- s.Write(context.Background(), batch) }()
	storetest.AwaitLocks(t, url, 1) // the write, for a
	go func() {
		_, err := second.conn.Exec(t.Context(), "SELECT FROM sales WHERE id = 'a' FOR UPDATE")
		done <- err
	}()
	storetest.AwaitLocks(t, url, 2)
	first.exec("COMMIT") // the write holds a and waits for b, so its deadlock check runs first
	if err := <-written; !errors.Is(err, sale.ErrUnavailable) || errors.Is(err, store.ErrRejected) ||
		!strings.Contains(fmt.Sprint(err), "40P01") {
		t.Fatalf("after a deadlock: %v", err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	second.exec("COMMIT")
	s.wantRows(t, "a", 0)
	s.wantRows(t, "b", 0)
	if err := s.Write(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
	s.wantRows(t, "a", 2)
	s.wantRows(t, "b", 2)
}

// With a stricter default isolation level, PostgreSQL aborts a write that conflicts with another one. It succeeds when
// it is repeated.
func TestPostgresSerializationFailureIsUnavailableAndLeavesNothing(t *testing.T) {
	for _, level := range []string{"repeatable%20read", "serializable"} {
		url := testenv.SharedPostgres(t).URL
		s := open(t, url+"&default_transaction_isolation="+level, store.Config{Timeout: storetest.Timeout})
		s.create(t, "s", 10)
		other := newRival(t, url)
		other.exec("UPDATE sales SET title = 'changed' WHERE id = 's'")
		batch := storetest.Orders("s", 3)
		written := make(chan error, 1)
		go func() { written <- s.Write(context.Background(), batch) }()
		storetest.AwaitLocks(t, url, 1)
		other.exec("COMMIT")
		if err := <-written; !errors.Is(err, sale.ErrUnavailable) || errors.Is(err, store.ErrRejected) ||
			!strings.Contains(fmt.Sprint(err), "40001") {
			t.Fatalf("%s: after a conflict: %v", level, err)
		}
		s.wantRows(t, "s", 0)
		for range 2 {
			if err := s.Write(context.Background(), batch); err != nil {
				t.Fatalf("%s: %v", level, err)
			}
		}
		s.wantRows(t, "s", 3)
	}
}

// A cancellation that begins while the archiving of its sale begins is rejected: Redis drops the sale and could not
// take the unit back, and the row of a dead order may be in a file.
func TestPostgresCancelAgainstBeginPart(t *testing.T) {
	row, dead := storetest.Order("s", "bob"), storetest.Order("s", "dan")
	for name, c := range map[string]struct {
		cancel func(s *env) error
		want   error
	}{
		"order": {func(s *env) error {
			_, _, err := s.CancelOrder(context.Background(), row.ID)
			return err
		}, sale.ErrConflict},
		"dead order": {func(s *env) error {
			_, err := s.CancelDead(context.Background(), store.DeadOrder{Order: dead})
			return err
		}, store.ErrRejected},
	} {
		t.Run(name, func(t *testing.T) {
			url := testenv.SharedPostgres(t).URL
			s := open(t, url, store.Config{Timeout: storetest.Timeout})
			s.create(t, "s", 10)
			s.write(t, row)
			archiving := newRival(t, url)
			archiving.exec("SELECT FROM sales WHERE id = 's' FOR UPDATE")
			cancelled := make(chan error, 1)
			go func() { cancelled <- c.cancel(s) }()
			storetest.AwaitLocks(t, url, 1)
			archiving.exec("UPDATE sales SET archived = 1 WHERE id = 's'")
			archiving.exec("COMMIT")
			if err := <-cancelled; !errors.Is(err, c.want) {
				t.Errorf("cancelled: %v, want %v", err, c.want)
			}
			rows, err := s.Statuses(t.Context(), []sale.OrderID{row.ID, dead.ID})
			if err != nil || len(rows) != 1 || rows[row.ID] != sale.StatusCreated {
				t.Errorf("rows %v, %v", rows, err)
			}
		})
	}
}

// A statement of a suspended worker began before the archiving, and inserts orders after they were removed.
func TestPostgresWriteThatBeganBeforeBeginPart(t *testing.T) {
	ctx, url := t.Context(), testenv.SharedPostgres(t).URL
	s := open(t, url, store.Config{Timeout: storetest.Timeout})
	s.create(t, "s", 10)
	o := storetest.Order("s", "bob")
	s.write(t, o)
	if err := s.BeginGeneration(ctx, 0, 1); err != nil {
		t.Fatal(err)
	}
	other := newRival(t, url)
	other.exec("SELECT FROM counters WHERE name = 'generation' FOR UPDATE") // the statement waits for it
	written := make(chan error, 1)
	go func() { written <- s.Write(store.WithGeneration(context.Background(), 0, 1), []sale.Order{o}) }()
	storetest.AwaitLocks(t, url, 1)
	s.beginArchive(t, "s")
	s.removeArchived(t, "s")
	other.exec("COMMIT")
	if err := <-written; !errors.Is(err, store.ErrRejected) {
		t.Errorf("an order of an archived sale was written: %v", err)
	}
	if found, err := s.Statuses(ctx, []sale.OrderID{o.ID}); err != nil || len(found) != 0 {
		t.Errorf("rows %v, %v", found, err)
	}
}

// A client repeats the request to store a report while the first one is in progress.
func TestPostgresReportIsStoredTwiceConcurrently(t *testing.T) {
	url := storetest.Postgres(t)
	s := open(t, url, store.Config{})
	first := newRival(t, url)
	first.exec("INSERT INTO rehearsal_reports (id, sale_id, verdict, stored_by, report) VALUES ('r', 's', 'go', '', '')")
	saved := make(chan error, 1)
	go func() { saved <- s.SaveReport(s.ctx, store.RehearsalReport{ID: "r", SaleID: "s", Verdict: "no-go"}) }()
	storetest.AwaitLocks(t, url, 1)
	first.exec("COMMIT")
	if err := <-saved; err != nil {
		t.Fatal(err)
	}
	if found, err := s.Report(s.ctx, "r"); err != nil || found.Verdict != "no-go" {
		t.Errorf("%+v, %v", found, err)
	}
}
