package nginx

import (
	"fmt"
	"strings"
	"testing"
)

// Several rules at once, by address and by buyer, strict, lenient and shadows, in a table that is nearly full; three workers, each with its own memory of
// who was refused, of which one dies in its turns again and again. Whatever is asked, the answer is that of a number for each bucket: the verdict, the
// rule, the wait to the microsecond, what a bucket holds, and that only those find no room for whom there is none.
func TestTurnsInANearlyFullTableAgreeWithAModel(t *testing.T) {
	server, stop := startLua(t, "32k")
	defer stop()
	var all strings.Builder
	for seed := 1; seed <= 4; seed++ {
		happened, err := server.try(fmt.Sprintf(`return require("turns").run(%d, 20000, %d)`, seed, 1+seed%2)) // pages
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		t.Log(happened)
		all.WriteString(happened + " ")
	}
	for _, what := range []string{"early", "refused", "no room", "passed over", "shadow", "dead", "charged", "admitted by 7"} {
		if !strings.Contains(" "+all.String(), " "+what+"=") {
			t.Errorf("%q has never happened: this run shows nothing about it", what)
		}
	}
}
