package admission

import (
	"context"
	"errors"
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
// of its block, a small part of 2^32 numbers.
const blockSize = 4096

// Sequencer allocates order ids. An id is the second of the clock above a 32-bit sequence number that Redis leases in
// blocks.
//
// Ids are unique over all Sequencers of one Redis: a number repeats only after 2^32 others, in another second. A clock
// that is set back does not repeat ids while Redis keeps its counter. If Redis loses the counter, the next block starts
// at a number derived from the clock, which is very unlikely to be part of a block in use. If Redis returns with an
// older counter, StartGeneration is needed. A Sequencer is safe for concurrent use.
type Sequencer struct {
	client redis.Cmdable
	key    string
	now    func() time.Time
	lease  singleflight.Group
	limit  time.Duration // of one lease, for all callers that wait for it

	mu         sync.Mutex
	next, last uint64 // numbers that are leased and unused; none if next > last
	second     time.Time
}

// NewSequencer returns a Sequencer with the given clock. The first Next leases the first block.
func NewSequencer(client redis.Cmdable, space keyspace.Space, now func() time.Time) *Sequencer {
	return &Sequencer{
		client: client, key: space.Sequence(), now: now, limit: leaseTimeout, next: 1,
	}
}

// leaseTimeout is the limit of one lease.
const leaseTimeout = time.Second

// Next returns a new id. If the block is used up, it waits for the next one until ctx is done. An error wraps
// sale.ErrUnavailable.
func (s *Sequencer) Next(ctx context.Context) (sale.OrderID, error) {
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

func (s *Sequencer) takeID() (sale.OrderID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next > s.last {
		return 0, false
	}
	n := s.next
	s.next++
	if now := s.now(); now.After(s.second) { // the second never decreases
		s.second = now
	}
	return sale.NewOrderID(s.second, uint32(n)), true
}

func (s *Sequencer) refill(ctx context.Context) error {
	s.mu.Lock()
	empty := s.next > s.last
	s.mu.Unlock()
	if !empty {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limit)
	defer cancel()
	end, err := redisscript.Run(ctx, s.client, "alloc_order_ids", []string{s.key}, blockSize, s.anywhere()).Int64()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next, s.last = uint64(end)-blockSize+1, uint64(end)
	return nil
}

// anywhere returns a start for a new counter that is unrelated to earlier numbers.
func (s *Sequencer) anywhere() uint32 {
	h := fnv.New32a()
	_, _ = h.Write(strconv.AppendInt(nil, s.now().UnixNano(), 10))
	return h.Sum32()
}

// skipPast advances a counter that lags behind after, the sequence number of the newest known order. A missing
// counter stays missing: see Sequencer. An error wraps sale.ErrUnavailable.
func (s *Sequencer) skipPast(ctx context.Context, after uint32) error {
	const margin = 1024 * blockSize // blocks of other processes are within
	return s.reach(ctx, uint64(after)+margin, false)
}

// StartGeneration advances the counter to the numbers of a generation of Redis. A generation has 2^26 numbers of its
// own, so blocks that were leased before do not overlap with them; they repeat after 64 generations, in another second.
// The counter holds the generation above the 32 bits that an id uses, so a late call does not decrease it. An error
// wraps sale.ErrUnavailable.
func (s *Sequencer) StartGeneration(ctx context.Context, generation int64) error {
	return s.reach(ctx, uint64(generation)<<32|uint64(uint32(generation)<<26), true)
}

// reach advances the counter to target if it is lower. If create is false, a missing counter stays missing.
func (s *Sequencer) reach(ctx context.Context, target uint64, create bool) error {
	have, err := s.client.Get(ctx, s.key).Uint64()
	if errors.Is(err, redis.Nil) && !create {
		return nil
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return unavailable("advance order numbers", err)
	}
	if have >= target {
		return nil
	}
	if err := s.client.IncrBy(ctx, s.key, int64(target-have)).Err(); err != nil {
		return unavailable("advance order numbers", err)
	}
	return nil
}
