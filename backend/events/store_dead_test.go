package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/backend/events"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

func TestGroupsAreRegisteredOnceAndRemoved(t *testing.T) {
	onEngines(t, eventGroups)
}

func eventGroups(t *testing.T, e *env) {
	e.create(t, "s", 100)
	e.write(t, storetest.Orders("s", 3)...)
	e.allChanges(t, 0, 10)
	for range 2 {
		if g, err := e.AddGroup(e.ctx, "all", false); err != nil || g.Start != 0 || g.Name != "all" {
			t.Fatalf("%+v, %v", g, err)
		}
		if g, err := e.AddGroup(e.ctx, "new", true); err != nil || g.Start != 3 {
			t.Fatalf("%+v, %v", g, err)
		}
		e.write(t, storetest.Orders("s", 3)...)
		e.allChanges(t, 3, 10)
	}
	if g, err := e.Groups(e.ctx); err != nil || len(g) != 2 || g[0].Name != "all" || g[1].Start != 3 {
		t.Fatalf("%+v, %v", g, err)
	}
	if _, err := e.Group(e.ctx, "none"); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("unknown group: %v", err)
	}
	if err := e.AddDeadLetter(e.ctx, events.DeadLetter{Group: "new", EventID: "1.paid", Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.RemoveGroup(store.WithActor(e.ctx, "eve"), "new", false); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.RemoveGroup(e.ctx, "none", false); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("removal of an unknown group: %v", err)
	}
	if n, err := e.CountDeadLetters(e.ctx); err != nil || len(n) != 0 {
		t.Errorf("dead letters of a removed group: %v, %v", n, err)
	}
	if log, err := e.Log(e.ctx, store.LogQuery{Action: "group"}); err != nil || len(log) != 1 || log[0].Actor != "eve" ||
		log[0].Action != "group.remove" || log[0].Target != "new" || log[0].Detail != "with 1 dead letter" {
		t.Errorf("log %+v, %v", log, err)
	}
}

func TestDeadLettersAreRetriedAndDropped(t *testing.T) {
	onEngines(t, eventLetters)
}

func eventLetters(t *testing.T, e *env) {
	ctx := store.WithReason(store.WithActor(e.ctx, "eve"), "fixed")
	add := func(group, id string, position int64, reason string, deliveries int64) {
		t.Helper()
		if err := e.AddDeadLetter(e.ctx, events.DeadLetter{Group: group, EventID: id, Position: position,
			Body: "{\x00\xff}", Reason: reason, Deliveries: deliveries}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		add("g", fmt.Sprintf("%d.paid", i), int64(10-i), "first", 5)
		add("other", fmt.Sprintf("%d.paid", i), 1, "first", 5)
	}
	add("g", "1.paid", 9, "second", 2)
	page, err := e.DeadLetters(e.ctx, events.DeadLetterQuery{Group: "g", After: "0.paid", Limit: 2})
	if err != nil || len(page) != 2 || page[0].EventID != "1.paid" || page[0].Reason != "second" ||
		page[0].Deliveries != 5 || page[0].Position != 9 || page[1].EventID != "2.paid" || page[0].Body != "{\uFFFD}" ||
		time.Since(page[0].DiedAt).Abs() > time.Minute {
		t.Fatalf("%+v, %v", page, err)
	}
	lease := func(want ...string) {
		t.Helper()
		for _, id := range append(want, "") {
			if l, err := e.LeaseRetry(e.ctx, "g", time.Minute); err != nil || id == "" && l != nil ||
				id != "" && (l == nil || l.EventID != id) {
				t.Fatalf("leased %+v, %v; want %q", l, err, id)
			}
		}
	}
	lease()
	for _, id := range []string{"1.paid", "2.paid", "4.paid", "4.paid"} {
		if err := e.RetryDeadLetter(ctx, "g", id); err != nil {
			t.Fatal(err)
		}
	}
	lease("4.paid", "2.paid", "1.paid") // by position
	if err := e.DropDeadLetter(ctx, "g", "4.paid"); !errors.Is(err, sale.ErrConflict) {
		t.Errorf("dropped during a retry: %v", err)
	}
	add("g", "4.paid", 6, "still", 6)
	for range 2 {
		if err := e.DropDeadLetter(ctx, "g", "4.paid"); err != nil {
			t.Fatal(err)
		}
	}
	for name, err := range map[string]error{
		"drop of an unknown one":  e.DropDeadLetter(ctx, "g", "9.paid"),
		"retry of a dropped one":  e.RetryDeadLetter(ctx, "g", "4.paid"),
		"retry in another group":  e.RetryDeadLetter(ctx, "none", "1.paid"),
		"drop in another group":   e.DropDeadLetter(ctx, "none", "4.paid"),
		"drop, group with prefix": e.DropDeadLetter(ctx, "g-2", "4.paid"),
	} {
		if !errors.Is(err, events.ErrNoDeadLetter) || !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range 2 {
		if err := e.RemoveDeadLetter(e.ctx, "g", "2.paid"); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.RetryDeadLetter(ctx, "g", "2.paid"); err != nil {
		t.Errorf("the repeated retry of a handled event: %v", err)
	}
	if err := e.DropDeadLetter(ctx, "g", "2.paid"); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("drop of a handled event: %v", err)
	}
	if n, err := e.CountDeadLetters(e.ctx); err != nil || n["g"] != 3 || n["other"] != 5 {
		t.Errorf("%v, %v", n, err)
	}
	log, err := e.Log(e.ctx, store.LogQuery{Limit: 10})
	var lines []string
	for _, l := range log {
		lines = append(lines, l.Actor+" "+l.Action+" "+l.Target+" "+l.Detail)
	}
	if want := []string{"eve event.drop 4.paid group g: fixed", "eve event.retry 4.paid group g: fixed"}; err != nil ||
		len(lines) != 4 || !slices.Equal(lines[:2], want) {
		t.Errorf("log %q, %v", lines, err)
	}
	if err := e.RemoveGroup(ctx, "g", false); err != nil {
		t.Fatal(err)
	}
	for id, settle := range map[string]func(context.Context, string, string) error{
		"1.paid": e.RetryDeadLetter, "4.paid": e.DropDeadLetter,
	} {
		if err := settle(ctx, "g", id); !errors.Is(err, events.ErrNoDeadLetter) {
			t.Errorf("the repeated call for %s of a removed group: %v", id, err)
		}
	}
}

// A consumer handles a dead letter for longer than its lease, and fails.
func TestLateFailureOfARetry(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		l := events.DeadLetter{Group: "g", EventID: "1.paid", Position: 1, Body: "{}", Reason: "first", Deliveries: 5}
		if err := errors.Join(e.AddDeadLetter(e.ctx, l), e.RetryDeadLetter(e.ctx, "g", "1.paid")); err != nil {
			t.Fatal(err)
		}
		lease := func(duration time.Duration) events.DeadLetter {
			t.Helper()
			leased, err := e.LeaseRetry(e.ctx, "g", duration)
			if err != nil || leased == nil {
				t.Fatalf("%+v, %v", leased, err)
			}
			return *leased
		}
		fail := func(leased events.DeadLetter, reason string) {
			t.Helper()
			leased.Reason, leased.Deliveries = reason, leased.Deliveries+1
			if err := e.FailRetry(e.ctx, leased); err != nil {
				t.Fatal(err)
			}
		}
		letter := func() (events.DeadLetter, bool) {
			t.Helper()
			page, err := e.DeadLetters(e.ctx, events.DeadLetterQuery{Group: "g"})
			if err != nil || len(page) > 1 {
				t.Fatalf("%+v, %v", page, err)
			}
			return append(page, events.DeadLetter{})[0], len(page) == 1
		}
		const expired = -time.Minute
		late, next := lease(expired), lease(time.Minute)
		fail(late, "of an earlier lease")
		if l, _ := letter(); l.Reason != "first" || l.Deliveries != 5 || !l.Retrying {
			t.Errorf("the failure of an expired lease ended the next one: %+v", l)
		}
		const reason = "The dead event is being retried. Repeat the request when the retry has ended."
		err := e.DropDeadLetter(e.ctx, "g", "1.paid")
		if refused, ok := errors.AsType[*store.RefusedError](err); !ok || refused.Detail != reason {
			t.Errorf("dropped during the next lease: %v", err)
		}
		fail(next, "second")
		if l, _ := letter(); l.Reason != "second" || l.Deliveries != 6 || l.Retrying {
			t.Errorf("after a failure: %+v", l)
		}
		if err := e.RetryDeadLetter(e.ctx, "g", "1.paid"); err != nil {
			t.Fatal(err)
		}
		fail(lease(expired), "of the last lease")
		if l, _ := letter(); l.Reason != "of the last lease" || l.Retrying {
			t.Errorf("after a late failure without another lease: %+v", l)
		}
		if err := e.RetryDeadLetter(e.ctx, "g", "1.paid"); err != nil {
			t.Fatal(err)
		}
		late = lease(expired)
		if err := e.DropDeadLetter(e.ctx, "g", "1.paid"); err != nil {
			t.Fatal(err)
		}
		fail(late, "late")
		if l, exists := letter(); exists {
			t.Errorf("after it was dropped: %+v", l)
		}
	})
}

// A program may create a group with any name in Redis. Until it is removed, it keeps all events in the stream.
func TestGroupWithInvalidNameIsRemoved(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		if err := e.RemoveGroup(e.ctx, "a\xff", true); err != nil {
			t.Error(err)
		}
		if err := e.RemoveGroup(e.ctx, "b\xff", false); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("a group that does not exist: %v", err)
		}
	})
}

// A dead letter that crashes its consumers is retried twice for each request of an admin.
func TestRetryThatCrashesConsumersEnds(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		l := events.DeadLetter{Group: "g", EventID: "1.paid", Position: 1, Body: "{}", Reason: "r", Deliveries: 5}
		if err := e.AddDeadLetter(e.ctx, l); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := e.RetryDeadLetter(e.ctx, "g", "1.paid"); err != nil {
				t.Fatal(err)
			}
			for n := range 3 {
				leased, err := e.LeaseRetry(e.ctx, "g", -time.Minute) // no consumer stores a result
				if err != nil || (leased != nil) != (n < 2) {
					t.Fatalf("lease %d: %+v, %v", n+1, leased, err)
				}
			}
			page, err := e.DeadLetters(e.ctx, events.DeadLetterQuery{Group: "g"})
			if err != nil || len(page) != 1 || page[0].Retrying {
				t.Errorf("%+v, %v", page, err)
			}
		}
		if err := e.DropDeadLetter(e.ctx, "g", "1.paid"); err != nil {
			t.Error(err)
		}
	})
}

// A consumer crashes while it retries a dead letter, and the next ones are stopped during an outage. The stops use no
// attempt, and the crash still counts.
func TestReleasedRetryKeepsACrash(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		l := events.DeadLetter{Group: "g", EventID: "1.paid", Position: 1, Body: "{}", Reason: "r", Deliveries: 5}
		if err := errors.Join(e.AddDeadLetter(e.ctx, l), e.RetryDeadLetter(e.ctx, "g", "1.paid")); err != nil {
			t.Fatal(err)
		}
		lease := func(duration time.Duration) *events.DeadLetter {
			t.Helper()
			leased, err := e.LeaseRetry(e.ctx, "g", duration)
			if err != nil {
				t.Fatal(err)
			}
			return leased
		}
		stop := func() {
			t.Helper()
			leased := lease(time.Minute)
			if leased == nil {
				t.Fatal("the retry is no longer requested")
			}
			if err := e.ReleaseRetry(e.ctx, *leased); err != nil {
				t.Fatal(err)
			}
		}
		const expired = -time.Minute
		stop()
		lease(expired)
		stop()
		stop()
		if lease(expired) == nil {
			t.Error("no lease after the first crash")
		}
		if again := lease(expired); again != nil {
			t.Errorf("leased after the second crash: %+v", again)
		}
	})
}

func TestDeadLettersAreFoundByTheExactSale(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		v := events.Event{ID: "1.paid", Type: events.Paid, OrderID: 1, SaleID: "shoe_1", Buyer: `"sale_id":"shoe"`}
		letter := events.DeadLetter{Group: "g", EventID: v.ID, Body: v.Encode(), Reason: "r"}
		if err := e.AddDeadLetter(e.ctx, letter); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"shoe_1", "shoe-1", "SHOE_1", "______", "shoe", "shoe_", "hoe_1"} {
			if found, err := e.HasDeadLettersOf(e.ctx, id); err != nil || found != (id == v.SaleID) {
				t.Errorf("sale %s: %t, %v", id, found, err)
			}
		}
	})
}

// Concurrent consumers lease each requested retry once.
func TestRetriesAreLeasedOnceByConcurrentConsumers(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		const letters, consumers = 60, 6
		if _, err := e.AddGroup(e.ctx, "g", false); err != nil {
			t.Fatal(err)
		}
		for i := range letters {
			id := fmt.Sprintf("%d.paid", i)
			l := events.DeadLetter{Group: "g", EventID: id, Position: int64(i), Body: "{}", Reason: "r"}
			if err := errors.Join(e.AddDeadLetter(e.ctx, l), e.RetryDeadLetter(e.ctx, "g", id)); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		leased := map[string]int{}
		for range consumers {
			wg.Go(func() {
				for {
					got, err := e.LeaseRetry(e.ctx, "g", time.Minute)
					if err != nil {
						t.Error(err)
					}
					if got == nil {
						return
					}
					mu.Lock()
					leased[got.EventID]++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for id, times := range leased {
			if times != 1 {
				t.Errorf("%s was leased %d times", id, times)
			}
		}
		if len(leased) != letters {
			t.Errorf("%d of %d were leased", len(leased), letters)
		}
	})
}

// A consumer that crashed before the acknowledgement stored the dead letter, and the next one fails too. Meanwhile an
// admin has dropped it, or removed the group.
func TestGivenUpDeadLetterIsNotStoredAgain(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		add := func(id string, want error) {
			t.Helper()
			l := events.DeadLetter{Group: "g", EventID: id, Position: 1, Body: "{}", Reason: "r", Deliveries: 5}
			if err := e.AddDeadLetter(e.ctx, l); !errors.Is(err, want) {
				t.Errorf("add %s: %v, want %v", id, err, want)
			}
		}
		count := func(want int64) {
			t.Helper()
			if n, err := e.CountDeadLetters(e.ctx); err != nil || n["g"] != want {
				t.Errorf("%v, %v; want %d", n, err, want)
			}
		}
		if _, err := e.AddGroup(e.ctx, "g", false); err != nil {
			t.Fatal(err)
		}
		add("1.paid", nil)
		add("2.paid", nil)
		if err := e.DropDeadLetter(e.ctx, "g", "1.paid"); err != nil {
			t.Fatal(err)
		}
		add("1.paid", sale.ErrNotFound)
		count(1)
		if err := e.RemoveGroup(e.ctx, "g", true); err != nil {
			t.Fatal(err)
		}
		add("2.paid", sale.ErrNotFound)
		count(0)
		if _, err := e.AddGroup(e.ctx, "g", false); err != nil {
			t.Fatal(err)
		}
		add("1.paid", nil) // a new group handles all again
		add("2.paid", nil)
		count(2)
	})
}

// PostgreSQL runs a drop, or the removal of the group, and the addition of the letter concurrently.
func TestGivenUpDeadLetterIsNotStoredConcurrently(t *testing.T) {
	t.Parallel()
	for name, giveUp := range map[string]func(e *env) error{
		"drop":   func(e *env) error { return e.DropDeadLetter(e.ctx, "g", "1.paid") },
		"remove": func(e *env) error { return e.RemoveGroup(e.ctx, "g", true) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, url := t.Context(), storetest.Postgres(t)
			db := storetest.Open(t, url)
			e := &env{db, events.NewStore(db.DB), url, ctx}
			if _, err := e.AddGroup(ctx, "g", false); err != nil {
				t.Fatal(err)
			}
			l := events.DeadLetter{Group: "g", EventID: "1.paid", Position: 1, Body: "{}", Reason: "r"}
			if err := e.AddDeadLetter(ctx, l); err != nil {
				t.Fatal(err)
			}
			tx, err := storetest.Connect(t, url).Begin(ctx)
			if err == nil {
				_, err = tx.Exec(ctx, "SELECT FROM event_groups FOR UPDATE")
			}
			if err != nil {
				t.Fatal(err)
			}
			givenUp, added := make(chan error, 1), make(chan error, 1)
			go func() { givenUp <- giveUp(e) }()
			storetest.AwaitLocks(t, url, 1)
			go func() { added <- e.AddDeadLetter(ctx, l) }()
			storetest.AwaitLocks(t, url, 2)
			if err := tx.Commit(ctx); err != nil {
				t.Fatal(err)
			}
			if err := <-givenUp; err != nil {
				t.Error(err)
			}
			if err := <-added; !errors.Is(err, sale.ErrNotFound) {
				t.Errorf("added: %v", err)
			}
			if n, err := e.CountDeadLetters(ctx); err != nil || len(n) != 0 {
				t.Errorf("dead letters: %v, %v", n, err)
			}
		})
	}
}
