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
		g := e.subscribe(t, subscription("ann", "g"), 3)
		for i := range 3 { // refused, accepted, refused
			var err error
			if i == 1 {
				err = e.RecordSuccess(e.ctx, g.ID)
			} else {
				err = e.RecordRefusal(e.ctx, g.ID, 2)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		e.wantEndpoints(t, "ann", "f", "g")
		if err := e.RecordRefusal(e.ctx, g.ID, 2); err != nil {
			t.Fatal(err)
		}
		e.wantEndpoints(t, "ann", "f")
		last := e.subscribe(t, subscription("ann", "e"), 3)
		for range 2 {
			if err := e.DeleteSubscription(e.ctx, last.ID); err != nil {
				t.Fatal(err)
			}
		}
		e.wantEndpoints(t, "ann", "f")
	})
}

// A browser that another buyer uses now receives no messages of its previous buyer, including those already queued.
func TestSubscriptionMovesToAnotherBuyer(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.subscribe(t, subscription("ann", "x"), 3)
		e.enqueue(t, queued("1.created", "ann", "{}"))
		e.subscribe(t, subscription("bob", "x"), 3)
		e.wantEndpoints(t, "ann")
		e.wantEndpoints(t, "bob", "x")
		got, err := e.Lease(e.ctx, "l", time.Minute, 10)
		if err != nil || len(got) != 1 || got[0].Subscription.ID != 0 {
			t.Fatalf("queued for ann: %+v, %v; want a message without a subscription", got, err)
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
		for i := range 4 {
			wg.Go(func() {
				for {
					got, err := e.Lease(e.ctx, fmt.Sprintf("lease-%d", i), time.Minute, 1)
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

func TestExpiredLeaseCannotSettle(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.subscribe(t, subscription("ann", "a"), 3)
		e.enqueue(t, queued("1.created", "ann", "{}"))
		lease := func(name string, hold time.Duration, want int) []notify.Delivery {
			t.Helper()
			got, err := e.Lease(e.ctx, name, hold, 10)
			if err != nil || len(got) != want {
				t.Fatalf("%s leased %+v, %v; want %d", name, got, err, want)
			}
			return got
		}
		first := lease("first", -time.Second, 1) // expires immediately
		second := lease("second", time.Minute, 1)
		if second[0].Attempts != 2 {
			t.Errorf("%d attempts, want 2", second[0].Attempts)
		}
		if err := e.Settle(e.ctx, "first", first); err != nil {
			t.Fatal(err)
		}
		e.wantWaiting(t, 1)
		if err := e.Delay(e.ctx, "first", first[0], first[0].Attempts, -time.Second); err != nil {
			t.Fatal(err)
		}
		lease("third", time.Minute, 0)
		if err := e.Delay(e.ctx, "second", second[0], second[0].Attempts, -time.Second); err != nil {
			t.Fatal(err)
		}
		again := lease("fourth", time.Minute, 1)
		for range 2 {
			if err := e.Settle(e.ctx, "fourth", again); err != nil {
				t.Fatal(err)
			}
			e.wantWaiting(t, 0)
		}
		e.enqueue(t, queued("1.created", "ann", "{}")) // the event is delivered again
		lease("fifth", time.Minute, 0)
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
		got, err := e.Lease(e.ctx, "l", time.Minute, 7)
		if err != nil || len(got) != 7 {
			t.Fatal(got, err)
		}
		if err := e.Settle(e.ctx, "l", got); err != nil {
			t.Fatal(err)
		}
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

// The result of an attempt is stored after its lease has expired and the same process has leased the message again.
func TestLateDelayKeepsTheNextLease(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.subscribe(t, subscription("ann", "a"), 3)
		e.enqueue(t, queued("1.paid", "ann", "body"))
		lease := func(d time.Duration, want int) []notify.Delivery {
			t.Helper()
			all, err := e.Lease(e.ctx, "p", d, 10)
			if err != nil || len(all) != want {
				t.Fatalf("leased %+v, %v; want %d", all, err, want)
			}
			return all
		}
		late := lease(-time.Second, 1)[0]
		current := lease(time.Hour, 1)[0]
		if err := e.Delay(e.ctx, "p", late, late.Attempts, 0); err != nil {
			t.Fatal(err)
		}
		lease(time.Hour, 0)
		if err := e.Delay(e.ctx, "p", current, current.Attempts, -time.Second); err != nil {
			t.Fatal(err)
		}
		lease(time.Hour, 1)
	})
}
