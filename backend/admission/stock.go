package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	redisscript "sluice/lua/redis"
)

// ErrNotLoaded reports that Redis does not hold the sale. Load loads it.
var ErrNotLoaded = errors.New("admission: sale is not loaded")

// View is a sale in Redis at one instant.
type View struct {
	sale.Sale
	Left     int64      // units left, and those in transfer between segments
	Accepted int64      // number of orders ever accepted
	State    sale.State // by the Redis clock
	// Segments are the segments that could be read, by index; none if the sale lives in one shard. Stock, Left and Accepted
	// are their sums, each read at its own instant, and Version is the lowest.
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

// StockConfig configures a Stock.
type StockConfig struct {
	Client redisconn.Client
	// Server returns a client of the server that Client uses for a shard. It is needed if Client is not a *redis.Client
	// of one server.
	Server func(keyspace.Shard) *redis.Client
	Space  keyspace.Space
	// Claimer is needed to load sales with several segments.
	Claimer Claimer
	// Mover proves that sales with several segments are sold out. If it is nil, their state is open while they are on.
	Mover *spread.Mover
	// RequireVerified makes Load fail if no rebuild has verified the data in Redis.
	RequireVerified bool
}

// Claimer claims the allocation of a segment in SQL before it is loaded (store.Segments).
type Claimer interface {
	Claim(ctx context.Context, saleID string, segment int) (spread.Allocation, error)
}

// Stock keeps the sales in Redis that Admit reads. SQL is the source of truth, and Redis is derived from it. A Stock is
// safe for concurrent use.
type Stock struct {
	client          redisconn.Client
	server          func(keyspace.Shard) *redis.Client // nil if client is not a *redis.Client
	space           keyspace.Space
	claimer         Claimer
	mover           *spread.Mover
	requireVerified bool
	spreads         sync.Map // number of segments by id of a sale; it never changes
}

// NewStock returns a Stock. It does not connect.
func NewStock(cfg StockConfig) *Stock {
	if c, ok := cfg.Client.(*redis.Client); ok && cfg.Server == nil {
		cfg.Server = func(keyspace.Shard) *redis.Client { return c }
	}
	return &Stock{
		client: cfg.Client, server: cfg.Server, space: cfg.Space, claimer: cfg.Claimer, mover: cfg.Mover,
		requireVerified: cfg.RequireVerified,
	}
}

// Update applies a newer definition to all parts of a loaded sale. Units left change by the difference of the stock;
// those of a segment change when its allocation is applied (spread.Mover). A version that is not newer changes nothing.
// It returns ErrNotLoaded if a part is not loaded, or an error that wraps sale.ErrUnavailable; the other parts are
// changed then.
func (s *Stock) Update(ctx context.Context, def sale.Sale) error {
	s.LearnSpread(def)
	return eachPart(PartsOf(def), func(p SalePart) error { return s.UpdatePart(ctx, p) })
}

// UpdatePart is Update for one part of a sale.
func (s *Stock) UpdatePart(ctx context.Context, def SalePart) error {
	shard := s.ShardOf(def.Part())
	keys := []string{shard.Sale(def.ID), shard.Stock(def.ID)}
	args := append([]any{def.Version, string(def.Switch)}, definition(def.Sale)...)
	result, err := redisscript.Run(ctx, s.client, "update_sale", keys, args...).Text()
	switch {
	case err != nil:
		return unavailable("update sale "+def.ID, err)
	case result == "not_loaded":
		return fmt.Errorf("%w: %s", ErrNotLoaded, def.ID)
	}
	return nil
}

// definition returns the fields of a sale that SQL defines, in the order of the scripts.
func definition(d sale.Sale) []any {
	var closes int64
	if !d.ClosesAt.IsZero() {
		closes = d.ClosesAt.UnixMilli()
	}
	return []any{d.OpensAt.UnixMilli(), closes, d.PerBuyer, d.Stock, d.Title, d.Price.Amount, d.Price.Currency}
}

// SaleArgs returns the arguments of lua/redis/include/write_sale.lua: the definition of a sale, its units left, the
// number of orders accepted, the segment (the zero value: the sale lives in one shard), and the ids of cancelled orders
// whose unit is part of the units left and whose rows do not have the number of the return. The stock of a segment is its
// allocation.
func SaleArgs(d sale.Sale, left, accepted int64, in Segment, returned []any) []any {
	args := append([]any{d.ID}, definition(d)...)
	return append(append(args, left, accepted, in.text(), in.Version), returned...)
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

// List reads every loaded sale, in no order. It omits the sales of shards that are unavailable. If all are, the error
// wraps sale.ErrUnavailable.
func (s *Stock) List(ctx context.Context) ([]View, error) {
	views, err := readShards(s.space.All(), func(shard keyspace.Shard) ([]View, error) {
		ids, err := s.client.SMembers(ctx, shard.Sales()).Result()
		if err != nil {
			return nil, unavailable("list sales", err)
		}
		return s.views(ctx, shard, ids)
	})
	return s.merged(ctx, views), err
}

// Views reads these sales, in no order. It omits sales that Redis does not hold, and those of shards that are
// unavailable. If all are, the error wraps sale.ErrUnavailable.
func (s *Stock) Views(ctx context.Context, ids []string) ([]View, error) {
	byShard := map[keyspace.Shard][]string{}
	for _, id := range ids {
		parts, err := s.parts(ctx, id)
		if err != nil { // the shard of the first segment can be read, or its error is reported, by the next read
			parts = []spread.Part{{SaleID: id}}
		}
		for _, part := range parts {
			shard := s.ShardOf(part)
			byShard[shard] = append(byShard[shard], id)
		}
	}
	views, err := readShards(slices.Sorted(maps.Keys(byShard)), func(shard keyspace.Shard) ([]View, error) {
		return s.views(ctx, shard, byShard[shard])
	})
	return s.merged(ctx, views), err
}

// merged merges the views of the segments of each sale into one, and keeps other views.
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
		if v.State == sale.StateOpen && v.Left == 0 && len(v.Segments) == v.Spread && s.mover != nil {
			if out, err := s.mover.SoldOut(ctx, spread.Sale{ID: v.ID, Spread: v.Spread}); err == nil && out {
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

// readShards calls read for all shards concurrently, so that one that does not respond delays the others once. It
// returns an error if all fail.
func readShards(shards []keyspace.Shard, read func(keyspace.Shard) ([]View, error)) ([]View, error) {
	found, errs := make([][]View, len(shards)), make([]error, len(shards))
	var wg sync.WaitGroup
	for i, shard := range shards {
		wg.Go(func() { found[i], errs[i] = read(shard) })
	}
	wg.Wait()
	if len(shards) > 0 && !slices.Contains(errs, nil) {
		return nil, errors.Join(errs...)
	}
	return slices.Concat(found...), nil
}

// salesPerRead bounds the sales of one round trip, so that it does not delay other commands.
const salesPerRead = 500

func (s *Stock) views(ctx context.Context, shard keyspace.Shard, ids []string) (views []View, err error) {
	for some := range slices.Chunk(ids, salesPerRead) {
		if views, err = s.readSales(ctx, shard, some, views); err != nil {
			return nil, err
		}
	}
	return views, nil
}

// readSales appends the sales of one shard that Redis holds to views, in one transaction.
func (s *Stock) readSales(ctx context.Context, shard keyspace.Shard, ids []string, views []View) ([]View, error) {
	now := new(redis.TimeCmd)
	defs, left := make([]*redis.SliceCmd, len(ids)), make([]*redis.StringCmd, len(ids))
	_, err := s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		now = p.Time(ctx)
		for i, id := range ids {
			defs[i], left[i] = p.HMGet(ctx, shard.Sale(id), viewFields...), p.Get(ctx, shard.Stock(id))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, unavailable("read sales", err)
	}
	for i, id := range ids {
		err := cmp.Or(defs[i].Err(), left[i].Err()) // the transaction returns the first error only
		if errors.Is(err, redis.Nil) || err == nil && defs[i].Val()[0] == nil {
			continue // Redis does not hold it, or lost a part of it and the next Load restores it
		}
		var v View
		if err == nil {
			v, err = newView(id, shard, defs[i], left[i], now.Val())
		}
		if err != nil {
			return nil, unavailable("read sale "+id, err)
		}
		views = append(views, v)
	}
	return views, nil
}

// viewFields lists the fields of keyspace.Shard.Sale that a View needs. A sale without version is not loaded.
var viewFields = []string{
	"version",
	"switch",
	"opens_at",
	"closes_at",
	"per_buyer",
	"stock",
	"title",
	"amount",
	"currency",
	"accepted",
	"segment",
	"out",
}

func newView(
	id string, shard keyspace.Shard, def *redis.SliceCmd, left *redis.StringCmd, now time.Time,
) (View, error) {
	var f struct {
		Version  int64  `redis:"version"`
		Switch   string `redis:"switch"`
		OpensAt  int64  `redis:"opens_at"`  // ms since 1970
		ClosesAt int64  `redis:"closes_at"` // ms since 1970; 0: never
		PerBuyer int    `redis:"per_buyer"`
		Stock    int64  `redis:"stock"`
		Title    string `redis:"title"`
		Amount   int64  `redis:"amount"`
		Currency string `redis:"currency"`
		Accepted int64  `redis:"accepted"`
		Segment  string `redis:"segment"`
		Out      string `redis:"out"`
	}
	units, err := left.Int64()
	if err = errors.Join(err, def.Scan(&f)); err != nil {
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
	out := int64(0)
	if f.Out != "" {
		t, err := parseTransfer(f.Out)
		if err != nil {
			return View{}, err
		}
		out = t.Units
	}
	v.Segments = []SegmentView{{index, shard, f.Stock, units, out, f.Accepted}}
	v.Left += out
	return v, nil
}

// Accepted returns the number of orders that a sale has ever accepted. All parts are read during the call. It returns
// sale.ErrNotFound if Redis holds no part of the sale, or a rebuild holds them all; other errors wrap
// sale.ErrUnavailable.
func (s *Stock) Accepted(ctx context.Context, id string) (total int64, err error) {
	k, err := s.Spread(ctx, id)
	if errors.Is(err, ErrNotLoaded) {
		return 0, fmt.Errorf("sale %s: %w", id, sale.ErrNotFound)
	}
	if err != nil {
		return 0, err
	}
	parts := PartsOf(sale.Sale{ID: id, Spread: k})
	accepted := make([]int64, len(parts))
	err = eachPart(parts, func(p SalePart) (err error) {
		accepted[p.Segment], err = s.acceptedBy(ctx, p.Part())
		return err
	})
	if err != nil {
		return 0, err
	}
	held := 0
	for _, n := range accepted {
		if n >= 0 {
			held++
			total += n
		}
	}
	switch held {
	case 0:
		return 0, fmt.Errorf("sale %s: %w", id, sale.ErrNotFound)
	case len(parts):
		return total, nil
	}
	return 0, unavailable("orders accepted of sale "+id, spread.ErrUnreadable)
}

// acceptedBy returns the number of orders that a part of a sale has ever accepted, or -1 if Redis does not hold the part.
func (s *Stock) acceptedBy(ctx context.Context, of spread.Part) (int64, error) {
	var f struct {
		Version  int64 `redis:"version"`
		Accepted int64 `redis:"accepted"`
	}
	err := s.client.HMGet(ctx, s.ShardOf(of).Sale(of.SaleID), "version", "accepted").Scan(&f)
	if err != nil {
		return 0, unavailable("orders accepted of sale "+of.SaleID, err)
	}
	if f.Version == 0 {
		return -1, nil
	}
	return f.Accepted, nil
}

// LastSerial returns the serial of the last order that Redis accepted of a part of a sale, also while a rebuild holds it.
// It returns sale.ErrNotFound, or an error that wraps sale.ErrUnavailable.
func (s *Stock) LastSerial(ctx context.Context, of spread.Part) (int64, error) {
	n, err := s.client.HGet(ctx, s.ShardOf(of).Sale(of.SaleID), "accepted").Int64()
	if errors.Is(err, redis.Nil) {
		return 0, fmt.Errorf("sale %s: %w", of.SaleID, sale.ErrNotFound)
	}
	if err != nil {
		return 0, unavailable("last serial of sale "+of.SaleID, err)
	}
	return of.Base() + n, nil
}

// Versions returns the version of the definition of each of these parts in Redis. It omits parts that Redis does not
// hold completely. An error wraps sale.ErrUnavailable.
func (s *Stock) Versions(ctx context.Context, parts []spread.Part) (map[spread.Part]int64, error) {
	versions := make(map[spread.Part]int64, len(parts))
	for some := range slices.Chunk(parts, salesPerRead) {
		have, left := make([]*redis.StringCmd, len(some)), make([]*redis.IntCmd, len(some))
		cmds, _ := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, part := range some {
				shard := s.ShardOf(part)
				have[i], left[i] = p.HGet(ctx, shard.Sale(part.SaleID), "version"), p.Exists(ctx, shard.Stock(part.SaleID))
			}
			return nil
		})
		if err := redisconn.PipelineError(cmds); err != nil {
			return nil, unavailable("versions of sales", err)
		}
		for i, part := range some {
			if version, err := have[i].Int64(); err == nil && left[i].Val() == 1 {
				versions[part] = version
			}
		}
	}
	return versions, nil
}

// Remove deletes a sale from Redis, each part in one step. The queue must not hold orders of the sale, and SQL must not
// have the sale, or the next Load restores it. Remove is idempotent. An error wraps sale.ErrUnavailable.
func (s *Stock) Remove(ctx context.Context, def sale.Sale) error {
	err := eachPart(PartsOf(def), func(p SalePart) error {
		shard := s.ShardOf(p.Part())
		_, err := s.client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.SRem(ctx, shard.Sales(), p.ID)
			pipe.Unlink(
				ctx,
				shard.Sale(p.ID),
				shard.Stock(p.ID),
				shard.Buyers(p.ID),
				shard.Returns(p.ID),
			) // large: in background
			return nil
		})
		return err
	})
	if err != nil {
		return unavailable("remove sale "+def.ID, err)
	}
	s.spreads.Delete(def.ID)
	return nil
}
