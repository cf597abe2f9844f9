package limit

import (
	"hash/maphash"
	"math/bits"
	"sync"
)

// Table holds the buckets of any number of rules, in bounded memory. An empty bucket says nothing that a new one would not, so it is dropped when
// there is need of room, and by Sweep. A bucket that is not empty is never dropped: with no room, new keys have no bucket and their rule says
// what becomes of them. Safe for concurrent use.
type Table struct {
	shards []shard // at most 64, so that a set of them is one word
	seed   maphash.Seed
	most   int // buckets of one shard
}

// About 140 bytes a bucket, all told.
const (
	// DefaultCapacity is for some 130,000 clients with live buckets at one time, in about 18 MB.
	DefaultCapacity = 1 << 17
	leastShard      = 512
	mostShards      = 64
)

// NewTable makes a table for about so many live buckets; DefaultCapacity if it is not positive.
func NewTable(capacity int) *Table {
	if capacity <= 0 {
		capacity = DefaultCapacity
	}
	n := 1
	for n < mostShards && capacity/(2*n) >= leastShard {
		n *= 2
	}
	t := &Table{shards: make([]shard, n), seed: maphash.MakeSeed(), most: (capacity + n - 1) / n}
	for i := range t.shards {
		t.shards[i].buckets = map[name]place{}
	}
	return t
}

// Capacity is how many live buckets there is room for, about.
func (t *Table) Capacity() int { return t.most * len(t.shards) }

// Take asks every rule about one request at the instant now, and fills verdicts, which must be as long as asks. When no rule refuses, every rule
// that is not Over takes the request, and the answer is -1. Else nothing is taken from any bucket, and the answer is the first ask that refuses;
// the verdicts after it are not filled.
//
// Take is one step: no other call sees a part of it. Rules must differ within one call. Callers may come with their instants out of order: to a
// bucket, time never runs backwards.
func (t *Table) Take(now Instant, asks []Ask, verdicts []Verdict) (refused int) {
	locked := t.lock(now, asks)
	refused = t.judge(asks, verdicts)
	if refused < 0 {
		refused = t.admit(asks, verdicts)
	}
	t.unlock(locked)
	return refused
}

// Peek says what Take would, and takes nothing.
func (t *Table) Peek(now Instant, asks []Ask, verdicts []Verdict) (refused int) {
	locked := t.lock(now, asks)
	refused = t.judge(asks, verdicts)
	t.unlock(locked)
	return refused
}

func (t *Table) judge(asks []Ask, verdicts []Verdict) (refused int) {
	for i := range asks {
		a := &asks[i]
		a.found = t.shards[a.shard].find(a.name())
		a.backlog = 0
		if a.found != nil {
			a.backlog = a.found.backlog(a.Rule, a.now)
		}
		verdicts[i] = a.Rule.judge(a.backlog)
		if verdicts[i].Over && !a.Rule.Shadow {
			return i
		}
	}
	return -1
}

// admit makes the buckets that are missing before it takes from any: finding no room must leave nothing to undo.
func (t *Table) admit(asks []Ask, verdicts []Verdict) (refused int) {
	for i := range asks {
		a := &asks[i]
		if a.found != nil {
			continue
		}
		if a.found = t.shards[a.shard].add(a.name(), t.most); a.found == nil {
			verdicts[i] = Verdict{NoRoom: true}
			if !a.Rule.Lenient && !a.Rule.Shadow {
				return i
			}
		}
	}
	for i := range asks {
		if a := &asks[i]; a.found != nil && !verdicts[i].Over {
			a.found.set(a.Rule, a.now, a.backlog+a.Rule.Period)
		}
	}
	return -1
}

// lock locks the shards of asks, always in the same order, and sets their clocks.
func (t *Table) lock(now Instant, asks []Ask) (locked uint64) {
	for i := range asks {
		asks[i].shard = int(maphash.Comparable(t.seed, asks[i].Key) & uint64(len(t.shards)-1))
		locked |= 1 << asks[i].shard
	}
	for rest := locked; rest != 0; rest &= rest - 1 {
		s := &t.shards[bits.TrailingZeros64(rest)]
		s.mu.Lock()
		s.now = max(s.now, now)
		// Before any bucket is looked up: one that was found must not be dropped for another. An emptier shard is left to Sweep.
		if len(s.buckets) > t.most/2 {
			for range len(asks) + 1 {
				s.drop()
			}
		}
	}
	for i := range asks {
		asks[i].now = t.shards[asks[i].shard].now
	}
	return locked
}

func (t *Table) unlock(locked uint64) {
	for ; locked != 0; locked &= locked - 1 {
		t.shards[bits.TrailingZeros64(locked)].mu.Unlock()
	}
}

func (a *Ask) name() name { return name{rule: a.Rule.id, key: a.Key} }

// Sweep drops the buckets that are empty by the instant now and returns how many are left.
func (t *Table) Sweep(now Instant) (left int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.now = max(s.now, now)
		for s.drop() {
		}
		left += len(s.buckets)
		s.mu.Unlock()
	}
	return left
}

// Forget drops the buckets of a rule, and of its heirs.
func (t *Table) Forget(r *Rule) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.forget(r.id)
		s.mu.Unlock()
	}
}

// shard is a part of the table under one lock.
type shard struct {
	mu      sync.Mutex
	now     Instant // the latest seen
	buckets map[name]place
	slab    slab
	due     heap
	_       [64]byte // neighbours' locks on other cache lines
}

// find is the bucket of a name, or nil.
func (s *shard) find(n name) *bucket {
	if p, ok := s.buckets[n]; ok {
		return s.slab.at(p)
	}
	return nil
}

// add makes a bucket that is not there yet, or returns nil when there is no room for it.
func (s *shard) add(n name, most int) *bucket {
	if len(s.buckets) >= most {
		return nil
	}
	p := s.slab.take()
	b := s.slab.at(p)
	*b = bucket{name: n, empty: s.now}
	s.buckets[n] = p
	s.due.push(due{at: s.now, bucket: p})
	return b
}

// drop drops one bucket that is empty, or reports that there is none.
func (s *shard) drop() bool {
	for len(s.due) > 0 && s.due[0].at <= s.now {
		p := s.due[0].bucket
		b := s.slab.at(p)
		if over := b.over(); over > s.now {
			s.due[0].at = over
			s.due.down(0)
			continue
		}
		s.due.pop()
		s.remove(p)
		return true
	}
	return false
}

func (s *shard) remove(p place) {
	delete(s.buckets, s.slab.at(p).name)
	s.slab.give(p)
}

func (s *shard) forget(rule uint32) {
	kept := s.due[:0]
	for _, d := range s.due {
		if s.slab.at(d.bucket).name.rule == rule {
			s.remove(d.bucket)
		} else {
			kept = append(kept, d)
		}
	}
	s.due = kept
	for i := len(s.due)/2 - 1; i >= 0; i-- {
		s.due.down(i)
	}
}
