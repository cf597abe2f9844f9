package limit_test

import (
	"net/netip"
	"testing"
	"time"

	"sluice/gateway/limit"
)

// The instants of the tables below, in ms.
const (
	t0 = int64(1_000_000)
	d  = 100
	t1 = t0 + d
	t2 = t0 + 2*d
	t3 = t0 + 3*d
	t4 = t0 + 4*d
	t5 = t0 + 5*d
	t6 = t0 + 6*d
	t7 = t0 + 7*d
	t8 = t0 + 8*d
	t9 = t0 + 9*d
)

// second is the period of a rule whose rate is counted in seconds.
const second = 1e6

// at is an instant of the tables.
func at(ms int64) limit.Instant { return limit.Instant(ms * 1000) }

type step struct {
	ms        int64
	pass      bool
	remaining int
	next      time.Duration
	wait      time.Duration
}

func run(t *testing.T, rule limit.Rule, steps []step) {
	t.Helper()
	table, r := limit.NewTable(0), limit.NewRule(rule)
	for i, s := range steps {
		asks := []limit.Ask{{Rule: r, Key: limit.Address(netip.MustParseAddr("192.0.2.1"))}}
		verdicts := make([]limit.Verdict, 1)
		refused := table.Take(at(s.ms), asks, verdicts)
		v := verdicts[0]
		if pass := refused < 0; pass != s.pass || v.Over == s.pass {
			t.Fatalf("step %d at t0+%dms: passes %v (over %v), want %v", i, s.ms-t0, pass, v.Over, s.pass)
		}
		if v.Remaining != s.remaining || v.Next != s.next || v.Wait != s.wait {
			t.Fatalf("step %d at t0+%dms: remaining %d next %v wait %v, want %d %v %v", i, s.ms-t0, v.Remaining, v.Next, v.Wait, s.remaining, s.next, s.wait)
		}
	}
}

const ms = time.Millisecond

func TestBurstOfZeroPassesOneARatePeriod(t *testing.T) {
	run(t, limit.Rule{Count: 10, Period: second}, []step{
		{t0, true, 0, 100 * ms, 0},
		{t0, false, 0, 100 * ms, 100 * ms},
		{t1 - 1, false, 0, 1 * ms, 1 * ms},
		{t1, true, 0, 100 * ms, 0},
		{t3, true, 0, 100 * ms, 0},
		{t3, false, 0, 100 * ms, 100 * ms},
	})
}

func TestBurstPassesOneMoreThanItself(t *testing.T) {
	run(t, limit.Rule{Count: 10, Period: second, Burst: 2}, []step{
		{t0, true, 2, 100 * ms, 0},
		{t0, true, 1, 100 * ms, 0},
		{t0, true, 0, 100 * ms, 0},
		{t0, false, 0, 100 * ms, 100 * ms},
		{t1, true, 0, 100 * ms, 0},
		{t1, false, 0, 100 * ms, 100 * ms},
		{t9, true, 2, 100 * ms, 0},
	})
}

func TestRefusalWritesNothing(t *testing.T) {
	steps := []step{{t0, true, 0, 100 * ms, 0}}
	for range 50 {
		steps = append(steps, step{t0 + 50, false, 0, 50 * ms, 50 * ms})
	}
	run(t, limit.Rule{Count: 10, Period: second}, append(steps, step{t1, true, 0, 100 * ms, 0}))
}

// golang/go#71360: a Limiter that is asked about the past refills the difference again.
func TestTimeThatRunsBackwardsRefillsNothing(t *testing.T) {
	run(t, limit.Rule{Count: 10, Period: second, Burst: 1}, []step{
		{t5, true, 1, 100 * ms, 0},
		{t0, true, 0, 100 * ms, 0},
		{t5, false, 0, 100 * ms, 100 * ms},
		{t0, false, 0, 100 * ms, 100 * ms},
		{t6, true, 0, 100 * ms, 0},
		{t5, false, 0, 100 * ms, 100 * ms},
		{t6, false, 0, 100 * ms, 100 * ms},
	})
}

func TestIdleBucketHoldsNoMoreThanItsBurst(t *testing.T) {
	run(t, limit.Rule{Count: 10, Period: second, Burst: 1}, []step{
		{t0, true, 1, 100 * ms, 0},
		{t0 + 3_600_000, true, 1, 100 * ms, 0},
		{t0 + 3_600_000, true, 0, 100 * ms, 0},
		{t0 + 3_600_000, false, 0, 100 * ms, 100 * ms},
	})
}

func TestDelayHoldsTheBurstBackToTheRate(t *testing.T) {
	run(t, limit.Rule{Count: 10, Period: second, Burst: 3, Delay: true}, []step{
		{t0, true, 3, 100 * ms, 0},
		{t0, true, 2, 100 * ms, 100 * ms},
		{t0, true, 1, 100 * ms, 200 * ms},
		{t0, true, 0, 100 * ms, 300 * ms},
		{t0, false, 0, 100 * ms, 100 * ms},
		{t1, true, 0, 100 * ms, 300 * ms},
		{t4 + 50, true, 2, 50 * ms, 50 * ms},
	})
}

func TestSlowRates(t *testing.T) {
	run(t, limit.Rule{Count: 1, Period: 60e6, Burst: 1}, []step{
		{t0, true, 1, time.Minute, 0},
		{t0 + 1, true, 0, time.Minute - ms, 0},
		{t0 + 59_999, false, 0, ms, ms},
		{t0 + 60_000, true, 0, time.Minute, 0},
	})
}

// Rates finer than a millisecond: one request every 50 us, no more and no fewer.
func TestTwentyThousandASecondWithNoBurst(t *testing.T) {
	table, rule := limit.NewTable(0), limit.NewRule(limit.Rule{Count: 1, Period: 50})
	admitted := 0
	for us := range limit.Instant(1_000_000) {
		if table.Take(at(t0)+us, []limit.Ask{{Rule: rule}}, make([]limit.Verdict, 1)) < 0 {
			admitted++
		}
	}
	if admitted != 20_000 {
		t.Fatalf("%d of a million requests in a second were admitted, want 20000", admitted)
	}
}

// A rate whose requests are no whole number of microseconds apart loses nothing and gains nothing over a long time.
func TestFractionsOfAMicrosecondAreKept(t *testing.T) {
	table, rule := limit.NewTable(0), limit.NewRule(limit.Rule{Count: 333_333, Period: 1_000_000, Burst: 1})
	admitted := 0
	for us := limit.Instant(0); us <= 3_000_000; us++ {
		if table.Take(at(t0)+us, []limit.Ask{{Rule: rule}}, make([]limit.Verdict, 1)) < 0 {
			admitted++
		}
	}
	if admitted != 999_999+2 {
		t.Fatalf("%d were admitted in 3 s, want the bound of 1000001", admitted)
	}
}

// A changed policy is no new start: what was used up under the old burst is used up under the new one.
func TestAnHeirGoesOnWithTheBuckets(t *testing.T) {
	table, old := limit.NewTable(0), limit.NewRule(limit.Rule{Count: 1, Period: second, Burst: 4})
	for range 4 {
		take(table, t0, old, limit.Key{})
	}
	wider, tighter := limit.Heir(old, limit.Rule{Count: 1, Period: second, Burst: 5}), limit.Heir(old, limit.Rule{Count: 1, Period: second, Burst: 1})
	if ok, v := take(table, t0, tighter, limit.Key{}); ok || v.Wait != 3*time.Second {
		t.Errorf("with a lower burst it passes %v, wait %v, want a refusal for 3s", ok, v.Wait)
	}
	if ok, v := take(table, t0, wider, limit.Key{}); !ok || v.Remaining != 1 {
		t.Errorf("with a higher burst it passes %v and leaves %d, want a pass that leaves 1", ok, v.Remaining)
	}
}

func TestShadowRuleNeverRefusesAndTakesNothingWhenOver(t *testing.T) {
	table, shadow := limit.NewTable(0), limit.NewRule(limit.Rule{Count: 10, Period: second, Shadow: true})
	asks := []limit.Ask{{Rule: shadow}}
	verdicts := make([]limit.Verdict, 1)
	for i, want := range []struct {
		ms   int64
		over bool
	}{{t0, false}, {t0, true}, {t0 + 50, true}, {t1, false}, {t1, true}} {
		if refused := table.Take(at(want.ms), asks, verdicts); refused != -1 {
			t.Fatalf("step %d: a shadow refuses", i)
		}
		if verdicts[0].Over != want.over {
			t.Fatalf("step %d: over is %v, want %v", i, verdicts[0].Over, want.over)
		}
	}
}

func TestRulesTakeTogetherOrNotAtAll(t *testing.T) {
	table := limit.NewTable(0)
	wide, narrow := limit.NewRule(limit.Rule{Count: 1, Period: second, Burst: 4}), limit.NewRule(limit.Rule{Count: 1, Period: second, Burst: 1})
	shadow := limit.NewRule(limit.Rule{Count: 1, Period: second, Burst: 9, Shadow: true})
	asks := []limit.Ask{{Rule: wide}, {Rule: shadow}, {Rule: narrow}}
	verdicts := make([]limit.Verdict, 3)
	for i := range 2 {
		if refused := table.Take(at(t0), asks, verdicts); refused != -1 {
			t.Fatalf("request %d is refused by rule %d", i, refused)
		}
	}
	for range 20 {
		if refused := table.Take(at(t0), asks, verdicts); refused != 2 {
			t.Fatalf("refused by %d, want rule 2", refused)
		}
	}
	if table.Take(at(t0), asks[:2], verdicts[:2]); verdicts[0].Remaining != 2 || verdicts[1].Remaining != 7 {
		t.Fatalf("%d and %d are left, want 2 and 7: refusals took from the other rules", verdicts[0].Remaining, verdicts[1].Remaining)
	}
}

func TestPeekTakesNothing(t *testing.T) {
	table, rule := limit.NewTable(0), limit.NewRule(limit.Rule{Count: 1, Period: second})
	asks, verdicts := []limit.Ask{{Rule: rule}}, make([]limit.Verdict, 1)
	for range 5 {
		if refused := table.Peek(at(t0), asks, verdicts); refused != -1 {
			t.Fatal("peeking refuses a request that would pass")
		}
	}
	if left := table.Sweep(at(t0)); left != 0 {
		t.Fatalf("peeking left %d buckets", left)
	}
	table.Take(at(t0), asks, verdicts)
	if refused := table.Peek(at(t0), asks, verdicts); refused != 0 || verdicts[0].Wait != time.Second {
		t.Fatalf("refused %d, wait %v, want rule 0 and 1s", refused, verdicts[0].Wait)
	}
}

func TestRulesAndKeysDoNotShareBuckets(t *testing.T) {
	table := limit.NewTable(0)
	a, b := limit.NewRule(limit.Rule{Count: 1, Period: second}), limit.NewRule(limit.Rule{Count: 1, Period: second})
	verdicts := make([]limit.Verdict, 1)
	names := limit.NewNamer()
	for i, ask := range []limit.Ask{{Rule: a, Key: names.Text("x")}, {Rule: b, Key: names.Text("x")}, {Rule: a, Key: names.Text("y")}, {Rule: a}} {
		if refused := table.Take(at(t0), []limit.Ask{ask}, verdicts); refused != -1 {
			t.Fatalf("ask %d found another's bucket", i)
		}
	}
}

func TestAddressKeys(t *testing.T) {
	key := func(s string) limit.Key { return limit.Address(netip.MustParseAddr(s)) }
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", true},
		{"2001:db8:1:2::1", "2001:db8:1:3::1", false},
		{"::", "0.0.0.0", false},
		{"::1", "::2", true},
	} {
		if same := key(c.a) == key(c.b); same != c.same {
			t.Errorf("%s and %s share a key: %v, want %v", c.a, c.b, same, c.same)
		}
	}
}
