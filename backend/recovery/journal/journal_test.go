package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"sluice/backend/sale"
)

func open(t testing.TB, dir string, cfg Config) *Journal {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	j, err := Open(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func (j *Journal) ids(t testing.TB) map[sale.OrderID]int {
	t.Helper()
	ids := map[sale.OrderID]int{}
	if broken, err := j.Orders(func(o sale.Order) { ids[o.ID]++ }); err != nil || broken > 0 {
		t.Fatalf("%d broken, %v", broken, err)
	}
	return ids
}

// rows is a database that has the orders it was told.
type rows map[sale.OrderID]bool

func (r rows) Statuses(_ context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	found := map[sale.OrderID]sale.Status{}
	for _, id := range ids {
		if r[id] {
			found[id] = sale.StatusCreated
		}
	}
	return found, nil
}

type noRows struct{}

func (noRows) Statuses(context.Context, []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	return nil, sale.ErrUnavailable
}

func TestJournalKeepsOrdersOverRestarts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	for _, mode := range []Sync{Always, Second} {
		t.Run(string(mode), func(t *testing.T) {
			dir := filepath.Join(dir, string(mode))
			j := open(t, dir, Config{Sync: mode})
			id := j.ID()
			if err := j.Append(entry(1, "ann"), entry(2, "bob")); err != nil {
				t.Fatal(err)
			}
			if err := j.SetRestored(7); err != nil {
				t.Fatal(err)
			}
			// killed: not closed, and half a line at its end
			f, err := os.OpenFile(j.path(j.number), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = f.WriteString("1234abcd 3 sh")
			f.Close()
			j.lock.Close()
			again := open(t, dir, Config{Sync: mode})
			if again.ID() != id || again.Restored() != 7 {
				t.Errorf("it is %s now, adopted %d; was %s", again.ID(), again.Restored(), id)
			}
			if err := again.Append(entry(3, "cid")); err != nil {
				t.Fatal(err)
			}
			found := map[sale.OrderID]string{}
			broken, err := again.Orders(func(o sale.Order) { found[o.ID] = o.Buyer })
			if err != nil || broken != 1 || len(found) != 3 || found[2] != "bob" || found[3] != "cid" {
				t.Errorf("%v, %d broken, %v", found, broken, err)
			}
		})
	}
}

func TestJournalBelongsToOneProcess(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, Config{})
	if _, err := Open(dir, Config{}); err == nil {
		t.Fatal("two have it")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir, Config{})
	if err := first.Append(entry(1, "ann")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed journal writes: %v", err)
	}
	if _, err := Open(t.TempDir(), Config{Sync: "sometimes"}); err == nil {
		t.Error("a way to sync that there is not")
	}
}

func TestTrimDropsWhatIsARow(t *testing.T) {
	j := open(t, t.TempDir(), Config{Segment: 400})
	written := rows{}
	for i := int64(1); i <= 100; i++ {
		if err := j.Append(entry(i, "buyer")); err != nil {
			t.Fatal(err)
		}
	}
	all, _ := j.segments()
	if len(all) < 5 {
		t.Fatalf("%d segments", len(all))
	}
	if err := j.Trim(t.Context(), noRows{}); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("without a database: %v", err)
	}
	if left := j.ids(t); len(left) != 100 {
		t.Fatalf("without a database %d of 100 are left", len(left))
	}
	for i := int64(1); i <= 100; i++ {
		written[sale.OrderID(i)] = i%10 != 0 // every tenth waits
	}
	if err := j.Trim(t.Context(), written); err != nil {
		t.Fatal(err)
	}
	left := j.ids(t)
	for i := int64(10); i <= 100; i += 10 {
		if left[sale.OrderID(i)] == 0 {
			t.Errorf("order %d is no row, and gone", i)
		}
	}
	if len(left) > 20 {
		t.Errorf("%d orders are left, and 10 wait", len(left))
	}
	for range 3 { // the segments into which stragglers were written are dropped too, once the stragglers are rows
		for i := int64(10); i <= 100; i += 10 {
			written[sale.OrderID(i)] = true
		}
		j.mu.Lock()
		j.opened = time.Now().Add(-maxSegmentAge * 2)
		j.mu.Unlock()
		if err := j.Trim(t.Context(), written); err != nil {
			t.Fatal(err)
		}
	}
	if left := j.ids(t); len(left) > 0 {
		t.Errorf("all are rows, and %v are left", left)
	}
	if all, _ := j.segments(); len(all) > 2 {
		t.Errorf("%d segments are left", len(all))
	}
}

// A segment most of whose orders wait is not copied around: it stays as it is.
func TestTrimLeavesASegmentThatIsWaitedFor(t *testing.T) {
	j := open(t, t.TempDir(), Config{Segment: 100_000})
	for i := int64(1); i <= 3*maxStragglers; i++ {
		if err := j.Append(entry(i, "buyer")); err != nil {
			t.Fatal(err)
		}
	}
	before, _ := j.segments()
	if err := j.Trim(t.Context(), rows{}); err != nil {
		t.Fatal(err)
	}
	after, _ := j.segments()
	if len(before) != len(after) || len(j.ids(t)) != 3*maxStragglers {
		t.Errorf("%d segments, were %d", len(after), len(before))
	}
}

// With Always an order is on disk when Append returns; those who wait at the same time share the disk's time.
func TestAlwaysSharesSyncs(t *testing.T) {
	j := open(t, t.TempDir(), Config{Sync: Always, Segment: 2000})
	var wg sync.WaitGroup
	for w := range int64(8) {
		wg.Go(func() {
			for i := range int64(50) {
				if err := j.Append(entry(1+w*1000+i, fmt.Sprint("b", w))); err != nil {
					t.Error(err)
				}
				j.syncing.Lock()
				j.mu.Lock()
				behind := j.synced == 0
				j.mu.Unlock()
				j.syncing.Unlock()
				if behind {
					t.Error("nothing is synced")
				}
			}
		})
	}
	wg.Wait()
	if got := j.ids(t); len(got) != 400 {
		t.Errorf("%d of 400", len(got))
	}
	if j.written != j.synced {
		t.Errorf("%d writes, %d synced", j.written, j.synced)
	}
}

func TestRunSyncsAndEnds(t *testing.T) {
	j := open(t, t.TempDir(), Config{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	if err := j.Append(entry(1, "ann")); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if j.synced != j.written {
		t.Errorf("ended with %d of %d writes synced", j.synced, j.written)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, mode := range []Sync{Second, Always} {
		for _, group := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s-%d", mode, group), func(b *testing.B) {
				j := open(b, b.TempDir(), Config{Sync: mode})
				orders := make([]sale.Order, group)
				for i := range orders {
					orders[i] = entry(int64(i+1)<<32, "buyer-00000001")
				}
				for b.Loop() {
					if err := j.Append(orders...); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N*group)/b.Elapsed().Seconds(), "orders/s")
			})
		}
	}
}
