package queue_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"sluice/backend/queue"
)

// long is a wait that should end before its timeout.
const long = 20 * time.Second

var wakeTests = []test{
	{"WaitEndsAfterItsTimeout", queue.Config{}, func(t *testing.T, h h) {
		if woken, err := h.Queue.Wait(t.Context(), 10*time.Millisecond); woken || err != nil {
			t.Errorf("woken=%v, %v", woken, err)
		}
	}},
	{"EveryCallThatMakesAMessageReadyWakes", queue.Config{}, func(t *testing.T, empty h) {
		for name, does := range map[string]func(h){
			"push": func(h h) { h.push(order(1)) },
			"release": func(h h) {
				h.push(order(1))
				b := h.take(1, "")
				h.drainWake()
				h.release(b.ID)
			},
			"reclaim": func(h h) {
				h.push(order(1))
				h.take(1, "")
				h.drainWake()
				h.Advance(lease)
				h.reclaim(1)
			},
			"promote": func(h h) {
				h.push(order(1))
				h.ack(h.take(1, "").ID, failures("no", order(1))...)
				h.drainWake()
				h.Advance(lease)
				h.reclaim(0)
			},
			"retry": func(h h) {
				makeDead(h, order(1))
				h.drainWake()
				h.retry(order(1))
			},
			"several of these": func(h h) {
				h.push(orders(1, 9)...)
				h.push(order(10))
				for range 3 {
					h.take(1, "")
				}
				h.Advance(lease)
				h.reclaim(3)
				h.release(h.take(1, "").ID)
			},
			"take that leaves some": func(h h) {
				h.push(orders(1, 2)...)
				h.drainWake()
				h.take(1, "")
			},
		} {
			h := open(t, empty.factory, queue.Config{})
			does(h)
			if woken, err := h.Queue.Wait(t.Context(), long); !woken || err != nil {
				t.Errorf("%s: woken=%v, %v", name, woken, err)
			}
			if woken, _ := h.Queue.Wait(t.Context(), time.Millisecond); woken {
				t.Errorf("%s: it woke twice", name)
			}
		}
	}},
	{"OnePushWakesWorkersInTurn", queue.Config{}, func(t *testing.T, h h) {
		const workers = 4
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		var wg sync.WaitGroup
		taken := make(chan int, workers)
		for range workers {
			wg.Go(func() { // each takes one message and does not acknowledge it
				for ctx.Err() == nil {
					b, _, err := h.Queue.TakeAs(ctx, h.newBatch(), 1, "")
					if err == nil && len(b.Messages) == 1 {
						taken <- 1
						return
					}
					if _, err = h.Queue.Wait(ctx, long); err != nil {
						return
					}
				}
			})
		}
		start := time.Now()
		h.push(orders(1, workers)...)
		wg.Wait()
		if len(taken) != workers || time.Since(start) > long/2 {
			t.Errorf("%d of %d workers were woken after %s", len(taken), workers, time.Since(start))
		}
	}},
}

// drainWake takes the token that earlier steps have left.
func (h h) drainWake() {
	h.t.Helper()
	for {
		woken, err := h.Queue.Wait(h.t.Context(), time.Millisecond)
		if err != nil {
			h.t.Fatalf("wait: %v", err)
		}
		if !woken {
			return
		}
	}
}
