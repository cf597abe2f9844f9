package admission

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"sluice/backend/keyspace"
	"sluice/backend/sale"
)

// Block is how many sequence numbers a Sequencer leases at once. A process that ends throws the rest of its block away: of 2^32 numbers
// that is nothing.
const Block = 4096

// Sequencer makes order ids: the second of the clock above a sequence number that Redis leases out in blocks.
//
// No id is made twice, by however many Sequencers on one Redis: a number comes again only after 2^32 others, and then in
// another second. A clock set back does no harm while Redis keeps its counter; when Redis loses it, Skip must be called with a
// number from the newest orders known. It is safe for concurrent use.
type Sequencer struct {
	client redis.Cmdable
	key    string
	now    func() time.Time
	lease  singleflight.Group

	mu         sync.Mutex
	next, last uint64 // numbers in hand; none when next > last
	second     time.Time
}

// NewSequencer makes a Sequencer with the given clock. It asks Redis for nothing until the first Next.
func NewSequencer(client redis.Cmdable, space keyspace.Space, now func() time.Time) *Sequencer {
	return &Sequencer{client: client, key: space.Sequence(), now: now, next: 1}
}

// leaseTimeout bounds a lease, whoever waits for it.
const leaseTimeout = time.Second

// Next makes an id. When the numbers have run out it waits for more until ctx is done. An error wraps sale.ErrUnavailable.
func (s *Sequencer) Next(ctx context.Context) (sale.OrderID, error) {
	for {
		if id, ok := s.take(); ok {
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

func (s *Sequencer) take() (sale.OrderID, bool) {
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
	defer cancel()
	end, err := s.client.IncrBy(ctx, s.key, Block).Result()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next, s.last = uint64(end)-Block+1, uint64(end)
	return nil
}

// Skip moves the counter in Redis on, far enough past the number after that no block somebody still holds is leased again. It is called when
// Redis was found without a sale that SQL has, with the sequence of the newest order known. An error wraps sale.ErrUnavailable.
func (s *Sequencer) Skip(ctx context.Context, after uint32) error {
	const margin = 1024 * Block // blocks in the hands of other processes lie within
	have, err := s.client.Get(ctx, s.key).Uint64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return unavailable("skip order numbers", err)
	}
	target := uint64(after) + margin
	if have >= target {
		return nil
	}
	if err := s.client.IncrBy(ctx, s.key, int64(target-have)).Err(); err != nil {
		return unavailable("skip order numbers", err)
	}
	return nil
}
