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

// Block is how many sequence numbers a Sequencer leases at once. A process that ends throws the rest of its block away: of 2^32 numbers
// that is nothing.
const Block = 4096

// Sequencer makes order ids: the second of the clock above a sequence number that Redis leases out in blocks.
//
// No id is made twice, by however many Sequencers on one Redis: a number comes again only after 2^32 others, and then in
// another second. A clock set back does no harm while Redis keeps its counter. When Redis loses it, nobody knows which blocks are in whose hands; it begins
// anew at a number that the clock makes up, 2^32 to a handful against one that is in use. A Redis that comes back with an older counter needs Begin.
// It is safe for concurrent use.
type Sequencer struct {
	client redis.Cmdable
	key    string
	now    func() time.Time
	script *redis.Script
	lease  singleflight.Group
	limit  time.Duration // of a lease, whoever waits for it

	mu         sync.Mutex
	next, last uint64 // numbers in hand; none when next > last
	second     time.Time
}

// NewSequencer makes a Sequencer with the given clock. It asks Redis for nothing until the first Next.
func NewSequencer(client redis.Cmdable, space keyspace.Space, now func() time.Time) *Sequencer {
	return &Sequencer{client: client, key: space.Sequence(), now: now, script: redisscript.Load("alloc_order_ids"), limit: leaseTimeout, next: 1}
}

// leaseTimeout is a Sequencer's limit.
const leaseTimeout = time.Second

// Next makes an id. When the numbers have run out it waits for more until ctx is done. An error wraps sale.ErrUnavailable.
func (s *Sequencer) Next(ctx context.Context) (sale.OrderID, error) {
	for {
		if id, ok := s.takeID(); ok {
			return id, nil
		}
		var err error
		select {
		case r := <-s.lease.DoChan("", func() (any, error) { return nil, s.refill(ctx) }):
			err = r.Err
		case <-ctx.Done(): // the others wait on
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
	if now := s.now(); now.After(s.second) { // never backwards
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
	end, err := s.script.Run(ctx, s.client, []string{s.key}, Block, s.anywhere()).Int64()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next, s.last = uint64(end)-Block+1, uint64(end)
	return nil
}

// anywhere is a number that has nothing to do with those before.
func (s *Sequencer) anywhere() uint32 {
	h := fnv.New32a()
	_, _ = h.Write(strconv.AppendInt(nil, s.now().UnixNano(), 10))
	return h.Sum32()
}

// Skip moves a counter on that has been left behind by the newest order known, whose sequence is after. A counter that is not there stays away: see
// Sequencer. An error wraps sale.ErrUnavailable.
func (s *Sequencer) skipPast(ctx context.Context, after uint32) error {
	const margin = 1024 * Block // blocks in the hands of other processes lie within
	return s.reach(ctx, uint64(after)+margin, false)
}

// Begin moves the counter to the numbers of a generation of Redis, 2^26 of its own: whatever was leased before, on whichever Redis, is none of them. They come
// again after 64 generations, and then in another second. Above the 32 bits that an id has of it, the counter holds the generation, so that it never goes back,
// whoever is late. An error wraps sale.ErrUnavailable.
func (s *Sequencer) StartGeneration(ctx context.Context, generation int64) error {
	return s.reach(ctx, uint64(generation)<<32|uint64(uint32(generation)<<26), true)
}

// reach moves the counter on to a number, if it is behind.
func (s *Sequencer) reach(ctx context.Context, target uint64, lost bool) error {
	have, err := s.client.Get(ctx, s.key).Uint64()
	if errors.Is(err, redis.Nil) && !lost {
		return nil
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return unavailable("skip order numbers", err)
	}
	if have >= target {
		return nil
	}
	if err := s.client.IncrBy(ctx, s.key, int64(target-have)).Err(); err != nil {
		return unavailable("skip order numbers", err)
	}
	return nil
}
