package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/internal/loop"
)

// View is a sale in Redis at one instant.
type View struct {
	sale.Sale
	Left     int64      // units left, and those in transfer between segments
	Accepted int64      // number of orders ever accepted
	State    sale.State // by the Redis clock
	// Segments are the segments that could be read, by index; none if the sale lives in one shard. Stock, Left and
	// Accepted are their sums, each read at its own instant, and Version is the lowest.
	Segments []SegmentView
}

// SegmentView is one segment of a sale in Redis at one instant.
type SegmentView struct {
	Index    int
	Shard    keyspace.Shard
	Units    int64 // of the allocation
	Left     int64
	Out      int64 // units of the outgoing transfer
	Accepted int64
}

// View reads one sale. It returns sale.ErrNotFound, or an error that wraps sale.ErrUnavailable if no part of the sale
// can be read.
func (s *Stock) View(ctx context.Context, id string) (View, error) {
	views, err := s.Views(ctx, []string{id})
	if err != nil {
		return View{}, err
	}
	if len(views) == 0 {
		return View{}, fmt.Errorf("sale %s: %w", id, sale.ErrNotFound)
	}
	return views[0], nil
}

// List reads every loaded sale, in no order. It omits the sales of shards that are unavailable, and sales with a key of
// the wrong type or a malformed value. It returns an error only if it has read no sale and every shard had such an
// error; the error wraps sale.ErrUnavailable.
func (s *Stock) List(ctx context.Context) ([]View, error) {
	views, err := readShards(s.cfg.Space.All(), func(shard keyspace.Shard) ([]View, error) {
		ids, err := s.SalesIn(ctx, shard)
		if err != nil {
			return nil, err
		}
		return s.views(ctx, shard, ids)
	})
	return s.merged(ctx, views), err
}

// SalesIn returns the ids of the sales of which a shard holds a part, suspended sales included. An error wraps
// sale.ErrUnavailable.
func (s *Stock) SalesIn(ctx context.Context, shard keyspace.Shard) ([]string, error) {
	ids, err := s.cfg.Client.SMembers(ctx, shard.Sales()).Result()
	if err != nil {
		return nil, unavailable("list sales", err)
	}
	return ids, nil
}

// Views reads these sales, in no order. It omits sales that Redis does not hold, and those that List omits. Errors are
// those of List.
func (s *Stock) Views(ctx context.Context, ids []string) ([]View, error) {
	views, err := s.partViews(ctx, ids)
	return s.merged(ctx, views), err
}

// partViews is Views with a view for each segment.
func (s *Stock) partViews(ctx context.Context, ids []string) ([]View, error) {
	byShard := map[keyspace.Shard][]string{}
	for _, id := range ids {
		parts, err := s.parts(ctx, id)
		if err != nil { // the next read finds the sale in the shard of its first segment, or reports its error
			parts = []spread.Part{{SaleID: id}}
		}
		for _, part := range parts {
			shard := s.ShardOf(part)
			byShard[shard] = append(byShard[shard], id)
		}
	}
	return readShards(slices.Sorted(maps.Keys(byShard)), func(shard keyspace.Shard) ([]View, error) {
		return s.views(ctx, shard, byShard[shard])
	})
}

// merged merges the views of the segments of each sale into one, and keeps other views. It reuses views. If an open
// sale has no unit left, it reads Redis, and perhaps SQL, for the proof that the sale is sold out; see Mover.SoldOut.
func (s *Stock) merged(ctx context.Context, views []View) []View {
	at := map[string]int{}
	whole := views[:0]
	for _, v := range views {
		if i, ok := at[v.ID]; ok {
			whole[i].add(v)
			continue
		}
		if len(v.Segments) > 0 {
			at[v.ID] = len(whole)
		}
		whole = append(whole, v)
	}
	for _, i := range at {
		v := &whole[i]
		slices.SortFunc(v.Segments, func(a, b SegmentView) int { return cmp.Compare(a.Index, b.Index) })
		if v.State == sale.StateOpen && v.Left == 0 && len(v.Segments) == v.Spread && s.cfg.Mover != nil {
			if out, err := s.cfg.Mover.SoldOut(ctx, spread.Sale{ID: v.ID, Spread: v.Spread}); err == nil && out {
				v.State = sale.StateSoldOut
			}
		}
	}
	return whole
}

// add adds the view of another segment.
func (v *View) add(other View) {
	v.Stock += other.Stock
	v.Left += other.Left
	v.Accepted += other.Accepted
	if other.Version < v.Version { // a change that is not applied everywhere is pending
		v.Version, v.Switch, v.State = other.Version, other.Switch, other.State
	}
	v.Segments = append(v.Segments, other.Segments...)
}

// Closed reports whether every part of a sale is closed, by the switch that Redis has and by the clock of its server. A
// part that Redis does not hold counts as closed. An error wraps sale.ErrUnavailable.
func (s *Stock) Closed(ctx context.Context, def sale.Sale) (bool, error) {
	for _, part := range spread.PartsOf(def) {
		views, err := s.views(ctx, s.ShardOf(part), []string{def.ID})
		if err != nil || len(views) > 0 && views[0].State != sale.StateClosed {
			return false, err
		}
	}
	return true, nil
}

// readShards calls read for all shards concurrently. It returns the views that were read, or an error if there are none
// and all shards failed.
func readShards(shards []keyspace.Shard, read func(keyspace.Shard) ([]View, error)) ([]View, error) {
	found := make([][]View, len(shards))
	errs := loop.Each(shards, -1, func(i int, shard keyspace.Shard) (err error) {
		found[i], err = read(shard)
		return err
	})
	views := slices.Concat(found...)
	if len(views) == 0 && len(shards) > 0 && !slices.Contains(errs, nil) {
		return nil, errors.Join(errs...)
	}
	return views, nil
}

// salesPerRead bounds the sales of one round trip, so that it does not delay other commands.
const salesPerRead = 500

// views reads the sales of one shard that Redis holds, some in each transaction. With an error that concerns one sale,
// it returns the others.
func (s *Stock) views(ctx context.Context, shard keyspace.Shard, ids []string) (views []View, failed error) {
	for some := range slices.Chunk(ids, salesPerRead) {
		now := new(redis.TimeCmd)
		defs, left := make([]*redis.MapStringStringCmd, len(some)), make([]*redis.StringCmd, len(some))
		_, _ = s.cfg.Client.TxPipelined(ctx, func(p redis.Pipeliner) error { // each command has its error
			now = p.Time(ctx)
			for i, id := range some {
				defs[i], left[i] = p.HGetAll(ctx, shard.Sale(id)), p.Get(ctx, shard.Stock(id))
			}
			return nil
		})
		for i, id := range some {
			v, err := newView(id, shard, defs[i], left[i], now.Val())
			switch {
			case err == nil:
				views = append(views, v)
			case !errors.Is(err, ErrNotLoaded):
				if failed = unavailable("read sale "+id, err); ConcernsOthers(failed) {
					return nil, failed
				}
			}
		}
	}
	return views, failed
}

// saleHash has the fields of a sale, or of its segment, in Redis.
type saleHash struct {
	Version    int64  `redis:"version"`
	Switch     string `redis:"switch"`
	OpensAt    int64  `redis:"opens_at"`  // ms since 1970
	ClosesAt   int64  `redis:"closes_at"` // ms since 1970; 0: never
	PerBuyer   int    `redis:"per_buyer"`
	Stock      int64  `redis:"stock"`
	Title      string `redis:"title"`
	Amount     int64  `redis:"amount"`
	Currency   string `redis:"currency"`
	Accepted   int64  `redis:"accepted"`
	Returned   int64  `redis:"returned"`
	Segment    string `redis:"segment"`
	Allocation int64  `redis:"allocation"`
	Out        string `redis:"out"` // "<units> <index of the other segment>" of the outgoing transfer
}

// parseSale returns the fields of a sale and its units left. It returns ErrNotLoaded if Redis has no units, an error of
// Redis, or errUnusable.
func parseSale(def *redis.MapStringStringCmd, left *redis.StringCmd) (f saleHash, units int64, err error) {
	switch err := cmp.Or(def.Err(), left.Err()); {
	case errors.Is(err, redis.Nil):
		return f, 0, ErrNotLoaded
	case err != nil:
		return f, 0, err
	}
	units, err = left.Int64()
	if err = cmp.Or(err, def.Scan(&f)); err != nil {
		err = unusable(err)
	}
	return f, units, err
}

// newView returns the view of a sale, or of its segment in shard, at the time now of the server of the shard. It
// returns ErrNotLoaded also if Redis has lost a part of the sale, which the next Load restores. Other errors are those
// of parseSale.
func newView(
	id string, shard keyspace.Shard, def *redis.MapStringStringCmd, left *redis.StringCmd, now time.Time,
) (View, error) {
	f, units, err := parseSale(def, left)
	if err == nil && f.Version == 0 {
		err = ErrNotLoaded
	}
	if err != nil {
		return View{}, err
	}
	index, k, err := parseSegment(f.Segment)
	if err != nil {
		return View{}, err
	}
	v := View{
		Sale: sale.Sale{
			ID: id, Title: f.Title, Price: sale.Price{Amount: f.Amount, Currency: f.Currency}, Stock: f.Stock,
			PerBuyer: f.PerBuyer, OpensAt: time.UnixMilli(f.OpensAt).UTC(), Switch: sale.Switch(f.Switch), Version: f.Version,
			Spread: k,
		},
		Left: units, Accepted: f.Accepted,
	}
	if f.ClosesAt > 0 {
		v.ClosesAt = time.UnixMilli(f.ClosesAt).UTC()
	}
	if k == 0 {
		v.State = v.StateAt(now, v.Left)
		return v, nil
	}
	v.State = v.StateAt(now, 1) // a segment without units does not show that the sale is sold out
	out, err := f.transfer(index)
	if err != nil {
		return View{}, err
	}
	segment := SegmentView{Index: index, Shard: shard, Units: f.Stock, Left: units, Accepted: f.Accepted}
	if out != nil {
		segment.Out = out.Units
	}
	v.Left += segment.Out
	v.Segments = []SegmentView{segment}
	return v, nil
}
