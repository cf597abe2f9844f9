package limit_test

import (
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"

	"sluice/gateway/limit"
	"sluice/test/edgetest"
)

// Random traces under several random rules, with clocks that jump and evictions: every verdict equals that of the
// model, to the microsecond.
func TestVerdictsMatchTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "rules")
		table, names := limit.NewTable(rapid.SampledFrom([]int{0, 64}).Draw(t, "capacity")), limit.NewNamer()
		rules, rates, buckets := make([]*limit.Rule, n), make([]*big.Rat, n), make([][3]edgetest.Bucket, n)
		for i := range rules {
			count := rapid.OneOf(rapid.Int64Range(1, 50), rapid.Int64Range(1, 1_000_000),
				rapid.SampledFrom([]int64{1, 10, 1000, 20_000})).
				Draw(t, "count")
			period := rapid.SampledFrom([]int64{1e6, 60e6, 3600e6, 7e6, 1e9}).Draw(t, "period")
			burst := rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(0, 1000)).Draw(t, "burst")
			rules[i] = limit.NewRule(
				limit.Rule{
					Count:  count,
					Period: period,
					Burst:  burst,
					Delay:  rapid.Bool().Draw(t, "delay"),
					Shadow: rapid.IntRange(0, 3).Draw(t, "shadow") == 0,
				},
			)
			rates[i] = big.NewRat(count, period)
		}
		now, latest := limit.Instant(1_700_000_000_000), limit.Instant(0)
		for step := range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += limit.Instant(
				rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 60), rapid.Int64Range(0, 400_000),
					rapid.Int64Range(0, 100_000_000)).
					Draw(t, "dt"),
			)
			late := now - limit.Instant(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 500_000)).Draw(t, "late"))
			latest = max(latest, late)
			var checks []limit.Check
			var keys, which []int
			for i, r := range rules {
				if n == 1 || rapid.Bool().Draw(t, "checked") {
					key := rapid.IntRange(0, 2).Draw(t, "key")
					checks, keys, which = append(checks, limit.Check{Rule: r, Key: names.Text(fmt.Sprint(key))}), append(keys,
						key), append(
						which,
						i,
					)
				}
			}
			// The model has one clock, the table one for each shard. Peeking at all keys synchronizes them.
			for key := range 3 {
				table.Peek(late, []limit.Check{{Rule: rules[0], Key: names.Text(fmt.Sprint(key))}})
			}
			want, excess, over := -1, make([]*big.Rat, len(checks)), make([]bool, len(checks))
			for j, i := range which {
				e, ok := buckets[i][keys[j]].Excess(rates[i], int64(rules[i].Burst), int64(latest))
				excess[j], over[j] = e, !ok
				if !ok && !rules[i].Shadow {
					want = j
					break
				}
			}
			if got := table.Take(late, checks); got != want {
				t.Fatalf("step %d: refused by %d, model %d", step, got, want)
			}
			for j, i := range which {
				v, e, rate, burst := checks[j].Verdict, excess[j], rates[i], int64(rules[i].Burst)
				if v.Over != over[j] {
					t.Fatalf("step %d: over %v, model %v", step, v.Over, over[j])
				}
				if over[j] {
					if wait := edgetest.Ceil(edgetest.Wait(e, rate, burst)); v.Wait.Microseconds() != wait {
						t.Fatalf("step %d: wait %v, model %d us", step, v.Wait, wait)
					}
				} else {
					left, next, delay := edgetest.Remaining(e, burst), edgetest.Ceil(edgetest.Next(e, rate, burst)), int64(0)
					if rules[i].Delay {
						delay = edgetest.Ceil(edgetest.Delay(e, rate))
					}
					if int64(v.Remaining) != left || v.Next.Microseconds() != next || v.Wait.Microseconds() != delay {
						t.Fatalf("step %d: %+v, model: %d remaining, next in %d us, delay %d us", step, v, left, next, delay)
					}
				}
				if j == want {
					break
				}
			}
			for j, i := range which {
				if want < 0 && !over[j] {
					buckets[i][keys[j]].Store(excess[j], int64(latest))
				}
			}
			if rapid.IntRange(0, 20).Draw(t, "evict") == 0 {
				table.Evict(late)
			}
		}
	})
}

// Rates and times are whole numbers of milliseconds, for which golang.org/x/time/rate is exact.
func TestVerdictsMatchTheStandardLimiter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count, burst := rapid.Int64Range(1, 5000).Draw(t, "count"), rapid.IntRange(0, 50).Draw(t, "burst")
		table, rule := limit.NewTable(0), limit.NewRule(limit.Rule{Count: count, Period: second, Burst: burst})
		theirs := rate.NewLimiter(rate.Limit(count), burst+1)
		ms := t0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			ms += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 3), rapid.Int64Range(0, 1000)).Draw(t, "dt")
			ok, _ := take(table, ms, rule, limit.Key{})
			if want := theirs.AllowN(time.UnixMilli(ms), 1); ok != want {
				t.Fatalf("admitted %v, golang.org/x/time/rate %v", ok, want)
			}
		}
	})
}

// One key and many goroutines, each with a clock that is late by a different amount.
func TestBoundHoldsUnderConcurrency(t *testing.T) {
	const (
		workers   = 16
		perSecond = 1000
		burst     = 10
		span      = 3000 // ms
	)
	table, rule := limit.NewTable(0), limit.NewRule(limit.Rule{Count: perSecond, Period: second, Burst: burst})
	var clock, admitted atomic.Int64
	clock.Store(t0)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			checks := []limit.Check{{Rule: rule}}
			for i := int64(0); ; i++ {
				now := clock.Load()
				if now >= t0+span {
					return
				}
				if i%4 == 0 && w == 0 {
					clock.Add(1)
				}
				if table.Take(at(now-(i*int64(w))%7), checks) < 0 {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	const bound = perSecond*span/1000 + burst + 1
	if n := admitted.Load(); n > bound || n < bound/2 {
		t.Fatalf("admitted %d in %d ms, want at most %d and at least half of that", n, span, bound)
	}
}

// Two rules and many keys in a full table.
func TestBoundHoldsWhileBucketsAreEvicted(t *testing.T) {
	const keys, perSecond, burst, span = 600, 100, 3, 500
	table, names := limit.NewTable(keys), limit.NewNamer()
	a, b := limit.NewRule(limit.Rule{Count: perSecond, Period: second, Burst: burst}), limit.NewRule(
		limit.Rule{Count: perSecond, Period: second, Burst: burst},
	)
	var clock atomic.Int64
	clock.Store(t0)
	admitted := make([]atomic.Int64, keys)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			checks := make([]limit.Check, 2)
			for i := w; ; i += 7 {
				now := clock.Load()
				if now >= t0+span {
					return
				}
				if i%50 == 0 {
					clock.Add(1)
					table.Evict(at(now))
				}
				key := i % keys
				checks[0], checks[1] = limit.Check{
					Rule: a,
					Key:  names.Text(fmt.Sprint(key)),
				}, limit.Check{
					Rule: b,
					Key:  names.Text(fmt.Sprint(key, "b")),
				}
				if table.Take(at(now), checks) < 0 {
					admitted[key].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for key := range admitted {
		if n := admitted[key].Load(); n > perSecond*span/1000+burst+1 {
			t.Fatalf("key %d was admitted %d times, bound %d", key, n, perSecond*span/1000+burst+1)
		}
	}
}
