package limit_test

import (
	"fmt"
	"testing"

	"sluice/gateway/limit"
)

func take(table *limit.Table, ms int64, rule *limit.Rule, key limit.Key) (bool, limit.Verdict) {
	verdicts := make([]limit.Verdict, 1)
	refused := table.Take(at(ms), []limit.Ask{{Rule: rule, Key: key}}, verdicts)
	return refused < 0, verdicts[0]
}

func TestFullTableRefusesNewKeysAndKeepsLiveOnes(t *testing.T) {
	const capacity = 100
	table, names := limit.NewTable(capacity), limit.NewNamer()
	rule := limit.NewRule(limit.Rule{Count: 1, Period: second, Burst: 1})
	key := func(i int) limit.Key { return names.Text(fmt.Sprint(i)) }
	for i := range capacity {
		if ok, _ := take(table, t0, rule, key(i)); !ok {
			t.Fatalf("key %d of %d finds no room", i, capacity)
		}
	}
	for i := range 1000 {
		if ok, v := take(table, t0+999, rule, key(capacity+i)); ok || !v.NoRoom || v.Over {
			t.Fatalf("new key %d: passes %v, %+v, want no room", i, ok, v)
		}
	}
	for i := range capacity {
		if ok, v := take(table, t0+999, rule, key(i)); !ok || v.Remaining != 0 {
			t.Fatalf("key %d has %d left after its second request: its bucket was evicted alive", i, v.Remaining)
		}
	}
}

func TestFullTableDropsRefilledBuckets(t *testing.T) {
	const capacity = 100
	table, names := limit.NewTable(capacity), limit.NewNamer()
	rule := limit.NewRule(limit.Rule{Count: 1, Period: second, Burst: 1})
	key := func(i int) limit.Key { return names.Text(fmt.Sprint(i)) }
	for i := range capacity {
		take(table, t0, rule, key(i))
	}
	// The even ones are used again and refill a second later than the odd ones.
	for i := 0; i < capacity; i += 2 {
		take(table, t0, rule, key(i))
	}
	for i := range capacity / 2 {
		if ok, v := take(table, t0+1000, rule, key(capacity+i)); !ok {
			t.Fatalf("new key %d finds no room, with %d refilled buckets: %+v", i, capacity/2-i, v)
		}
	}
	if ok, v := take(table, t0+1000, rule, key(2*capacity)); ok || !v.NoRoom {
		t.Fatalf("one key more than there is room for: passes %v, %+v", ok, v)
	}
	for i := 0; i < capacity; i += 2 {
		if ok, v := take(table, t0+1000, rule, key(i)); !ok || v.Remaining != 0 {
			t.Fatalf("key %d: passes %v with %d left, want its last one: its bucket was evicted alive", i, ok, v.Remaining)
		}
	}
}

func TestNoRoomForOneRuleTakesNothingFromTheOthers(t *testing.T) {
	table := limit.NewTable(1)
	first, second := limit.NewRule(limit.Rule{Count: 1, Period: second, Burst: 2}), limit.NewRule(limit.Rule{Count: 1, Period: second})
	take(table, t0, first, limit.Key{})
	verdicts := make([]limit.Verdict, 2)
	if refused := table.Take(at(t0), []limit.Ask{{Rule: first}, {Rule: second}}, verdicts); refused != 1 || !verdicts[1].NoRoom {
		t.Fatalf("refused by %d, %+v, want rule 1 for want of room", refused, verdicts)
	}
	if _, v := take(table, t0, first, limit.Key{}); v.Remaining != 1 {
		t.Fatalf("%d left, want 1: the refusal took one", v.Remaining)
	}
}

func TestLenientAndShadowRulesPassWithoutRoom(t *testing.T) {
	table := limit.NewTable(1)
	take(table, t0, limit.NewRule(limit.Rule{Count: 1, Period: second}), limit.Key{})
	for _, r := range []limit.Rule{{Count: 1, Period: second, Lenient: true}, {Count: 1, Period: second, Shadow: true}} {
		rule := limit.NewRule(r)
		for range 3 {
			if ok, v := take(table, t0, rule, limit.Key{}); !ok || !v.NoRoom {
				t.Fatalf("%+v: passes %v, %+v, want a pass for want of room", r, ok, v)
			}
		}
	}
}

// Looking for room must never drop a bucket that the same request has found: what the request takes from it would be lost.
func TestRoomForOneRuleIsNotMadeOfAnothersBucket(t *testing.T) {
	table := limit.NewTable(2)
	old, fresh := limit.NewRule(limit.Rule{Count: 10, Period: second}), limit.NewRule(limit.Rule{Count: 10, Period: second})
	take(table, t0, old, limit.Key{})
	take(table, t0, fresh, limit.NewNamer().Text("other"))
	verdicts := make([]limit.Verdict, 2)
	if refused := table.Take(at(t1), []limit.Ask{{Rule: old}, {Rule: fresh}}, verdicts); refused != -1 {
		t.Fatalf("refused by %d, %+v", refused, verdicts)
	}
	if ok, _ := take(table, t1, old, limit.Key{}); ok {
		t.Fatal("the first rule's bucket was dropped while its request was being counted")
	}
	if ok, _ := take(table, t1, fresh, limit.Key{}); ok {
		t.Fatal("the second rule's bucket was dropped while its request was being counted")
	}
}

func TestSweepDropsWhatHasRefilled(t *testing.T) {
	table, names := limit.NewTable(0), limit.NewNamer()
	fast, slow := limit.NewRule(limit.Rule{Count: 10, Period: second}), limit.NewRule(limit.Rule{Count: 1, Period: second})
	for i := range 1000 {
		take(table, t0, fast, names.Text(fmt.Sprint(i)))
		take(table, t0, slow, names.Text(fmt.Sprint(i)))
	}
	for _, c := range []struct {
		ms   int64
		left int
	}{{t1 - 1, 2000}, {t1, 1000}, {t0 + 999, 1000}, {t0 + 1000, 0}} {
		if left := table.Sweep(at(c.ms)); left != c.left {
			t.Errorf("at t0+%dms %d buckets are left, want %d", c.ms-t0, left, c.left)
		}
	}
}

func TestForgetDropsOneRule(t *testing.T) {
	table, names := limit.NewTable(0), limit.NewNamer()
	gone, kept := limit.NewRule(limit.Rule{Count: 1, Period: second}), limit.NewRule(limit.Rule{Count: 1, Period: second})
	for i := range 100 {
		take(table, t0+int64(i), gone, names.Text(fmt.Sprint(i)))
		take(table, t0+int64(i), kept, names.Text(fmt.Sprint(i)))
	}
	table.Forget(gone)
	if left := table.Sweep(at(t0 + 99)); left != 100 {
		t.Fatalf("%d buckets are left, want the 100 of the other rule", left)
	}
	if left := table.Sweep(at(t0 + 1000)); left != 99 {
		t.Fatalf("%d are left when the first has refilled, want 99", left)
	}
}

func BenchmarkTakeOneKey(b *testing.B) {
	table, rule := limit.NewTable(0), limit.NewRule(limit.Rule{Count: 1, Period: 1, Burst: 1000})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		asks, verdicts := []limit.Ask{{Rule: rule}}, make([]limit.Verdict, 1)
		for now := at(t0); pb.Next(); now++ {
			table.Take(now, asks, verdicts)
		}
	})
}

func BenchmarkTakeManyKeys(b *testing.B) {
	table, rule, names := limit.NewTable(0), limit.NewRule(limit.Rule{Count: 1, Period: second, Burst: 10}), limit.NewNamer()
	keys := make([]limit.Key, 1<<16)
	for i := range keys {
		keys[i] = names.Text(fmt.Sprint(i))
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		asks, verdicts := []limit.Ask{{Rule: rule}}, make([]limit.Verdict, 1)
		for i := 0; pb.Next(); i++ {
			asks[0].Key = keys[i&(len(keys)-1)]
			table.Take(at(t0), asks, verdicts)
		}
	})
}

func BenchmarkTakeNewKeysOfAFlood(b *testing.B) {
	table, rule := limit.NewTable(1<<12), limit.NewRule(limit.Rule{Count: 20, Period: second, Burst: 40})
	names := limit.NewNamer()
	keys := make([]limit.Key, 1<<16)
	for i := range keys {
		keys[i] = names.Text(fmt.Sprint(i))
	}
	asks, verdicts := []limit.Ask{{Rule: rule}}, make([]limit.Verdict, 1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		asks[0].Key = keys[i&(len(keys)-1)]
		table.Take(at(t0+int64(i/500)), asks, verdicts)
	}
}
