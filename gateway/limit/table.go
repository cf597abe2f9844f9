package limit

import (
	"cmp"
	"hash/maphash"
	"maps"
	"math/bits"
	"slices"
	"sync"

	"sluice/gateway/internal/heap"
)

// Table stores the buckets of any number of rules in bounded memory. Empty buckets are equivalent to new ones: they
// are evicted when space is needed, and by Evict. Other buckets are never evicted. If the table is full, a request
// with a new key is refused or admitted according to Rule.FailOpen. Safe for concurrent use.
type Table struct {
	shards        []shard // at most 64, so that a set of them fits one word
	seed          maphash.Seed
	shardCapacity int // in buckets
}

// A bucket needs about 140 bytes, including its map and heap entries.
const (
	// DefaultCapacity is the default number of buckets, about 18 MB.
	DefaultCapacity  = 1 << 17
	minShardCapacity = 512
	maxShards        = 64
)

// NewTable returns a table with about the given capacity in buckets, or DefaultCapacity if it is not positive.
func NewTable(capacity int) *Table {
	capacity = cmp.Or(max(capacity, 0), DefaultCapacity)
	n := 1
	for n < maxShards && capacity/(2*n) >= minShardCapacity {
		n *= 2
	}
	t := &Table{shards: make([]shard, n), seed: maphash.MakeSeed(), shardCapacity: (capacity-1)/n + 1}
	for i := range t.shards {
		t.shards[i].buckets = map[bucketName]bucket{}
	}
	return t
}

// Capacity returns the number of buckets for which there is space.
func (t *Table) Capacity() int { return t.shardCapacity * len(t.shards) }

// Take checks a request against several rules and sets their verdicts. If no rule refuses, the request is counted by
// every rule that is not Over, and Take returns -1. Otherwise nothing is counted, Take returns the index of the first
// check that refuses, and the verdicts after it are not set.
//
// Take is atomic. The rules of one call must differ. Concurrent callers may pass times out of order: for a bucket,
// time never runs backwards.
func (t *Table) Take(now Instant, checks []Check) (refused int) {
	locked := t.lock(now, checks)
	refused = t.evaluate(checks)
	if refused < 0 {
		refused = t.count(checks)
	}
	t.unlock(locked)
	return refused
}

// Peek returns the result of Take without counting the request.
func (t *Table) Peek(now Instant, checks []Check) (refused int) {
	locked := t.lock(now, checks)
	refused = t.evaluate(checks)
	t.unlock(locked)
	return refused
}

// evaluate sets the verdicts, and returns the first check that refuses, or -1.
func (t *Table) evaluate(checks []Check) (refused int) {
	for i := range checks {
		c := &checks[i]
		var b bucket // a missing one is empty
		b, c.exists = t.shards[c.shard].buckets[c.name()]
		c.backlog = b.backlog(c.Rule, c.now)
		c.Verdict = c.Rule.evaluate(c.backlog)
		if c.Verdict.Over && !c.Rule.Shadow {
			return i
		}
	}
	return -1
}

// count counts the request. It creates all missing buckets first, so that nothing must be undone if the table is full.
func (t *Table) count(checks []Check) (refused int) {
	for i := range checks {
		c := &checks[i]
		if c.exists {
			continue
		}
		if c.exists = t.shards[c.shard].add(c.name(), t.shardCapacity); !c.exists {
			c.Verdict = Verdict{Full: true}
			if !c.Rule.FailOpen && !c.Rule.Shadow {
				return i
			}
		}
	}
	for i := range checks {
		if c := &checks[i]; c.exists && !c.Verdict.Over {
			t.shards[c.shard].buckets[c.name()] = bucketOf(c.Rule, c.now, c.backlog+c.Rule.Period)
		}
	}
	return -1
}

// lock locks the shards of the checks, always in the same order, and advances their clocks.
func (t *Table) lock(now Instant, checks []Check) (locked uint64) {
	for i := range checks {
		checks[i].shard = int(maphash.Comparable(t.seed, checks[i].Key) & uint64(len(t.shards)-1))
		locked |= 1 << checks[i].shard
	}
	for rest := locked; rest != 0; rest &= rest - 1 {
		s := &t.shards[bits.TrailingZeros64(rest)]
		s.mu.Lock()
		s.now = max(s.now, now)
		// Buckets are evicted before any is looked up, so that no bucket of this call is evicted for another one. Evict
		// handles shards that are emptier.
		if len(s.buckets) > t.shardCapacity/2 {
			for range len(checks) + 1 {
				s.evict()
			}
		}
	}
	for i := range checks {
		checks[i].now = t.shards[checks[i].shard].now
	}
	return locked
}

func (t *Table) unlock(locked uint64) {
	for ; locked != 0; locked &= locked - 1 {
		t.shards[bits.TrailingZeros64(locked)].mu.Unlock()
	}
}

func (c *Check) name() bucketName { return bucketName{rule: c.Rule.id, key: c.Key} }

// Evict removes the buckets that are empty, and returns the number of remaining ones.
func (t *Table) Evict(now Instant) (left int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.now = max(s.now, now)
		for s.evict() {
		}
		left += len(s.buckets)
		s.mu.Unlock()
	}
	return left
}

// Remove removes the buckets of a rule, and of the rules that inherited them.
func (t *Table) Remove(r *Rule) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.removeRule(r.id)
		s.mu.Unlock()
	}
}

// shard is a part of the table with its own lock.
type shard struct {
	mu      sync.Mutex
	now     Instant // the latest time passed by a caller
	buckets map[bucketName]bucket
	expiry  heap.Heap[expiry]
	_       [64]byte // keeps the locks of adjacent shards on different cache lines
}

// expiry is a lower bound of the time at which a bucket is empty. Using a bucket only postpones that time, so the
// heap is not updated on each use.
type expiry struct {
	at     Instant
	bucket bucketName
}

func earlier(a, b expiry) bool { return a.at < b.at }

// add creates an empty bucket, and reports whether the shard has room for it.
func (s *shard) add(n bucketName, capacity int) bool {
	if len(s.buckets) >= capacity {
		return false
	}
	s.buckets[n] = bucket{empty: s.now}
	s.expiry.Push(expiry{at: s.now, bucket: n}, earlier)
	return true
}

// evict removes one empty bucket, and reports whether there was one.
func (s *shard) evict() bool {
	for len(s.expiry) > 0 && s.expiry[0].at <= s.now {
		name := s.expiry[0].bucket
		if at := s.buckets[name].expires(); at > s.now {
			s.expiry[0].at = at
			s.expiry.Down(0, earlier)
			continue
		}
		s.expiry.Pop(earlier)
		delete(s.buckets, name)
		return true
	}
	return false
}

// removeRule removes all buckets of a rule and restores the heap.
func (s *shard) removeRule(rule uint32) {
	s.expiry = slices.DeleteFunc(s.expiry, func(e expiry) bool { return e.bucket.rule == rule })
	maps.DeleteFunc(s.buckets, func(n bucketName, _ bucket) bool { return n.rule == rule })
	for i := len(s.expiry)/2 - 1; i >= 0; i-- {
		s.expiry.Down(i, earlier)
	}
}
