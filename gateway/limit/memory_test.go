package limit_test

import (
	"fmt"
	"runtime"
	"testing"

	"sluice/gateway/limit"
)

// DefaultCapacity and the documentation state this size.
func TestBucketNeedsAbout140Bytes(t *testing.T) {
	const keys = 1 << 17
	names, rule := limit.NewNamer(), limit.NewRule(limit.Rule{Count: 1, Period: 3600e6, Burst: 10})
	held := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := held()
	table := limit.NewTable(2 * keys)
	for i := range keys {
		if ok, _ := take(table, t0, rule, names.Text(fmt.Sprint(i))); !ok {
			t.Fatalf("no bucket for key %d", i)
		}
	}
	each := float64(held()-before) / keys
	t.Logf("%.0f bytes a bucket, %.1f MB for %d", each, each*keys/1e6, keys)
	if each < 60 || each > 200 {
		t.Errorf("%.0f bytes a bucket, documented as about 140", each)
	}
	runtime.KeepAlive(table)
}
