package nginx

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// The plain store keeps its guarantees in any order of the steps of several workers, also when the dict has no room and
// when a worker is killed during a turn: it admits no more than the bound, loses no request that a bucket took, and a
// refusal takes nothing.
func TestPlainTurnsAgreeWithModel(t *testing.T) {
	server, all := requireLua(t), ""
	for _, places := range []int{40, 60, 1000} {
		for range 8 {
			seed := rand.IntN(1e9)
			out, err := server.try(fmt.Sprintf(`return require("turns").run(%d, 20000, %d)`, seed, places))
			if err != nil {
				t.Fatalf("seed %d, %d places: %v", seed, places, err)
			}
			t.Logf("seed %d, %d places: %s", seed, places, out)
			all += out + ", "
		}
	}
	for _, what := range []string{
		"admitted by 1", "admitted by 4", "charged", "early", "expired", "failed in a turn", "killed", "killed in a turn",
		"no lock", "no room", "passed over", "refused", "shadow", "swept",
	} {
		if !strings.Contains(all, what+"=") {
			t.Errorf("never: %s", what)
		}
	}
}
