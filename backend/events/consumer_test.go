package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/events"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// idle is short enough to wait for. If the machine stalls for longer, other instances claim the events of a running
// instance. Tests that use idle must pass nevertheless.
const idle = 150 * time.Millisecond

func TestInstancesShareAndEachGroupGetsEveryEvent(t *testing.T) {
	on(t, func(w *world) {
		w.start(w.relay(events.RelayConfig{}).Run)
		one, two, other := newSink(), newSink(), newSink()
		var begun sync.WaitGroup // each waits until the other has an event, so that one does not take all
		begun.Add(2)
		for _, s := range []*sink{one, two} {
			first := sync.OnceFunc(func() { begun.Done(); begun.Wait() })
			s.fail = func(events.Event) error { first(); return nil }
		}
		cfg := events.Config{Batch: 10, Idle: time.Minute} // no event is claimed
		w.start(w.consumer(w.client(), "shared", one.Handle, cfg).Run)
		w.start(w.consumer(w.client(), "shared", two.Handle, cfg).Run)
		w.start(w.consumer(w.client(), "alone", other.Handle, cfg).Run)
		orders := w.buy(400)
		w.cancel(orders[:20]...)
		want := slices.Concat(created(orders), cancelled(orders[:20]))
		testenv.Eventually(w, patience, "the group with one instance has all events", func() bool { return other.has(want) })
		w.settled("shared")
		both := 0
		for _, id := range want {
			if n := one.count(id) + two.count(id); n != 1 {
				w.Fatalf("%s was handled %d times", id, n)
			}
			if one.count(id) > 0 {
				both++
			}
		}
		if both == 0 || both == len(want) || len(other.twice()) > 0 {
			w.Errorf("one instance handled %d of %d; twice %v", both, len(want), other.twice())
		}
	})
}

// An instance crashes before and after each of its calls; another one handles the rest.
func TestInstanceThatCrashesAtAnyCallLosesNothing(t *testing.T) {
	on(t, func(w *world) {
		w.start(w.relay(events.RelayConfig{}).Run)
		var want []string
		all := newSink()
		const most = 1000 // deliveries: a stalled machine adds one for each claim, and no event may become a dead letter
		w.start(w.consumer(w.client(), "g", all.Handle, events.Config{Batch: 5, Idle: idle, MaxDeliveries: most}).Run)
		for nth := 1; nth <= 8; nth++ {
			for _, before := range []bool{true, false} {
				ctx, kill := context.WithCancel(w.Context())
				m := &crashing{nth: nth, before: before, kill: kill}
				c := w.crashingConsumer(m, all.Handle, events.Config{Batch: 5, Idle: idle, MaxDeliveries: most})
				done := make(chan struct{})
				go func() { defer close(done); _ = c.Run(ctx) }()
				orders := w.buy(20)
				want = append(want, created(orders)...)
				testenv.Eventually(w, patience, fmt.Sprintf("all events are handled after a crash at call %d", nth),
					func() bool { return all.has(want) })
				kill()
				<-done
			}
		}
		w.settled("g")
	})
}

func TestOnlyFailingEventsBecomeDeadLettersAndCanBeRetried(t *testing.T) {
	on(t, func(w *world) {
		ctx := store.WithActor(w.Context(), "eve")
		w.start(w.relay(events.RelayConfig{}).Run)
		var broken atomic.Bool
		broken.Store(true)
		orders := w.buy(30)
		bad := map[string]error{
			created(orders)[3]:  errors.New("no\nsuch street"),
			created(orders)[17]: fmt.Errorf("no such country: %w", events.ErrPermanent),
		}
		var mu sync.Mutex
		deliveries := map[string][]int64{}
		s := newSink()
		s.fail = func(e events.Event) error {
			if err := bad[e.ID]; err != nil && broken.Load() {
				mu.Lock()
				deliveries[e.ID] = append(deliveries[e.ID], e.Deliveries)
				mu.Unlock()
				return err
			}
			return nil
		}
		// With a long Idle, no event is claimed on a stalled machine. A claim would add a delivery.
		cfg := events.Config{Batch: 10, Idle: time.Minute, Backoff: 10 * time.Millisecond, MaxDeliveries: 3}
		w.start(w.consumer(w.client(), "g", s.Handle, cfg).Run)
		letters := func() []events.DeadLetter {
			l, err := w.store.DeadLetters(ctx, events.DeadLetterQuery{Group: "g"})
			if err != nil {
				w.Fatal(err)
			}
			return l
		}
		testenv.Eventually(w, patience, "there are two dead letters", func() bool { return len(letters()) == 2 })
		testenv.Eventually(w, patience, "the others are handled", func() bool {
			return s.has(slices.DeleteFunc(created(orders), func(id string) bool { return bad[id] != nil }))
		})
		w.settled("g")
		for _, l := range letters() {
			want, reason := int64(3), "no such street"
			if errors.Is(bad[l.EventID], events.ErrPermanent) {
				want, reason = 1, "no such country: permanent failure"
			}
			if l.Deliveries != want || l.Reason != reason {
				w.Errorf("%+v, want %d deliveries and %q", l, want, reason)
			}
		}
		mu.Lock()
		if got := slices.Compact(deliveries[created(orders)[3]]); !slices.Equal(got, []int64{1, 2, 3}) {
			w.Errorf("delivered as %v", got)
		}
		mu.Unlock()
		// The first retry fails, because the cause remains; the second one succeeds.
		if err := w.store.RetryDeadLetter(ctx, "g", created(orders)[3]); err != nil {
			w.Fatal(err)
		}
		testenv.Eventually(w, patience, "the retry has failed", func() bool {
			letters, _ := w.store.DeadLetters(ctx, events.DeadLetterQuery{Group: "g"})
			return slices.ContainsFunc(letters, func(l events.DeadLetter) bool {
				return l.EventID == created(orders)[3] && !l.Retrying && l.Deliveries == 4
			})
		})
		broken.Store(false)
		if err := w.store.RetryDeadLetter(ctx, "g", created(orders)[3]); err != nil {
			w.Fatal(err)
		}
		testenv.Eventually(w, patience, "it is handled",
			func() bool { return s.count(created(orders)[3]) == 1 && len(letters()) == 1 })
		if err := w.store.DropDeadLetter(ctx, "g", created(orders)[17]); err != nil || len(letters()) != 0 {
			w.Errorf("dropped: %v", err)
		}
		w.settled("g")
	})
}

// A consumer has crashed between the storage of a dead letter and the acknowledgement of its event. The letter is
// dropped, and then another consumer takes the event and fails.
func TestDroppedDeadLetterStaysDroppedAfterACrash(t *testing.T) {
	on(t, func(w *world) {
		ctx := w.Context()
		w.start(w.relay(events.RelayConfig{}).Run)
		if _, err := w.store.AddGroup(ctx, "g", false); err != nil {
			w.Fatal(err)
		}
		orders := w.buy(2)
		dropped := created(orders)[0]
		err := errors.Join(w.store.AddDeadLetter(ctx, events.DeadLetter{Group: "g", EventID: dropped, Body: "{}"}),
			w.store.DropDeadLetter(ctx, "g", dropped))
		if err != nil {
			w.Fatal(err)
		}
		s := newSink()
		s.fail = func(events.Event) error { return events.ErrPermanent }
		w.start(w.consumer(w.client(), "g", s.Handle, events.Config{Idle: idle}).Run)
		w.settled("g")
		letters, err := w.store.DeadLetters(ctx, events.DeadLetterQuery{Group: "g"})
		if err != nil || len(letters) != 1 || letters[0].EventID != created(orders)[1] {
			w.Errorf("%+v, %v; want the letter of the other event", letters, err)
		}
	})
}

// While a dead letter is being retried, others that wait for a retry can be dropped, and are not retried then.
func TestDeadLetterThatWaitsForItsRetryCanBeDropped(t *testing.T) {
	on(t, func(w *world) {
		ctx := w.Context()
		orders := storetest.Orders("s", 2)
		for i, id := range created(orders) {
			e := events.Event{ID: id, Type: events.Created, OrderID: orders[i].ID, SaleID: "s"}
			l := events.DeadLetter{Group: "g", EventID: id, Position: int64(i + 1), Body: e.Encode()}
			if err := errors.Join(w.store.AddDeadLetter(ctx, l), w.store.RetryDeadLetter(ctx, "g", id)); err != nil {
				w.Fatal(err)
			}
		}
		s := newSink()
		s.fail = func(e events.Event) error {
			if e.ID == created(orders)[0] {
				if err := w.store.DropDeadLetter(ctx, "g", created(orders)[1]); err != nil {
					w.Errorf("drop: %v", err)
				}
			}
			return nil
		}
		w.start(w.consumer(w.client(), "g", s.Handle, events.Config{Idle: idle}).Run)
		testenv.Eventually(w, patience, "no dead letter is left", func() bool {
			n, err := w.store.CountDeadLetters(ctx)
			return err == nil && n["g"] == 0
		})
		if s.count(created(orders)[0]) != 1 || s.count(created(orders)[1]) != 0 {
			w.Errorf("handled %v", s.counts)
		}
	})
}

// One event crashes every process that handles it. The others of its batch are handled, and it becomes a dead letter.
func TestOnlyTheEventThatCrashesConsumersBecomesADeadLetter(t *testing.T) {
	on(t, func(w *world) {
		w.drain(w.relay(events.RelayConfig{}))
		orders := w.buy(12)
		culprit := created(orders)[5]
		w.drain(w.relay(events.RelayConfig{}))
		all := newSink()
		const long = time.Minute // so that no running instance counts as crashed on a stalled machine
		crashes := 0
		for crashes < 20 {
			ctx, kill := context.WithCancel(w.Context())
			m := &crashing{kill: kill}
			c := w.crashingConsumer(m, func(ctx context.Context, batch []events.Event) error {
				for _, e := range batch {
					if e.ID == culprit {
						m.mu.Lock()
						m.crashed = true
						m.mu.Unlock()
						kill()
						return errKilled
					}
				}
				return all.Handle(ctx, batch)
			}, events.Config{Concurrency: 1, Batch: 10, Idle: long, MaxDeliveries: 4})
			done := make(chan struct{})
			go func() { defer close(done); _ = c.Run(ctx) }()
			dead := func() bool { n, err := w.store.CountDeadLetters(w.Context()); return err == nil && n["g"] == 1 }
			testenv.Eventually(w, patience, "the instance crashes or all events are settled",
				func() bool { return m.hasCrashed() || dead() && all.has(without(created(orders), culprit)) })
			if !m.hasCrashed() {
				kill()
				<-done
				break
			}
			crashes++
			<-done
			w.age("g", long)
		}
		if crashes != 4 {
			w.Errorf("it crashed %d consumers, want 4", crashes)
		}
		w.settled("g")
		l, err := w.store.DeadLetters(w.Context(), events.DeadLetterQuery{Group: "g"})
		if err != nil || len(l) != 1 || l[0].EventID != culprit || l[0].Reason != "4 consumers crashed or hung on it" {
			w.Errorf("%+v, %v", l, err)
		}
	})
}

func without(ids []string, id string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(s string) bool { return s == id })
}

func TestInvalidEntriesBecomeDeadLetters(t *testing.T) {
	on(t, func(w *world) {
		one := w.buy(1)
		w.drain(w.relay(events.RelayConfig{}))
		for i, values := range []any{
			map[string]any{"event": `{"v":2,"id":"7.created","type":"order.created"}`}, map[string]any{"event": "rubbish"},
			map[string]any{"event": `{"v":1,"id":"8.paid","order_id":"x"}`}, map[string]any{"other": "x"},
		} {
			id := fmt.Sprintf("%d-0", i+2)
			if err := w.raw.XAdd(w.Context(), &redis.XAddArgs{Stream: space.Events(), ID: id, Values: values}).
				Err(); err != nil {
				w.Fatal(err)
			}
		}
		orders := append(one, w.buy(10)...)
		w.drain(w.relay(events.RelayConfig{}))
		s := newSink()
		w.start(w.consumer(w.client(), "g", s.Handle, events.Config{Idle: time.Minute}).Run)
		testenv.Eventually(w, patience, "the valid events are handled", func() bool { return s.has(created(orders)) })
		w.settled("g")
		l, err := w.store.DeadLetters(w.Context(), events.DeadLetterQuery{Group: "g"})
		got := map[string]string{}
		for _, l := range l {
			got[l.EventID] = l.Reason
		}
		for id, part := range map[string]string{
			"7.created": "unknown version 2", "stream-3-0": "not an event", "8.paid": "no order id",
			"stream-5-0": "not an event",
		} {
			if !strings.Contains(got[id], part) {
				w.Errorf("%s: %q", id, got[id])
			}
		}
		if err != nil || len(l) != 4 {
			w.Errorf("%+v, %v", l, err)
		}
	})
}

// An unavailable store counts no delivery, and no other instance takes the events.
func TestUnavailableStoreCountsNoDeliveries(t *testing.T) {
	on(t, func(w *world) {
		orders := w.buy(10)
		w.start(w.relay(events.RelayConfig{}).Run)
		var down atomic.Bool
		var refused atomic.Int64
		down.Store(true)
		s := newSink()
		s.fail = func(events.Event) error {
			if down.Load() {
				refused.Add(1)
				return fmt.Errorf("points: %w", sale.ErrUnavailable)
			}
			return nil
		}
		w.start(w.consumer(w.client(), "g", s.Handle, events.Config{MaxDeliveries: 1, Idle: time.Minute}).Run)
		testenv.Eventually(w, patience, "the handler was called three times", func() bool { return refused.Load() >= 3 })
		down.Store(false)
		testenv.Eventually(w, patience, "all are handled", func() bool { return s.has(created(orders)) })
		w.settled("g")
		for id, n := range s.most {
			if n != 1 {
				w.Errorf("%s was delivered %d times", id, n)
			}
		}
	})
}

// stopDuringOutages starts three consumers of the group g, one after the other, and stops each when it handles an event
// while a store is unavailable.
func (w *world) stopDuringOutages(cfg events.Config) {
	w.Helper()
	for range 3 {
		ctx, cancel := context.WithTimeout(w.Context(), patience)
		c := w.consumer(w.client(), "g", func(context.Context, []events.Event) error {
			cancel()
			return fmt.Errorf("points: %w", sale.ErrUnavailable)
		}, cfg)
		if err := c.Run(ctx); err != nil || !errors.Is(ctx.Err(), context.Canceled) {
			w.Fatalf("%v; the handler was called until %v", err, ctx.Err())
		}
	}
}

// Instances are stopped while a store is unavailable. Their events do not become dead letters.
func TestStopsDuringAnOutageCountNoDelivery(t *testing.T) {
	on(t, func(w *world) {
		orders := w.buy(20)
		w.drain(w.relay(events.RelayConfig{}))
		cfg := events.Config{MaxDeliveries: 1, Concurrency: 1, Idle: time.Minute, Drain: time.Millisecond}
		w.stopDuringOutages(cfg)
		s := newSink()
		w.start(w.consumer(w.client(), "g", s.Handle, cfg).Run)
		testenv.Eventually(w, patience, "all are handled", func() bool { return s.has(created(orders)) })
		w.settled("g")
		if n, err := w.store.CountDeadLetters(w.Context()); err != nil || len(n) > 0 {
			w.Errorf("dead letters: %v, %v", n, err)
		}
	})
}

// A stop while a store is unavailable does not use up the retry of a dead letter.
func TestStopsDuringAnOutageKeepTheRetryOfADeadLetter(t *testing.T) {
	on(t, func(w *world) {
		v := events.Event{ID: "7.paid", Type: events.Paid, OrderID: 7, SaleID: "shoe", Buyer: "ann"}
		letter := events.DeadLetter{Group: "g", EventID: v.ID, Body: v.Encode(), Reason: "r", Deliveries: 5}
		if err := w.store.AddDeadLetter(w.Context(), letter); err != nil {
			w.Fatal(err)
		}
		if err := w.store.RetryDeadLetter(w.Context(), "g", v.ID); err != nil {
			w.Fatal(err)
		}
		cfg := events.Config{Concurrency: 1, Idle: time.Minute, Drain: time.Millisecond}
		w.stopDuringOutages(cfg)
		page, err := w.store.DeadLetters(w.Context(), events.DeadLetterQuery{Group: "g"})
		if err != nil || len(page) != 1 || !page[0].Retrying || page[0].Deliveries != 5 {
			w.Errorf("%+v, %v", page, err)
		}
		s := newSink()
		w.start(w.consumer(w.client(), "g", s.Handle, cfg).Run)
		testenv.Eventually(w, patience, "the event is handled", func() bool { return s.has([]string{v.ID}) })
	})
}

// swept is a store whose LeaseRetry sends to done, and then blocks until the consumer stops. A sweep calls LeaseRetry
// only if it found no events to claim.
type swept struct {
	*events.Store
	done chan struct{} // has a value after a sweep
}

func (s swept) LeaseRetry(ctx context.Context, _ string, _ time.Duration) (*events.DeadLetter, error) {
	select {
	case s.done <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// A handler that takes longer than Idle keeps its events. The duration is simulated, and the other instance sweeps
// after a renewal, so a slow machine cannot be late.
func TestLongHandlerKeepsItsEvents(t *testing.T) {
	on(t, func(w *world) {
		w.drain(w.relay(events.RelayConfig{}))
		s := newSink()
		begun, end := make(chan struct{}, 100), make(chan struct{})
		release := sync.OnceFunc(func() { close(end) })
		defer release()
		h := func(ctx context.Context, batch []events.Event) error {
			begun <- struct{}{}
			<-end
			return s.Handle(ctx, batch)
		}
		instance := func(idle time.Duration) (looked chan struct{}) {
			db := swept{w.store, make(chan struct{}, 1)}
			c, err := events.New(w.client(), space, db, "g", h, events.Config{Idle: idle, Concurrency: 1, Log: quiet})
			if err != nil {
				w.Fatal(err)
			}
			w.start(c.Run)
			return db.done
		}
		const long = time.Minute // Idle of the second instance; the first renews for the short one
		<-instance(idle)         // the first instance does not sweep again, so it claims nothing from itself
		orders := w.buy(3)
		w.drain(w.relay(events.RelayConfig{}))
		<-begun
		for range 2 {
			w.age("g", 2*long)
			testenv.Eventually(w, patience, "the leases of the events are renewed", func() bool {
				return !slices.ContainsFunc(w.pending("g"), func(p redis.XPendingExt) bool { return p.Idle >= long })
			})
		}
		select {
		case <-begun:
			w.Error("another instance claimed events that are being handled")
		case <-instance(long):
		}
		release()
		testenv.Eventually(w, patience, "the events are handled", func() bool { return s.has(created(orders)) })
		w.settled("g")
		if len(s.twice()) > 0 {
			w.Errorf("handled twice: %v", s.twice())
		}
	})
}

func TestGroupBeginsWithStoredOrNewEvents(t *testing.T) {
	on(t, func(w *world) {
		s, late := newSink(), newSink()
		w.start(w.consumer(w.client(), "early", s.Handle, events.Config{FromNow: true}).Run) // the stream does not exist yet
		testenv.Eventually(w, patience, "the group exists",
			func() bool { g, err := w.store.Group(w.Context(), "early"); return err == nil && g.Start == 0 })
		first := w.buy(5)
		w.start(w.relay(events.RelayConfig{}).Run)
		testenv.Eventually(w, patience, "the early group has all events", func() bool { return s.has(created(first)) })
		w.start(w.consumer(w.client(), "late", late.Handle, events.Config{FromNow: true}).Run)
		testenv.Eventually(w, patience, "the late group exists",
			func() bool { g, err := w.store.Group(w.Context(), "late"); return err == nil && g.Start == 5 })
		second := w.buy(5)
		testenv.Eventually(w, patience, "the late group has the new events", func() bool { return late.has(created(second)) })
		testenv.Eventually(w, patience, "the early group has all events",
			func() bool { return s.has(created(slices.Concat(first, second))) })
	})
}

func TestStopFinishesBatchesAndReleasesTheRest(t *testing.T) {
	on(t, func(w *world) {
		orders := w.buy(40)
		w.drain(w.relay(events.RelayConfig{}))
		s := newSink()
		begun, end := make(chan struct{}, 100), make(chan struct{})
		c := w.consumer(w.client(), "g", func(ctx context.Context, batch []events.Event) error {
			begun <- struct{}{}
			<-end
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return s.Handle(ctx, batch)
		}, events.Config{Batch: 10, Concurrency: 1, Idle: time.Hour})
		ctx, cancel := context.WithCancel(w.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		<-begun
		cancel()
		close(end)
		if err := <-done; err != nil {
			w.Fatal(err)
		}
		if n := len(s.counts); n != 10 {
			w.Errorf("%d were finished, want the 10 that were begun", n)
		}
		stubborn := w.consumer(w.client(), "g", func(ctx context.Context, _ []events.Event) error {
			begun <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}, events.Config{Batch: 10, Concurrency: 1, Idle: time.Hour, Drain: 50 * time.Millisecond})
		ctx, cancel = context.WithCancel(w.Context())
		go func() { done <- stubborn.Run(ctx) }()
		<-begun
		cancel()
		if err := <-done; err != nil {
			w.Fatal(err)
		}
		w.start(w.consumer(w.client(), "g", s.Handle, events.Config{Batch: 10, Idle: time.Hour}).Run)
		testenv.Eventually(w, patience, "others handle the released events", func() bool { return s.has(created(orders)) })
		w.settled("g")
		if len(s.twice()) > 0 {
			w.Errorf("handled twice: %v", s.twice())
		}
	})
}

func TestConsumersContinueAfterRedisWasEmptied(t *testing.T) {
	on(t, func(w *world) {
		r := w.relay(events.RelayConfig{})
		w.start(r.Run)
		s := newSink()
		w.start(w.consumer(w.client(), "g", s.Handle, events.Config{Idle: time.Minute}).Run) // no event is claimed
		var want []string
		for range 3 {
			want = append(want, created(w.buy(50))...)
			if err := w.raw.FlushAll(w.Context()).Err(); err != nil {
				w.Fatal(err)
			}
			want = append(want, created(w.buy(50))...)
		}
		testenv.Eventually(w, patience, "all events are handled", func() bool { return s.has(want) })
	})
}

func TestRemovedGroupEndsItsConsumers(t *testing.T) {
	on(t, func(w *world) {
		w.buy(5)
		w.drain(w.relay(events.RelayConfig{}))
		s := newSink()
		done := make(chan error, 1)
		go func() { done <- w.consumer(w.client(), "g", s.Handle, events.Config{}).Run(w.Context()) }()
		w.settled("g")
		if err := w.admin().Remove(w.Context(), "g"); err != nil {
			w.Fatal(err)
		}
		if err := <-done; !errors.Is(err, events.ErrRemoved) {
			w.Errorf("it ended with %v", err)
		}
		if err := w.admin().Remove(w.Context(), "g"); err != nil {
			w.Errorf("the repeated removal: %v", err)
		}
		if err := w.raw.XGroupCreate(w.Context(), space.Events(), "by-hand", "0").Err(); err != nil {
			w.Fatal(err)
		}
		if err := w.admin().Remove(w.Context(), "by-hand"); err != nil {
			w.Errorf("a group in Redis only: %v", err)
		}
	})
}

// An unknown group name returns an error, not an empty group.
func TestUnknownGroupIsNotAnEmptyOne(t *testing.T) {
	on(t, func(w *world) {
		ctx, admin := w.Context(), w.admin()
		unknown := func(name string, want bool) {
			w.Helper()
			_, err := admin.DeadLetters(ctx, events.DeadLetterQuery{Group: name, After: "7.created"})
			if errors.Is(err, events.ErrNoGroup) != want || !want && err != nil {
				w.Errorf("dead letters of %s: %v", name, err)
			}
			for verb, err := range map[string]error{
				"retry": admin.Retry(ctx, name, "7.created"), "drop": admin.Drop(ctx, name, "7.created"),
			} {
				if errors.Is(err, events.ErrNoGroup) != want || !errors.Is(err, sale.ErrNotFound) {
					w.Errorf("%s of %s: %v", verb, name, err)
				}
			}
		}
		unknown("nosuch", true) // the stream does not exist yet
		w.buy(1)
		w.drain(w.relay(events.RelayConfig{}))
		unknown("nosuch", true)
		if err := w.raw.XGroupCreate(ctx, space.Events(), "by-hand", "0").Err(); err != nil {
			w.Fatal(err)
		}
		unknown("by-hand", false)
		if _, err := w.store.AddGroup(ctx, "not-begun", false); err != nil {
			w.Fatal(err)
		}
		unknown("not-begun", false)
		if err := w.store.AddDeadLetter(ctx, events.DeadLetter{Group: "left-behind", EventID: "8.created"}); err != nil {
			w.Fatal(err)
		}
		if letters, err := admin.DeadLetters(ctx, events.DeadLetterQuery{Group: "left-behind"}); err != nil ||
			len(letters) != 1 {
			w.Errorf("dead letters of a removed group: %v, %v", letters, err)
		}
		for _, name := range []string{"not-begun", "by-hand", "by-hand", "not-begun"} {
			if err := admin.Remove(ctx, name); err != nil {
				w.Errorf("remove %s: %v", name, err)
			}
			unknown(name, true)
		}
		if err := admin.Remove(ctx, "nosuch"); !errors.Is(err, events.ErrNoGroup) {
			w.Errorf("removal of an unknown group: %v", err)
		}
		log, err := w.sql.Log(ctx, store.LogQuery{Action: "group.remove"})
		if err != nil || len(log) != 2 || log[0].Target != "by-hand" || log[1].Target != "not-begun" {
			w.Errorf("the action log has %+v, %v; want one entry for each group", log, err)
		}
	})
}

// hookedStore is a store that calls do once, when its group is read while Redis has it.
type hookedStore struct {
	*events.Store
	known func() bool
	once  sync.Once
	do    atomic.Pointer[func()]
}

func (s *hookedStore) Group(ctx context.Context, name string) (events.Group, error) {
	if do := s.do.Load(); do != nil && s.known() {
		s.once.Do(*do)
	}
	return s.Store.Group(ctx, name)
}

// A group is removed, and its consumer stopped, just after the consumer has created it again in a Redis that had lost
// it. The group must not stay in Redis, because the stream would wait for it forever.
func TestGroupRemovedWhileItIsCreatedAgainIsNotLeftInRedis(t *testing.T) {
	on(t, func(w *world) {
		known := func() bool {
			groups, err := w.raw.XInfoGroups(context.Background(), space.Events()).Result()
			return err == nil && len(groups) > 0
		}
		db := &hookedStore{Store: w.store, known: known}
		c, err := events.New(w.client(), space, db, "g", newSink().Handle, events.Config{Concurrency: 1, Log: quiet})
		if err != nil {
			w.Fatal(err)
		}
		ctx, stop := context.WithCancel(w.Context())
		defer stop()
		w.buy(5)
		w.drain(w.relay(events.RelayConfig{}))
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		w.settled("g")
		remove := func() {
			if err := w.store.RemoveGroup(context.Background(), "g", false); err != nil {
				w.Error(err)
			}
			stop()
		}
		db.do.Store(&remove)
		if err := w.raw.XGroupDestroy(w.Context(), space.Events(), "g").Err(); err != nil {
			w.Fatal(err)
		}
		if err := <-done; err != nil && !errors.Is(err, events.ErrRemoved) {
			w.Errorf("it ended with %v", err)
		}
		if known() {
			w.Error("the group is left in Redis")
		}
	})
}

func TestGroupNames(t *testing.T) {
	for _, bad := range []string{
		"", "a b", "a{b}", "{a}", "A", "1a", "-a", "a/b", "ä", "a\n", "a" + strings.Repeat("b", 64),
	} {
		var invalid *sale.InvalidError
		if _, err := events.New(nil, space, nil, bad, nil, events.Config{}); !errors.As(err, &invalid) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, good := range []string{"points", "a", "web-hooks-2", "a" + strings.Repeat("b", 63)} {
		if _, err := events.New(nil, space, nil, good, nil, events.Config{}); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

func TestEventIsEncodedAndDecoded(t *testing.T) {
	e := events.Event{
		ID:      "9.cancelled",
		Type:    events.Cancelled,
		OrderID: 9,
		SaleID:  "s",
		Buyer:   "Zoë \"x\"\n<&>",
		Slot:    2,
		Price:   sale.Price{Amount: 5, Currency: "EUR"},
		Was:     sale.StatusQueued,
		At:      time.UnixMilli(1_700_000_000_123).UTC(),
	}
	if got, err := events.Decode(e.Encode()); err != nil || got != e {
		t.Errorf("%+v, %v; want %+v", got, err, e)
	}
	if strings.Contains(e.Encode(), "traceparent") {
		t.Errorf("an event without a trace has a traceparent: %s", e.Encode())
	}
	traced := e
	traced.Trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	if got, err := events.Decode(traced.Encode()); err != nil || got != traced {
		t.Errorf("%+v, %v; want %+v", got, err, traced)
	}
	// Decode ignores fields that a later version adds.
	if got, err := events.Decode(strings.Replace(e.Encode(), `{"v":1,`, `{"v":1,"more":{"x":[1]},`, 1)); err != nil ||
		got != e {
		t.Errorf("%+v, %v; want %+v", got, err, e)
	}
}

// PostgreSQL cannot index a text of some thousand bytes, so a group could store neither the event nor its dead letter,
// and would retry forever. Only another program can have added such an entry.
func TestEventWithALongTextIsNotDecoded(t *testing.T) {
	e := events.Event{ID: "9.paid", Type: events.Paid, OrderID: 9, SaleID: "s", Buyer: strings.Repeat("ä", 127)}
	if got, err := events.Decode(e.Encode()); err != nil || got != e {
		t.Fatalf("%+v, %v; want %+v", got, err, e)
	}
	for name, text := range map[string]*string{
		"id": &e.ID, "type": (*string)(&e.Type), "sale": &e.SaleID, "buyer": &e.Buyer,
	} {
		before := *text
		*text = strings.Repeat("x", 5000)
		got, err := events.Decode(e.Encode())
		if !errors.Is(err, events.ErrPermanent) || len(err.Error()) > 200 {
			t.Errorf("%s: %v, want a permanent error", name, err)
		}
		if want := map[bool]string{true: "", false: "9.paid"}[name == "id"]; got != (events.Event{ID: want}) {
			t.Errorf("%s: the event %+v, want the id %q only", name, got, want)
		}
		*text = before
	}
	if got, err := events.Decode(`{"v":2,"id":"` + strings.Repeat("x", 5000) + `"}`); err == nil || got.ID != "" {
		t.Errorf("of a later version: %+v, %v", got, err)
	}
}

// An id is the key of a dead letter and part of a header of webhooks. One that is not printable is not used.
func TestEventWithAnUnprintableIDIsNotDecoded(t *testing.T) {
	for _, id := range []string{"\x00", "9.paid\x00", "9.paid\r\nX: y", "9 paid", "9.pa\u00efd", "\u202e9.paid"} {
		e := events.Event{ID: id, Type: events.Paid, OrderID: 9, SaleID: "s", Buyer: "b"}
		if got, err := events.Decode(e.Encode()); !errors.Is(err, events.ErrPermanent) || got != (events.Event{}) {
			t.Errorf("%q: %+v, %v; want a permanent error and no id", id, got, err)
		}
	}
}
