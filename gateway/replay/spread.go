package replay

// spread distributes the entries of a log with a resolution of seconds evenly over their second. Otherwise they would
// look like a burst.
type spread struct {
	capacity int
	second   []entry
}

func (s *spread) add(e entry, emit func(entry)) {
	if !e.coarse {
		s.end(emit)
		emit(e)
		return
	}
	if len(s.second) > 0 && s.second[0].at != e.at || len(s.second) >= s.capacity {
		s.end(emit)
	}
	s.second = append(s.second, e)
}

func (s *spread) end(emit func(entry)) {
	n := int64(len(s.second))
	for i, e := range s.second {
		e.at += int64(i) * 1000 / n
		emit(e)
	}
	s.second = s.second[:0]
}
