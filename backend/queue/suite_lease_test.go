package queue_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/backend/queue"
	"sluice/backend/sale"
)

var leaseTests = []test{
	{"TakeReturnsTheOldestFirst", queue.Config{}, func(t *testing.T, h h) {
		h.push(orders(1, 3)...)
		h.push(orders(4, 5)...)
		h.takeExactly(2, orders(1, 2)...)
		h.takeExactly(10, orders(3, 5)...)
	}},
	{"TakeFromAnEmptyQueueLeasesNothing", queue.Config{}, func(t *testing.T, h h) {
		h.takeExactly(10)
		h.wantStats(queue.Stats{})
	}},
	{"TakeIsBoundedToMaxBatch", queue.Config{}, func(t *testing.T, h h) {
		h.push(orders(1, queue.MaxBatch+7)...)
		h.takeExactly(1_000_000, orders(1, queue.MaxBatch)...)
		h.takeExactly(0, order(queue.MaxBatch+1))
	}},
	{"TakeReplayedReturnsSameBatch", queue.Config{}, func(t *testing.T, h h) {
		h.push(orders(1, 5)...)
		id := h.newBatch()
		for range 3 {
			b, lost, err := h.Queue.TakeAs(t.Context(), id, 3, "")
			if err != nil || lost || b.ID != id || !slices.Equal(b.Messages, orders(1, 3)) {
				t.Fatalf("take gave %v, lost=%v, %v", b, lost, err)
			}
		}
		h.wantStats(queue.Stats{Ready: 2, Leased: 3, Leases: 1})
	}},
	{"TakeReplayedRestartsTheLease", queue.Config{}, func(t *testing.T, h h) {
		h.push(order(1))
		b := h.take(1, "")
		h.Advance(lease * 3 / 4)
		if _, _, err := h.Queue.TakeAs(t.Context(), b.ID, 1, ""); err != nil {
			t.Fatal(err)
		}
		h.Advance(lease * 3 / 4)
		h.reclaim(0)
	}},
	{"TakeReplayedAcknowledgesOnce", queue.Config{}, func(t *testing.T, h h) {
		h.push(orders(1, 4)...)
		first := h.take(2, "")
		id := h.newBatch()
		for range 2 {
			b, lost, err := h.Queue.TakeAs(t.Context(), id, 1, first.ID)
			if err != nil || lost || !slices.Equal(b.Messages, orders(3, 3)) {
				t.Fatalf("take gave %v, lost=%v, %v", b, lost, err)
			}
		}
		h.wantStats(queue.Stats{Ready: 1, Leased: 1, Leases: 1})
	}},
	{"TakeFromAnEmptyQueueAcknowledges", queue.Config{}, func(t *testing.T, h h) {
		h.push(orders(1, 2)...)
		b := h.take(2, "")
		if b = h.take(2, b.ID); len(b.Messages) != 0 {
			t.Fatalf("took %v", b)
		}
		h.wantStats(queue.Stats{})
	}},
	{"AckEndsTheLease", queue.Config{}, func(t *testing.T, h h) {
		h.push(orders(1, 3)...)
		h.ack(h.take(2, "").ID)
		h.wantStats(queue.Stats{Ready: 1})
		h.Advance(2 * lease)
		h.reclaim(0)
	}},
	{"SecondAckReturnsLost", queue.Config{}, func(t *testing.T, h h) {
		h.push(orders(1, 2)...)
		b := h.take(1, "")
		h.ack(b.ID, failures("no", b.Messages...)...)
		lost, err := h.Queue.Ack(t.Context(), b.ID, failures("no", b.Messages...)...)
		if err != nil || !lost {
			t.Fatalf("second ack: lost=%v, %v", lost, err)
		}
		h.wantStats(queue.Stats{Ready: 1, Delayed: 1})
	}},
	{"ReleaseRequeuesInOrder", queue.Config{}, func(t *testing.T, h h) {
		h.push(orders(1, 5)...)
		b := h.take(3, "")
		h.release(b.ID)
		h.takeExactly(9, orders(1, 5)...)
	}},
	{"ReleaseCountsNoCrash", queue.Config{MaxCrashes: 1}, func(t *testing.T, h h) {
		h.push(orders(1, 2)...)
		for range 5 {
			b := h.takeExactly(2, orders(1, 2)...)
			h.release(b.ID)
		}
	}},
	{"ExtendRestartsTheLease", queue.Config{}, func(t *testing.T, h h) {
		h.push(order(1))
		b := h.take(1, "")
		for range 3 {
			h.Advance(lease * 3 / 4)
			h.extend(b.ID)
		}
		h.reclaim(0)
		h.Advance(lease)
		h.reclaim(1)
	}},
	{"ExtendRestartsAnExpiredLease", queue.Config{}, func(t *testing.T, h h) {
		h.push(order(1))
		b := h.take(1, "")
		h.Advance(2 * lease)
		h.extend(b.ID)
		h.reclaim(0)
	}},
	{"PushRejectsInvalidMessages", queue.Config{}, func(t *testing.T, h h) {
		bad := order(2)
		bad.Buyer = "two\nlines"
		if err := h.Queue.Push(t.Context(), order(1), bad); err == nil {
			t.Fatal("an invalid message was pushed")
		}
		h.wantStats(queue.Stats{})
	}},
	{"InvalidTextsBecomeDeadLetters", queue.Config{}, invalidTexts},
	{"StatsReturnTheOldestAge", queue.Config{}, func(t *testing.T, h h) {
		age := func() time.Duration {
			s, err := h.Queue.Stats(t.Context())
			if err != nil || s.OldestAge <= 0 {
				t.Fatalf("the oldest age is %s, %v", s.OldestAge, err)
			}
			return s.OldestAge
		}
		oldest, newest := order(1), order(2)
		newest.ID = sale.NewOrderID(oldest.CreatedAt().Add(time.Hour), 2)
		h.push(oldest, newest)
		waiting := age()
		h.takeExactly(2, oldest, newest)
		if leased := age(); leased < waiting {
			t.Fatalf("the oldest age is %s after a take, and was %s", leased, waiting)
		}
	}},
}

func invalidTexts(t *testing.T, h h) {
	texts := []string{
		"",
		"hello",
		"\xff\x00\n",
		"12 drop",
		`{"id": 12, "sale"`,
		`{"v":2,"id":"12","sale":"drop"}`,
		"v2 12 drop 1 1 bob",
		"null",
		"-7 drop 1 1 bob",
		"99999999999999999999 drop 1 1 bob",
		"12 drop 1 x bob",
		"12 drop 0 1 bob",
		"12 drop 1 1 ",
		strings.Repeat("\xfe12 ", 25_000),
		"hello",
	}
	const alone = 8
	for _, text := range texts[:alone] {
		h.PushRaw(text)
	}
	for range alone / 2 {
		h.takeExactly(2) // only invalid texts
	}
	h.wantStats(queue.Stats{Dead: alone})
	h.push(order(1))
	for _, text := range texts[alone:] {
		h.PushRaw(text)
	}
	h.push(order(2))
	b := h.takeExactly(20, orders(1, 2)...)
	if held := h.Batch(b.ID); len(held) != 2 {
		t.Fatalf("the batch holds %q", held)
	}
	h.release(b.ID)
	h.takeExactly(20, orders(1, 2)...)

	want := map[string]bool{}
	for _, text := range texts {
		want[text] = true
	}
	for _, d := range h.letters(queue.DeadQuery{}) {
		if !want[string(d.Raw)] || d.Reason == "" || d.DiedAt.IsZero() {
			t.Errorf("unexpected letter %s of %d bytes, %q, %s", d.Key, len(d.Raw), d.Reason, d.DiedAt)
		}
		delete(want, string(d.Raw))
	}
	if len(want) > 0 {
		t.Errorf("%d texts are lost, one of them %.40q", len(want), slices.Collect(maps.Keys(want))[0])
	}
}
