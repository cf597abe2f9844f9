package sim

import (
	"flag"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/test/testenv"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "play this seed alone and print its trace")
	seedsFlag  = flag.Int("seeds", 0, "number of seeds to play; 0: a hundred of each queue, or fewer with -short")
	shrinkFlag = flag.Bool("shrink", true, "search for a shorter run that fails too")
	fromFlag   = flag.Uint64("from", 1, "the first seed")
	tardyFlag  = flag.Bool("tardy", false, "make calls arrive late in the run of every seed")
	queueFlag  = flag.String("queue", "", "where orders wait: list or stream; default: both")
)

func newBench(t *testing.T, queue string) *Bench {
	t.Helper()
	b, err := NewBench(testenv.MemoryDir(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	b.Stream, b.Tardy = queue == "stream", *tardyFlag
	return b
}

func play(t *testing.T, b *Bench, seed uint64, limit int) (r Result) {
	t.Helper()
	var err error
	synctest.Test(t, func(*testing.T) { r, err = b.Run(seed, limit) })
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// shrink searches for the smallest number of steps under faults that still fails; the trace of that run is shorter to
// read.
func shrink(t *testing.T, b *Bench, seed uint64, r Result) Result {
	t.Helper()
	limit := r.Steps
	for step := limit / 2; step > 0; {
		if limit-step > 0 {
			if shorter := play(t, b, seed, limit-step); shorter.Violation != "" && shorter.Steps < r.Steps {
				limit, r = limit-step, shorter
				continue
			}
		}
		step /= 2
	}
	return r
}

func TestSimulation(t *testing.T) {
	for _, queue := range []string{"list", "stream"} {
		if *queueFlag == "" || *queueFlag == queue {
			t.Run(queue, func(t *testing.T) { simulate(t, queue) })
		}
	}
}

func simulate(t *testing.T, queue string) {
	if *seedFlag != 0 {
		b := newBench(t, queue)
		r := play(t, b, *seedFlag, 0)
		t.Logf("\n%s", strings.Join(r.Trace, "\n"))
		if r.Violation != "" {
			t.Errorf("seed %d, %s: %s", *seedFlag, queue, r.Violation)
		}
		return
	}
	seeds := *seedsFlag
	if seeds == 0 {
		seeds = 100
		if testing.Short() {
			seeds = 6 // under the race detector a seed takes seconds; `make unit` plays the others without it
		}
	}
	start := time.Now()
	var mu sync.Mutex
	var sum Result
	var failed atomic.Bool
	shards := min(runtime.GOMAXPROCS(0), seeds)
	t.Run("seeds", func(t *testing.T) {
		for shard := range shards {
			t.Run(strconv.Itoa(shard), func(t *testing.T) {
				t.Parallel()
				r := playShard(t, queue, *fromFlag+uint64(shard), (seeds-shard+shards-1)/shards, uint64(shards), &failed)
				mu.Lock()
				defer mu.Unlock()
				sum.Add(r)
			})
		}
	})
	if t.Failed() {
		return
	}
	var text strings.Builder
	sum.Describe(&text)
	t.Logf("%d seeds in %s: %s", seeds, time.Since(start).Truncate(time.Millisecond), text.String())
	if seeds >= 100 && !*tardyFlag {
		sum.checkCoverage(t)
	}
}

// checkCoverage fails the test if the runs lack a fault or an event.
func (r *Result) checkCoverage(t *testing.T) {
	t.Helper()
	for f := before; f < gone; f++ {
		if r.Faults[f] == 0 {
			t.Errorf("no call had the fate %q", fateNames[f])
		}
	}
	for c := range calamities {
		if r.Calamities[c] == 0 {
			t.Errorf("in no run Redis %s", calamityNames[c])
		}
	}
	for event, n := range map[string]int{
		"row": r.Rows, "accepted order": r.Accepted, "dead letter": r.Dead, "freeze": r.Freezes, "shutdown": r.Stops,
		"payment": r.Payments, "sale of several shards that is sold out": r.SoldOut,
	} {
		if n == 0 {
			t.Errorf("no run has a %s", event)
		}
	}
}

// playShard runs count seeds, every step-th from the first on.
func playShard(t *testing.T, queue string, first uint64, count int, step uint64, failed *atomic.Bool) (sum Result) {
	b := newBench(t, queue)
	logged, start := time.Now(), time.Now()
	for i := range count {
		if failed.Load() { // one failure is enough
			return sum
		}
		seed := first + uint64(i)*step
		r := play(t, b, seed, 0)
		sum.Add(r)
		if r.Violation != "" {
			failed.Store(true)
			if *shrinkFlag {
				r = shrink(t, b, seed, r)
			}
			t.Fatalf("seed %d: %s\n%s\nagain: make sim SEED=%d QUEUE=%s", seed, r.Violation,
				strings.Join(r.Trace, "\n"), seed, queue)
		}
		if testing.Verbose() && time.Since(logged) > 15*time.Second {
			logged = time.Now()
			t.Logf("%d of %d seeds, %d steps, %s", i+1, count, sum.Steps, time.Since(start).Truncate(time.Second))
		}
	}
	return sum
}

// A failure can be reproduced from its seed.
func TestSameSeedSameRun(t *testing.T) {
	for _, queue := range []string{"list", "stream"} {
		t.Run(queue, func(t *testing.T) { sameSeedSameRun(t, newBench(t, queue)) })
	}
}

func sameSeedSameRun(t *testing.T, b *Bench) {
	most := uint64(8)
	if testing.Short() {
		most = 2
	}
	for seed := uint64(1); seed <= most; seed++ {
		first, second := play(t, b, seed, 0), play(t, b, seed, 0)
		if !slices.Equal(first.Trace, second.Trace) {
			for i := range first.Trace {
				if i >= len(second.Trace) || first.Trace[i] != second.Trace[i] {
					t.Fatalf("seed %d differs at line %d:\n%s\n%s", seed, i, first.Trace[i],
						strings.Join(second.Trace[min(i, len(second.Trace)-1):min(i+1, len(second.Trace))], ""))
				}
			}
			t.Fatalf("seed %d: the second run is longer than the first", seed)
		}
	}
}
