package events

import (
	"cmp"
	"slices"
	"time"
)

const (
	// gapAge is how long scans search for a missing number of the outbox: its transaction is in progress or was rolled
	// back, or another process assigned the position.
	gapAge = 30 * time.Second
	// gapWidth bounds a gap: if more numbers before a found one are missing, scans search for the last gapWidth of them.
	gapWidth = 5000
	// maxGaps is the number of gaps that are kept.
	maxGaps = 1000
)

// A frontier determines where the next scan for changes without a position begins: before the first number (seq) of the
// outbox that no scan has found. A change that commits late is therefore found not later than the next change of the
// same order. This requires that the transaction takes less than gapAge, and that fewer than gapWidth
// newer changes get positions meanwhile. The zero value has found nothing. It is not safe for concurrent use.
type frontier struct {
	top  int64 // the highest number that was found; 0: none
	gaps []gap // ascending in both fields
}

// gap is a range of missing numbers.
type gap struct {
	first, last int64
	noticed     time.Time
}

// scanned adds the numbers that a scan from the frontier found, ascending, and returns the number after which the next
// scan begins. A gap that the scan has passed is removed when gapAge has elapsed since it was noticed.
func (f *frontier) scanned(numbers []int64, now time.Time) (next int64) {
	for _, n := range numbers {
		f.add(n, now)
	}
	f.gaps = slices.DeleteFunc(f.gaps, func(g gap) bool {
		passed := len(numbers) == 0 || g.last < numbers[len(numbers)-1]
		return passed && now.Sub(g.noticed) > gapAge
	})
	f.gaps = f.gaps[max(0, len(f.gaps)-maxGaps):]
	if len(f.gaps) > 0 {
		return f.gaps[0].first - 1
	}
	return f.top
}

func (f *frontier) add(n int64, now time.Time) {
	if i, found := slices.BinarySearchFunc(f.gaps, n, gap.compare); found {
		f.fill(i, n)
		return
	}
	if n < f.top { // very late, or of a database that was restored from a backup
		f.top, f.gaps = 0, nil
	}
	if first := max(f.top+1, n-gapWidth); first < n {
		f.gaps = append(f.gaps, gap{first, n - 1, now})
	}
	f.top = n
}

// compare orders a gap before, around or behind n.
func (g gap) compare(n int64) int {
	if g.first <= n && n <= g.last {
		return 0
	}
	return cmp.Compare(g.first, n)
}

// fill removes n from gap i.
func (f *frontier) fill(i int, n int64) {
	g := f.gaps[i]
	var rest []gap
	if g.first < n {
		rest = append(rest, gap{g.first, n - 1, g.noticed})
	}
	if n < g.last {
		rest = append(rest, gap{n + 1, g.last, g.noticed})
	}
	f.gaps = slices.Replace(f.gaps, i, i+1, rest...)
}
