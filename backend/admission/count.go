package admission

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/internal/loop"
	redisscript "sluice/lua/redis"
)

// UnitCount holds the units of one sale in Redis at one instant, and every order in the queue.
type UnitCount struct {
	Loaded     bool  // Redis holds the sale; otherwise the numbers are 0
	Stock      int64 // of a segment: the units of the allocation that is applied
	Left       int64
	Out        int64 // units of the outgoing transfer of a segment
	Allocation int64 // version of the allocation of a segment that is applied
	Accepted   int64
	LastReturn int64          // number of the last return
	Returned   []sale.OrderID // returned orders; their rows may lack the number of the return
	Ready      []keyspace.Message
	Delayed    []keyspace.Message
	Leased     []keyspace.Message
	Dead       []keyspace.Message // dead letters that hold a unit, each order once
	Unbacked   int64              // number of dead letters that hold no unit

	lines   int64 // number of index lines of dead letters that hold a unit
	returns int64 // number of Returned
	err     error // a key of the sale is unusable
}

// InFlight calls yield for every order of the count that holds a unit.
func (c *UnitCount) InFlight(yield func(keyspace.Message)) {
	for _, orders := range [][]keyspace.Message{c.Ready, c.Delayed, c.Leased, c.Dead} {
		for _, m := range orders {
			yield(m)
		}
	}
}

const (
	copyTimeout  = 20 * time.Second // of the script that copies
	countTimeout = time.Minute      // of a count, without its repairs of the index
	copyLifetime = 2 * time.Minute  // longer than countTimeout: the copies of a crashed count expire
	maxReindexes = 3                // repairs of the index of dead letters before a count fails
)

// CountUnits counts the units of one part of a sale; see CountShardUnits.
func (s *Stock) CountUnits(ctx context.Context, of spread.Part) (UnitCount, error) {
	all, err := s.CountShardUnits(ctx, s.ShardOf(of), []string{of.SaleID})
	if err != nil {
		return UnitCount{}, err
	}
	return *all[of.SaleID], nil
}

// CountShardUnits counts the units of several sales in one shard at one instant. Redis copies the queue of the shard at
// that instant, which blocks it for about 40 ms per million queued orders and doubles the memory of the queue.
// CountShardUnits reads the copies in small pieces and deletes them. Of the dead letters, it reads only those of these
// sales. It repairs the index of dead letters if it is incomplete; see ReindexDead. An error wraps sale.ErrUnavailable.
// An error that does not concern others (see ConcernsOthers) is caused by keys of some of the sales; the counts of the
// other sales are returned with it.
func (s *Stock) CountShardUnits(
	ctx context.Context, shard keyspace.Shard, ids []string,
) (map[string]*UnitCount, error) {
	for repairs := 0; ; repairs++ {
		counts, err := s.countShardUnits(ctx, shard, ids)
		switch {
		case !errors.Is(err, errIndexIncomplete):
			return counts, err
		case repairs == maxReindexes:
			return nil, unavailable("count units", err)
		}
		if _, err := s.reindexShard(ctx, shard); err != nil {
			return nil, err
		}
	}
}

// countShardUnits is CountShardUnits without the repair. It retries if a batch was leased after the batches were listed
// and before the queue was copied, and if a part of the copy was lost before it was read.
func (s *Stock) countShardUnits(
	ctx context.Context, shard keyspace.Shard, ids []string,
) (map[string]*UnitCount, error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	copier := redisconn.WithTimeout(s.cfg.Server(shard), copyTimeout)
	var cause error // of the last retry
	for try := 0; ; try++ {
		counts, err := s.tryCountUnits(ctx, copier, shard, ids)
		switch {
		case err == nil:
			return usable(counts)
		case errors.Is(err, errIndexIncomplete):
			return nil, err
		case errors.Is(err, errStaleBatches), errors.Is(err, errCopyLost):
			cause = err
		case cause != nil && ctx.Err() != nil:
			return nil, unavailable("count units", fmt.Errorf("%w; try again (%w)", cause, ctx.Err()))
		case rejected(err):
			err = fmt.Errorf("queue of shard %d: %v", shard, err) // no longer of type redis.Error
			fallthrough
		default:
			return nil, unavailable("count units", err)
		}
		// 0 to 6 ms in an uneven sequence, so that retries do not synchronise with a worker
		loop.Sleep(ctx, time.Duration(try*3%7)*time.Millisecond)
	}
}

// usable removes the counts of sales with unusable keys, and returns their errors.
func usable(counts map[string]*UnitCount) (map[string]*UnitCount, error) {
	var failures []error
	for id, c := range counts {
		if c.err != nil {
			failures = append(failures, unavailable("count units of sale "+id, c.err))
			delete(counts, id)
		}
	}
	return counts, errors.Join(failures...)
}

var (
	errStaleBatches    = errors.New("the queue changes too fast")
	errCopyLost        = errors.New("a part of the copy of the queue was lost or expired before it was read")
	errIndexIncomplete = errors.New("dead letters change without their index; stop other programs that write them")
)

// tryCountUnits copies the queue and reads the copy. It returns errStaleBatches if a batch was leased between the list
// of batches and the copy, errCopyLost, or errIndexIncomplete; then another try can succeed.
func (s *Stock) tryCountUnits(
	ctx context.Context, copier redis.Scripter, shard keyspace.Shard, ids []string,
) (counts map[string]*UnitCount, err error) {
	batches, err := s.cfg.Client.ZRange(ctx, shard.Leases(), 0, -1).Result()
	if err != nil {
		return nil, err
	}
	copies := newSnapshot(shard, len(batches), len(ids))
	args := []any{shard.Batch(""), copyLifetime.Milliseconds(), len(batches)}
	for _, id := range ids {
		args = append(args, id)
	}
	f, err := redisscript.Run(ctx, copier, "snapshot", copies.keys(batches, ids), args...).StringSlice()
	if err != nil {
		return nil, err
	}
	switch f[0] {
	case "stale":
		return nil, errStaleBatches
	case "unlisted":
		return nil, errIndexIncomplete
	}
	last := len(f) - 2
	if copies.leased, err = strconv.ParseInt(f[last], 10, 64); err != nil {
		return nil, fmt.Errorf("the script returned %q leased entries", f[last])
	}
	defer func() {
		if removed := copies.remove(ctx, s.cfg.Client); err == nil && strconv.FormatInt(removed, 10) != f[last+1] {
			counts, err = nil, errCopyLost
		}
	}()
	counts, err = parseTotals(ids, f[:last])
	if err != nil {
		return nil, err
	}
	if err := copies.read(ctx, s.cfg.Client, counts); err != nil {
		return nil, err
	}
	for i, id := range ids {
		if err := copies.readSale(ctx, s.cfg.Client, i, counts[id]); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// totals is the number of fields per sale of the reply of snapshot.lua.
const totals = 9

// parseTotals parses the fields of all sales of the reply of snapshot.lua.
func parseTotals(ids, f []string) (map[string]*UnitCount, error) {
	if len(f) != totals*len(ids) {
		return nil, fmt.Errorf("the script returned %d fields for %d sales", len(f), len(ids))
	}
	counts := make(map[string]*UnitCount, len(ids))
	for i, id := range ids {
		c := &UnitCount{}
		counts[id] = c
		fields := f[totals*i : totals*(i+1)]
		numbers := []*int64{
			&c.lines, &c.Unbacked, &c.returns, &c.LastReturn, &c.Stock, &c.Left, &c.Accepted, &c.Allocation, &c.Out,
		}
		c.Loaded = fields[4] != "" && fields[5] != ""
		if !c.Loaded {
			numbers = numbers[:3]
		}
		for j, to := range numbers {
			n, err := strconv.ParseInt(fields[j], 10, 64)
			if err != nil {
				*c = UnitCount{err: unusable(fmt.Errorf("field %d is %q", j, fields[j]))}
				break
			}
			*to = n
		}
	}
	return counts, nil
}
