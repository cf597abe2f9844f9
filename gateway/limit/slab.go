package limit

// place is where a bucket is in a slab.
type place uint32

// slab holds buckets by place. It grows by whole chunks, so that a bucket stays where it is, and uses a place again that was given back: a flood of clients
// who each come once costs the garbage collector nothing. The zero value is empty.
type slab struct {
	chunks []*[chunkSize]bucket
	free   []place // given back
	used   place   // places that were ever in use
}

const chunkSize = 64 // buckets: 2.5 KB

func (s *slab) at(p place) *bucket { return &s.chunks[p/chunkSize][p%chunkSize] }

// take is the place of a bucket that nobody uses, as it was left.
func (s *slab) take() place {
	if last := len(s.free) - 1; last >= 0 {
		p := s.free[last]
		s.free = s.free[:last]
		return p
	}
	p := s.used
	if int(p/chunkSize) == len(s.chunks) {
		s.chunks = append(s.chunks, new([chunkSize]bucket))
	}
	s.used++
	return p
}

func (s *slab) give(p place) { s.free = append(s.free, p) }
