package limit_test

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"sluice/gateway/limit"
)

// model is nginx's limit_req in milli-requests and milliseconds: e = max(0, excess - rate_m*ms/1000 + 1000), refused if e > burst*1000.
// It keeps excess times 1000, so that the division is exact for rates in whole milli-requests a second.
type model struct {
	rateM, burst int64
	excess, last map[int]int64
	now          int64
}

func newModel(rateM, burst int64) *model {
	return &model{rateM: rateM, burst: burst, excess: map[int]int64{}, last: map[int]int64{}}
}

// would returns the excess after a request at ms, and whether it passes.
func (m *model) would(ms int64, key int) (int64, bool) {
	m.now = max(m.now, ms)
	last, known := m.last[key]
	if !known {
		return 0, true
	}
	e := max(0, m.excess[key]-m.rateM*(m.now-last)+1_000_000)
	return e, e <= m.burst*1_000_000
}

func (m *model) take(key int, e int64) { m.excess[key], m.last[key] = e, m.now }

// Random traces, random rules, several at once, clocks that jump back and forth, a table that is swept now and then: every verdict is the model's.
func TestVerdictsAreTheModels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "rules")
		table, names := limit.NewTable(rapid.SampledFrom([]int{0, 64}).Draw(t, "capacity")), limit.NewNamer()
		rules, models := make([]*limit.Rule, n), make([]*model, n)
		for i := range rules {
			rateM := rapid.OneOf(rapid.Int64Range(1, 5000), rapid.Int64Range(1, 2_000_000), rapid.SampledFrom([]int64{1000, 3000, 7000, 20_000})).Draw(t, "rate")
			burst := rapid.OneOf(rapid.Int64Range(0, 5), rapid.Int64Range(0, 1000)).Draw(t, "burst")
			rules[i] = limit.NewRule(limit.Rule{PerSecond: float64(rateM) / 1000, Burst: int(burst), Shadow: rapid.IntRange(0, 3).Draw(t, "shadow") == 0})
			models[i] = newModel(rateM, burst)
		}
		now := int64(1_700_000_000_000)
		for step := range rapid.IntRange(1, 300).Draw(t, "steps") {
			now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 3), rapid.Int64Range(0, 400), rapid.Int64Range(0, 100_000)).Draw(t, "dt")
			at := now - rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 500)).Draw(t, "late")
			var asks []limit.Ask
			var keys, which []int
			for i, r := range rules {
				if n == 1 || rapid.Bool().Draw(t, "asked") {
					key := rapid.IntRange(0, 2).Draw(t, "key")
					asks, keys, which = append(asks, limit.Ask{Rule: r, Key: names.Text(fmt.Sprint(key))}), append(keys, key), append(which, i)
				}
			}
			// The model is told the clock of the whole table, the table keeps one per shard: let them agree by touching all keys' shards.
			for key := range 3 {
				table.Peek(at, []limit.Ask{{Rule: rules[0], Key: names.Text(fmt.Sprint(key))}}, make([]limit.Verdict, 1))
			}
			for _, m := range models {
				m.now = max(m.now, at)
			}
			want, excess, over := -1, make([]int64, len(asks)), make([]bool, len(asks))
			for j := range asks {
				e, ok := models[which[j]].would(at, keys[j])
				excess[j], over[j] = e, !ok
				if !ok && !rules[which[j]].Shadow {
					want = j
					break
				}
			}
			verdicts := make([]limit.Verdict, len(asks))
			if got := table.Take(at, asks, verdicts); got != want {
				t.Fatalf("step %d: refused by %d, the model says %d", step, got, want)
			}
			if want >= 0 {
				continue
			}
			for j := range asks {
				m := models[which[j]]
				if verdicts[j].Over != over[j] {
					t.Fatalf("step %d: shadow over is %v, the model says %v", step, verdicts[j].Over, over[j])
				}
				if over[j] {
					continue
				}
				m.take(keys[j], excess[j])
				if left := m.burst - int64(math.Ceil(float64(excess[j])/1e6)); int64(verdicts[j].Remaining) != left {
					t.Fatalf("step %d: %d remain, the model says %d", step, verdicts[j].Remaining, left)
				}
			}
			if rapid.IntRange(0, 20).Draw(t, "sweep") == 0 {
				table.Sweep(at)
			}
		}
	})
}

// One key, many goroutines, each with a clock of its own that runs late by some: never more than rate*L + burst + 1, and as much as that.
func TestBoundHoldsUnderConcurrency(t *testing.T) {
	const (
		workers   = 16
		perSecond = 1000
		burst     = 10
		span      = 3000 // ms
	)
	table, rule := limit.NewTable(0), limit.NewRule(limit.Rule{PerSecond: perSecond, Burst: burst})
	var clock, admitted atomic.Int64
	clock.Store(t0)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			asks, verdicts := []limit.Ask{{Rule: rule}}, make([]limit.Verdict, 1)
			for i := int64(0); ; i++ {
				now := clock.Load()
				if now >= t0+span {
					return
				}
				if i%4 == 0 && w == 0 {
					clock.Add(1)
				}
				if table.Take(now-(i*int64(w))%7, asks, verdicts) < 0 {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	const bound = perSecond*span/1000 + burst + 1
	if n := admitted.Load(); n > bound || n < bound/2 {
		t.Fatalf("%d admitted in %d ms, want at most %d and most of that", n, span, bound)
	}
}

// The bound again with two rules on many keys in a table that has no room to spare, so that buckets come and go all the time.
func TestBoundHoldsWhileBucketsComeAndGo(t *testing.T) {
	const keys, perSecond, burst, span = 600, 100, 3, 500
	table, names := limit.NewTable(keys), limit.NewNamer()
	a, b := limit.NewRule(limit.Rule{PerSecond: perSecond, Burst: burst}), limit.NewRule(limit.Rule{PerSecond: perSecond, Burst: burst})
	var clock atomic.Int64
	clock.Store(t0)
	admitted := make([]atomic.Int64, keys)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			asks, verdicts := make([]limit.Ask, 2), make([]limit.Verdict, 2)
			for i := w; ; i += 7 {
				now := clock.Load()
				if now >= t0+span {
					return
				}
				if i%50 == 0 {
					clock.Add(1)
					table.Sweep(now)
				}
				key := i % keys
				asks[0], asks[1] = limit.Ask{Rule: a, Key: names.Text(fmt.Sprint(key))}, limit.Ask{Rule: b, Key: names.Text(fmt.Sprint(key, "b"))}
				if table.Take(now, asks, verdicts) < 0 {
					admitted[key].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for key := range admitted {
		if n := admitted[key].Load(); n > perSecond*span/1000+burst+1 {
			t.Fatalf("key %d was admitted %d times, more than its bound of %d", key, n, perSecond*span/1000+burst+1)
		}
	}
}
