package rebuild

import (
	"context"
	"errors"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/backend/admission"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
)

// claimSegments claims the allocations of the segments. It follows suspend_sales: a suspended segment begins no
// transfer and applies no allocation, so the units that the claim returns change only by transfers to the segment,
// which are applied when the segment is resumed.
func (j *job) claimSegments(ctx context.Context) error {
	all := segmentReader{job: j, clients: make([]redisconn.Client, len(j.cfg.Space.All()))}
	all.failed = make([]bool, len(all.clients))
	defer all.close()
	for _, c := range j.sales {
		if c.part.Spread < 2 {
			continue
		}
		if err := all.recoverAllocations(ctx, spread.Sale{ID: c.def.ID, Spread: c.part.Spread}); err != nil {
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
	readTimeout     = time.Second // of all segments of a sale
	concurrentReads = 64
)

// segmentReader reads the segments of sales, also those in other shards. After a failure of another shard it does not
// read that one again. It is for one goroutine.
type segmentReader struct {
	*job
	clients []redisconn.Client // of other shards; nil before the first reading
	failed  []bool             // by shard
}

func (r *segmentReader) close() {
	for _, client := range r.clients {
		if client != nil {
			_ = client.Close()
		}
	}
}

// recoverAllocations corrects the allocations of a sale in SQL if a segment in Redis has applied a newer one: the
// database was restored from a backup, and orders of the segment may have units that were moved to it since. It
// compares all segments, because the source of a move may not have applied it, and would sell the units again. A
// segment that cannot be read keeps its allocation in SQL.
func (r *segmentReader) recoverAllocations(ctx context.Context, of spread.Sale) error {
	applied, err := r.read(ctx, of)
	if err != nil {
		return err
	}
	inSQL, err := r.cfg.Store.Allocations(ctx, of.ID) // after Redis, which is not newer otherwise
	if err != nil || !spread.Newer(applied, inSQL) {
		return err
	}
	r.cfg.Log.Warn("rebuild: the database has an older division of the stock, and that of Redis is kept", "sale", of.ID)
	return r.cfg.Store.RecoverAllocations(ctx, of.ID, applied)
}

// read returns the states of the segments. It returns an error only for the segment in the shard of the job.
func (r *segmentReader) read(ctx context.Context, of spread.Sale) ([]spread.State, error) {
	states := make([]spread.State, of.Spread)
	others, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var reads errgroup.Group
	reads.SetLimit(concurrentReads)
	for i := range states {
		reads.Go(func() (err error) { // each segment is in a shard of its own
			shard := r.cfg.Space.ShardOfSegment(of.ID, i)
			switch {
			case shard == r.shard:
				states[i], _, err = admission.ReadSegment(ctx, r.client, r.cfg.Space, of.Segment(i))
				if err != nil && !errors.Is(err, admission.ErrNotLoaded) {
					return sale.Unavailable(err)
				}
				states[i].Loaded = err == nil // although the rebuild holds it
			case !r.failed[shard]:
				states[i], err = r.readOther(others, of, i, shard)
				r.failed[shard] = err != nil && !errors.Is(err, admission.ErrNotLoaded)
			}
			return nil
		})
	}
	return states, reads.Wait()
}

// readOther reads a segment in another shard. One in the data of another deployment is not loaded.
func (r *segmentReader) readOther(
	ctx context.Context, of spread.Sale, segment int, shard keyspace.Shard,
) (state spread.State, err error) {
	if r.clients[shard] == nil {
		if r.clients[shard], _, err = r.cfg.Pinner.Pin(ctx, shard); err != nil {
			return spread.State{}, err
		}
	}
	state, owner, err := admission.ReadSegment(ctx, r.clients[shard], r.cfg.Space, of.Segment(segment))
	state.Loaded = err == nil && (owner == strconv.FormatInt(r.owner.Deployment, 10) || owner != "" && owner == r.from)
	return state, err
}
