package notify_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/backend/events/notify"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

// env is a database of one engine.
type env struct {
	*sqlTables
	*notify.Store
	url string
	ctx context.Context
}

type sqlTables = store.Store

// onEngines runs a test on an empty database of each engine.
func onEngines(t *testing.T, test func(t *testing.T, e *env)) {
	t.Helper()
	storetest.Engines(t, func(t *testing.T, db *store.Store, databaseURL string) {
		test(t, &env{db, notify.NewStore(db.DB), databaseURL, t.Context()})
	})
}

func subscription(buyer, endpoint string) notify.Subscription {
	return notify.Subscription{
		Buyer: buyer, Endpoint: "https://push.example/" + endpoint, P256dh: "key", Auth: "auth", Lang: "en",
	}
}

func (e *env) subscribe(t *testing.T, p notify.Subscription, limit int) notify.Subscription {
	t.Helper()
	kept, err := e.Subscribe(e.ctx, p, limit)
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

func queued(event, buyer, body string) notify.QueuedEvent {
	return notify.QueuedEvent{EventID: event, Buyer: buyer, Body: body}
}

func (e *env) enqueue(t *testing.T, batch ...notify.QueuedEvent) {
	t.Helper()
	if err := e.Enqueue(e.ctx, batch); err != nil {
		t.Fatal(err)
	}
}

func (e *env) wantWaiting(t *testing.T, want int64) {
	t.Helper()
	if n, err := e.CountWaiting(e.ctx); err != nil || n != want {
		t.Fatalf("%d messages wait, %v; want %d", n, err, want)
	}
}

// lease leases all due messages, of which there must be want.
func (e *env) lease(t *testing.T, lease time.Duration, want int) []notify.Message {
	t.Helper()
	all, err := e.Lease(e.ctx, lease, 10)
	if err != nil || len(all) != want {
		t.Fatalf("leased %+v, %v; want %d", all, err, want)
	}
	return all
}

func resultsOf(outcome notify.Outcome, wait time.Duration, all ...notify.Message) []notify.Result {
	results := make([]notify.Result, len(all))
	for i, v := range all {
		results[i] = notify.Result{Message: v, Outcome: outcome, Wait: wait}
	}
	return results
}

// record records the same outcome for several messages.
func (e *env) record(t *testing.T, outcome notify.Outcome, wait time.Duration, all ...notify.Message) {
	t.Helper()
	if err := e.RecordResults(e.ctx, resultsOf(outcome, wait, all...)); err != nil {
		t.Fatal(err)
	}
}

// endpoints returns the endpoints of a buyer's subscriptions.
func (e *env) endpoints(t *testing.T, buyer string) []string {
	t.Helper()
	all, err := e.Subscriptions(e.ctx, buyer)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, p := range all {
		list = append(list, p.Endpoint[len("https://push.example/"):])
	}
	return list
}

func (e *env) wantEndpoints(t *testing.T, buyer string, want ...string) {
	t.Helper()
	if got := e.endpoints(t, buyer); !slices.Equal(got, want) {
		t.Fatalf("endpoints of %s: %v, want %v", buyer, got, want)
	}
}

// wantFailures compares the number of messages in a row that a buyer's only subscription has refused.
func (e *env) wantFailures(t *testing.T, buyer string, want int) {
	t.Helper()
	const query = "SELECT failures FROM web_push_subscriptions WHERE buyer = $1"
	if n, err := store.ViewRow(e.ctx, e.DB, "failures", store.Column[int], query, buyer); err != nil || n != want {
		t.Errorf("%d failures of %s, %v; want %d", n, buyer, err, want)
	}
}

func TestSubscriptionsOfABuyerAreLimited(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		for _, name := range []string{"a", "b", "c", "b"} {
			e.subscribe(t, subscription("ann", name), 3)
		}
		e.wantEndpoints(t, "ann", "a", "b", "c")
		first := e.subscribe(t, subscription("ann", "a"), 3) // the oldest again, which must not delete itself
		e.subscribe(t, subscription("bob", "d"), 3)
		e.subscribe(t, subscription("ann", "a"), 1)
		e.wantEndpoints(t, "ann", "a")
		e.subscribe(t, subscription("ann", "e"), 3)
		e.subscribe(t, subscription("ann", "f"), 3)
		e.subscribe(t, subscription("ann", "g"), 3)
		e.wantEndpoints(t, "ann", "e", "f", "g")
		e.wantEndpoints(t, "bob", "d")

		all, err := e.Subscriptions(e.ctx, "bob")
		if err != nil || len(all) != 1 || all[0].P256dh != "key" || all[0].Auth != "auth" || all[0].Lang != "en" ||
			time.Since(all[0].CreatedAt).Abs() > time.Hour {
			t.Fatalf("%+v, %v", all, err)
		}
		if err := e.Unsubscribe(e.ctx, "ann", all[0].ID); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("unsubscribing another buyer: %v", err)
		}
		if err := e.Unsubscribe(e.ctx, "ann", first.ID); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("unsubscribing a deleted subscription: %v", err)
		}
		if err := e.Unsubscribe(e.ctx, "bob", all[0].ID); err != nil {
			t.Fatal(err)
		}
		e.wantEndpoints(t, "bob")
	})
}

// Transactions that overlap do not see each other's subscriptions.
func TestConcurrentSubscriptionsOfABuyerAreLimited(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		for round := range 5 {
			buyer := fmt.Sprint("ann", round)
			var all sync.WaitGroup
			for i := range 12 {
				all.Go(func() {
					if _, err := e.Subscribe(e.ctx, subscription(buyer, fmt.Sprint(round, "-", i)), 3); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if left := e.endpoints(t, buyer); len(left) != 3 {
				t.Errorf("%s has the subscriptions %v, want 3", buyer, left)
			}
		}
	})
}

func TestSubscriptionIsDeletedAfterConsecutiveRefusals(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.subscribe(t, subscription("ann", "f"), 3)
		e.subscribe(t, subscription("bob", "g"), 3)
		n := 0
		attempt := func(buyer string, outcome notify.Outcome) {
			t.Helper()
			n++
			e.enqueue(t, queued(fmt.Sprintf("%d.created", n), buyer, "{}"))
			e.record(t, outcome, time.Hour, e.lease(t, time.Hour, 1)...)
		}
		for i := range 10 { // refusals that are not in a row
			for range 9 - i {
				attempt("bob", notify.Refused)
			}
			attempt("bob", notify.Sent)
		}
		for range 9 {
			attempt("bob", notify.GivenUp)
		}
		attempt("bob", notify.Failed)
		e.wantEndpoints(t, "bob", "g")
		attempt("bob", notify.Refused)
		e.wantEndpoints(t, "bob")
		e.wantEndpoints(t, "ann", "f")
		attempt("ann", notify.Gone)
		e.wantEndpoints(t, "ann")
	})
}

// A message that was leased before the first refusal and is sent after the last one ends the refusals in a row.
func TestLongAttemptEndsTheRefusalsInARow(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.subscribe(t, subscription("ann", "a"), 3)
		for n := range 10 {
			e.enqueue(t, queued(fmt.Sprintf("%d.created", n), "ann", "{}"))
		}
		leased := e.lease(t, time.Hour, 10)
		e.record(t, notify.Refused, 0, leased[:9]...)
		e.record(t, notify.Sent, 0, leased[9:]...)
		e.enqueue(t, queued("10.created", "ann", "{}"))
		e.record(t, notify.Refused, 0, e.lease(t, time.Hour, 1)...)
		e.wantEndpoints(t, "ann", "a")
	})
}

// Messages to two subscriptions of a buyer are refused, while the buyer subscribes again with the second one, for which
// the first is deleted.
func TestRefusalsAndSubscriptionsDoNotDeadlock(t *testing.T) {
	url := storetest.Postgres(t)
	e := &env{url: url, ctx: t.Context(), Store: notify.NewStore(storetest.Open(t, url).DB)}
	e.subscribe(t, subscription("ann", "x"), 2)
	e.subscribe(t, subscription("ann", "y"), 2)
	e.enqueue(t, queued("1.paid", "ann", "{}"))
	leased := e.lease(t, time.Hour, 2)
	other := storetest.Connect(t, url)
	const lock = "BEGIN; SELECT FROM web_push_subscriptions WHERE endpoint = 'https://push.example/x' FOR UPDATE"
	if _, err := other.Exec(e.ctx, lock); err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	both.Go(func() {
		if err := e.RecordResults(e.ctx, resultsOf(notify.Refused, 0, leased...)); err != nil {
			t.Error(err)
		}
	})
	storetest.AwaitLocks(t, url, 1)
	both.Go(func() {
		if _, err := e.Subscribe(e.ctx, subscription("ann", "y"), 1); err != nil {
			t.Error(err)
		}
	})
	storetest.AwaitLocks(t, url, 2)
	if _, err := other.Exec(e.ctx, "COMMIT"); err != nil {
		t.Fatal(err)
	}
	both.Wait()
	e.wantEndpoints(t, "ann", "y")
}

// A browser that another buyer uses now receives no messages of its previous buyer, including those already queued.
func TestSubscriptionMovesToAnotherBuyer(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.subscribe(t, subscription("ann", "x"), 3)
		e.enqueue(t, queued("1.created", "ann", "{}"))
		e.subscribe(t, subscription("bob", "x"), 3)
		e.wantEndpoints(t, "ann")
		e.wantEndpoints(t, "bob", "x")
		if got := e.lease(t, time.Minute, 1); got[0].Subscription.ID != 0 {
			t.Fatalf("queued for ann: %+v; want a message without a subscription", got)
		}
	})
}

func TestMessageIsQueuedOnceAndLeasedOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.subscribe(t, subscription("ann", "a"), 3)
		e.subscribe(t, subscription("ann", "b"), 3)
		for range 3 {
			e.enqueue(t, queued("1.created", "ann", `{"n":1}`), queued("2.created", "bob", `{"n":2}`),
				queued("3.created", "ann", `{"n":3}`))
		}
		e.wantWaiting(t, 4)
		var mu sync.Mutex
		seen := map[string]int{}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					got, err := e.Lease(e.ctx, time.Minute, 1)
					if err != nil {
						t.Error(err)
						return
					}
					if len(got) == 0 {
						return
					}
					mu.Lock()
					seen[fmt.Sprintf("%s %s %s", got[0].EventID, got[0].Body, got[0].Subscription.Endpoint)]++
					mu.Unlock()
					if got[0].Attempts != 1 || got[0].Subscription.ID != got[0].SubscriptionID {
						t.Errorf("leased %+v", got[0])
					}
				}
			})
		}
		wg.Wait()
		for _, n := range []string{"1", "3"} {
			for _, to := range []string{"a", "b"} {
				if k := fmt.Sprintf(`%s.created {"n":%s} https://push.example/%s`, n, n, to); seen[k] != 1 {
					t.Errorf("%s was leased %d times: %v", k, seen[k], seen)
				}
			}
		}
		if len(seen) != 4 {
			t.Errorf("leased %v, want 4 messages", seen)
		}
	})
}

// The result of an attempt is stored after its lease has expired and the message was leased again. It changes neither
// the message nor the subscription.
func TestLateResultChangesNothing(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		for _, outcome := range []notify.Outcome{notify.Sent, notify.Failed, notify.Gone, notify.Refused, notify.Released} {
			buyer, event := "buyer-"+string(outcome), string(outcome)+".created"
			e.subscribe(t, subscription(buyer, event), 3)
			e.enqueue(t, queued(event, buyer, "{}"))
			late := e.lease(t, -time.Second, 1) // expires immediately
			current := e.lease(t, time.Minute, 1)
			if current[0].Attempts != 2 {
				t.Errorf("%s: %d attempts, want 2", outcome, current[0].Attempts)
			}
			e.record(t, outcome, -time.Second, late...)
			e.wantWaiting(t, 1)
			e.lease(t, time.Minute, 0)
			e.wantEndpoints(t, buyer, event)
			e.wantFailures(t, buyer, 0)
			e.record(t, notify.Sent, 0, current...)
			e.wantWaiting(t, 0)
		}
	})
}

// The reply of the database is lost, so results are recorded again.
func TestResultsAreRecordedOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.subscribe(t, subscription("ann", "a"), 3)
		e.enqueue(t, queued("1.created", "ann", "{}"))
		first := e.lease(t, time.Minute, 1)
		for range 2 {
			e.record(t, notify.Released, 0, first...)
		}
		second := e.lease(t, time.Minute, 1)
		if second[0].Attempts != 1 {
			t.Errorf("%d attempts after a release, want 1", second[0].Attempts)
		}
		e.record(t, notify.Released, 0, first...)
		e.lease(t, time.Minute, 0)
		e.record(t, notify.Failed, -time.Second, second...)
		third := e.lease(t, time.Minute, 1)
		if third[0].Attempts != 2 {
			t.Errorf("%d attempts after a failure, want 2", third[0].Attempts)
		}
		for range 2 {
			e.record(t, notify.Refused, 0, third...)
			e.wantWaiting(t, 0)
		}
		e.wantFailures(t, "ann", 1)
		e.enqueue(t, queued("1.created", "ann", "{}")) // the event is delivered again
		e.lease(t, time.Minute, 0)
	})
}

func TestPruneDeletesSettledMessages(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.subscribe(t, subscription("ann", "a"), 3)
		var messages []notify.QueuedEvent
		for i := range 10 {
			messages = append(messages, queued(fmt.Sprintf("%d.created", i), "ann", "{}"))
		}
		e.enqueue(t, messages...)
		got, err := e.Lease(e.ctx, time.Minute, 7)
		if err != nil || len(got) != 7 {
			t.Fatal(got, err)
		}
		e.record(t, notify.Sent, 0, got...)
		prune := func(age time.Duration, limit int, want int64) {
			t.Helper()
			if n, err := e.Prune(e.ctx, age, limit); err != nil || n != want {
				t.Fatalf("pruned %d, %v; want %d", n, err, want)
			}
		}
		prune(time.Hour, 100, 0)
		prune(-time.Hour, 4, 4)
		prune(-time.Hour, 4, 3)
		prune(-time.Hour, 4, 0)
		e.wantWaiting(t, 3)
	})
}
