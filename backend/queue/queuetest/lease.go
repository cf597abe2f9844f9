package queuetest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"sluice/backend/queue"
)

var leaseTests = []test{
	{"TakeGivesTheOldestFirst", func(t *testing.T, f Factory) {
		h := open(t, f, queue.Config{})
		h.push(orders(1, 3)...)
		h.push(orders(4, 5)...)
		h.takeExactly(2, orders(1, 2)...)
		h.takeExactly(10, orders(3, 5)...)
	}},
	{"TakeOfNothingLeasesNothing", func(t *testing.T, f Factory) {
		h := open(t, f, queue.Config{})
		h.takeExactly(10)
		h.wantStats(queue.Stats{})
	}},
	{"TakeIsBoundedToMaxBatch", func(t *testing.T, f Factory) {
		h := open(t, f, queue.Config{})
		h.push(orders(1, queue.MaxBatch+7)...)
		h.takeExactly(1_000_000, orders(1, queue.MaxBatch)...)
		h.takeExactly(0, order(queue.MaxBatch+1))
	}},
	{"TakeReplayedReturnsSameBatch", func(t *testing.T, f Factory) {
		h := open(t, f, queue.Config{})
		h.push(orders(1, 5)...)
		id := queue.NewBatchID()
		for range 3 {
			b, lost, err := h.Queue.TakeAs(t.Context(), id, 3, "")
			if err != nil || lost || b.ID != id || !slices.Equal(b.Messages, orders(1, 3)) {
				t.Fatalf("take gave %v, lost=%v, %v", b, lost, err)
			}
		}
		h.wantStats(queue.Stats{Ready: 2, Leased: 3, Leases: 1})
	}},
	{"TakeReplayedCountsItsLeaseAnew", func(t *testing.T, f Factory) {
		h := open(t, f, queue.Config{})
		h.push(order(1))
		b := h.take(1, "")
		h.Advance(lease * 3 / 4)
		if _, _, err := h.Queue.TakeAs(t.Context(), b.ID, 1, ""); err != nil {
			t.Fatal(err)
		}
		h.Advance(lease * 3 / 4)
		h.reclaim(0)
	}},
	{"TakeReplayedAcknowledgesOnce", func(t *testing.T, f Factory) { // window W8
		h := open(t, f, queue.Config{})
		h.push(orders(1, 4)...)
		first := h.take(2, "")
		id := queue.NewBatchID()
		for range 2 {
			b, lost, err := h.Queue.TakeAs(t.Context(), id, 1, first.ID)
			if err != nil || lost || !slices.Equal(b.Messages, orders(3, 3)) {
				t.Fatalf("take gave %v, lost=%v, %v", b, lost, err)
			}
		}
		h.wantStats(queue.Stats{Ready: 1, Leased: 1, Leases: 1})
	}},
	{"TakeAcknowledgesEvenWhenNothingIsLeft", func(t *testing.T, f Factory) {
		h := open(t, f, queue.Config{})
		h.push(orders(1, 2)...)
		b := h.take(2, "")
		if b = h.take(2, b.ID); len(b.Messages) != 0 {
			t.Fatalf("took %v", b)
		}
		h.wantStats(queue.Stats{})
	}},
	{"AckEndsTheLease", func(t *testing.T, f Factory) {
		h := open(t, f, queue.Config{})
		h.push(orders(1, 3)...)
		h.ack(h.take(2, "").ID)
		h.wantStats(queue.Stats{Ready: 1})
		h.Advance(2 * lease)
		h.reclaim(0)
	}},
	{"AckTwiceAnswersLost", func(t *testing.T, f Factory) { // window W8
		h := open(t, f, queue.Config{})
		h.push(orders(1, 2)...)
		b := h.take(1, "")
		h.ack(b.ID, failures("no", b.Messages...)...)
		lost, err := h.Queue.Ack(t.Context(), b.ID, failures("no", b.Messages...)...)
		if err != nil || !lost {
			t.Fatalf("second ack: lost=%v, %v", lost, err)
		}
		h.wantStats(queue.Stats{Ready: 1, Delayed: 1})
	}},
	{"ReleaseGivesBackInOrder", func(t *testing.T, f Factory) {
		h := open(t, f, queue.Config{})
		h.push(orders(1, 5)...)
		b := h.take(3, "")
		if lost, err := h.Queue.Release(t.Context(), b.ID); err != nil || lost {
			t.Fatalf("release: lost=%v, %v", lost, err)
		}
		h.takeExactly(9, orders(1, 5)...)
	}},
	{"ReleaseCountsNoCrash", func(t *testing.T, f Factory) {
		h := open(t, f, queue.Config{MaxCrashes: 1})
		h.push(orders(1, 2)...)
		for range 5 {
			b := h.takeExactly(2, orders(1, 2)...)
			if _, err := h.Queue.Release(t.Context(), b.ID); err != nil {
				t.Fatal(err)
			}
		}
	}},
	{"ExtendCountsTheLeaseFromNow", func(t *testing.T, f Factory) {
		h := open(t, f, queue.Config{})
		h.push(order(1))
		b := h.take(1, "")
		for range 3 {
			h.Advance(lease * 3 / 4)
			if lost, err := h.Queue.Extend(t.Context(), b.ID); err != nil || lost {
				t.Fatalf("extend: lost=%v, %v", lost, err)
			}
		}
		h.reclaim(0)
		h.Advance(lease)
		h.reclaim(1)
	}},
	{"ExtendRevivesALeaseNobodyReclaimed", func(t *testing.T, f Factory) {
		h := open(t, f, queue.Config{})
		h.push(order(1))
		b := h.take(1, "")
		h.Advance(2 * lease)
		if lost, err := h.Queue.Extend(t.Context(), b.ID); err != nil || lost {
			t.Fatalf("extend: lost=%v, %v", lost, err)
		}
		h.reclaim(0)
	}},
	{"PushRefusesWhatCouldNotBeReadBack", func(t *testing.T, f Factory) {
		h := open(t, f, queue.Config{})
		bad := order(2)
		bad.Buyer = "two\nlines"
		if err := h.Queue.Push(t.Context(), order(1), bad); err == nil {
			t.Fatal("an invalid message was pushed")
		}
		h.wantStats(queue.Stats{})
	}},
	{"RubbishIsBuriedAndBlocksNothing", rubbish},
	{"StatsTellTheOldestAge", func(t *testing.T, f Factory) {
		h := open(t, f, queue.Config{})
		h.push(order(1))
		h.take(1, "")
		s, err := h.Queue.Stats(t.Context())
		if err != nil || s.OldestAge <= 0 {
			t.Fatalf("the oldest age is %s, %v", s.OldestAge, err)
		}
	}},
}

func rubbish(t *testing.T, f Factory) {
	h := open(t, f, queue.Config{})
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
	h.takeExactly(2) // nothing but rubbish, however often it looks
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

	page, next, err := h.Queue.DeadLetters(t.Context(), queue.DeadQuery{})
	if err != nil || next != "" {
		t.Fatalf("dead letters: next=%q, %v", next, err)
	}
	want := map[string]bool{}
	for _, text := range texts {
		want[text] = true
	}
	for _, d := range page {
		if !want[string(d.Raw)] || d.Reason == "" || d.DiedAt.IsZero() {
			t.Errorf("unexpected letter %s of %d bytes, %q, %s", d.Key, len(d.Raw), d.Reason, d.DiedAt)
		}
		delete(want, string(d.Raw))
	}
	if len(want) > 0 {
		t.Errorf("%d texts are lost, one of them %.40q", len(want), slices.Collect(maps.Keys(want))[0])
	}
}
