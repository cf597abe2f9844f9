package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/events"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/internal/loop"
	"sluice/test/testenv"
)

func TestRelayMovesEveryChangeOnceAndInOrder(t *testing.T) {
	on(t, func(w *world) {
		orders := w.buy(20)
		w.cancel(orders[3:6]...)
		want := slices.Concat(created(orders), cancelled(orders[3:6]))
		w.drain(w.relay(events.RelayConfig{Batch: 4}))
		w.wantStream(want)
		w.drain(w.relay(events.RelayConfig{})) // another one finds nothing to do
		w.cancel(orders[0])
		w.drain(w.relay(events.RelayConfig{}))
		w.wantStream(append(want, cancelled(orders[:1])...))
		seen := map[string]bool{}
		for _, id := range w.stream() {
			seen[id] = true
			for i, done := range cancelled(orders) {
				if id == done && !seen[created(orders)[i]] {
					w.Errorf("%s comes before its creation", id)
				}
			}
		}
	})
}

// A relay crashes before and after each of its calls; the next one continues.
func TestRelayThatCrashesAtAnyCallMovesEventsOnce(t *testing.T) {
	on(t, func(w *world) {
		var want []string
		// keeps everything in the stream
		if err := w.raw.XGroupCreateMkStream(w.Context(), space.Events(), "slow", "0").Err(); err != nil {
			w.Fatal(err)
		}
		for nth := 1; ; nth++ {
			for _, before := range []bool{true, false} {
				orders := w.buy(9)
				w.cancel(orders[2])
				want = slices.Concat(want, created(orders), cancelled(orders[2:3]))
				m := &crashing{nth: nth, before: before}
				client := w.client()
				client.AddHook(m)
				r := events.NewRelay(client, space, crashingStore{w.store, m},
					events.RelayConfig{Batch: 4, Log: quiet, Poll: time.Nanosecond})
				for {
					n, err := r.RunOnce(w.Context())
					if err != nil && !errors.Is(err, errKilled) {
						w.Fatal(err)
					}
					if err != nil || n == 0 {
						break
					}
				}
				if !m.hasCrashed() { // the relay has made fewer than nth calls
					if nth < 8 {
						w.Fatalf("a relay makes only %d calls", nth)
					}
					w.drain(w.relay(events.RelayConfig{}))
					w.wantStream(want)
					return
				}
			}
			w.drain(w.relay(events.RelayConfig{}))
			w.wantStream(want)
		}
	})
}

func TestConcurrentRelaysMoveEventsOnce(t *testing.T) {
	on(t, func(w *world) {
		orders := w.buy(90)
		if err := w.raw.XGroupCreateMkStream(w.Context(), space.Events(), "slow", "0").Err(); err != nil {
			w.Fatal(err)
		}
		var wg sync.WaitGroup
		length := func() int64 { n, _ := w.raw.XLen(w.Context(), space.Events()).Result(); return n }
		deadline := time.Now().Add(4 * patience) // four relays lock the same rows, under the race detector, on a busy machine
		for range 4 {                            // none of them waits for its turn
			r := w.relay(events.RelayConfig{Batch: 3})
			wg.Go(func() {
				for length() < int64(len(orders)) && time.Now().Before(deadline) {
					if _, err := r.RunOnce(w.Context()); err != nil {
						w.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		w.wantStream(created(orders))
	})
}

// After Redis has lost all data, the relay creates the groups again and adds the events that some group has not
// acknowledged.
func TestRelayFillsAnEmptiedRedis(t *testing.T) {
	on(t, func(w *world) {
		for _, name := range []string{"a", "b"} {
			if _, err := w.store.AddGroup(w.Context(), name, false); err != nil {
				w.Fatal(err)
			}
		}
		first := w.buy(21)
		r := w.relay(events.RelayConfig{Poll: time.Nanosecond})
		w.drain(r)
		// b has acknowledged 10, of which the first 7 are from one transaction
		for group, n := range map[string]int64{"a": 16, "b": 10} {
			acknowledge(w, group, n)
		}
		for range 2 {
			if err := r.Trim(w.Context()); err != nil {
				w.Fatal(err)
			}
		}
		if n := len(w.stream()); n != 11 {
			w.Fatalf("%d events are kept, want 11", n)
		}
		second := w.buy(7)
		w.drain(r)
		if err := w.raw.FlushAll(w.Context()).Err(); err != nil {
			w.Fatal(err)
		}
		w.drain(w.relay(events.RelayConfig{}))
		w.wantStream(slices.Concat(created(first)[7:], created(second)))
		groups, err := w.raw.XInfoGroups(w.Context(), space.Events()).Result()
		if err != nil || len(groups) != 2 {
			w.Errorf("%+v, %v", groups, err)
		}
	})
}

// acknowledge reads n events as a group, and acknowledges them.
func acknowledge(w *world, group string, n int64) {
	w.Helper()
	for _, id := range read(w, group, n) {
		if err := w.raw.XAck(w.Context(), space.Events(), group, id).Err(); err != nil {
			w.Fatal(err)
		}
	}
}

func TestStreamIsBoundedAndNothingUnacknowledgedIsTrimmed(t *testing.T) {
	on(t, func(w *world) {
		const bound = 40
		for _, name := range []string{"fast", "slow"} {
			if _, err := w.store.AddGroup(w.Context(), name, false); err != nil {
				w.Fatal(err)
			}
		}
		orders := w.buy(400)
		r := w.relay(events.RelayConfig{Bound: bound, Batch: 15, Poll: time.Nanosecond})
		seen := map[string][]string{}
		longest := int64(0)
		for round := 0; len(seen["slow"]) < 400; round++ {
			if round > 2000 {
				w.Fatalf("stuck at %d and %d", len(seen["fast"]), len(seen["slow"]))
			}
			if _, err := r.RunOnce(w.Context()); err != nil {
				w.Fatal(err)
			}
			n, err := w.raw.XLen(w.Context(), space.Events()).Result()
			if err != nil {
				w.Fatal(err)
			}
			longest = max(longest, n)
			for group, n := range map[string]int64{"fast": 30, "slow": 3} {
				ids := read(w, group, n)
				slices.Reverse(ids) // the oldest is acknowledged last
				for i, id := range ids {
					if group == "slow" && i == len(ids)-1 { // a pending event is not trimmed, although all later ones are acknowledged
						for range 2 { // SQL deletes first, Redis at the next call
							if err := r.Trim(w.Context()); err != nil {
								w.Fatal(err)
							}
						}
						if found, err := w.raw.XRange(w.Context(), space.Events(), id, id).Result(); err != nil || len(found) != 1 {
							w.Fatalf("%s is pending and was trimmed: %v, %v", id, found, err)
						}
					}
					seen[group] = append(seen[group], id)
					w.raw.XAck(w.Context(), space.Events(), group, id)
				}
			}
		}
		if longest != bound {
			w.Errorf("the stream had %d entries at most, want %d", longest, bound)
		}
		for group, ids := range seen {
			if slices.Sort(ids); len(slices.Compact(ids)) != len(orders) {
				w.Errorf("group %s got %d events, want each of %d once", group, len(ids), len(orders))
			}
		}
		for range 3 {
			if err := r.Trim(w.Context()); err != nil {
				w.Fatal(err)
			}
		}
		if left, err := w.store.Changes(w.Context(), 0, 10); err != nil || len(left) != 0 {
			w.Errorf("SQL still has %v, %v", left, err)
		}
		if left := w.stream(); len(left) != 1 {
			w.Errorf("Redis still has %d events, want the newest alone", len(left))
		}
	})
}

// read takes n new events for a group and returns their stream ids.
func read(w *world, group string, n int64) []string {
	w.Helper()
	streams, err := w.raw.XReadGroup(w.Context(),
		&redis.XReadGroupArgs{Group: group, Consumer: "x", Streams: []string{space.Events(), ">"}, Count: n, Block: -1}).
		Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	var ids []string
	for _, m := range streams[0].Messages {
		ids = append(ids, m.ID)
	}
	return ids
}

func TestWithoutGroupsTheNewestEventsAreKept(t *testing.T) {
	on(t, func(w *world) {
		orders := w.buy(70)
		r := w.relay(events.RelayConfig{Bound: 40, Keep: 10, Batch: 7, Poll: time.Nanosecond})
		for range 40 {
			if _, err := r.RunOnce(w.Context()); err != nil {
				w.Fatal(err)
			}
		}
		w.wantStream(created(orders)[60:])
	})
}

// Without a group and open pages, a relay does not move events that it would soon delete. A group of another program,
// which is in Redis only, prevents that, even if it is created just before the deletion.
func TestOldEventsAreDroppedOnlyWithoutGroups(t *testing.T) {
	inRedis := func(w *world) error {
		return w.raw.XGroupCreateMkStream(w.Context(), space.Events(), "other", "0").Err()
	}
	for name, add := range map[string]func(w *world) error{
		"none":     func(*world) error { return nil },
		"in Redis": inRedis,
		"in SQL":   func(w *world) error { _, err := w.store.AddGroup(w.Context(), "a", true); return err },
		"an open page": func(w *world) error {
			return w.raw.Set(w.Context(), space.EventPages(), "1", time.Hour).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, func(w *world) {
				if err := add(w); err != nil {
					w.Fatal(err)
				}
				var orders []sale.Order
				for range 10 {
					orders = append(orders, w.buy(7)...)
				}
				w.drain(w.relay(events.RelayConfig{Bound: 100, Keep: 10}))
				want := created(orders)
				if name == "none" {
					want = want[56:] // the newest 10 and the rest of their transaction
				}
				w.wantStream(want)
				first, err := w.raw.XRangeN(w.Context(), space.Events(), "-", "+", 1).Result()
				if err != nil || (events.PositionOf(first[0].ID) > 1) != (name == "none") {
					w.Errorf("the first event in the stream is %+v, %v: only dropped events must leave a gap", first, err)
				}
			})
		})
	}
	t.Run("while orders arrive", func(t *testing.T) {
		on(t, func(w *world) {
			r := w.relay(events.RelayConfig{Keep: 10, Poll: time.Hour})
			for range 10 {
				w.buy(7)
				if _, err := r.RunOnce(w.Context()); err != nil {
					w.Fatal(err)
				}
			}
			if n := len(w.stream()); n != 14 { // 10 and the rest of their transaction
				w.Errorf("%d events were moved within a poll, want 14", n)
			}
		})
	})
	t.Run("at the last moment", func(t *testing.T) {
		on(t, func(w *world) {
			orders := w.buy(7)
			orders = append(orders, w.buy(7)...)
			err := w.store.DropChanges(w.Context(), 1, func(context.Context) (bool, error) { return true, inRedis(w) })
			if err != nil {
				w.Fatal(err)
			}
			w.drain(w.relay(events.RelayConfig{Keep: 1}))
			w.wantStream(created(orders))
		})
	})
}

func TestRelayWakesImmediatelyAndTakesTurns(t *testing.T) {
	on(t, func(w *world) {
		if _, err := w.store.AddGroup(w.Context(), "a", false); err != nil { // without a group, a relay rests for a Poll
			w.Fatal(err)
		}
		wake := loop.NewWake()
		w.start(func(ctx context.Context) error { return events.RunWaker(ctx, w.raw, space, wake) })
		w.sql = storetest.OpenConfig(w, w.url, store.Config{OnChange: wake.Up})
		w.store = events.NewStore(w.sql.DB)
		const poll = 10 * time.Second
		ctx, stop := context.WithCancel(w.Context())
		var running sync.WaitGroup
		for range 2 {
			r := w.relay(events.RelayConfig{Poll: poll})
			running.Go(func() { _ = r.Run(ctx) })
		}
		begin := time.Now()
		var orders []sale.Order
		for n := 1; n <= 5; n++ {
			orders = append(orders, w.buy(1)...)
			testenv.Eventually(w, patience, "the event is published", func() bool { return len(w.stream()) == n })
		}
		if took := time.Since(begin); took > 2*poll {
			w.Errorf("five events took %s, so the relay was not woken", took)
		}
		w.wantStream(created(orders))
		stop()
		go func() { // a relay that rests ends when it wakes
			for range time.Tick(10 * time.Millisecond) {
				if w.Context().Err() != nil {
					return
				}
				wake.Up()
			}
		}()
		running.Wait()
	})
}

func TestWrongTypeIsReportedUntilItIsMoved(t *testing.T) {
	on(t, func(w *world) {
		if err := w.raw.Set(w.Context(), space.Events(), "x", 0).Err(); err != nil {
			w.Fatal(err)
		}
		orders := w.buy(3)
		r := w.relay(events.RelayConfig{})
		if _, err := r.RunOnce(w.Context()); !errors.Is(err, events.ErrWrongType) || errors.Is(err, sale.ErrUnavailable) {
			w.Fatalf("the error is %v", err)
		}
		w.start(w.relay(events.RelayConfig{}).Run)
		s := newSink()
		w.start(w.consumer(w.client(), "g", s.Handle, events.Config{}).Run)
		if err := w.raw.Del(w.Context(), space.Events()).Err(); err != nil {
			w.Fatal(err)
		}
		testenv.Eventually(w, patience, "the events are handled", func() bool { return s.has(created(orders)) })
	})
}

func ExampleID() {
	fmt.Println(events.ID(sale.OrderID(42), sale.StatusPaid))
	// Output: 42.paid
}
