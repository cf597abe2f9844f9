package rebuild

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/backend/admission"
	"sluice/backend/spread"
)

// claimSegments claims the allocations of the segments. It follows suspend_sales: a suspended segment begins no
// transfer and applies no allocation, so the units that the claim returns change only by transfers to the segment,
// which are applied when the segment is resumed.
func (j *job) claimSegments(ctx context.Context) error {
	for _, c := range j.sales {
		if c.part.Spread < 2 {
			continue
		}
		if err := j.recoverAllocations(ctx, c); err != nil {
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

const (
	readTimeout     = 2 * time.Second // of all segments of a sale
	concurrentReads = 64
)

// recoverAllocations corrects the allocations of a sale in SQL if Redis has applied a newer one to the segment: the
// database was restored from a backup, and orders of a segment may have units that were moved to it since. A segment
// that cannot be read keeps its allocation in SQL.
func (j *job) recoverAllocations(ctx context.Context, c *saleCount) error {
	of := spread.Sale{ID: c.def.ID, Spread: c.part.Spread}
	own, err := admission.ReadSegment(ctx, j.client, j.cfg.Space, of, c.part.Segment)
	if errors.Is(err, admission.ErrNotLoaded) {
		return nil
	}
	if err != nil {
		return unavailable(err)
	}
	inSQL, err := j.cfg.Store.Allocations(ctx, of.ID)
	if err != nil || own.Version <= inSQL[c.part.Segment].Version {
		return err
	}
	j.cfg.Log.Warn("rebuild: the database has an older division of the stock, and that of Redis is kept", "sale", of.ID)
	applied := make([]spread.State, of.Spread)
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var reads errgroup.Group
	reads.SetLimit(concurrentReads)
	for i := range applied {
		reads.Go(func() error {
			client, _, err := j.cfg.Pinner.Pin(reading, j.cfg.Space.ShardOfSegment(of.ID, i))
			if err == nil {
				defer client.Close()
				applied[i], err = admission.ReadSegment(reading, client, j.cfg.Space, of, i)
			}
			if err != nil && !errors.Is(err, admission.ErrNotLoaded) {
				j.cfg.Log.Warn("rebuild: a segment cannot be read", "sale", of.ID, "segment", i, "err", err)
			}
			return nil
		})
	}
	_ = reads.Wait() // the functions return nil
	applied[c.part.Segment] = own
	return j.cfg.Store.RecoverAllocations(ctx, of.ID, applied)
}
