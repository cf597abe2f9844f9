package plural

import "testing"

func TestOneIsSingular(t *testing.T) {
	for n, want := range map[int64]string{0: "0 orders", 1: "1 order", 2: "2 orders", -1: "-1 orders", 1000: "1000 orders"} {
		if got := Count(n, "order"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
