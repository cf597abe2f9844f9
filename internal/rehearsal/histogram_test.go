package rehearsal

import "testing"

func TestEveryValueIsInItsBucket(t *testing.T) {
	last := -1
	for value := int64(1); value <= longest.Microseconds(); value += 1 + value/5000 {
		bucket := bucketOf(value)
		if bucket < last || valueOf(bucket) < value || float64(valueOf(bucket)-value) > float64(value)/1000 {
			t.Fatalf("%d is in bucket %d after %d, whose highest value is %d", value, bucket, last, valueOf(bucket))
		}
		if valueOf(bucket-1) >= value {
			t.Fatalf("%d is also in bucket %d", value, bucket-1)
		}
		last = bucket
	}
	var empty histogram
	if q := empty.quantile(99); q != 0 {
		t.Errorf("a quantile of nothing is %s", q)
	}
}
