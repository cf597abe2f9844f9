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
	redisscript "sluice/lua/redis"
)

// ErrNotLoaded reports that Redis does not hold the sale. Load loads it.
var ErrNotLoaded = errors.New("admission: sale is not loaded")

// View is a sale in Redis at one instant.
type View struct {
	sale.Sale
	Left     int64      // units left
	Accepted int64      // number of orders ever accepted
	State    sale.State // by the Redis clock
}

// StockConfig configures a Stock.
type StockConfig struct {
	Client redisconn.Client
	// Server returns a client of the server that Client uses for a shard. It is needed if Client is not a *redis.Client
	// of one server.
	Server func(keyspace.Shard) *redis.Client
	Space  keyspace.Space
	// RequireVerified makes Load fail if no rebuild has verified the data in Redis.
	RequireVerified bool
}

// Stock keeps the sales in Redis that Admit reads. SQL is the source of truth, and Redis is derived from it. A Stock is
// safe for concurrent use.
type Stock struct {
	client          redisconn.Client
	server          func(keyspace.Shard) *redis.Client // nil if client is not a *redis.Client
	space           keyspace.Space
	requireVerified bool
	sales           *OrderCache[string]
	search          chan struct{} // held by the search in progress, see FindOrder
}

// NewStock returns a Stock. It does not connect.
func NewStock(cfg StockConfig) *Stock {
	if c, ok := cfg.Client.(*redis.Client); ok && cfg.Server == nil {
		cfg.Server = func(keyspace.Shard) *redis.Client { return c }
	}
	return &Stock{
		client: cfg.Client, server: cfg.Server, space: cfg.Space, requireVerified: cfg.RequireVerified,
		sales: NewOrderCache[string](saleCacheSize), search: make(chan struct{}, 1),
	}
}

// Update applies a newer definition to a loaded sale. Units left change by the difference of the stock. A version that
// is not newer changes nothing. It returns ErrNotLoaded, or an error that wraps sale.ErrUnavailable.
func (s *Stock) Update(ctx context.Context, def sale.Sale) error {
	shard := s.space.ShardOf(def.ID)
	keys := []string{shard.Sale(def.ID), shard.Stock(def.ID)}
	args := append([]any{def.Version, string(def.Switch)}, definition(def)...)
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

// View reads one sale. It returns sale.ErrNotFound, or an error that wraps sale.ErrUnavailable.
func (s *Stock) View(ctx context.Context, id string) (View, error) {
	views, err := s.readSales(ctx, s.space.ShardOf(id), []string{id}, nil)
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
	return readShards(s.space.All(), func(shard keyspace.Shard) ([]View, error) {
		ids, err := s.client.SMembers(ctx, shard.Sales()).Result()
		if err != nil {
			return nil, unavailable("list sales", err)
		}
		return s.views(ctx, shard, ids)
	})
}

// Views reads these sales, in no order. It omits sales that Redis does not hold, and those of shards that are
// unavailable. If all are, the error wraps sale.ErrUnavailable.
func (s *Stock) Views(ctx context.Context, ids []string) ([]View, error) {
	byShard := map[keyspace.Shard][]string{}
	for _, id := range ids {
		shard := s.space.ShardOf(id)
		byShard[shard] = append(byShard[shard], id)
	}
	return readShards(slices.Sorted(maps.Keys(byShard)), func(shard keyspace.Shard) ([]View, error) {
		return s.views(ctx, shard, byShard[shard])
	})
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
			v, err = newView(id, defs[i], left[i], now.Val())
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
	"version", "switch", "opens_at", "closes_at", "per_buyer", "stock", "title", "amount", "currency", "accepted",
}

func newView(id string, def *redis.SliceCmd, left *redis.StringCmd, now time.Time) (View, error) {
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
	}
	units, err := left.Int64()
	if err = errors.Join(err, def.Scan(&f)); err != nil {
		return View{}, err
	}
	v := View{
		Sale: sale.Sale{
			ID: id, Title: f.Title, Price: sale.Price{Amount: f.Amount, Currency: f.Currency}, Stock: f.Stock,
			PerBuyer: f.PerBuyer, OpensAt: time.UnixMilli(f.OpensAt).UTC(), Switch: sale.Switch(f.Switch), Version: f.Version,
		},
		Left: units, Accepted: f.Accepted,
	}
	if f.ClosesAt > 0 {
		v.ClosesAt = time.UnixMilli(f.ClosesAt).UTC()
	}
	v.State = v.StateAt(now, v.Left)
	return v, nil
}

// Accepted returns the number of orders that a sale has ever accepted. It returns sale.ErrNotFound also while a rebuild
// holds the sale; other errors wrap sale.ErrUnavailable.
func (s *Stock) Accepted(ctx context.Context, id string) (int64, error) {
	v, err := s.View(ctx, id)
	return v.Accepted, err
}

// LastSerial returns the serial of the last order that Redis accepted of a sale, also while a rebuild holds the sale.
// It returns sale.ErrNotFound, or an error that wraps sale.ErrUnavailable.
func (s *Stock) LastSerial(ctx context.Context, saleID string) (int64, error) {
	n, err := s.client.HGet(ctx, s.space.ShardOf(saleID).Sale(saleID), "accepted").Int64()
	if errors.Is(err, redis.Nil) {
		return 0, fmt.Errorf("sale %s: %w", saleID, sale.ErrNotFound)
	}
	if err != nil {
		return 0, unavailable("last serial of sale "+saleID, err)
	}
	return n, nil
}

// Versions returns the version of each of these sales in Redis. It omits sales that Redis does not hold completely. An
// error wraps sale.ErrUnavailable.
func (s *Stock) Versions(ctx context.Context, ids []string) (map[string]int64, error) {
	versions := make(map[string]int64, len(ids))
	for some := range slices.Chunk(ids, salesPerRead) {
		have, left := make([]*redis.StringCmd, len(some)), make([]*redis.IntCmd, len(some))
		cmds, _ := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, id := range some {
				shard := s.space.ShardOf(id)
				have[i], left[i] = p.HGet(ctx, shard.Sale(id), "version"), p.Exists(ctx, shard.Stock(id))
			}
			return nil
		})
		if err := redisconn.PipelineError(cmds); err != nil {
			return nil, unavailable("versions of sales", err)
		}
		for i, id := range some {
			if version, err := have[i].Int64(); err == nil && left[i].Val() == 1 {
				versions[id] = version
			}
		}
	}
	return versions, nil
}

// Remove deletes a sale from Redis, in one step. The queue must not hold orders of the sale, and SQL must not have the
// sale, or the next Load restores it. Remove is idempotent. An error wraps sale.ErrUnavailable.
func (s *Stock) Remove(ctx context.Context, id string) error {
	shard := s.space.ShardOf(id)
	_, err := s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.SRem(ctx, shard.Sales(), id)
		p.Unlink(ctx, shard.Sale(id), shard.Stock(id), shard.Buyers(id), shard.Returns(id)) // frees many buyers in background
		return nil
	})
	if err != nil {
		return unavailable("remove sale "+id, err)
	}
	return nil
}
