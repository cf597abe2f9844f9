package webhook

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

func TestDeliveriesAreSentAgain(t *testing.T) {
	onEngines(t, webhookRedelivered)
}

func webhookRedelivered(t *testing.T, e *env) {
	e.endpoint(t, "a", false)
	e.add(t, "a", "-1:0") // a ping: it is not counted as failed, and not sent again with the failed deliveries
	e.results(t, givenUp(e.wantLeased(t, "a", "-1:0")[0]))
	if a, err := e.Show(e.ctx, "a"); err != nil || a.Failed != 0 || !a.FailingSince.IsZero() {
		t.Errorf("after a failed ping: %+v, %v", a, err)
	}
	e.add(t, "a", "1:1", "2:2", "3:3", "4:4")
	leased := e.wantLeased(t, "a", "1:1", "2:2", "3:3", "4:4")
	e.results(t, givenUp(leased[0]), givenUp(leased[1]), givenUp(leased[2]), delivered(leased[3]))
	if list, err := e.Deliveries(e.ctx, DeliveryQuery{EndpointID: "a", State: DeliveryFailed, Limit: 2}); err != nil ||
		len(list) != 2 || list[0].ID != "3:3_a" {
		t.Fatalf("%+v, %v", list, err)
	} else if rest, err := e.Deliveries(e.ctx, DeliveryQuery{EndpointID: "a", State: DeliveryFailed,
		Before: list[1].Number}); err != nil || len(rest) != 2 || rest[0].ID != "1:1_a" {
		t.Fatalf("%+v, %v", rest, err)
	}
	if n, err := e.RedeliverFailed(e.ctx, "a", time.Now().Add(time.Hour), 9); err != nil || n != 0 {
		t.Errorf("since a later time: %d, %v", n, err)
	}
	if n, err := e.RedeliverFailed(e.ctx, "a", time.Now().Add(-time.Hour), 2); err != nil || n != 2 {
		t.Errorf("limit 2: %d, %v", n, err)
	}
	e.wantLeased(t, "a", "1:1", "2:2")
	if n, err := e.RedeliverFailed(e.ctx, "a", time.Time{}, 9); err != nil || n != 1 {
		t.Errorf("the rest: %d, %v", n, err)
	}
	e.wantLeased(t, "a", "3:3")
	for range 2 { // a delivered one, twice
		if err := e.Redeliver(e.ctx, "a", "4:4_a"); err != nil {
			t.Fatal(err)
		}
	}
	e.wantLeased(t, "a", "4:4")
	logged := len(e.redeliveries(t))
	if err := e.Redeliver(e.ctx, "a", "4:4_a"); err != nil { // it is leased
		t.Fatal(err)
	}
	e.wantLeased(t, "a")
	if log := e.redeliveries(t); len(log) != logged {
		t.Errorf("logged although the delivery was left unchanged: %+v", log[0])
	}
}

// The lists of failed and of waiting deliveries read their own indexes, not all deliveries of the endpoint.
func TestListOfUndeliveredUsesItsIndex(t *testing.T) {
	db := storetest.Open(t, storetest.SQLite(t))
	for state, index := range map[DeliveryState]string{
		DeliveryFailed: " webhook_deliveries_failed ", DeliveryWaiting: " webhook_deliveries_waiting ",
	} {
		query, args := pageOfDeliveries(db.Dialect(), DeliveryQuery{EndpointID: "a", State: state})
		plan, err := store.ViewRows(t.Context(), db.DB, "explain", func(row store.Scanner) (step string, err error) {
			var id, parent, unused int
			err = row.Scan(&id, &parent, &unused, &step)
			return step, err
		}, "EXPLAIN QUERY PLAN "+query, args...)
		if err != nil || len(plan) != 1 || !strings.Contains(plan[0], index) {
			t.Errorf("state %d: plan %q, %v; want index%s", state, plan, err, index)
		}
	}
}

func (e *env) redeliveries(t *testing.T) []store.LogEntry {
	t.Helper()
	log, err := e.Log(e.ctx, store.LogQuery{Action: "webhook.redeliver"})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// The lease of a delivery expires, and an admin redelivers it. The late result of its sender does not end the
// redelivery.
func TestLateResultDoesNotEndARedelivery(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.endpoint(t, "a", false)
		e.add(t, "a", "1:1")
		late := e.lease(t, "a", math.MaxInt64, -time.Second, 1)
		if err := e.Redeliver(e.ctx, "a", "1:1_a"); err != nil {
			t.Fatal(err)
		}
		if lost := e.results(t, givenUp(late[0])); lost != 1 {
			t.Errorf("%d lost results, want 1", lost)
		}
		e.wantLeased(t, "a", "1:1")
	})
}

func TestPruneDeletesOldFailedPings(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		admin := newAdmin(t, e.Store)
		e.endpoint(t, "a", false)
		e.add(t, "a", "1:1")
		var ids []string
		for range 3 {
			id, err := admin.Ping(e.ctx, "a")
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		for _, d := range e.lease(t, "a", math.MaxInt64, time.Minute, 100) {
			if d.ID != ids[2] { // which waits
				e.results(t, givenUp(d))
			}
		}
		if n, err := e.PruneDeliveries(e.ctx, time.Hour, 100); err != nil || n != 0 {
			t.Errorf("older than an hour: %d, %v", n, err)
		}
		e.wantPruned(t, 2, 1)
		list, err := e.Deliveries(e.ctx, DeliveryQuery{EndpointID: "a"})
		if err != nil || len(list) != 2 || list[0].ID != ids[2] || list[1].ID != "1:1_a" {
			t.Errorf("a failed event and a waiting ping stay: %+v, %v", list, err)
		}
	})
}

// wantPruned prunes all that has ended, up to limit deliveries at a time, and checks their number.
func (e *env) wantPruned(t *testing.T, want, limit int) {
	t.Helper()
	n := 0
	testenv.Eventually(t, time.Minute, "the deliveries are deleted", func() bool { // after a millisecond
		more, err := e.PruneDeliveries(e.ctx, 0, limit)
		if err != nil || more > limit {
			t.Fatal(more, err)
		}
		n += more
		return n >= want
	})
	if more, err := e.PruneDeliveries(e.ctx, 0, 100); err != nil || n+more != want {
		t.Errorf("%d deliveries are deleted, want %d: %v", n+more, want, err)
	}
}

func TestPruneDeletesOldAndOrphanedDeliveries(t *testing.T) {
	onEngines(t, webhookPrune)
}

func webhookPrune(t *testing.T, e *env) {
	for _, id := range []string{"a", "b", "c"} {
		e.endpoint(t, id, false)
		e.add(t, id, "1:1", "2:2", "3:3")
		leased := e.wantLeased(t, id, "1:1", "2:2", "3:3")
		e.results(t, delivered(leased[0]), givenUp(leased[1]), failed(leased[2], time.Hour))
	}
	if n, err := e.PruneDeliveries(e.ctx, time.Hour, 100); err != nil || n != 0 {
		t.Errorf("older than an hour: %d, %v", n, err)
	}
	if err := e.Remove(e.ctx, "b"); err != nil {
		t.Fatal(err)
	}
	e.wantPruned(t, 5, 2)
	for _, id := range []string{"a", "c"} {
		if list, err := e.Deliveries(e.ctx, DeliveryQuery{EndpointID: id}); err != nil || len(list) != 2 {
			t.Errorf("%s: %+v, %v", id, list, err)
		}
	}
	for _, id := range []string{"1:1_b", "2:2_b", "3:3_b"} {
		if d, _, err := e.Delivery(e.ctx, "b", id); !errors.Is(err, ErrNoDelivery) {
			t.Errorf("of a removed endpoint: %+v, %v", d, err)
		}
	}
	if _, log, err := e.Delivery(e.ctx, "a", "2:2_a"); err != nil || len(log) != 1 {
		t.Errorf("attempts of a remaining delivery: %v, %v", log, err)
	}
}

// An admin redelivers an old delivery while old deliveries are pruned.
func TestPruneKeepsADeliveryThatIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		id  string
		end func(Delivery) Result
	}{"delivered": {"1:1", delivered}, "failed ping": {"-1:0", givenUp}} {
		t.Run(name, func(t *testing.T) {
			url := storetest.Postgres(t)
			e := &env{Store: NewStore(storetest.Open(t, url).DB), url: url, ctx: t.Context()}
			e.endpoint(t, "a", false)
			e.add(t, "a", c.id)
			d := e.wantLeased(t, "a", c.id)[0]
			if name == "failed ping" {
				storetest.Exec(t, url, "UPDATE webhook_deliveries SET id = '"+pingPrefix+"a'")
			}
			e.results(t, c.end(d))
			storetest.Exec(t, url, "UPDATE webhook_deliveries SET ended_at = now() - interval '8 days'")
			tx, err := storetest.Connect(t, url).Begin(e.ctx)
			if err == nil {
				_, err = tx.Exec(e.ctx, "UPDATE webhook_deliveries SET state = 1, due_at = now(), ended_at = NULL")
			}
			if err != nil {
				t.Fatal(err)
			}
			observer, pruned := storetest.Connect(t, url), make(chan error, 1)
			go func() {
				_, err := e.PruneDeliveries(e.ctx, time.Hour, 100)
				pruned <- err
			}()
			testenv.Eventually(t, time.Minute, "the deliveries are pruned, or the statement waits", func() bool {
				return len(pruned) == 1 || storetest.Waiting(t, observer) == 1
			})
			if err := errors.Join(tx.Commit(e.ctx), <-pruned); err != nil {
				t.Fatal(err)
			}
			if got := e.lease(t, "a", math.MaxInt64, time.Minute, 100); len(got) != 1 {
				t.Errorf("leased %v after the redelivery", got)
			}
		})
	}
}

// The lease of a sender expires, another sender delivers the delivery, and the next delivery of the order fails and
// waits. The late result of the first sender does not end that wait.
func TestLateResultDoesNotEndTheWaitOfTheNextDelivery(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.endpoint(t, "a", false)
		e.add(t, "a", "7:1", "7:2")
		late := e.lease(t, "a", math.MaxInt64, -time.Second, 1)[0]
		e.results(t, delivered(e.wantLeased(t, "a", "7:1")[0]))
		e.results(t, failed(e.wantLeased(t, "a", "7:2")[0], time.Hour))
		if lost := e.results(t, delivered(late)); lost != 1 {
			t.Errorf("%d results are lost, want 1", lost)
		}
		e.wantLeased(t, "a")
	})
}

// An admin reads pages of a large backlog and sends test deliveries. Neither reads the whole backlog.
func TestPagesAndPingsOfALargeBacklogReadFewRows(t *testing.T) {
	t.Parallel()
	const n, times = 4000, 50
	w := newBurst(t, storetest.Postgres(t), true)
	w.add(n, 500)
	admin := NewAdmin(w.Store, nil)
	for range times {
		page, err := admin.Deliveries(t.Context(), DeliveryQuery{EndpointID: w.endpoint.ID, Limit: 10})
		if err != nil || len(page) != 10 {
			t.Fatalf("%d deliveries, %v", len(page), err)
		}
		if _, err := admin.Ping(t.Context(), w.endpoint.ID); err != nil {
			t.Fatal(err)
		}
	}
	if fetched := w.fetched(n + times); fetched > times*n/2 {
		t.Errorf("%d pages and pings read %d rows and index entries of %d deliveries", times, fetched, n)
	}
}
