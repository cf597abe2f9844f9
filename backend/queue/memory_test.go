package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

func TestMemory(t *testing.T) {
	queuetest.Run(t, func(_ testing.TB, cfg queue.Config) queuetest.Fixture {
		now := time.Now()
		q := queue.NewMemory(0, cfg)
		q.SetClock(func() time.Time { return now })
		return queuetest.Fixture{
			Queue: q, Advance: func(d time.Duration) { now = now.Add(d) }, Locate: q.Places,
			Batch: func(id string) (texts []string) {
				for _, m := range q.Held(id) {
					texts = append(texts, keyspace.EncodeMessage(m))
				}
				return texts
			},
		}
	}, queuetest.Without{
		"lease/RubbishIsBuriedAndBlocksNothing":     "it holds messages and no texts",
		"reclaim/ClockSetBackHoldsNobodyUpForLong":  "nobody sets a monotonic clock back",
		"reclaim/ClockSetBackALittleTouchesNothing": "nobody sets a monotonic clock back",
	})
}

// Whoever pushes into a full queue waits for whoever takes; nothing is dropped, and a caller who gives up is told.
func TestMemoryHoldsBackWhoPushesTooFast(t *testing.T) {
	q := queue.NewMemory(3, queue.Config{})
	var all []queue.Message
	for n := range 100 {
		all = append(all, message(n+1))
	}
	var pushing sync.WaitGroup
	pushing.Go(func() {
		if err := q.Push(t.Context(), all...); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for n := 0; n < len(all) && ctx.Err() == nil; {
		b, _, _ := q.Take(ctx, 2, "")
		if s, _ := q.Stats(ctx); s.Ready > 3 {
			t.Fatalf("%d messages are ready, and 3 have room", s.Ready)
		}
		for _, m := range b.Messages {
			if m != all[n] {
				t.Fatalf("message %d is %v", n, m)
			}
			n++
		}
		if len(b.Messages) == 0 {
			_, _ = q.Wait(ctx, 10*time.Second)
			continue
		}
		if lost, err := q.Ack(ctx, b.ID); lost || err != nil {
			t.Fatal(lost, err)
		}
	}
	pushing.Wait()
	if err := q.Push(t.Context(), all[:3]...); err != nil {
		t.Fatal(err)
	}
	gone, giveUp := context.WithCancel(t.Context())
	giveUp()
	if err := q.Push(gone, all[3]); !errors.Is(err, context.Canceled) {
		t.Errorf("a push into a full queue that nobody takes from: %v", err)
	}
	if q.Offer(all[3]) {
		t.Error("a full queue took another one")
	}
}

// The till keeps the stock and the buyers' places, whatever is bought, worked off, killed and cancelled.
func TestTillNeverSellsTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ctx := context.Background()
		stock, perBuyer, room := rapid.IntRange(0, 6).Draw(rt, "stock"), rapid.IntRange(1, 2).Draw(rt, "per buyer"), rapid.IntRange(1, 4).Draw(rt, "room")
		q := queue.NewMemory(room, queue.Config{})
		till := queue.NewTill(q)
		till.Open("s", int64(stock), perBuyer)
		var next uint32
		rows, dead, requests := map[sale.OrderID]string{}, []sale.OrderID{}, map[string]sale.OrderID{}
		rt.Repeat(map[string]func(*rapid.T){
			"buy": func(rt *rapid.T) {
				buyer, request := fmt.Sprint("b", rapid.IntRange(1, 4).Draw(rt, "buyer")), fmt.Sprint(rapid.IntRange(1, 3).Draw(rt, "request"))
				next++
				id := sale.NewOrderID(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), next)
				outcome, got := till.Buy("s", buyer, request, id)
				if before := requests[buyer+" "+request]; before != 0 && (outcome != sale.Replayed || got != before) {
					rt.Fatalf("asked again: %s %s, and it was %s", outcome, got, before)
				}
				if outcome == sale.Accepted {
					requests[buyer+" "+request] = got
				}
			},
			"work": func(rt *rapid.T) {
				b, _, _ := q.Take(ctx, 2, "")
				var failures []queue.Failure
				for _, m := range b.Messages {
					if rapid.Bool().Draw(rt, "dies") {
						failures, dead = append(failures, queue.Failure{ID: m.ID, Permanent: true}), append(dead, m.ID)
						continue
					}
					rows[m.ID] = m.Buyer
				}
				_, _ = q.Ack(ctx, b.ID, failures...)
			},
			"cancel": func(rt *rapid.T) {
				if len(dead) == 0 {
					rt.Skip("nobody is dead")
				}
				if _, err := q.BeginCancel(ctx, dead[0]); err != nil {
					rt.Fatal(err)
				}
				if err := q.FinishCancel(ctx, dead[0], true); err != nil {
					rt.Fatal(err)
				}
				dead = dead[1:]
			},
			"": func(rt *rapid.T) {
				s, _ := q.Stats(ctx)
				if sum := till.Left("s") + s.Ready + s.Dead + int64(len(rows)); sum != int64(stock) {
					rt.Fatalf("stock is %d; %d left, %+v and %d rows", stock, till.Left("s"), s, len(rows))
				}
				each := map[string]int{}
				for _, buyer := range rows {
					if each[buyer]++; each[buyer] > perBuyer {
						rt.Fatalf("%s has %d rows", buyer, each[buyer])
					}
				}
			},
		})
	})
}
