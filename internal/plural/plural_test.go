package plural

import "testing"

func TestOneIsSingular(t *testing.T) {
	for n, want := range map[int64]string{0: "0 orders", 1: "1 order", 2: "2 orders", -1: "-1 orders", 1000: "1000 orders"} {
		if got := Count(n, "order"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestNamed(t *testing.T) {
	for want, numbers := range map[string][]int{"shard 3": {3}, "shards 0, 12": {0, 12}} {
		if got := Named("shard", numbers); got != want {
			t.Errorf("%v: %q, want %q", numbers, got, want)
		}
	}
}
