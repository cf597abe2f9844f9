package store_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// replicaWorld is a primary and a streaming replica.
type replicaWorld struct {
	*testing.T
	primary, replica *testenv.Postgres
	db               *store.Store
	orders           *store.Replica
	sql              *pgx.Conn // to the replica
}

func newReplicaWorld(t *testing.T) *replicaWorld {
	t.Helper()
	primary := testenv.StartPostgres(t, "-c", "fsync=off")
	w := &replicaWorld{T: t, primary: primary, db: storetest.Open(t, primary.URL)}
	if _, err := w.db.CreateSale(t.Context(), storetest.Sale("s", 1000)); err != nil {
		t.Fatal(err)
	}
	w.replica = primary.Replica()
	w.sql = storetest.Connect(t, w.replica.URL)
	var err error
	if w.orders, err = store.NewReplica(w.db.DB, w.replica.URL, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.orders.Close() })
	testenv.Run(t, w.orders.Run)
	return w
}

func (w *replicaWorld) write() sale.Order {
	w.Helper()
	o := storetest.Order("s", "")
	o.Buyer = o.ID.String()
	if err := w.db.Write(w.Context(), []sale.Order{o}); err != nil {
		w.Fatal(err)
	}
	return o
}

func (w *replicaWorld) status(id sale.OrderID) sale.Status {
	w.Helper()
	o, err := w.orders.Order(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	return o.Status
}

func (w *replicaWorld) exec(sql string) {
	w.Helper()
	if _, err := w.sql.Exec(w.Context(), sql); err != nil {
		w.Fatal(err)
	}
}

// replicated writes an order and returns it when the replica has it.
func (w *replicaWorld) replicated() sale.Order {
	w.Helper()
	o := w.write()
	testenv.Eventually(w, 20*time.Second, "the replica has the order", func() bool {
		var n int
		err := w.sql.QueryRow(w.Context(), "SELECT count(*) FROM orders WHERE id = $1", int64(o.ID)).Scan(&n)
		return err == nil && n == 1
	})
	return o
}

// pause stops replay: the replica lags from now on.
func (w *replicaWorld) pause() {
	w.Helper()
	w.exec("SELECT pg_wal_replay_pause()")
	testenv.Eventually(w, 20*time.Second, "replay is paused", func() bool {
		var state string
		err := w.sql.QueryRow(w.Context(), "SELECT pg_get_wal_replay_pause_state()").Scan(&state)
		return err == nil && state == "paused"
	})
}

func (w *replicaWorld) resume() { w.Helper(); w.exec("SELECT pg_wal_replay_resume()") }

func (w *replicaWorld) cancel(o sale.Order) {
	w.Helper()
	if _, changed, err := w.db.CancelOrder(w.Context(), o.ID); err != nil || !changed {
		w.Fatal(changed, err)
	}
}

// A replica that has replayed the log is queried. A replica that lags by more than a second is not.
func TestReplicaAnswersWhileItIsCurrent(t *testing.T) {
	t.Parallel()
	w := newReplicaWorld(t)
	// While the replica lags, a cancelled order still has the status created there. The status of the answer therefore
	// shows which server it came from.
	testenv.Eventually(t, time.Minute, "the replica answers", func() bool {
		o := w.replicated()
		w.pause()
		defer w.resume()
		w.cancel(o)
		answered := w.status(o.ID) == sale.StatusCreated
		testenv.Eventually(t, time.Minute, "the primary answers", func() bool {
			return w.status(o.ID) == sale.StatusCancelled
		})
		return answered
	})
	o := w.write()
	w.cancel(o)
	testenv.Eventually(t, time.Minute, "the replica answers again", func() bool {
		return w.orders.Current() && w.status(o.ID) == sale.StatusCancelled
	})
}

// An order that is a row is found at every instant, also if the replica lags.
func TestReplicaNeverMissesAnOrder(t *testing.T) {
	t.Parallel()
	w := newReplicaWorld(t)
	for i := range 200 {
		if i == 100 {
			w.pause()
		}
		one, other := w.write().ID, w.write().ID
		if got := w.status(one); got != sale.StatusCreated {
			t.Fatalf("status %q", got)
		}
		found, err := w.orders.OrdersByID(t.Context(), []sale.OrderID{one, 7, other, one})
		if err != nil || len(found) != 2 || found[one].ID != one || found[other].ID != other {
			t.Fatalf("orders %+v, %v", found, err)
		}
	}
	if _, err := w.orders.Order(t.Context(), storetest.Order("s", "missing").ID); !errors.Is(err, sale.ErrNotFound) {
		t.Fatal(err)
	}
}

// While the replica is down, the primary answers. After its restart, the replica answers again.
func TestReplicaIsDown(t *testing.T) {
	t.Parallel()
	w := newReplicaWorld(t)
	o := w.write()
	testenv.Eventually(t, time.Minute, "the replica is current", w.orders.Current)
	w.replica.Kill()
	for range 100 {
		if got := w.status(o.ID); got != sale.StatusCreated {
			t.Fatalf("status %q", got)
		}
	}
	testenv.Eventually(t, time.Minute, "the replica is not current", func() bool { return !w.orders.Current() })
	w.replica.Start()
	testenv.Eventually(t, time.Minute, "the replica is current again", w.orders.Current)
}

// A server that is not a streaming replica of the database is never queried for orders.
func TestAnotherDatabaseIsNoReplica(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, storetest.Postgres(t))
	for name, url := range map[string]string{
		"the primary itself": storetest.Postgres(t), "another server": testenv.StartPostgres(t).URL,
	} {
		r, err := store.NewReplica(db.DB, url, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Check(t.Context()); err == nil || r.Current() {
			t.Errorf("%s: %v", name, err)
		}
		_ = r.Close()
	}
}

func TestReplicaURLs(t *testing.T) {
	t.Parallel()
	sqlite := storetest.Open(t, storetest.SQLite(t))
	postgres := storetest.Open(t, storetest.Postgres(t))
	for _, c := range []struct {
		db  *store.Store
		url string
	}{
		{sqlite, "postgres://sluice@127.0.0.1/sluice"},
		{postgres, "sqlite:orders.db"},
		{postgres, "postgres://%zz"},
		{postgres, ""},
	} {
		_, err := store.NewReplica(c.db.DB, c.url, slog.New(slog.DiscardHandler))
		if _, ok := errors.AsType[*store.URLError](err); !ok {
			t.Errorf("%q: %v", c.url, err)
		}
	}
}
