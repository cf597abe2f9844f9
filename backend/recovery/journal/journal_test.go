package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/backend/sale"
	"sluice/test/testenv"
)

// open opens a journal. Trim has no bound of time in it, because the machine may be slow.
func open(t testing.TB, dir string, cfg Config) *Journal {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	j, err := Open(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	j.trimTime = time.Hour
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func (j *Journal) ids(t testing.TB) map[sale.OrderID]int {
	t.Helper()
	ids := map[sale.OrderID]int{}
	if broken, err := j.Orders(func(o sale.Order) { ids[o.ID]++ }); err != nil || broken > 0 {
		t.Fatalf("%d broken records, %v", broken, err)
	}
	return ids
}

// rows is a set of orders that are rows.
type rows map[sale.OrderID]bool

func (r rows) Recorded(_ context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	found := map[sale.OrderID]sale.Status{}
	for _, id := range ids {
		if r[id] {
			found[id] = sale.StatusCreated
		}
	}
	return found, nil
}

// RemovedSales returns the sale "old", if it is among the sales.
func (rows) RemovedSales(_ context.Context, ids []string) ([]string, error) {
	return slices.DeleteFunc(ids, func(id string) bool { return id != "old" }), nil
}

type noRows struct{ rows }

func (noRows) Recorded(context.Context, []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	return nil, sale.ErrUnavailable
}

func TestJournalKeepsOrdersAcrossRestarts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	for _, mode := range []Sync{Always, Second} {
		t.Run(string(mode), func(t *testing.T) {
			dir := filepath.Join(dir, string(mode))
			j := open(t, dir, Config{Sync: mode})
			id := j.ID()
			if err := j.Append(entry(1, "ann"), entry(2, "bob")); err != nil {
				t.Fatal(err)
			}
			// killed: not closed, with a partial record
			f, err := os.OpenFile(j.path(j.number), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = f.WriteString("1234abcd 3 sh")
			f.Close()
			j.lock.Close()
			again := open(t, dir, Config{Sync: mode})
			if again.ID() != id {
				t.Errorf("id %s after the restart, want %s", again.ID(), id)
			}
			if err := again.Append(entry(3, "cid")); err != nil {
				t.Fatal(err)
			}
			found := map[sale.OrderID]string{}
			broken, err := again.Orders(func(o sale.Order) { found[o.ID] = o.Buyer })
			if err != nil || broken != 1 || len(found) != 3 || found[2] != "bob" || found[3] != "cid" {
				t.Errorf("orders %v, %d broken records, %v", found, broken, err)
			}
		})
	}
}

// A file system without locks, such as some network file systems, is not a directory in use.
func TestDirectoryThatCannotBeLocked(t *testing.T) {
	defer func() { flock = syscall.Flock }()
	flock = func(int, int) error { return syscall.ENOLCK }
	_, err := Open(t.TempDir(), Config{})
	if !errors.Is(err, syscall.ENOLCK) || strings.Contains(err.Error(), "in use") {
		t.Errorf("a directory that cannot be locked: %v", err)
	}
}

func TestJournalIsLocked(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, Config{})
	if _, err := Open(dir, Config{}); err == nil {
		t.Fatal("Open of a journal in use succeeded")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir, Config{})
	if err := first.Append(entry(1, "ann")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Append to a closed journal: %v", err)
	}
	if _, err := Open(t.TempDir(), Config{Sync: "sometimes"}); err == nil {
		t.Error("Open with an unknown Sync succeeded")
	}
}

func TestTrimDropsRows(t *testing.T) {
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
		t.Fatalf("without a database %d of 100 orders remain", len(left))
	}
	for i := int64(1); i <= 100; i++ {
		written[sale.OrderID(i)] = i%10 != 0 // every tenth is queued
	}
	if err := j.Trim(t.Context(), written); err != nil {
		t.Fatal(err)
	}
	left := j.ids(t)
	for i := int64(10); i <= 100; i += 10 {
		if left[sale.OrderID(i)] == 0 {
			t.Errorf("order %d is not a row, and was dropped", i)
		}
	}
	if len(left) > 20 {
		t.Errorf("%d orders remain, and 10 are queued", len(left))
	}
	for range 3 { // segments with copied stragglers are dropped when the stragglers are rows
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
		t.Errorf("all orders are rows, and %v remain", left)
	}
	if all, _ := j.segments(); len(all) > 2 {
		t.Errorf("%d segments remain", len(all))
	}
}

// A segment with many queued orders is not copied.
func TestTrimKeepsASegmentWithManyQueuedOrders(t *testing.T) {
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
		t.Errorf("%d segments, want %d", len(after), len(before))
	}
}

// A segment with more orders than one query: queued orders of each part are kept.
func TestTrimReadsALargeSegmentInParts(t *testing.T) {
	const orders = 2*rowsPerQuery + 100
	for name, queued := range map[string][]int64{
		"few queued": {1, rowsPerQuery, rowsPerQuery + 1, orders}, "none queued": nil,
	} {
		j := open(t, t.TempDir(), Config{Segment: 1}) // one per Append
		if err := j.Append(entries(1, orders)...); err != nil {
			t.Fatal(err)
		}
		if err := j.Append(entry(orders+1, "ann")); err != nil { // to the next segment
			t.Fatal(err)
		}
		written := rows{}
		for i := range int64(orders) {
			written[sale.OrderID(i+1)] = !slices.Contains(queued, i+1)
		}
		if err := j.Trim(t.Context(), written); err != nil {
			t.Fatal(err)
		}
		left := j.ids(t)
		if len(left) != len(queued)+1 {
			t.Errorf("%s: %d orders remain, want %d", name, len(left), len(queued)+1)
		}
		for _, id := range queued {
			if left[sale.OrderID(id)] != 1 {
				t.Errorf("%s: order %d remains %d times", name, id, left[sale.OrderID(id)])
			}
		}
	}
}

// Segments with many queued orders do not keep later ones.
func TestTrimDeletesSegmentsBehindThoseWithManyQueuedOrders(t *testing.T) {
	j := open(t, t.TempDir(), Config{Segment: 1}) // one per Append
	queued := (maxKept + 1) * (maxStragglers + 1)
	for from := 1; from < queued; from += maxStragglers + 1 {
		if err := j.Append(entries(from, maxStragglers+1)...); err != nil {
			t.Fatal(err)
		}
	}
	written := rows{}
	for i := 1; i <= 10; i++ {
		o := entry(int64(queued+i), "ann")
		written[o.ID] = true
		if err := j.Append(o); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := j.Trim(t.Context(), written); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := j.segments(); err != nil || len(left) != maxKept+2 || len(j.ids(t)) != queued+1 {
		t.Errorf("segments %v with %d orders, %v; want those of %d queued orders and the current one",
			left, len(j.ids(t)), err, queued)
	}
	for i := range queued {
		written[sale.OrderID(i+1)] = true
	}
	if err := j.Trim(t.Context(), written); err != nil {
		t.Fatal(err)
	}
	if left, err := j.segments(); err != nil || len(left) != 1 {
		t.Errorf("all orders are rows, and segments %v remain, %v", left, err)
	}
}

// Orders of a removed sale, which are not rows any more, do not keep a segment.
func TestTrimDropsOrdersOfRemovedSales(t *testing.T) {
	j := open(t, t.TempDir(), Config{Segment: 400})
	for i := int64(1); i <= 4*maxStragglers; i++ {
		o := entry(i, "buyer")
		if o.SaleID = "old"; i == 10 {
			o.SaleID = "new"
		}
		if err := j.Append(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Trim(t.Context(), rows{}); err != nil {
		t.Fatal(err)
	}
	if left := j.ids(t); left[10] != 1 || len(left) > 20 { // and those of the current segment
		t.Errorf("%d orders remain, order 10 %d times", len(left), left[10])
	}
}

// At the end of its time, Trim completes the segment that it has begun. The next Trim continues there.
func TestTrimContinuesAfterTheEndOfItsTime(t *testing.T) {
	j := open(t, t.TempDir(), Config{Segment: 1}) // one per Append
	j.trimTime = 0
	written := rows{}
	for _, o := range entries(1, 5) {
		written[o.ID] = true
		if err := j.Append(o); err != nil {
			t.Fatal(err)
		}
	}
	for want := 4; want >= 1; want-- {
		if err := j.Trim(t.Context(), written); err != nil {
			t.Fatal(err)
		}
		if left, err := j.segments(); err != nil || len(left) != want {
			t.Fatalf("segments %v remain, %v; want %d", left, err, want)
		}
	}
}

// A segment that cannot be read hides no other.
func TestUnreadableSegment(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "000000000000"+suffix), 0o700); err != nil {
		t.Fatal(err)
	}
	j := open(t, dir, Config{Segment: 100})
	for i := int64(1); i <= 20; i++ {
		if err := j.Append(entry(i, "buyer")); err != nil {
			t.Fatal(err)
		}
	}
	found := 0
	if _, err := j.Orders(func(sale.Order) { found++ }); err == nil || found != 20 {
		t.Errorf("%d of 20 orders, error %v", found, err)
	}
	written := rows{}
	for i := int64(1); i <= 20; i++ {
		written[sale.OrderID(i)] = true
	}
	if err := j.Trim(t.Context(), written); err == nil {
		t.Error("Trim does not report the segment")
	}
	if left, _ := j.segments(); len(left) != 2 {
		t.Errorf("segments %v, want the unreadable one and the current one", left)
	}
}

// failSyncs makes fsync fail until restore is called. Writes go to a pipe meanwhile, which cannot be synced.
func (j *Journal) failSyncs(t *testing.T) (restore func()) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	disk := j.file
	j.file = w
	return func() { j.file = disk }
}

// A write fails if a loss of power could remove the segment that has it.
func TestWriteFailsIfTheDirectoryIsNotSynced(t *testing.T) {
	for _, mode := range []Sync{Always, Second} {
		j := open(t, t.TempDir(), Config{Sync: mode, Segment: 1}) // one per Append
		if err := j.Append(entry(1, "ann")); err != nil {
			t.Fatal(err)
		}
		root := j.root
		j.root = nil // its Sync returns os.ErrInvalid
		for range 2 {
			if err := j.Append(entry(2, "ann")); err == nil {
				t.Errorf("%s: Append reports success", mode)
			}
		}
		if segments, err := j.segments(); err != nil || !slices.Equal(segments, []int64{1}) {
			t.Errorf("%s: segments %v, %v; want the first", mode, segments, err)
		}
		j.root = root
		if err := j.Append(entry(3, "ann")); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if got := j.ids(t); len(got) != 2 || got[1] != 1 || got[3] != 1 {
			t.Errorf("%s: orders %v, want 1 and 3", mode, got)
		}
	}
}

// A file system that cannot sync directories is accepted, for the directory of the journal and for its parents. Open
// returns any other error of the directory of the journal, because segments may not survive a loss of power.
func TestFileSystemThatCannotSyncDirectories(t *testing.T) {
	fsync := fsyncDir
	defer func() { fsyncDir = fsync }()
	for _, c := range []struct {
		err                 error
		ofJournal, ofParent bool // accepted
	}{
		{syscall.EINVAL, true, true},
		{syscall.ENOTSUP, true, true},
		{syscall.EROFS, false, true},
		{syscall.EACCES, false, true},
		{syscall.EIO, false, false},
	} {
		for _, ofJournal := range []bool{true, false} {
			dir, want := filepath.Join(t.TempDir(), "journal"), c.ofParent
			if ofJournal {
				want = c.ofJournal
			}
			fsyncDir = func(d *os.File) error {
				if (d.Name() == dir) == ofJournal {
					return &fs.PathError{Op: "sync", Path: d.Name(), Err: c.err}
				}
				return fsync(d)
			}
			j, err := Open(dir, Config{})
			if (err == nil) != want || err != nil && !errors.Is(err, c.err) {
				t.Errorf("%v, of the journal: %v: got error %v, accepted: %v", c.err, ofJournal, err, want)
			}
			if err == nil {
				j.Close()
			}
		}
	}
}

// A loss of power after an Append cannot remove the directory of a new journal: the directories that have its name and
// those of its parents are on disk before the journal has an id. A failure is repeated by the next Open.
func TestNewDirectoryIsOnDisk(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "a", "b")
	fsync := fsyncDir
	defer func() { fsyncDir = fsync }()
	failure := errors.New("no disk")
	var synced []string
	fsyncDir = func(*os.File) error { return failure }
	if _, err := Open(dir, Config{}); !errors.Is(err, failure) {
		t.Errorf("Open without a disk: %v", err)
	}
	fsyncDir = func(d *os.File) error {
		synced = append(synced, d.Name())
		if len(synced) == 3 {
			return fs.ErrPermission // of a directory above
		}
		return fsync(d)
	}
	id := open(t, dir, Config{}).ID()
	if want := []string{filepath.Join(top, "a"), top}; len(synced) < 3 || !slices.Equal(synced[:2], want) {
		t.Errorf("synced %q, want %q first", synced, want)
	}
	if id == "" {
		t.Error("the journal has no id")
	}
}

// Linux reports a failed fsync once, and drops the data. The writes until then never count as synced; later ones do.
func TestWritesBeforeAFailedFsyncNeverCountAsSynced(t *testing.T) {
	for name, fail := range map[string]func(t *testing.T, j *Journal, restore func()){
		"in a flush": func(t *testing.T, j *Journal, restore func()) {
			if err := j.flush(); err == nil {
				t.Error("flush reports success")
			}
			restore()
		},
		"when a segment is full": func(t *testing.T, j *Journal, _ func()) {
			j.size = j.cfg.Segment
			if err := j.Append(entry(2, "ann")); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := open(t, t.TempDir(), Config{})
			restore := j.failSyncs(t)
			turn, err := j.write(appendRecord(nil, entry(1, "ann")))
			if err != nil {
				t.Fatal(err)
			}
			fail(t, j, restore)
			for range 2 {
				if err := j.Append(entry(3, "ann")); err != nil {
					t.Fatal(err)
				}
				if err := j.flush(); err != nil {
					t.Errorf("a later write: %v", err)
				}
				if err := j.sync(turn); !errors.Is(err, errLost) {
					t.Errorf("the earlier write: %v, want %v", err, errLost)
				}
			}
		})
	}
}

// A record that a failed fsync may have left incomplete does not affect the next one.
func TestRecordAfterAFailedFsync(t *testing.T) {
	j := open(t, t.TempDir(), Config{})
	if err := j.Append(entry(1, "ann")); err != nil {
		t.Fatal(err)
	}
	restore := j.failSyncs(t)
	if err := j.flush(); err == nil {
		t.Error("flush reports success")
	}
	restore()
	if err := j.Append(entry(2, "bob")); err != nil {
		t.Fatal(err)
	}
	if got := j.ids(t); len(got) != 2 {
		t.Errorf("orders %v", got)
	}
	text, err := os.ReadFile(j.path(j.number))
	if err != nil {
		t.Fatal(err)
	}
	end := bytes.IndexByte(text, '\n')
	clear(text[:end+1]) // the disk lacks the first record, which ends a page
	if orders, _ := readAll(t, text); len(orders) != 1 || orders[0].ID != 2 {
		t.Errorf("orders %v, want the second", orders)
	}
}

// afterWrite calls then once, when Append has written and logs that writes succeed again.
type afterWrite struct {
	slog.Handler
	then func()
}

func (h *afterWrite) Enabled(context.Context, slog.Level) bool { return true }

func (h *afterWrite) Handle(context.Context, slog.Record) error {
	if then := h.then; then != nil {
		h.then = nil
		then()
	}
	return nil
}

// If the fsync of copied orders fails, their segment stays, also if a later write is synced before Trim waits.
func TestTrimKeepsASegmentWhoseCopyIsLost(t *testing.T) {
	hook := &afterWrite{Handler: slog.DiscardHandler}
	j := open(t, t.TempDir(), Config{Segment: 1}) // one per Append
	for i := range 2 {
		if err := j.Append(entry(int64(i+1), "ann")); err != nil {
			t.Fatal(err)
		}
	}
	j.cfg.Segment, j.cfg.Log = 1<<20, slog.New(hook)
	j.failed.Store(true)
	hook.then = func() {
		restore := j.failSyncs(t)
		if err := j.flush(); err == nil {
			t.Error("flush reports success")
		}
		restore()
		if _, err := j.write(appendRecord(nil, entry(3, "ann"))); err != nil {
			t.Error(err)
		}
	}
	if err := j.Trim(t.Context(), rows{}); !errors.Is(err, errLost) {
		t.Errorf("Trim: %v, want %v", err, errLost)
	}
	if left, err := j.segments(); err != nil || len(left) == 0 || left[0] != 1 {
		t.Errorf("segments %v, %v; want the first one to stay", left, err)
	}
}

// After a failed fsync a flush fails, and a flush waits for an fsync in progress.
func TestFlushReturnsWhenAllWritesAreOnDisk(t *testing.T) {
	j := open(t, t.TempDir(), Config{})
	restore := j.failSyncs(t)
	if err := j.Append(entry(1, "ann")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := j.flush(); err == nil {
			t.Error("flush reports success, and no write is on disk")
		}
	}
	restore()
	if err := j.Append(entry(2, "ann")); err != nil {
		t.Fatal(err)
	}
	j.syncing.Lock() // as sync does in another goroutine
	flushed := make(chan error)
	go func() { flushed <- j.flush() }()
	select {
	case err := <-flushed:
		t.Errorf("flush returned during an fsync: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	j.syncing.Unlock()
	if err := <-flushed; err != nil || j.synced != j.written {
		t.Errorf("%v, %d of %d writes are synced", err, j.synced, j.written)
	}
}

// With Always an order is on disk when Append returns. Concurrent calls share an fsync.
func TestAlwaysSharesFsyncs(t *testing.T) {
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
				unsynced := j.synced == 0
				j.mu.Unlock()
				j.syncing.Unlock()
				if unsynced {
					t.Error("Append returned before the first sync")
				}
			}
		})
	}
	wg.Wait()
	if got := j.ids(t); len(got) != 400 {
		t.Errorf("%d of 400 orders", len(got))
	}
	if j.written != j.synced {
		t.Errorf("%d writes, %d synced", j.written, j.synced)
	}
}

func TestRunSyncsAtTheEnd(t *testing.T) {
	j := open(t, t.TempDir(), Config{})
	stop := testenv.Run(t, j.Run)
	if err := j.Append(entry(1, "ann")); err != nil {
		t.Fatal(err)
	}
	stop()
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

// The id names a journal in SQL. Two journals without one would be the same journal there.
func TestIDIsNeverEmpty(t *testing.T) {
	for _, content := range []string{"", "\n", " \n"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, idFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		first := open(t, dir, Config{})
		id := first.ID()
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if again := open(t, dir, Config{}).ID(); id == "" || again != id {
			t.Errorf("an id file with %q: id %q, then %q", content, id, again)
		}
	}
}

// A write to a disk that does not respond holds mu. Failing is read by a scrape of metrics, which must not wait for it.
func TestFailingDoesNotWaitForAWrite(t *testing.T) {
	j := open(t, t.TempDir(), Config{})
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.Failing() {
		t.Error("a new journal is failing")
	}
}
