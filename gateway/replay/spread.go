package replay

import (
	"cmp"
	"slices"
)

// spread distributes the entries of a log with a resolution of seconds evenly over their second. Otherwise they would
// look like a burst. Other entries of the second keep their times.
type spread struct {
	capacity int
	second   []entry // of one second, the first one coarse
	coarse   int64   // number of coarse entries in second
}

func (s *spread) add(e entry, emit func(entry)) {
	if len(s.second) > 0 && s.second[0].at/1000 != e.at/1000 || len(s.second) >= s.capacity {
		s.end(emit)
	}
	if len(s.second) == 0 && !e.coarse {
		emit(e)
		return
	}
	s.second = append(s.second, e)
	if e.coarse {
		s.coarse++
	}
}

func (s *spread) end(emit func(entry)) {
	i := int64(0)
	for j := range s.second {
		if e := &s.second[j]; e.coarse {
			e.at += i * 1000 / s.coarse
			i++
		}
	}
	slices.SortStableFunc(s.second, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	for _, e := range s.second {
		emit(e)
	}
	s.second, s.coarse = s.second[:0], 0
}
