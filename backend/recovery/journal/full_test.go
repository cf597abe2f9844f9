package journal

import (
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"sluice/backend/sale"
)

// onASmallDisk runs a test in another process, in which files cannot grow beyond size until room is called.
func onASmallDisk(t *testing.T, size uint64, test func(dir string, room func())) {
	const env = "SLUICE_TEST_SMALL_DISK"
	dir := os.Getenv(env)
	if dir == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), env+"="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	var all syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &all); err != nil {
		t.Fatal(err)
	}
	limit := func(n uint64) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: all.Max}); err != nil {
			t.Fatal(err)
		}
	}
	limit(size)
	test(dir, func() { limit(all.Cur) })
}

func entries(from, n int) []sale.Order {
	orders := make([]sale.Order, n)
	for i := range orders {
		orders[i] = entry(int64(from+i), "ann")
	}
	return orders
}

// On a full disk, the journal has exactly the orders of successful appends, and no further segments. Append succeeds
// again when there is space.
func TestAppendOnAFullDisk(t *testing.T) {
	onASmallDisk(t, 20_000, func(dir string, room func()) {
		j := open(t, dir, Config{Sync: Always})
		appended := map[sale.OrderID]bool{}
		write := func(orders []sale.Order) error {
			err := j.Append(orders...)
			for _, o := range orders {
				if err == nil {
					appended[o.ID] = true
				}
			}
			return err
		}
		failed := 0
		for from := 1; failed < 50; from += 7 { // several orders, so that a write ends within a record
			if write(entries(from, 7)) != nil {
				failed++
			}
		}
		if !j.Failing() {
			t.Error("the journal is not failing")
		}
		room()
		if err := write(entries(1_000_000, 1)); err != nil || j.Failing() {
			t.Errorf("with free space: %v, failing: %v", err, j.Failing())
		}
		got := j.ids(t)
		if len(got) != len(appended) || len(appended) < 100 {
			t.Errorf("the journal has %d orders, want %d", len(got), len(appended))
		}
		for id := range appended {
			if got[id] != 1 {
				t.Errorf("the journal has order %s %d times", id, got[id])
			}
		}
		if segments, err := j.segments(); err != nil || len(segments) != 1 {
			t.Errorf("%d failures made %d segments, %v", failed, len(segments), err)
		}
	})
}

// After a partial write that could not be truncated, the next write starts a new segment.
func TestPartialWriteStartsANewSegment(t *testing.T) {
	j := open(t, t.TempDir(), Config{})
	j.mu.Lock()
	_, err := j.file.WriteString("0000")
	j.torn = true
	j.mu.Unlock()
	if err == nil {
		err = j.Append(entry(1, "ann"))
	}
	if err != nil {
		t.Fatal(err)
	}
	found := map[sale.OrderID]bool{}
	if broken, err := j.Orders(func(o sale.Order) { found[o.ID] = true }); err != nil || broken != 1 || !found[1] ||
		j.number != 2 {
		t.Errorf("orders %v and %d broken records in %d segments, %v", found, broken, j.number, err)
	}
}
