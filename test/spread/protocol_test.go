package spread

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "play this seed alone and print its trace")
	seedsFlag = flag.Int("seeds", 0, "how many seeds to play; 0: 500")
	fromFlag  = flag.Uint64("from", 1, "the first seed")
)

// In every interleaving of purchases, moves, losses and rebuilds, no unit is sold twice or stranded, and sold out is
// answered only when no unit is left or in transfer.
func TestTransfersOverModel(t *testing.T) {
	playSeeds(t, 500, func(k int, stock int64) stores { return newModel(k, stock) })
}

func playSeeds(t *testing.T, seeds int, open func(k int, stock int64) stores) {
	t.Helper()
	first, n := *fromFlag, seeds
	if *seedsFlag > 0 {
		n = *seedsFlag
	}
	if *seedFlag > 0 {
		first, n = *seedFlag, 1
	}
	var total result
	for seed := first; seed < first+uint64(n); seed++ {
		w := play(seed, open)
		total.add(w.result)
		if *seedFlag > 0 {
			fmt.Fprintln(os.Stdout, strings.Join(w.trace, "\n"))
		}
		if w.first != "" {
			t.Fatalf("seed %d: VIOLATION: %s\nlast steps:\n%s", seed, w.first,
				strings.Join(w.trace[max(0, len(w.trace)-40):], "\n"))
		}
	}
	t.Logf("%d seeds: %+v", n, total)
	if n >= seeds && (total.SoldOut < n || total.Losses == 0 || total.Refused == 0 || total.Restocks == 0) {
		t.Errorf("the runs lack events: %+v", total)
	}
}
