package admission

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"sync/atomic"

	"sluice/backend/redis/keyspace"
	"sluice/backend/spread"
)

// ErrBypassListTooLong reports that a sale has more buyers than the caller accepts.
var ErrBypassListTooLong = errors.New("admission: the sale has too many buyers for a bypass list")

// BypassList identifies, without names, the buyers with a possible order of a sale. An edge forwards their requests
// while it rejects those of other buyers.
type BypassList struct {
	Accepted int64    // the list is complete for the first Accepted orders of the sale
	Sums     []uint32 // CRC-32 (IEEE) of the buyers, ascending and unique
}

// BypassList lists the buyers of a sale, at most limit of them. It returns ErrBypassListTooLong, sale.ErrNotFound, or
// an error that wraps sale.ErrUnavailable.
//
// It reads the number of accepted orders before the buyers. A purchase changes both in one step, so the list has the
// buyer of every order that was counted. Purchases continue between the reads.
func (s *Stock) BypassList(ctx context.Context, id string, limit int) (BypassList, error) {
	accepted, err := s.Accepted(ctx, id)
	if err != nil {
		return BypassList{}, err
	}
	parts, err := s.parts(ctx, id)
	if err != nil {
		return BypassList{}, err
	}
	tooLong := fmt.Errorf("%w: sale %s, limit %d", ErrBypassListTooLong, id, limit)
	var total atomic.Int64
	err = eachPart(parts, func(part spread.Part) error {
		n, err := s.cfg.Client.HLen(ctx, s.ShardOf(part).Buyers(id)).Result()
		if err != nil {
			return unavailable("bypass list of sale "+id, err)
		}
		total.Add(n)
		return nil
	})
	if err != nil {
		return BypassList{}, err
	}
	if total.Load() > int64(limit) {
		return BypassList{}, tooLong
	}
	var mu sync.Mutex
	sums := make([]uint32, 0, total.Load())
	err = eachPart(parts, func(part spread.Part) error {
		return ScanBuyers(ctx, s.cfg.Client, s.ShardOf(part).Buyers(id), func(buyer string, _ keyspace.Slots) {
			mu.Lock()
			defer mu.Unlock()
			sums = append(sums, crc32.ChecksumIEEE([]byte(buyer)))
		})
	})
	if err != nil {
		return BypassList{}, err
	}
	slices.Sort(sums)
	sums = slices.Compact(sums)
	if len(sums) > limit {
		return BypassList{}, tooLong
	}
	return BypassList{Accepted: accepted, Sums: sums}, nil
}
