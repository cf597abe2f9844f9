package limit_test

import (
	"fmt"
	"math"
	"testing"

	"sluice/gateway/limit"
)

func take(table *limit.Table, ms int64, rule *limit.Rule, key limit.Key) (bool, limit.Verdict) {
	checks := []limit.Check{{Rule: rule, Key: key}}
	refused := table.Take(at(ms), checks)
	return refused < 0, checks[0].Verdict
}

// A user may want no bound.
func TestHugeTableHasRoom(t *testing.T) {
	table := limit.NewTable(math.MaxInt)
	if ok, v := take(table, t0, limit.NewRule(limit.Rule{Count: 1, Period: second}), limit.Key{}); !ok {
		t.Errorf("refused: %+v", v)
	}
}

func TestFullTableRefusesNewKeys(t *testing.T) {
	const capacity = 100
	table, names := limit.NewTable(capacity), limit.NewNamer()
	rule := limit.NewRule(limit.Rule{Count: 1, Period: second, Burst: 1})
	key := func(i int) limit.Key { return names.Text(fmt.Sprint(i)) }
	for i := range capacity {
		if ok, _ := take(table, t0, rule, key(i)); !ok {
			t.Fatalf("no bucket for key %d of %d", i, capacity)
		}
	}
	for i := range 1000 {
		if ok, v := take(table, t0+999, rule, key(capacity+i)); ok || !v.Full || v.Over {
			t.Fatalf("new key %d: admitted %v, %+v, want a full table", i, ok, v)
		}
	}
	for i := range capacity {
		if ok, v := take(table, t0+999, rule, key(i)); !ok || v.Remaining != 0 {
			t.Fatalf("key %d has %d remaining after its second request: its bucket was evicted", i, v.Remaining)
		}
	}
}

func TestFullTableEvictsEmptyBuckets(t *testing.T) {
	const capacity = 100
	table, names := limit.NewTable(capacity), limit.NewNamer()
	rule := limit.NewRule(limit.Rule{Count: 1, Period: second, Burst: 1})
	key := func(i int) limit.Key { return names.Text(fmt.Sprint(i)) }
	for i := range capacity {
		take(table, t0, rule, key(i))
	}
	// Even keys are used twice, and their buckets are empty a second later than the others.
	for i := 0; i < capacity; i += 2 {
		take(table, t0, rule, key(i))
	}
	for i := range capacity / 2 {
		if ok, v := take(table, t0+1000, rule, key(capacity+i)); !ok {
			t.Fatalf("no bucket for new key %d, with %d empty buckets: %+v", i, capacity/2-i, v)
		}
	}
	if ok, v := take(table, t0+1000, rule, key(2*capacity)); ok || !v.Full {
		t.Fatalf("a key beyond the capacity: admitted %v, %+v", ok, v)
	}
	for i := 0; i < capacity; i += 2 {
		if ok, v := take(table, t0+1000, rule, key(i)); !ok || v.Remaining != 0 {
			t.Fatalf("key %d: admitted %v with %d remaining, want true and 0: its bucket was evicted", i, ok, v.Remaining)
		}
	}
}

func TestFullTableForOneRuleDoesNotCountForOthers(t *testing.T) {
	table := limit.NewTable(1)
	first, second := limit.NewRule(limit.Rule{Count: 1, Period: second, Burst: 2}), limit.NewRule(
		limit.Rule{Count: 1, Period: second},
	)
	take(table, t0, first, limit.Key{})
	checks := []limit.Check{{Rule: first}, {Rule: second}}
	if refused := table.Take(at(t0), checks); refused != 1 || !checks[1].Verdict.Full {
		t.Fatalf("refused by %d, %+v, want rule 1 with a full table", refused, checks)
	}
	if _, v := take(table, t0, first, limit.Key{}); v.Remaining != 1 {
		t.Fatalf("%d remaining, want 1: the refused request was counted", v.Remaining)
	}
}

func TestFailOpenAndShadowRulesAdmitWhenTheTableIsFull(t *testing.T) {
	table := limit.NewTable(1)
	take(table, t0, limit.NewRule(limit.Rule{Count: 1, Period: second}), limit.Key{})
	for _, r := range []limit.Rule{{Count: 1, Period: second, FailOpen: true}, {Count: 1, Period: second, Shadow: true}} {
		rule := limit.NewRule(r)
		for range 3 {
			if ok, v := take(table, t0, rule, limit.Key{}); !ok || !v.Full {
				t.Fatalf("%+v: admitted %v, %+v, want true and a full table", r, ok, v)
			}
		}
	}
}

// Eviction must not remove a bucket that the same request uses.
func TestTakeDoesNotEvictItsOwnBuckets(t *testing.T) {
	table := limit.NewTable(2)
	old, fresh := limit.NewRule(limit.Rule{Count: 10, Period: second}), limit.NewRule(
		limit.Rule{Count: 10, Period: second},
	)
	take(table, t0, old, limit.Key{})
	take(table, t0, fresh, limit.NewNamer().Text("other"))
	checks := []limit.Check{{Rule: old}, {Rule: fresh}}
	if refused := table.Take(at(t1), checks); refused != -1 {
		t.Fatalf("refused by %d, %+v", refused, checks)
	}
	if ok, _ := take(table, t1, old, limit.Key{}); ok {
		t.Fatal("the bucket of the first rule was evicted while the request was counted")
	}
	if ok, _ := take(table, t1, fresh, limit.Key{}); ok {
		t.Fatal("the bucket of the second rule was evicted while the request was counted")
	}
}

func TestEvictRemovesEmptyBuckets(t *testing.T) {
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
		if left := table.Evict(at(c.ms)); left != c.left {
			t.Errorf("at t0+%dms: %d buckets, want %d", c.ms-t0, left, c.left)
		}
	}
}

func TestRemoveRemovesTheBucketsOfOneRule(t *testing.T) {
	table, names := limit.NewTable(0), limit.NewNamer()
	gone, kept := limit.NewRule(limit.Rule{Count: 1, Period: second}), limit.NewRule(limit.Rule{Count: 1, Period: second})
	for i := range 100 {
		take(table, t0+int64(i), gone, names.Text(fmt.Sprint(i)))
		take(table, t0+int64(i), kept, names.Text(fmt.Sprint(i)))
	}
	table.Remove(gone)
	if left := table.Evict(at(t0 + 99)); left != 100 {
		t.Fatalf("%d buckets, want the 100 of the other rule", left)
	}
	if left := table.Evict(at(t0 + 1000)); left != 99 {
		t.Fatalf("%d buckets after the first one is empty, want 99", left)
	}
}

func BenchmarkTakeOneKey(b *testing.B) {
	table, rule := limit.NewTable(0), limit.NewRule(limit.Rule{Count: 1, Period: 1, Burst: 1000})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		checks := []limit.Check{{Rule: rule}}
		for now := at(t0); pb.Next(); now++ {
			table.Take(now, checks)
		}
	})
}

func BenchmarkTakeManyKeys(b *testing.B) {
	table, rule, names := limit.NewTable(0), limit.NewRule(
		limit.Rule{Count: 1, Period: second, Burst: 10},
	), limit.NewNamer()
	keys := make([]limit.Key, 1<<16)
	for i := range keys {
		keys[i] = names.Text(fmt.Sprint(i))
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		checks := []limit.Check{{Rule: rule}}
		for i := 0; pb.Next(); i++ {
			checks[0].Key = keys[i&(len(keys)-1)]
			table.Take(at(t0), checks)
		}
	})
}

func BenchmarkTakeNewKeys(b *testing.B) {
	table, rule := limit.NewTable(1<<12), limit.NewRule(limit.Rule{Count: 20, Period: second, Burst: 40})
	names := limit.NewNamer()
	keys := make([]limit.Key, 1<<16)
	for i := range keys {
		keys[i] = names.Text(fmt.Sprint(i))
	}
	checks := []limit.Check{{Rule: rule}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		checks[0].Key = keys[i&(len(keys)-1)]
		table.Take(at(t0+int64(i/500)), checks)
	}
}
