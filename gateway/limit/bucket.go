package limit

type bucketName struct {
	rule uint32
	key  Key
}

// bucket stores the backlog of a key under a rule as the time at which it will be empty: whole microseconds, and
// frac/Count of one more, where Count is that of the rule. In units of 1/Count microseconds a request is exactly
// Period, so nothing is ever rounded.
type bucket struct {
	name  bucketName
	empty Instant
	frac  int64
}

// backlog returns the backlog at the given time, in the unit above.
func (b *bucket) backlog(r *Rule, now Instant) int64 {
	if b.empty < now { // frac is less than a microsecond
		return 0
	}
	return int64(b.empty-now)*r.Count + b.frac
}

func (b *bucket) set(r *Rule, now Instant, backlog int64) {
	b.empty, b.frac = now+Instant(backlog/r.Count), backlog%r.Count
}

// expires returns the first whole instant at which the bucket is empty, if it is not used again.
func (b *bucket) expires() Instant {
	if b.frac > 0 {
		return b.empty + 1
	}
	return b.empty
}

// slot is the index of a bucket in a slab.
type slot uint32

// slab allocates buckets. It grows by chunks, so that buckets do not move, and reuses released slots, so that a flood
// of clients with one request each causes no work for the garbage collector. The zero value is empty.
type slab struct {
	chunks []*[chunkSize]bucket
	free   []slot
	used   slot // slots that were ever allocated
}

const chunkSize = 64 // buckets: 2.5 KB

func (s *slab) at(i slot) *bucket { return &s.chunks[i/chunkSize][i%chunkSize] }

// allocate returns a free slot. Its bucket has its previous content.
func (s *slab) allocate() slot {
	if last := len(s.free) - 1; last >= 0 {
		i := s.free[last]
		s.free = s.free[:last]
		return i
	}
	i := s.used
	if int(i/chunkSize) == len(s.chunks) {
		s.chunks = append(s.chunks, new([chunkSize]bucket))
	}
	s.used++
	return i
}

func (s *slab) release(i slot) { s.free = append(s.free, i) }
