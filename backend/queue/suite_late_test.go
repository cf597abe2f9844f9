package queue_test

import (
	"slices"
	"testing"

	"sluice/backend/queue"
)

// lateTests execute a call late: after its caller gave up and repeated it, and after the batch has ended.
var lateTests = []test{
	{"LateCallsOfAnEndedBatchLoseNothing", queue.Config{}, lateCallsLoseNothing},
	{"LateTakeOfABatchOfDeadLettersLeasesNothing", queue.Config{}, func(t *testing.T, h h) {
		id := h.newBatch()
		h.PushRaw("no message")
		if b := h.takeAs(id, ""); len(b.Messages) > 0 {
			t.Fatalf("took %v", b)
		}
		h.push(order(1))
		h.takeAs(id, "")
		h.wantStats(queue.Stats{Ready: 1, Dead: 1})
	}},
	{"LateTakeOfAnEarlierBatchLeasesNothing", queue.Config{}, func(t *testing.T, h h) {
		consumer := h.newConsumer()
		h.push(orders(1, 3)...)
		for n := 1; n <= 3; n++ {
			h.takeAs(consumer.BatchID(n), "")
			h.ack(consumer.BatchID(n))
		}
		h.push(order(4))
		for n := 1; n <= 3; n++ {
			h.takeAs(consumer.BatchID(n), "")
		}
		h.wantStats(queue.Stats{Ready: 1})
		if b := h.takeAs(consumer.BatchID(4), ""); !slices.Equal(b.Messages, orders(4, 4)) {
			t.Fatalf("took %v", ids(b.Messages))
		}
	}},
	{"TakeWithoutMessagesDoesNotUseItsID", queue.Config{}, func(t *testing.T, h h) {
		id := h.newBatch()
		h.takeAs(id, "")
		h.push(order(1))
		if b := h.takeAs(id, ""); !slices.Equal(b.Messages, orders(1, 1)) {
			t.Fatalf("took %v", ids(b.Messages))
		}
	}},
}

// ends are the ways in which batch 1 of a consumer ends.
var ends = map[string]func(h h, c queue.Consumer){
	"acknowledged by the next take": func(h h, c queue.Consumer) { h.takeAs(c.BatchID(2), c.BatchID(1)) },
	"acknowledged":                  func(h h, c queue.Consumer) { h.ack(c.BatchID(1)) },
	"failed":                        func(h h, c queue.Consumer) { h.ack(c.BatchID(1), failures("no", order(1))...) },
	"released":                      func(h h, c queue.Consumer) { h.release(c.BatchID(1)) },
	"expired":                       func(h h, _ queue.Consumer) { h.Advance(lease); h.reclaim(1) },
}

func lateCallsLoseNothing(t *testing.T, all h) {
	for name, end := range ends {
		for _, calls := range lateCalls {
			h := open(t, all.factory, queue.Config{BackoffBase: lease, BackoffCap: lease})
			consumer := h.newConsumer()
			h.push(order(1))
			h.takeAs(consumer.BatchID(1), "")
			end(h, consumer)
			h.push(orders(2, 3)...)
			before := h.stats()
			for _, call := range calls {
				call.do(t, h, consumer)
			}
			if after := h.stats(); after != before {
				t.Errorf("a batch that was %s, then late %v: stats %+v, want %+v", name, calls, after, before)
			}
		}
	}
}

// lateCall is a call with the ids of a consumer, of which batch 1 has ended and batch 2 holds nothing.
type lateCall struct {
	name string
	do   func(t *testing.T, h h, c queue.Consumer)
}

func (c lateCall) String() string { return c.name }

var (
	lateTake = lateCall{"take", func(t *testing.T, h h, c queue.Consumer) { h.takeAs(c.BatchID(1), "") }}
	lateNext = lateCall{"take and ack", func(t *testing.T, h h, c queue.Consumer) {
		b, _, err := h.Queue.TakeAs(t.Context(), c.BatchID(2), 1, c.BatchID(1))
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Messages) > 0 { // its first execution may have found nothing; then it leases, and its lease expires
			h.release(b.ID)
		}
	}}
	lateAck = lateCall{"ack", func(t *testing.T, h h, c queue.Consumer) {
		if lost, err := h.Queue.Ack(t.Context(), c.BatchID(1)); !lost || err != nil {
			t.Errorf("ack of an ended batch: lost=%v, %v", lost, err)
		}
	}}
	lateFailure = lateCall{"failure", func(t *testing.T, h h, c queue.Consumer) {
		lost, err := h.Queue.Ack(t.Context(), c.BatchID(1), failures("no", order(2))...)
		if !lost || err != nil {
			t.Errorf("failures of an ended batch: lost=%v, %v", lost, err)
		}
	}}
	lateRelease = lateCall{"release", func(t *testing.T, h h, c queue.Consumer) {
		if lost, err := h.Queue.Release(t.Context(), c.BatchID(1)); !lost || err != nil {
			t.Errorf("release of an ended batch: lost=%v, %v", lost, err)
		}
	}}
	lateCalls = [][]lateCall{
		{lateTake, lateNext}, {lateNext, lateTake}, {lateTake, lateAck}, {lateTake, lateFailure}, {lateTake, lateRelease},
		{lateTake, lateTake, lateNext}, {lateTake, lateNext, lateTake, lateNext},
	}
)

func (h h) takeAs(id, ack string) queue.Batch {
	h.t.Helper()
	b, _, err := h.Queue.TakeAs(h.t.Context(), id, 1, ack)
	if err != nil {
		h.t.Fatalf("take %s: %v", id, err)
	}
	return b
}
