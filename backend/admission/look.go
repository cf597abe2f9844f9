package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/backend/sale"
)

// LastSerial is how many orders Redis has accepted of a sale, also while the sale is held for a rebuild. It returns sale.ErrNotFound, or wraps
// sale.ErrUnavailable.
func (s *Stock) LastSerial(ctx context.Context, saleID string) (int64, error) {
	n, err := s.client.HGet(ctx, s.space.ShardOf(saleID).Sale(saleID), "accepted").Int64()
	if errors.Is(err, redis.Nil) {
		return 0, fmt.Errorf("sale %s: %w", saleID, sale.ErrNotFound)
	}
	if err != nil {
		return 0, unavailable("view "+saleID, err)
	}
	return n, nil
}

// Versions tells which version of each of these sales Redis holds; those that it does not hold whole are left out. An error wraps sale.ErrUnavailable.
func (s *Stock) Versions(ctx context.Context, ids []string) (map[string]int64, error) {
	versions := make(map[string]int64, len(ids))
	for some := range slices.Chunk(ids, salesPerRead) {
		have, left := make([]*redis.StringCmd, len(some)), make([]*redis.IntCmd, len(some))
		_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, id := range some {
				shard := s.space.ShardOf(id)
				have[i], left[i] = p.HGet(ctx, shard.Sale(id), "version"), p.Exists(ctx, shard.Stock(id))
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, unavailable("look at sales", err)
		}
		for i, id := range some {
			if version, err := have[i].Int64(); err == nil && left[i].Val() == 1 {
				versions[id] = version
			}
		}
	}
	return versions, nil
}

// Places calls yield for every place that a buyer holds in a sale, in no order and in small reads. A place that comes or goes meanwhile may be missed, and one
// may come twice. An error wraps sale.ErrUnavailable.
func (s *Stock) Places(ctx context.Context, saleID string, yield func(buyer string, nth int, id sale.OrderID)) error {
	return ScanBuyers(ctx, s.client, s.space.ShardOf(saleID).Buyers(saleID), func(buyer, held string) {
		for nth, id := range PlacesIn(held) {
			yield(buyer, nth, id)
		}
	})
}

// ScanBuyers calls each for every buyer in the hash key, and what it holds; see Places.
func ScanBuyers(ctx context.Context, client redis.UniversalClient, key string, each func(buyer, held string)) error {
	for cursor := uint64(0); ; {
		fields, next, err := client.HScan(ctx, key, cursor, "", readChunk).Result()
		if err != nil {
			return unavailable("read "+key, err)
		}
		for i := 1; i < len(fields); i += 2 {
			each(fields[i-1], fields[i])
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// PlacesIn are the orders that a buyer holds, by place from 1.
func PlacesIn(held string) func(yield func(nth int, id sale.OrderID) bool) {
	return func(yield func(int, sale.OrderID) bool) {
		nth := 0
		for text := range strings.SplitSeq(held, ",") {
			nth++
			if id, err := sale.ParseOrderID(text); err == nil && !yield(nth, id) {
				return
			}
		}
	}
}

// HavePlaces tells of each order, all of one sale, whether its buyer holds a place with it. An error wraps sale.ErrUnavailable.
func (s *Stock) HaveSlots(ctx context.Context, orders []sale.Order) ([]bool, error) {
	holds := make([]bool, len(orders))
	if len(orders) == 0 {
		return holds, nil
	}
	buyers := make([]string, len(orders))
	for i, o := range orders {
		buyers[i] = o.Buyer
	}
	saleID := orders[0].SaleID
	held, err := s.client.HMGet(ctx, s.space.ShardOf(saleID).Buyers(saleID), buyers...).Result()
	if err != nil {
		return nil, unavailable("places in "+saleID, err)
	}
	for i, o := range orders {
		text, _ := held[i].(string)
		holds[i] = placeOf(text, o.ID.String()) > 0
	}
	return holds, nil
}
