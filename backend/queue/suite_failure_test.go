package queue_test

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"sluice/backend/queue"
)

var failureTests = []test{
	{"OnlyTheFailedMessageIsDelayed", queue.Config{
		BackoffBase: time.Hour, BackoffCap: time.Hour,
	}, func(t *testing.T, h h) {
		h.push(orders(1, 3)...)
		b := h.take(3, "")
		h.ack(b.ID, failures("no", order(2))...)
		h.wantStats(queue.Stats{Delayed: 1})
		h.Advance(59 * time.Minute)
		h.takeExactly(3)
		h.Advance(time.Minute)
		h.takeExactly(3, order(2))
	}},
	{"BackoffDoublesUpToItsCap", queue.Config{
		BackoffBase: 10 * time.Minute, BackoffCap: 30 * time.Minute, MaxAttempts: 9,
	}, func(t *testing.T, h h) {
		h.push(order(1))
		for _, wait := range []time.Duration{10, 20, 30, 30} {
			h.ack(h.takeExactly(1, order(1)).ID, failures("no", order(1))...)
			h.Advance((wait - 1) * time.Minute)
			h.takeExactly(1)
			h.Advance(time.Minute)
		}
		h.takeExactly(1, order(1))
	}},
	{"JitterShortensTheBackoff", queue.Config{
		BackoffBase: time.Hour, BackoffCap: time.Hour, Jitter: func() float64 { return 0.25 },
	}, func(t *testing.T, h h) {
		h.push(order(1))
		h.ack(h.take(1, "").ID, failures("no", order(1))...)
		h.Advance(14 * time.Minute)
		h.takeExactly(1)
		h.Advance(time.Minute)
		h.takeExactly(1, order(1))
	}},
	{"DueMessagesComeFirstInTheirOrder", queue.Config{
		BackoffBase: time.Minute, BackoffCap: time.Minute,
	}, func(t *testing.T, h h) {
		delay(h, 3)
		h.push(orders(4, 6)...)
		h.Advance(2 * time.Minute)
		h.takeExactly(5, orders(1, 5)...)
	}},
	{"ReclaimPromotesDueMessagesInTheirOrder", queue.Config{
		BackoffBase: time.Minute, BackoffCap: time.Minute,
	}, func(t *testing.T, h h) {
		delay(h, 3)
		h.push(order(4))
		h.reclaim(0)
		h.wantStats(queue.Stats{Ready: 1, Delayed: 3})
		h.Advance(2 * time.Minute)
		h.reclaim(0)
		h.wantStats(queue.Stats{Ready: 4})
		h.takeExactly(9, orders(1, 4)...)
	}},
	{"MessageIsDeadAfterMaxAttempts", queue.Config{MaxAttempts: 3}, func(t *testing.T, h h) {
		h.push(orders(1, 2)...)
		reasons := []string{"first", "second", "third"}
		for _, reason := range reasons {
			h.ack(h.take(2, "").ID, failures(reason, order(1))...)
			h.Advance(lease)
		}
		h.takeExactly(2)
		h.wantStats(queue.Stats{Dead: 1})
		d := h.dead(order(1))
		if d.Message != order(1) || d.Reason != "third" || d.Cancelling || d.DiedAt.IsZero() ||
			d.Key != order(1).ID.String() {
			t.Errorf("the letter is %+v", d)
		}
		if len(d.History) != 3 {
			t.Fatalf("the history is %+v", d.History)
		}
		for i, a := range d.History {
			if a.Reason != reasons[i] || a.At.IsZero() || i > 0 && a.At.Before(d.History[i-1].At) {
				t.Errorf("attempt %d is %+v", i, a)
			}
		}
	}},
	{"PermanentFailureIsDeadImmediately", queue.Config{}, func(t *testing.T, h h) {
		h.push(orders(1, 3)...)
		b := h.take(3, "")
		h.ack(
			b.ID,
			queue.Failure{ID: order(2).ID, Reason: "would oversell", Permanent: true},
			queue.Failure{ID: order(3).ID, Reason: "no"},
		)
		h.wantStats(queue.Stats{Delayed: 1, Dead: 1})
		if d := h.dead(order(2)); d.Reason != "would oversell" || len(d.History) != 1 {
			t.Errorf("the letter is %+v", d)
		}
	}},
	{"SuccessDeletesTheFailures", queue.Config{MaxAttempts: 2}, func(t *testing.T, h h) {
		for _, acknowledge := range []func(b queue.Batch){
			func(b queue.Batch) { h.ack(b.ID) },
			func(b queue.Batch) { h.take(1, b.ID) },
		} {
			h.push(order(1))
			h.ack(h.take(1, "").ID, failures("no", order(1))...)
			h.Advance(lease)
			acknowledge(h.takeExactly(1, order(1)))
		}
		h.push(order(1))
		h.ack(h.take(1, "").ID, failures("no", order(1))...)
		h.wantStats(queue.Stats{Delayed: 1})
	}},
	{"FailureOfAnotherOrderIsIgnored", queue.Config{}, func(t *testing.T, h h) {
		h.push(orders(1, 2)...)
		b := h.take(1, "")
		h.ack(b.ID, queue.Failure{ID: order(2).ID, Reason: "not in this batch", Permanent: true})
		h.takeExactly(1, order(2))
	}},
	{"OrdersOfOneIDAreAllKept", queue.Config{MaxCrashes: 1}, ordersOfOneID},
	{"ReasonIsOneShortLine", queue.Config{}, func(t *testing.T, h h) {
		h.push(orders(1, 2)...)
		h.ack(h.take(2, "").ID,
			queue.Failure{ID: order(1).ID, Permanent: true, Reason: "a\tb\nc\x00\xff " + strings.Repeat("é", 5000)},
			queue.Failure{ID: order(2).ID, Permanent: true})
		d := h.dead(order(1))
		if len(d.Reason) > queue.MaxReason || !utf8.ValidString(d.Reason) || !strings.HasPrefix(d.Reason, "a b c") ||
			len(d.History) != 1 {
			t.Errorf("the reason is %d bytes: %q", len(d.Reason), d.Reason)
		}
		if h.dead(order(2)).Reason == "" {
			t.Error("a letter without a reason")
		}
	}},
}

// delay makes n messages fail, one a second.
func delay(h h, n int) {
	h.t.Helper()
	for i := 1; i <= n; i++ {
		h.push(order(i))
		h.ack(h.take(1, "").ID, failures("no", order(i))...)
		h.Advance(time.Second)
	}
}

// Order ids are unique. If two orders share an id nevertheless, each becomes a dead letter, whether by failures or
// crashes, concurrently or one after the other.
func ordersOfOneID(t *testing.T, h h) {
	named := func(buyer string) queue.Message {
		m := order(1)
		m.Buyer = buyer
		return m
	}
	all := []queue.Message{named("ann"), named("bob"), named("cid"), named("dan")}
	makeDead(h, all[:2]...)
	makeDead(h, all[2])
	h.push(all[3])
	for range 2 {
		h.crash(1, all[3])
	}
	again := all[0] // the same order once more, with the serial that a rebuild gave it
	again.Serial = 77
	makeDead(h, again)

	page := h.letters(queue.DeadQuery{})
	if len(page) != len(all) {
		t.Fatalf("%d letters of %d orders: %+v", len(page), len(all), page)
	}
	for _, m := range all {
		if !slices.ContainsFunc(page, func(d queue.DeadLetter) bool {
			return d.Message.Buyer == m.Buyer && d.Message.ID == m.ID && d.Reason != ""
		}) {
			t.Errorf("the order of %s is lost: %+v", m.Buyer, page)
		}
	}
	if d := h.dead(order(1)); d.Message.Buyer != "ann" {
		t.Errorf("under the id there is now the letter of %s", d.Message.Buyer)
	}
}
