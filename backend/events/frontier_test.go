package events

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever order transactions commit in, the next scan finds each change that is visible within gapAge, and begins
// behind all changes when none is missing.
func TestFrontierIsBeforeChangesInProgress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, last := time.Unix(0, 0), int64(1000)
		var f frontier
		from := f.scanned([]int64{last}, now)
		started, visible := map[int64]time.Time{}, []int64(nil)
		commit := func(n int64) {
			visible = append(visible, n)
			delete(started, n)
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(*rapid.T) {
				last++
				started[last] = now
			},
			"commit": func(t *rapid.T) {
				if len(started) > 0 {
					commit(rapid.SampledFrom(sorted(started)).Draw(t, "number"))
				}
			},
			"wait": func(*rapid.T) {
				now = now.Add(gapAge / 5)
				for n, at := range started {
					if now.Sub(at) >= gapAge {
						commit(n)
					}
				}
			},
			"scan": func(t *rapid.T) {
				slices.Sort(visible)
				if len(visible) > 0 && visible[0] <= from {
					t.Fatalf("change %d is not found behind %d: %+v", visible[0], from, f)
				}
				from, visible = f.scanned(visible, now), nil
			},
		})
		for n := range started {
			commit(n)
		}
		slices.Sort(visible)
		f.scanned(visible, now)
		if got := f.scanned(nil, now.Add(gapAge+1)); got != last {
			t.Fatalf("the next scan begins behind %d, want %d", got, last)
		}
	})
}

func sorted(m map[int64]time.Time) (keys []int64) {
	for n := range m {
		keys = append(keys, n)
	}
	slices.Sort(keys)
	return keys
}

// A transaction that was rolled back leaves a gap, which is searched for a while.
func TestFrontierAbandonsOldGaps(t *testing.T) {
	var f frontier
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	for _, c := range []struct {
		second int
		found  []int64
		want   int64
	}{
		{0, []int64{500}, 0},
		{20, []int64{501, 504}, 0},
		{31, []int64{505}, 501},
		{40, []int64{503}, 501},
		{45, []int64{506}, 501},
		{51, []int64{507}, 507},
		{55, []int64{510, 520}, 507},
		{86, []int64{511, 512}, 512}, // the scan has passed the gap of 508 and 509, and not that of 513 to 519
		{87, nil, 520},
		{100, []int64{20_000, 20_001}, 20_000 - gapWidth - 1}, // another process assigned most of the positions between
		{110, []int64{502}, 0},                                // a very late change resets the gaps
		{111, []int64{20_002}, 0},
		{142, nil, 20_002},
	} {
		if got := f.scanned(c.found, at(c.second)); got != c.want {
			t.Errorf("at %d s: the next scan begins behind %d, want %d", c.second, got, c.want)
		}
	}
	for n := int64(30_000); n < 30_000+3*maxGaps; n += 2 {
		f.scanned([]int64{n}, at(150))
	}
	if len(f.gaps) != maxGaps {
		t.Errorf("%d gaps are kept, want %d", len(f.gaps), maxGaps)
	}
}
