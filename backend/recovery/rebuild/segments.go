package rebuild

import (
	"context"
	"errors"
	"strconv"
	"time"

	"sluice/backend/admission"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/internal/loop"
)

// claimSegments claims the allocations of the segments. It follows suspend_sales: a suspended segment begins no
// transfer and applies no allocation, so the units that the claim returns change only by transfers to the segment,
// which are applied when the segment is resumed.
func (j *job) claimSegments(ctx context.Context) error {
	unread := make([]bool, len(j.cfg.Space.All()))
	for _, c := range j.sales {
		if c.part.Spread < 2 {
			continue
		}
		if err := j.recoverAllocations(ctx, c.part, unread); err != nil {
			return err
		}
		a, err := j.cfg.Store.Claim(ctx, c.def.ID, c.part.Segment)
		if err != nil {
			return err
		}
		c.def.Stock, c.left, c.allocation = a.Units, a.Units, a.Version
	}
	return nil
}

// recoverAllocations corrects the allocations of a sale in SQL if a segment in Redis has applied a newer one: the
// database was restored from a backup, and orders of the segment may have units that were moved to it since. It
// compares all segments: the segment that units were moved from may not have applied the move, and would sell these
// units again. A segment that cannot be read keeps its allocation in SQL. unread is that of readSegments.
func (j *job) recoverAllocations(ctx context.Context, own spread.Part, unread []bool) error {
	applied, err := j.readSegments(ctx, own, unread)
	if err != nil {
		return err
	}
	// SQL is read after Redis: Redis then has newer allocations only if SQL was restored from a backup.
	inSQL, err := j.cfg.Store.Allocations(ctx, own.SaleID)
	if err != nil || !spread.Newer(applied, inSQL) {
		return err
	}
	j.cfg.Log.Warn("rebuild: the database has an older division of the stock, and that of Redis is kept",
		"sale", own.SaleID)
	return j.cfg.Store.RecoverAllocations(ctx, own.SaleID, applied)
}

const (
	readTimeout     = time.Second // of the segments of a sale in other shards
	concurrentReads = 64
)

// readSegments returns the states of all segments of a sale. own is the segment in the shard of the job; errors of the
// other segments are not returned. unread marks the shards that could not be read, for this or an earlier sale; they
// are not read again. A segment that could not be read, or that is in the data of another deployment, is returned as
// not loaded.
func (j *job) readSegments(ctx context.Context, own spread.Part, unread []bool) ([]spread.State, error) {
	states := make([]spread.State, own.Spread)
	others, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	deployment := strconv.FormatInt(j.owner.Deployment, 10)
	_ = loop.Each(states, concurrentReads, func(i int, _ spread.State) error {
		shard := j.cfg.Space.ShardOfSegment(own.SaleID, i) // each segment is in a shard of its own
		if i == own.Segment || unread[shard] {
			return nil
		}
		part := spread.PartOf(own.SaleID, i, own.Spread)
		state, owner, err := admission.ReadSegment(others, j.cfg.Pinner.Raw(), j.cfg.Space, part)
		unread[shard] = err != nil && !errors.Is(err, admission.ErrNotLoaded)
		state.Loaded = err == nil && (owner == deployment || owner != "" && owner == j.from) // also while it is held
		states[i] = state
		return nil
	})
	state, _, err := admission.ReadSegment(ctx, j.client, j.cfg.Space, own)
	if err != nil && !errors.Is(err, admission.ErrNotLoaded) {
		return nil, sale.Unavailable(err)
	}
	state.Loaded = err == nil // although the rebuild holds it
	states[own.Segment] = state
	return states, nil
}
