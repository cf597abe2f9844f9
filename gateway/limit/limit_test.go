package limit_test

import (
	"net/netip"
	"testing"
	"time"

	"sluice/gateway/limit"
)

// Times of the tables below, in ms.
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

// second is the period of a rule with a rate per second.
const second = 1e6

// at returns a time of the tables as an Instant.
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
		checks := []limit.Check{{Rule: r, Key: limit.Address(netip.MustParseAddr("192.0.2.1"))}}
		refused := table.Take(at(s.ms), checks)
		v := checks[0].Verdict
		if pass := refused < 0; pass != s.pass || v.Over == s.pass {
			t.Fatalf("step %d at t0+%dms: admitted %v (over %v), want %v", i, s.ms-t0, pass, v.Over, s.pass)
		}
		if v.Remaining != s.remaining || v.Next != s.next || v.Wait != s.wait {
			t.Fatalf("step %d at t0+%dms: remaining %d next %v wait %v, want %d %v %v", i, s.ms-t0, v.Remaining, v.Next, v.Wait,
				s.remaining, s.next, s.wait)
		}
	}
}

const ms = time.Millisecond

func TestBurstZeroAdmitsOneRequestPerPeriod(t *testing.T) {
	run(t, limit.Rule{Count: 10, Period: second}, []step{
		{t0, true, 0, 100 * ms, 0},
		{t0, false, 0, 100 * ms, 100 * ms},
		{t1 - 1, false, 0, 1 * ms, 1 * ms},
		{t1, true, 0, 100 * ms, 0},
		{t3, true, 0, 100 * ms, 0},
		{t3, false, 0, 100 * ms, 100 * ms},
	})
}

func TestBurstAdmitsBurstPlusOne(t *testing.T) {
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

func TestRefusalDoesNotChangeTheBucket(t *testing.T) {
	steps := []step{{t0, true, 0, 100 * ms, 0}}
	for range 50 {
		steps = append(steps, step{t0 + 50, false, 0, 50 * ms, 50 * ms})
	}
	run(t, limit.Rule{Count: 10, Period: second}, append(steps, step{t1, true, 0, 100 * ms, 0}))
}

// golang.org/x/time/rate refills the difference again (golang/go#71360).
func TestTimeRunningBackwardsDoesNotRefill(t *testing.T) {
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

func TestIdleBucketIsLimitedToItsBurst(t *testing.T) {
	run(t, limit.Rule{Count: 10, Period: second, Burst: 1}, []step{
		{t0, true, 1, 100 * ms, 0},
		{t0 + 3_600_000, true, 1, 100 * ms, 0},
		{t0 + 3_600_000, true, 0, 100 * ms, 0},
		{t0 + 3_600_000, false, 0, 100 * ms, 100 * ms},
	})
}

func TestDelaySpreadsTheBurst(t *testing.T) {
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

// One request every 50 us.
func TestTwentyThousandPerSecondWithoutBurst(t *testing.T) {
	table, rule := limit.NewTable(0), limit.NewRule(limit.Rule{Count: 1, Period: 50})
	admitted := 0
	for us := range limit.Instant(1_000_000) {
		if table.Take(at(t0)+us, []limit.Check{{Rule: rule}}) < 0 {
			admitted++
		}
	}
	if admitted != 20_000 {
		t.Fatalf("admitted %d of a million requests in a second, want 20000", admitted)
	}
}

// The period of one request is not a whole number of microseconds.
func TestFractionsOfAMicrosecondAreKept(t *testing.T) {
	table, rule := limit.NewTable(0), limit.NewRule(limit.Rule{Count: 333_333, Period: 1_000_000, Burst: 1})
	admitted := 0
	for us := limit.Instant(0); us <= 3_000_000; us++ {
		if table.Take(at(t0)+us, []limit.Check{{Rule: rule}}) < 0 {
			admitted++
		}
	}
	if admitted != 999_999+2 {
		t.Fatalf("admitted %d in 3 s, want the bound of 1000001", admitted)
	}
}

func TestInheritKeepsTheBuckets(t *testing.T) {
	table, old := limit.NewTable(0), limit.NewRule(limit.Rule{Count: 1, Period: second, Burst: 4})
	for range 4 {
		take(table, t0, old, limit.Key{})
	}
	wider, tighter := limit.Inherit(old, limit.Rule{Count: 1, Period: second, Burst: 5}), limit.Inherit(old,
		limit.Rule{Count: 1, Period: second, Burst: 1})
	if ok, v := take(table, t0, tighter, limit.Key{}); ok || v.Wait != 3*time.Second {
		t.Errorf("lower burst: admitted %v, wait %v, want a refusal for 3s", ok, v.Wait)
	}
	if ok, v := take(table, t0, wider, limit.Key{}); !ok || v.Remaining != 1 {
		t.Errorf("higher burst: admitted %v, remaining %d, want true and 1", ok, v.Remaining)
	}
}

func TestShadowRuleNeverRefusesAndCountsOnlyAdmittedRequests(t *testing.T) {
	table, shadow := limit.NewTable(0), limit.NewRule(limit.Rule{Count: 10, Period: second, Shadow: true})
	checks := []limit.Check{{Rule: shadow}}
	for i, want := range []struct {
		ms   int64
		over bool
	}{{t0, false}, {t0, true}, {t0 + 50, true}, {t1, false}, {t1, true}} {
		if refused := table.Take(at(want.ms), checks); refused != -1 {
			t.Fatalf("step %d: the shadow rule refuses", i)
		}
		if checks[0].Verdict.Over != want.over {
			t.Fatalf("step %d: over is %v, want %v", i, checks[0].Verdict.Over, want.over)
		}
	}
}

func TestTakeCountsForAllRulesOrNone(t *testing.T) {
	table := limit.NewTable(0)
	wide, narrow := limit.NewRule(limit.Rule{Count: 1, Period: second, Burst: 4}), limit.NewRule(
		limit.Rule{Count: 1, Period: second, Burst: 1},
	)
	shadow := limit.NewRule(limit.Rule{Count: 1, Period: second, Burst: 9, Shadow: true})
	checks := []limit.Check{{Rule: wide}, {Rule: shadow}, {Rule: narrow}}
	for i := range 2 {
		if refused := table.Take(at(t0), checks); refused != -1 {
			t.Fatalf("request %d is refused by rule %d", i, refused)
		}
	}
	for range 20 {
		if refused := table.Take(at(t0), checks); refused != 2 {
			t.Fatalf("refused by %d, want rule 2", refused)
		}
	}
	if table.Take(at(t0), checks[:2]); checks[0].Verdict.Remaining != 2 || checks[1].Verdict.Remaining != 7 {
		t.Fatalf("remaining %d and %d, want 2 and 7: refusals were counted by other rules", checks[0].Verdict.Remaining,
			checks[1].Verdict.Remaining)
	}
}

func TestPeekDoesNotCount(t *testing.T) {
	table, rule := limit.NewTable(0), limit.NewRule(limit.Rule{Count: 1, Period: second})
	checks := []limit.Check{{Rule: rule}}
	for range 5 {
		if refused := table.Peek(at(t0), checks); refused != -1 {
			t.Fatal("Peek refuses a request that would pass")
		}
	}
	if left := table.Evict(at(t0)); left != 0 {
		t.Fatalf("Peek left %d buckets", left)
	}
	table.Take(at(t0), checks)
	if refused := table.Peek(at(t0), checks); refused != 0 || checks[0].Verdict.Wait != time.Second {
		t.Fatalf("refused %d, wait %v, want rule 0 and 1s", refused, checks[0].Verdict.Wait)
	}
}

func TestRulesAndKeysDoNotShareBuckets(t *testing.T) {
	table := limit.NewTable(0)
	a, b := limit.NewRule(limit.Rule{Count: 1, Period: second}), limit.NewRule(limit.Rule{Count: 1, Period: second})
	names := limit.NewNamer()
	for i, check := range []limit.Check{
		{Rule: a, Key: names.Text("x")}, {Rule: b, Key: names.Text("x")}, {Rule: a, Key: names.Text("y")}, {Rule: a},
	} {
		if refused := table.Take(at(t0), []limit.Check{check}); refused != -1 {
			t.Fatalf("check %d shares the bucket of another", i)
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
