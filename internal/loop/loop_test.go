package loop

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var quiet = slog.New(slog.DiscardHandler)

func TestWorkContinuesAfterAStopForTheDrainTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		work, stop := Outlive(ctx, time.Minute)
		defer stop()
		cancel()
		begin := time.Now()
		<-work.Done()
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("work ended after %s, want a minute", took)
		}
	})
}

// An error caused by the end of a context does not begin a series of failures: the next failure is logged, and no
// recovery is.
func TestEndOfTheContextIsNotAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		retry := Backoff{Log: slog.New(slog.NewTextHandler(&log, nil)), What: "x"}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		retry.Failed(ended, ended.Err())
		retry.Succeeded()
		if log.Len() > 0 {
			t.Errorf("logged after the end: %s", &log)
		}
		retry.Failed(ended, ended.Err())
		for range 3 {
			retry.Failed(t.Context(), errors.New("down"))
		}
		retry.Succeeded()
		if got := log.String(); strings.Count(got, "x fails; retrying") != 1 || strings.Count(got, "x works again") != 1 {
			t.Errorf("want one failure and one recovery: %s", got)
		}
	})
}

func TestRetryEndsWithSuccessOrTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		if !Retry(t.Context(), quiet, "x", func() error {
			if calls++; calls < 4 {
				return errors.New("down")
			}
			return nil
		}) || calls != 4 {
			t.Errorf("%d calls, want 4", calls)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		calls = 0
		if Retry(ctx, quiet, "x", func() error { calls++; return errors.New("down") }) {
			t.Error("it succeeded")
		}
		if calls < 30 || calls > 70 { // about one each 1.5 s
			t.Errorf("%d calls in a minute", calls)
		}
	})
}

// A result is written at least once, also after the end of work, and no longer than limit.
func TestRecordWritesAtLeastOnceAndWithinItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for name, c := range map[string]struct {
			work context.Context
			fail error
			once bool
		}{
			"success":           {t.Context(), nil, true},
			"after the end":     {ended, nil, true},
			"fails after it":    {ended, errors.New("down"), true},
			"fails for a while": {t.Context(), errors.New("down"), false},
		} {
			var log strings.Builder
			calls, begin := 0, time.Now()
			Record(c.work, time.Minute, slog.New(slog.NewTextHandler(&log, nil)), "x", func(ctx context.Context) error {
				calls++
				return errors.Join(ctx.Err(), c.fail)
			})
			givenUp := strings.Contains(log.String(), "x is given up")
			if givenUp != (c.fail != nil) || c.once != (calls == 1) || time.Since(begin) > time.Minute+maxWait {
				t.Errorf("%s: given up %v after %d calls and %s", name, givenUp, calls, time.Since(begin))
			}
		}
	})
}

// Each leased task is recorded once, at most Size run concurrently, and a hanging task delays no other.
func TestPoolRunsAndRecordsEachTaskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, tasks = 4, 100
		var running atomic.Int64
		next, recorded := 0, map[int]int{}
		hang := make(chan struct{})
		Pool[int]{
			Size: size, Poll: time.Second, Wake: NewWake(),
			Lease: func(free int) (leased []func() int) {
				for ; len(leased) < free && next < tasks; next++ {
					n := next
					leased = append(leased, func() int {
						defer running.Add(-1)
						if now := running.Add(1); now > size {
							t.Errorf("%d tasks run, want at most %d", now, size)
						}
						if n == 0 {
							<-hang
						}
						return n
					})
				}
				return leased
			},
			Record: func(results []int) {
				for _, n := range results {
					recorded[n]++
				}
				if len(recorded) == tasks-1 { // all but the first
					close(hang)
				}
			},
		}.Run(t.Context())
		if len(recorded) != tasks {
			t.Errorf("%d tasks were recorded, want %d", len(recorded), tasks)
		}
		for n, times := range recorded {
			if times != 1 {
				t.Errorf("task %d was recorded %d times", n, times)
			}
		}
	})
}

// A stop ends leasing. Running tasks continue, and their results are recorded.
func TestPoolRecordsRunningTasksAfterAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		leases, recorded := 0, 0
		Pool[int]{
			Size: 3, Poll: time.Second,
			Lease: func(int) []func() int {
				leases++
				return []func() int{func() int { cancel(); <-time.After(time.Minute); return 1 }}
			},
			Record: func(results []int) { recorded += len(results) },
		}.Run(ctx)
		if leases != 1 || recorded != 1 {
			t.Errorf("%d leases and %d results, want 1 of each", leases, recorded)
		}
	})
}

// While tasks run, a wake-up and the end of Poll cause a lease for the free capacity.
func TestPoolLeasesMoreWhileTasksRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, wake := time.Now(), NewWake()
		var at []time.Duration
		Pool[int]{
			Size: 2, Poll: time.Minute, Wake: wake,
			Lease: func(int) []func() int {
				if at = append(at, time.Since(begin)); len(at) > 1 {
					return nil
				}
				return []func() int{func() int {
					<-time.After(time.Second)
					wake.Up()
					<-time.After(90 * time.Second)
					return 1
				}}
			},
			Record: func([]int) {},
		}.Run(t.Context())
		// at first, at the wake-up, a minute later, and when the task ends
		want := []time.Duration{0, time.Second, 61 * time.Second, 91 * time.Second}
		if !slices.Equal(at, want) {
			t.Errorf("leases after %v, want %v", at, want)
		}
	})
}
