package admission

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"sluice/backend/sale"
)

// ErrManyHolders tells that a sale has more holders than were asked for.
var ErrBypassListTooLong = errors.New("admission: too many holders")

// Holders tells who may hold an order of one sale, without names: an edge lets these through to their order while it turns others away.
type BypassList struct {
	Accepted int64    // complete for the first so many orders of the sale
	Sums     []uint32 // CRC-32 (IEEE) of the buyers' bytes, ascending, each once
}

// holdersChunk is about how many buyers one look takes. Redis is held up by half a millisecond for it, however many there are in all.
const bypassChunk = 1000

// Accepted is the number of orders that a sale has ever accepted. It returns sale.ErrNotFound, or wraps sale.ErrUnavailable.
func (s *Stock) Accepted(ctx context.Context, id string) (int64, error) {
	f, err := s.client.HMGet(ctx, s.space.ShardOf(id).Sale(id), "version", "accepted").Result()
	if err != nil {
		return 0, unavailable("accepted of "+id, err)
	}
	if f[0] == nil {
		return 0, fmt.Errorf("sale %s: %w", id, sale.ErrNotFound)
	}
	text, ok := f[1].(string)
	if !ok {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, unavailable("accepted of "+id, err)
	}
	return n, nil
}

// Holders lists the buyers of a sale, at most so many of them: beyond that it returns ErrManyHolders at once. It returns sale.ErrNotFound, or wraps
// sale.ErrUnavailable.
//
// The acceptances are counted before the buyers are read, and both change in one step: whoever has one of the orders that were counted is found. Buyers
// are read in many small looks, between which others go on buying.
func (s *Stock) BypassList(ctx context.Context, id string, most int) (BypassList, error) {
	accepted, err := s.Accepted(ctx, id)
	if err != nil {
		return BypassList{}, err
	}
	key := s.space.ShardOf(id).Buyers(id)
	n, err := s.client.HLen(ctx, key).Result()
	if err != nil {
		return BypassList{}, unavailable("holders of "+id, err)
	}
	if n > int64(most) {
		return BypassList{}, fmt.Errorf("%w: sale %s has %d, and %d may be listed", ErrBypassListTooLong, id, n, most)
	}
	sums := make([]uint32, 0, n)
	for cursor := uint64(0); ; {
		cursor, sums, err = s.scanBypass(ctx, key, cursor, sums)
		if err != nil {
			return BypassList{}, unavailable("holders of "+id, err)
		}
		if len(sums) > 2*most { // a scan may show a buyer twice, while the hash grows
			return BypassList{}, fmt.Errorf("%w: sale %s", ErrBypassListTooLong, id)
		}
		if cursor == 0 {
			break
		}
	}
	slices.Sort(sums)
	sums = slices.Compact(sums)
	if len(sums) > most {
		return BypassList{}, fmt.Errorf("%w: sale %s", ErrBypassListTooLong, id)
	}
	return BypassList{Accepted: accepted, Sums: sums}, nil
}

// scanHolders takes one look at the hash and appends the sums of the buyers in it.
func (s *Stock) scanBypass(ctx context.Context, key string, cursor uint64, sums []uint32) (next uint64, more []uint32, err error) {
	pairs, next, err := s.client.HScan(ctx, key, cursor, "", bypassChunk).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, sums, err
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		sums = append(sums, crc32.ChecksumIEEE([]byte(pairs[i])))
	}
	return next, sums, nil
}
