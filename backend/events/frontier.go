package events

import (
	"slices"
	"time"
)

const (
	// gapAge is how long scans search for a missing number of the outbox: its transaction is in progress or was rolled
	// back, or another process assigned the position.
	gapAge = 30 * time.Second
	// gapsBefore is how many numbers before the first one are searched for: transactions in progress at the start.
	gapsBefore = 200
)

// A frontier is where the next scan for changes without a position begins: before the first number of the outbox that
// is missing. So a change that becomes visible late is found together with later changes of its order, if its
// transaction takes less than gapAge. The zero value has found nothing. It is not safe for concurrent use.
type frontier struct {
	top  int64 // the highest number that was found; 0: none
	gaps []gap // ascending in both fields
}

// gap is a range of missing numbers.
type gap struct {
	first, last int64
	noticed     time.Time
}

// add adds numbers, ascending, that got positions.
func (f *frontier) add(numbers []int64, now time.Time) {
	for _, n := range numbers {
		switch i := slices.IndexFunc(f.gaps, func(g gap) bool { return g.first <= n && n <= g.last }); {
		case i >= 0:
			f.fill(i, n)
		case f.top == 0:
			f.top = n
			if n > 1 {
				f.gaps = []gap{{max(1, n-gapsBefore), n - 1, now}}
			}
		case n < f.top: // very late, or of a database that was restored from a backup
			f.top, f.gaps = n, nil
		case n > f.top+1:
			f.gaps = append(f.gaps, gap{f.top + 1, n - 1, now})
			f.top = n
		default:
			f.top = n
		}
	}
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

// next returns the number behind which the next scan begins, after one that began at now.
func (f *frontier) next(now time.Time) int64 {
	f.gaps = slices.DeleteFunc(f.gaps, func(g gap) bool { return now.Sub(g.noticed) > gapAge })
	if len(f.gaps) > 0 {
		return f.gaps[0].first - 1
	}
	return f.top
}
