package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sync"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

func (e *env) begin(t *testing.T) int64 {
	t.Helper()
	fence, err := e.NextFence(e.ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.BeginGeneration(e.ctx, 0, fence); err != nil {
		t.Fatal(err)
	}
	return fence
}

// Fences are unique, also after the database was restored from a backup.
func TestFencesAreUnique(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		var last int64
		for _, above := range []int64{0, 1000, 3, 0, 1001, 1 << 40} {
			n, err := e.NextFence(e.ctx, above)
			if err != nil || n <= last || n <= above {
				t.Fatalf("after %d, above %d: %d, %v", last, above, n, err)
			}
			last = n
		}
		if last != 1<<40+1 {
			t.Errorf("the last fence is %d: numbers were skipped", last)
		}
	})
}

func TestWriteRejectsOlderGeneration(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 100)
		older := e.begin(t)
		batch := storetest.Orders("s", 3)
		current := e.begin(t)
		if err := e.Write(store.WithGeneration(e.ctx, 0, older), batch); !errors.Is(err, store.ErrStale) ||
			errors.Is(err, store.ErrRejected) {
			t.Fatalf("orders of an older generation: got %v, want ErrStale", err)
		}
		e.wantRows(t, "s", 0)
		if err := e.Write(store.WithGeneration(e.ctx, 0, current), batch); err != nil {
			t.Fatal(err)
		}
		if err := e.Write(store.WithGeneration(e.ctx, 0, older), batch); !errors.Is(err, store.ErrStale) {
			t.Fatalf("stored orders at an older generation: got %v, want ErrStale", err)
		}
		e.write(t, storetest.Orders("s", 2)...) // without a generation
		e.wantRows(t, "s", 5)
		if err := e.BeginGeneration(e.ctx, 0, older); !errors.Is(err, store.ErrStale) {
			t.Fatalf("an older fence: got %v, want ErrStale", err)
		}
		if _, now, err := e.Generation(e.ctx, 0); err != nil || now != current {
			t.Fatalf("generation %d, %v; want %d", now, err, current)
		}
	})
}

// A shard that was never rebuilt with this database has no generation: a batch of any generation is rejected.
func TestWriteRejectsGenerationOfAnotherDatabase(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 100)
		ctx := store.WithGeneration(e.ctx, 5, 7)
		if err := e.Write(ctx, storetest.Orders("s", 3)); !errors.Is(err, store.ErrStale) {
			t.Errorf("orders: got %v, want ErrStale", err)
		}
		dead := store.DeadOrder{Order: storetest.Order("s", "ann")}
		if _, err := e.CancelDead(ctx, dead); !errors.Is(err, store.ErrStale) {
			t.Errorf("dead order: got %v, want ErrStale", err)
		}
		if _, n, err := e.Generation(e.ctx, 5); err != nil || n != 0 {
			t.Errorf("generation %d, %v", n, err)
		}
		if err := e.BeginGeneration(e.ctx, 5, 7); err != nil {
			t.Fatal(err)
		}
		if err := e.Write(ctx, storetest.Orders("s", 3)); err != nil {
			t.Error(err)
		}
	})
}

func TestCancelDeadRejectsOlderGeneration(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 10)
		older := e.begin(t)
		dead := store.DeadOrder{Order: storetest.Order("s", "ann")}
		current := e.begin(t)
		cancel := func(generation int64) (bool, error) {
			return e.CancelDead(store.WithGeneration(e.ctx, 0, generation), dead)
		}
		if _, err := cancel(older); !errors.Is(err, store.ErrStale) {
			t.Fatalf("older generation: got %v, want ErrStale", err)
		}
		log, err := e.Log(e.ctx, store.LogQuery{Limit: 1})
		if err != nil || len(log) > 0 && log[0].Action == "order.cancel" {
			t.Errorf("the rejected call is in the action log: %+v, %v", log, err)
		}
		e.write(t, dead.Order) // it is not settled
		e.wantRows(t, "s", 1)
		dead.Order = storetest.Order("s", "bob")
		for range 2 {
			if wasRow, err := cancel(current); err != nil || wasRow {
				t.Fatalf("current generation: %v, %v", wasRow, err)
			}
		}
		if _, err := cancel(older); !errors.Is(err, store.ErrStale) {
			t.Fatalf("second call at an older generation: got %v, want ErrStale", err)
		}
	})
}

// After BeginGeneration no write of an older generation adds a row.
func TestBeginGenerationEndsOlderWrites(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 1_000_000)
		const writers, rounds = 4, 5
		for round := range rounds {
			_, now, err := e.Generation(e.ctx, 0)
			if err != nil {
				t.Fatal(err)
			}
			now = max(now, e.begin(t))
			var wg sync.WaitGroup
			writing := make(chan struct{}, 1000)
			for range writers {
				wg.Go(func() {
					for {
						err := e.Write(store.WithGeneration(e.ctx, 0, now), storetest.Orders("s", 20))
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
			before, err := e.Count(e.ctx, spread.Part{SaleID: "s"}, store.Always, nil)
			if err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			after, err := e.Count(e.ctx, spread.Part{SaleID: "s"}, store.Always, nil)
			if err != nil {
				t.Fatal(err)
			}
			if before.Rows != after.Rows {
				t.Fatalf("round %d: %d rows after BeginGeneration, %d later", round, before.Rows, after.Rows)
			}
		}
	})
}

func TestLastLogReturnsReasonOfPause(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.create(t, "s", 1)
		if _, err := e.LastLog(e.ctx, "s", "sale.pause", "sale.resume"); !errors.Is(err, sale.ErrNotFound) {
			t.Fatalf("before any change: %v", err)
		}
		for i, to := range []sale.Switch{sale.Paused, sale.On, sale.Paused} {
			ctx := store.WithReason(store.WithActor(e.ctx, "audit"), fmt.Sprint("reason ", i))
			if _, err := e.SetSwitch(ctx, "s", to); err != nil {
				t.Fatal(err)
			}
		}
		last, err := e.LastLog(e.ctx, "s", "sale.pause", "sale.resume")
		if err != nil || last.Action != "sale.pause" || last.Actor != "audit" || last.Detail != "version 4: reason 2" {
			t.Fatalf("the last entry is %+v, %v", last, err)
		}
	})
}

// The first call sets the id and the number of shards.
func TestClaimDeploymentKeepsTheFirst(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		var first int64
		for _, want := range []int{4, 4, 1, 8} {
			id, have, err := e.ClaimDeployment(e.ctx, want)
			if first == 0 {
				first = id
			}
			if err != nil || have != 4 || id == 0 || id != first {
				t.Errorf("claim of %d shards after one of 4 by %x returned %x, %d, %v", want, first, id, have, err)
			}
		}
	})
}

// A database that was used before the number was recorded has one shard.
func TestClaimDeploymentOfOlderDatabase(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.begin(t)
		if _, have, err := e.ClaimDeployment(e.ctx, 4); err != nil || have != 1 {
			t.Errorf("after a rebuild without a recorded number: %d shards, %v; want 1", have, err)
		}
	})
}

// docs/deploy.md has the statement that changes the number of shards of a deployment.
func TestNumberOfShardsChangesAsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	statement := regexp.MustCompile("`([A-Z][^`]* WHERE name = 'shards')`").FindSubmatch(text)
	if statement == nil {
		t.Fatal("docs/deploy.md has no statement that changes the number of shards")
	}
	onEngines(t, func(t *testing.T, e *env) {
		if _, _, err := e.ClaimDeployment(e.ctx, 2); err != nil {
			t.Fatal(err)
		}
		e.begin(t)
		err := e.Update(e.ctx, "change the shards", func(ctx context.Context, c store.Conn) error {
			_, err := c.Exec(ctx, string(statement[1]))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, have, err := e.ClaimDeployment(e.ctx, 16); err != nil || have != 16 {
			t.Errorf("after %s: %d shards, %v; want 16", statement[1], have, err)
		}
	})
}
