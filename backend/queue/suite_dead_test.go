package queue_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/backend/queue"
	"sluice/backend/sale"
)

var deadTests = []test{
	{"ListingIsPagedAndFilteredBySale", queue.Config{}, paging},
	{"ListingFindsByReasonAndTime", queue.Config{}, searching},
	{"ListingRejectsAnInvalidCursor", queue.Config{}, func(t *testing.T, h h) {
		var bad *sale.InvalidError
		if _, _, err := h.Queue.DeadLetters(t.Context(), queue.DeadQuery{After: "x"}); !errors.As(err, &bad) {
			t.Errorf("the error is %v", err)
		}
	}},
	{"RetryDeletesTheFailures", queue.Config{MaxAttempts: 2, MaxCrashes: 1}, func(t *testing.T, h h) {
		makeDead(h, orders(1, 1)...)
		h.push(order(2))
		h.retry(order(1))
		h.wantStats(queue.Stats{Ready: 2})
		b := h.takeExactly(5, orders(1, 2)...) // at the front, and not alone
		h.ack(b.ID, failures("again", order(1))...)
		h.wantStats(queue.Stats{Delayed: 1}) // its first failure
	}},
	{"RetryDeletesTheCrashes", queue.Config{MaxCrashes: 1}, func(t *testing.T, h h) {
		h.push(order(1))
		for range 2 {
			h.crash(1, order(1))
		}
		h.retry(order(1))
		h.push(order(2))
		h.takeExactly(5, orders(1, 2)...)
	}},
	{"RetryAfterCrashesDeletesTheFailures", queue.Config{MaxAttempts: 2, MaxCrashes: 1}, func(t *testing.T, h h) {
		h.push(order(1))
		h.ack(h.take(1, "").ID, failures("once", order(1))...)
		h.Advance(lease)
		for range 2 {
			h.crash(1, order(1))
		}
		h.retry(order(1))
		h.ack(h.takeExactly(1, order(1)).ID, failures("again", order(1))...)
		h.wantStats(queue.Stats{Delayed: 1}) // its first failure
	}},
	{"RetryAfterFailuresDeletesTheCrashes", queue.Config{MaxCrashes: 1}, func(t *testing.T, h h) {
		h.push(order(1))
		h.crash(1, order(1))
		h.ack(h.takeExactly(5, order(1)).ID, queue.Failure{ID: order(1).ID, Reason: "would oversell", Permanent: true})
		h.retry(order(1))
		h.push(order(2))
		h.takeExactly(5, orders(1, 2)...) // not alone: it is no suspect
	}},
	{"SecondRetryIsNotFound", queue.Config{}, func(t *testing.T, h h) {
		makeDead(h, order(1))
		h.retry(order(1))
		if err := h.Queue.RetryDead(t.Context(), order(1).ID); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("second retry: %v", err)
		}
		h.wantStats(queue.Stats{Ready: 1})
	}},
	{"CancellingRejectsRetry", queue.Config{}, func(t *testing.T, h h) {
		makeDead(h, order(1))
		ctx := t.Context()
		if err := h.Queue.FinishCancel(ctx, order(1).ID, false); !errors.Is(err, sale.ErrConflict) {
			t.Errorf("finish without begin: %v", err)
		}
		for range 2 {
			d, err := h.Queue.BeginCancel(ctx, order(1).ID)
			if err != nil || !d.Cancelling || d.Message != order(1) || d.Reason == "" || len(d.History) == 0 {
				t.Fatalf("begin: %+v, %v", d, err)
			}
		}
		if err := h.Queue.RetryDead(ctx, order(1).ID); !errors.Is(err, sale.ErrConflict) {
			t.Errorf("retry while cancelling: %v", err)
		}
		h.wantStats(queue.Stats{Dead: 1})
		if err := h.Queue.FinishCancel(ctx, order(1).ID, false); err != nil {
			t.Errorf("finish: %v", err)
		}
		h.wantStats(queue.Stats{})
	}},
	{"EveryCallOnAnUnknownOrderIsNotFound", queue.Config{}, func(t *testing.T, h h) {
		ctx, id := t.Context(), order(1).ID
		_, letter := h.Queue.DeadLetter(ctx, id)
		_, begin := h.Queue.BeginCancel(ctx, id)
		for name, err := range map[string]error{
			"letter": letter, "begin": begin, "retry": h.Queue.RetryDead(ctx, id), "finish": h.Queue.FinishCancel(ctx, id, true),
		} {
			if !errors.Is(err, sale.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}},
}

// makeDead makes messages dead letters.
func makeDead(h h, m ...queue.Message) {
	h.t.Helper()
	h.push(m...)
	f := failures("rejected", m...)
	for i := range f {
		f[i].Permanent = true
	}
	h.ack(h.take(len(m), "").ID, f...)
}

// searching compares the result of a query with a filter over all letters.
func searching(t *testing.T, h h) {
	for i, reason := range []string{
		"Deadlock found", "card stolen", "DEADLOCK again", "no such table", "card stolen twice",
	} {
		m := orderOf([]string{"drop", "other"}[i%2], i+1)
		h.push(m)
		h.ack(h.take(1, "").ID, queue.Failure{ID: m.ID, Reason: reason, Permanent: true})
	}
	all := h.letters(queue.DeadQuery{})
	if len(all) != 5 {
		t.Fatalf("%d letters", len(all))
	}
	third := all[2].DiedAt
	for _, q := range []queue.DeadQuery{
		{ErrorContains: "deadlock"}, {ErrorContains: "CARD"}, {ErrorContains: "twice"}, {ErrorContains: "nothing like it"},
		{ErrorContains: "deadlock", SaleID: "other"}, {ErrorContains: "card", SaleID: "other"},
		{DiedAfter: third}, {DiedBefore: third}, {DiedAfter: third.Add(time.Microsecond)},
		{DiedBefore: third.Add(time.Microsecond)}, {DiedAfter: third, DiedBefore: third},
		{DiedAfter: third.Add(-time.Hour)}, {DiedAfter: third.Add(time.Hour)}, {DiedBefore: third.Add(-time.Hour)},
		{DiedBefore: third.Add(time.Hour)}, {ErrorContains: "card", DiedBefore: third},
	} {
		selects := func(d queue.DeadLetter) bool {
			return (q.SaleID == "" || d.Message.SaleID == q.SaleID) &&
				strings.Contains(strings.ToLower(d.Reason), strings.ToLower(q.ErrorContains)) &&
				!d.DiedAt.Before(q.DiedAfter) && (q.DiedBefore.IsZero() || d.DiedAt.Before(q.DiedBefore))
		}
		var want, got []string
		for _, d := range all {
			if selects(d) {
				want = append(want, d.Reason)
			}
		}
		q.Limit = 1
		for _, d := range h.letters(q) {
			got = append(got, d.Reason)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v found %q, want %q", q, got, want)
		}
	}
}

func paging(t *testing.T, h h) {
	const n = 230 // more than one chunk, and many within one millisecond
	bySale := map[string][]sale.OrderID{}
	for i := 1; i <= n; i += 10 {
		var batch []queue.Message
		for j := i; j < i+10; j++ {
			m := orderOf([]string{"drop", "other", "third"}[j%3], j)
			batch = append(batch, m)
			bySale[""] = append(bySale[""], m.ID)
			bySale[m.SaleID] = append(bySale[m.SaleID], m.ID)
		}
		makeDead(h, batch...)
	}
	for _, q := range []queue.DeadQuery{
		{}, {Limit: 7}, {Limit: 1 << 40}, {SaleID: "drop", Limit: 7}, {SaleID: "third", Limit: 1}, {SaleID: "drop"},
		{SaleID: "none"},
	} {
		var got []sale.OrderID
		for _, d := range h.letters(q) {
			got = append(got, d.Message.ID)
		}
		slices.Sort(got) // those of one millisecond are not ordered by time
		if want := bySale[q.SaleID]; !slices.Equal(got, want) {
			t.Errorf("%+v: %d letters, want %d", q, len(got), len(want))
		}
	}
}
