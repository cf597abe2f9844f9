package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/store"
)

func (e *env) begin(t *testing.T) int64 {
	t.Helper()
	fence, err := e.NextFence(e.ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.BeginGeneration(e.ctx, fence); err != nil {
		t.Fatal(err)
	}
	return fence
}

// A number is given once, also when the database has forgotten how far the others have come.
func fences(t *testing.T, e *env) {
	var last int64
	for _, above := range []int64{0, 1000, 3, 0, 1001, 1 << 40} {
		n, err := e.NextFence(e.ctx, above)
		if err != nil || n <= last || n <= above {
			t.Fatalf("after %d, above %d: %d, %v", last, above, n, err)
		}
		last = n
	}
	if last != 1<<40+1 {
		t.Errorf("the last is %d: numbers are left out", last)
	}
}

func writeStale(t *testing.T, e *env) {
	e.create(t, "s", 100)
	older := e.begin(t)
	taken := Orders("s", 3)
	present := e.begin(t)
	if err := e.Write(store.WithGeneration(e.ctx, older), taken); !errors.Is(err, store.ErrStale) || errors.Is(err, store.ErrRejected) {
		t.Fatalf("orders of an older generation: got %v, want ErrStale", err)
	}
	e.wantRows(t, "s", 0)
	if err := e.Write(store.WithGeneration(e.ctx, present), taken); err != nil {
		t.Fatal(err)
	}
	if err := e.Write(store.WithGeneration(e.ctx, older), taken); !errors.Is(err, store.ErrStale) {
		t.Fatalf("rows again, at an older generation: got %v, want ErrStale", err)
	}
	e.write(t, Orders("s", 2)...) // of no generation in particular
	e.wantRows(t, "s", 5)
	if err := e.BeginGeneration(e.ctx, older); !errors.Is(err, store.ErrStale) {
		t.Fatalf("a generation that was overtaken: got %v, want ErrStale", err)
	}
	if now, err := e.Generation(e.ctx); err != nil || now != present {
		t.Fatalf("generation %d, %v; want %d", now, err, present)
	}
}

func cancelDeadStale(t *testing.T, e *env) {
	e.create(t, "s", 10)
	older := e.begin(t)
	dead := Order("s", "ann")
	present := e.begin(t)
	if _, err := e.CancelDead(store.WithGeneration(e.ctx, older), store.DeadOrder{Order: dead}, "desk", "test"); !errors.Is(err, store.ErrStale) {
		t.Fatalf("a letter of an older generation: got %v, want ErrStale", err)
	}
	if log, err := e.Log(e.ctx, store.LogQuery{Limit: 1}); err != nil || len(log) > 0 && log[0].Action == "order.cancel" {
		t.Errorf("what was refused is in the desk log: %+v, %v", log, err)
	}
	e.write(t, dead) // nothing has settled it
	e.wantRows(t, "s", 1)
	dead = Order("s", "bob")
	for range 2 {
		if wasRow, err := e.CancelDead(store.WithGeneration(e.ctx, present), store.DeadOrder{Order: dead}, "desk", "test"); err != nil || wasRow {
			t.Fatalf("a letter of the present generation: %v, %v", wasRow, err)
		}
	}
	if _, err := e.CancelDead(store.WithGeneration(e.ctx, older), store.DeadOrder{Order: dead}, "desk", "test"); !errors.Is(err, store.ErrStale) {
		t.Fatalf("again, at an older generation: got %v, want ErrStale", err)
	}
}

// What is read after BeginGeneration is all that older generations have written and will ever write.
func generationIsABarrier(t *testing.T, e *env) {
	e.create(t, "s", 1_000_000)
	const writers, rounds = 4, 5
	for round := range rounds {
		now, err := e.Generation(e.ctx)
		if err != nil {
			t.Fatal(err)
		}
		now = max(now, e.begin(t))
		var wg sync.WaitGroup
		writing := make(chan struct{}, 1000)
		for range writers {
			wg.Go(func() {
				for {
					err := e.Write(store.WithGeneration(e.ctx, now), Orders("s", 20))
					if errors.Is(err, store.ErrStale) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					writing <- struct{}{}
				}
			})
		}
		for range writers * 3 {
			<-writing
		}
		e.begin(t)
		before, err := e.Count(e.ctx, "s", store.Always, nil)
		if err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		after, err := e.Count(e.ctx, "s", store.Always, nil)
		if err != nil {
			t.Fatal(err)
		}
		if before.Rows != after.Rows {
			t.Fatalf("round %d: %d rows when the generation had begun, %d after", round, before.Rows, after.Rows)
		}
	}
}

func pauseReason(t *testing.T, e *env) {
	e.create(t, "s", 1)
	if _, err := e.LastLog(e.ctx, "s", "sale.pause", "sale.resume"); !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("nothing was done yet: %v", err)
	}
	for i, to := range []sale.Switch{sale.Paused, sale.On, sale.Paused} {
		if _, err := e.SetSwitch(store.WithReason(store.WithActor(e.ctx, "audit"), fmt.Sprint("reason ", i)), "s", to); err != nil {
			t.Fatal(err)
		}
	}
	last, err := e.LastLog(e.ctx, "s", "sale.pause", "sale.resume")
	if err != nil || last.Action != "sale.pause" || last.Actor != "audit" || last.Detail != "version 4: reason 2" {
		t.Fatalf("the last line is %+v, %v", last, err)
	}
}
