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

// onASmallDisk plays a test in a process of its own, in which no file grows beyond size until room is called.
func onASmallDisk(t *testing.T, size uint64, play func(dir string, room func())) {
	const folder = "SLUICE_TEST_SMALL_DISK"
	dir := os.Getenv(folder)
	if dir == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), folder+"="+t.TempDir())
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
	play(dir, func() { limit(all.Cur) })
}

func crowd(from, n int) []sale.Order {
	orders := make([]sale.Order, n)
	for i := range orders {
		orders[i] = entry(int64(from+i), "ann")
	}
	return orders
}

// A disk that is full costs the journal and nobody else, however often it is tried: it has what it said it has, nothing
// of what it did not, and no more files. When there is room again, it goes on.
func TestFullDiskIsToldAndSurvived(t *testing.T) {
	onASmallDisk(t, 20_000, func(dir string, room func()) {
		j := open(t, dir, Config{Sync: Always})
		said := map[sale.OrderID]bool{}
		write := func(orders []sale.Order) error {
			err := j.Append(orders...)
			for _, o := range orders {
				if err == nil {
					said[o.ID] = true
				}
			}
			return err
		}
		failed := 0
		for from := 1; failed < 50; from += 7 { // several at once, so that a write ends half way
			if write(crowd(from, 7)) != nil {
				failed++
			}
		}
		room()
		if err := write(crowd(1_000_000, 1)); err != nil {
			t.Errorf("with room again: %v", err)
		}
		got := j.ids(t)
		if len(got) != len(said) || len(said) < 100 {
			t.Errorf("it has %d orders, and said that it has %d", len(got), len(said))
		}
		for id := range said {
			if got[id] != 1 {
				t.Errorf("it has order %s %d times", id, got[id])
			}
		}
		if segments, err := j.segments(); err != nil || len(segments) != 1 {
			t.Errorf("after %d failures there are %d files, %v", failed, len(segments), err)
		}
	})
}

// Where half a write could not be taken back, the next one begins a new file: behind a torn record it could not be
// read.
func TestHalfAWriteThatStaysIsLeftBehind(t *testing.T) {
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
	if broken, err := j.Orders(func(o sale.Order) { found[o.ID] = true }); err != nil || broken != 1 || !found[1] || j.number != 2 {
		t.Errorf("%v and %d broken in %d segments, %v", found, broken, j.number, err)
	}
}
