package replay

import (
	"maps"
	"slices"
)

// perSecond counts events per second, and stores how many seconds had each count, which needs little memory. Seconds
// without events are not included. Times must not decrease by more than one second.
type perSecond struct {
	second, count int64
	seconds       map[int64]int64 // count -> number of seconds
}

func (p *perSecond) add(ms, n int64) {
	if second := ms / 1000; second != p.second {
		p.end()
		p.second = second
	}
	p.count += n
}

func (p *perSecond) end() {
	if p.second != 0 {
		if p.seconds == nil {
			p.seconds = map[int64]int64{}
		}
		p.seconds[p.count]++
	}
	p.count = 0
}

// percentiles returns the percentiles over the seconds. Call it after end.
func (p *perSecond) percentiles() Percentiles {
	total := int64(0)
	for _, n := range p.seconds {
		total += n
	}
	counts := slices.Sorted(maps.Keys(p.seconds))
	at := func(percent int64) int64 {
		index := nearestRank(total, percent)
		for _, c := range counts {
			if index -= p.seconds[c]; index < 0 {
				return c
			}
		}
		return 0
	}
	return Percentiles{P50: at(50), P90: at(90), P99: at(99), Max: at(100)}
}

// nearestRank returns the index, in n sorted values, of a percentile: the least value that at least this percentage of
// them do not exceed.
func nearestRank(n, percent int64) int64 { return max((n*percent+99)/100-1, 0) }
