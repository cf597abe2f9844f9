package admission

import (
	"context"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	redisscript "sluice/lua/redis"
)

// blockSize is the number of sequence numbers that a Sequencer leases together. A process that ends discards the rest
// of its block, a small part of all numbers.
const blockSize = 4096

// blockLife is the time after which a Sequencer discards the rest of a block. A number of the block can occur twice in
// one second only if other processes lease all numbers of the shard within this time: 67 million with 64 shards.
const blockLife = time.Minute

// Sequencer allocates order ids in each shard. An id is the second of the clock above a 32-bit sequence number. A
// Sequencer leases sequence numbers from the counter of the shard in blocks. Of n shards, shard s has the numbers that
// are s modulo n.
//
// Ids are unique over all Sequencers and shards: a number repeats only after all other numbers of the shard, in another
// second. A clock that is set back does not repeat ids while Redis keeps its counter. If Redis loses the counter, the
// next block starts at a number derived from the clock, which is very unlikely to be part of a block in use. If Redis
// returns with an older counter, StartGeneration is needed. A Sequencer is safe for concurrent use.
type Sequencer []*shardSequencer

// NewSequencer returns a Sequencer with the given clock. The first Next of a shard leases its first block.
func NewSequencer(client redis.Cmdable, space keyspace.Space, now func() time.Time) Sequencer {
	var s Sequencer
	shards := space.All()
	for _, shard := range shards {
		n := uint64(len(shards))
		s = append(s, &shardSequencer{
			client: client, key: shard.OrderNumbers(), shard: uint64(shard), shards: n, numbers: 1 << 32 / n,
			now: now, limit: leaseTimeout, first: 1,
		})
	}
	return s
}

// Next returns a new id for an order of a shard. If the block is used up, it waits for the next one until ctx is done.
// An error wraps sale.ErrUnavailable.
func (s Sequencer) Next(ctx context.Context, shard keyspace.Shard) (sale.OrderID, error) {
	return s[shard].next(ctx)
}

// StartGeneration advances the counter of a shard to the numbers of a generation. The numbers of a shard are divided
// into 64 ranges, and each of 64 successive generations begins in another one. Its blocks therefore do not overlap with
// those that were leased in earlier generations. The ranges repeat after 64 generations, in another second. The counter
// holds the generation above the 32 bits that an id uses, so a late call does not decrease it. An error wraps
// sale.ErrUnavailable.
func (s Sequencer) StartGeneration(ctx context.Context, shard keyspace.Shard, generation int64) error {
	one := s[shard]
	first := uint64(generation%generations) * (one.numbers / generations)
	return reach(ctx, one.client, one.key, uint64(generation)<<32|first, 0)
}

// generations is the number of generations with different numbers.
const generations = 64

// shardSequencer allocates the order ids of one shard.
type shardSequencer struct {
	client  redis.Cmdable
	key     string
	shard   uint64
	shards  uint64
	numbers uint64 // of the shard
	now     func() time.Time
	lease   singleflight.Group
	limit   time.Duration // of one lease, for all callers that wait for it

	mu          sync.Mutex
	first, last uint64    // values of the counter that are leased and unused; none if first > last
	leased      time.Time // when they were leased
	second      time.Time
}

// leaseTimeout is the limit of one lease.
const leaseTimeout = time.Second

func (s *shardSequencer) next(ctx context.Context) (sale.OrderID, error) {
	for {
		if id, ok := s.takeID(); ok {
			return id, nil
		}
		var err error
		select {
		case r := <-s.lease.DoChan("", func() (any, error) { return nil, s.refill(ctx) }):
			err = r.Err
		case <-ctx.Done(): // other callers continue to wait
			err = ctx.Err()
		}
		if err != nil {
			return 0, unavailable("lease order numbers", err)
		}
	}
}

// takeID returns the next id, and false if the block is used up or too old.
func (s *shardSequencer) takeID() (sale.OrderID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.first > s.last || now.Sub(s.leased) > blockLife {
		s.first = s.last + 1
		return 0, false
	}
	n := s.first
	s.first++
	if now.After(s.second) { // the second never decreases
		s.second = now
	}
	return sale.NewOrderID(s.second, uint32(n%s.numbers*s.shards+s.shard)), true
}

// refill leases a block if the last one is used up, within s.limit. The end of ctx does not end it, because other
// callers wait for it too.
func (s *shardSequencer) refill(ctx context.Context) error {
	s.mu.Lock()
	empty := s.first > s.last
	s.mu.Unlock()
	if !empty {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limit)
	defer cancel()
	end, err := redisscript.Run(ctx, s.client, "alloc_order_ids", []string{s.key}, blockSize, s.unrelatedStart()).Int64()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first, s.last, s.leased = uint64(end)-blockSize+1, uint64(end), s.now()
	return nil
}

// unrelatedStart returns a start for a counter that Redis does not have, unrelated to the numbers in use.
func (s *shardSequencer) unrelatedStart() uint32 {
	h := fnv.New32a()
	_, _ = h.Write(strconv.AppendInt(nil, s.now().UnixNano(), 10))
	return h.Sum32()
}

// skipPast advances the counter of a shard beyond the sequence number after, that of the newest known order. A counter
// that is higher is unchanged. A missing counter stays missing: see Sequencer. An error wraps sale.ErrUnavailable.
func skipPast(
	ctx context.Context, client redis.Scripter, space keyspace.Space, shard keyspace.Shard, after uint32,
) error {
	const margin = 1024 * blockSize // covers the blocks that other processes have leased
	target := uint64(after)/uint64(len(space.All())) + margin
	return reach(ctx, client, shard.OrderNumbers(), target, target)
}

// reach advances the counter key to target if it is lower. A counter that does not exist is compared as if it were
// missing.
func reach(ctx context.Context, client redis.Scripter, key string, target, missing uint64) error {
	if err := redisscript.Run(ctx, client, "advance_order_ids", []string{key}, target, missing).Err(); err != nil {
		return unavailable("advance order numbers", err)
	}
	return nil
}
