package admission

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/internal/loop"
)

// SalePart is one part of a sale with the definition of the sale.
type SalePart struct {
	sale.Sale
	Segment int // from 0; 0 for a sale that lives in one shard
}

// Part returns the name of the part.
func (p SalePart) Part() spread.Part { return spread.PartOf(p.ID, p.Segment, p.Spread) }

// PartsOf returns the parts of a sale, by segment.
func PartsOf(def sale.Sale) []SalePart {
	parts := make([]SalePart, max(def.Spread, 1))
	for i := range parts {
		parts[i] = SalePart{def, i}
	}
	return parts
}

// ShardOf returns the shard of a part of a sale.
func (s *Stock) ShardOf(p spread.Part) keyspace.Shard {
	return s.cfg.Space.ShardOfSegment(p.SaleID, p.Segment)
}

// Spread returns the number of segments of a sale, 0 for a sale that lives in one shard. It reads Redis once per sale
// and process. It returns ErrNotLoaded if the shard of the first segment does not hold the sale, or an error that wraps
// sale.ErrUnavailable.
func (s *Stock) Spread(ctx context.Context, id string) (int, error) {
	if k, ok := s.spreads.Load(id); ok {
		return k.(int), nil
	}
	fields, err := s.cfg.Client.HMGet(ctx, s.cfg.Space.ShardOf(id).Sale(id), "opens_at", "segment").Result()
	switch {
	case err != nil:
		return 0, unavailable("spread of sale "+id, err)
	case fields[0] == nil:
		return 0, fmt.Errorf("%w: %s", ErrNotLoaded, id)
	}
	text, _ := fields[1].(string)
	_, k, err := parseSegment(text)
	if err != nil {
		return 0, unavailable("spread of sale "+id, err)
	}
	s.spreads.Store(id, k)
	return k, nil
}

// LearnSpread stores the number of segments of a sale, as SQL has it, so that Spread does not depend on Redis.
func (s *Stock) LearnSpread(def sale.Sale) { s.spreads.Store(def.ID, def.Spread) }

// parts returns the parts of a sale. Errors are those of Spread.
func (s *Stock) parts(ctx context.Context, id string) ([]spread.Part, error) {
	k, err := s.Spread(ctx, id)
	return spread.PartsOf(sale.Sale{ID: id, Spread: k}), err
}

// segmentField returns the field segment of a sale in Redis: "<index>/<spread>", or "" for a sale in one shard.
func segmentField(p spread.Part) string {
	if p.Spread < 2 {
		return ""
	}
	return strconv.Itoa(p.Segment) + "/" + strconv.Itoa(p.Spread)
}

// parseSegment is the inverse of segmentField. Its error is errUnusable.
func parseSegment(text string) (index, k int, err error) {
	if text == "" {
		return 0, 0, nil
	}
	left, right, _ := strings.Cut(text, "/")
	index, err = strconv.Atoi(left)
	if err == nil {
		k, err = strconv.Atoi(right)
	}
	if err != nil || index < 0 || k < 2 || index >= k {
		return 0, 0, unusable(fmt.Errorf("segment %q", text))
	}
	return index, k, nil
}

// concurrentParts bounds the parts of one sale that one call reads or changes concurrently.
const concurrentParts = 64

// eachPart calls do for all parts concurrently and joins the errors.
func eachPart(parts []spread.Part, do func(spread.Part) error) error {
	if len(parts) == 1 {
		return do(parts[0])
	}
	return errors.Join(loop.Each(parts, concurrentParts, func(_ int, p spread.Part) error {
		err := do(p)
		if err != nil {
			err = fmt.Errorf("segment %d: %w", p.Segment, err)
		}
		return err
	})...)
}
