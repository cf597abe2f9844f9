package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	redisscript "sluice/lua/redis"
)

// ErrNotLoaded tells that Redis does not hold the sale; Load it.
var ErrNotLoaded = errors.New("admission: sale is not loaded")

// View is a sale as Redis holds it at one instant.
type View struct {
	sale.Sale
	Left     int64      // units nobody holds
	Accepted int64      // orders ever accepted
	State    sale.State // by Redis's clock
}

// Stock keeps the sales that Admit reads. SQL is the truth about them; Redis is made from it. It is safe for concurrent use.
type Stock struct {
	client       redis.UniversalClient
	space        keyspace.Space
	sync         *redis.Script
	load         *redis.Script
	view         *redis.Script
	snapshot     *redis.Script
	give         *redis.Script
	list         *redis.Script
	onlyVerified int
	saleOf       *saleCache
	search       chan struct{} // held by the search that is under way
}

// OnlyVerified makes Load refuse a Redis that no rebuild has verified. Without it, as in tests of parts, any will do.
func (s *Stock) OnlyVerified() *Stock {
	s.onlyVerified = 1
	return s
}

// NewStock makes a Stock.
func NewStock(client redis.UniversalClient, space keyspace.Space) *Stock {
	return &Stock{
		client: client, space: space,
		sync: redisscript.Load("update_sale"), load: redisscript.Load("load_sale"), view: redisscript.Load("read_sale"), snapshot: redisscript.Load("snapshot"),
		give: redisscript.Load("return_unit"), list: redisscript.Load("dead_reindex"),
		saleOf: newSaleCache(saleCacheSize), search: make(chan struct{}, 1),
	}
}

// Sync brings a loaded sale up to date; units left move by the difference in stock. A version that is not newer changes nothing. It returns
// ErrNotLoaded, or wraps sale.ErrUnavailable.
func (s *Stock) Update(ctx context.Context, def sale.Sale) error {
	shard := s.space.ShardOf(def.ID)
	keys := []string{shard.Sale(def.ID), shard.Stock(def.ID)}
	args := append([]any{def.Version, string(def.Switch)}, definition(def)...)
	answer, err := s.sync.Run(ctx, s.client, keys, args...).Text()
	switch {
	case err != nil:
		return unavailable("sync "+def.ID, err)
	case answer == "not_loaded":
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
// orders accepted so far, and the ids of cancelled orders whose unit is part of the units left and whose rows do not
// have the number of the return.
func SaleArgs(d sale.Sale, left, accepted int64, returned []any) []any {
	args := append([]any{d.ID}, definition(d)...)
	return append(append(args, left, accepted), returned...)
}

// View looks at one sale. It returns sale.ErrNotFound, or wraps sale.ErrUnavailable.
func (s *Stock) View(ctx context.Context, id string) (View, error) {
	shard := s.space.ShardOf(id)
	f, err := s.view.Run(ctx, s.client, []string{shard.Sale(id), shard.Stock(id)}).StringSlice()
	if err != nil {
		return View{}, unavailable("view "+id, err)
	}
	if len(f) == 0 {
		return View{}, fmt.Errorf("sale %s: %w", id, sale.ErrNotFound)
	}
	return parseView(id, f)
}

// List looks at every loaded sale, in no order. An error wraps sale.ErrUnavailable.
func (s *Stock) List(ctx context.Context) ([]View, error) {
	var views []View
	for _, shard := range s.space.All() {
		ids, err := s.client.SMembers(ctx, shard.Sales()).Result()
		if err != nil {
			return nil, unavailable("list sales", err)
		}
		for some := range slices.Chunk(ids, salesPerRead) {
			if views, err = s.readSales(ctx, shard, some, views); err != nil {
				return nil, err
			}
		}
	}
	return views, nil
}

// Views looks at some sales, in no order; those that Redis does not hold are left out. An error wraps sale.ErrUnavailable.
func (s *Stock) Views(ctx context.Context, ids []string) ([]View, error) {
	byShard := map[keyspace.Shard][]string{}
	for _, id := range ids {
		shard := s.space.ShardOf(id)
		byShard[shard] = append(byShard[shard], id)
	}
	var views []View
	for shard, all := range byShard {
		for some := range slices.Chunk(all, salesPerRead) {
			var err error
			if views, err = s.readSales(ctx, shard, some, views); err != nil {
				return nil, err
			}
		}
	}
	return views, nil
}

// listChunk is how many sales are looked at in one round trip: thousands would hold others up.
const salesPerRead = 500

// look adds the sales of one shard to views, in one round trip.
func (s *Stock) readSales(ctx context.Context, shard keyspace.Shard, ids []string, views []View) ([]View, error) {
	now := new(redis.TimeCmd)
	defs, left := make([]*redis.SliceCmd, len(ids)), make([]*redis.StringCmd, len(ids))
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		now = p.Time(ctx)
		for i, id := range ids {
			defs[i], left[i] = p.HMGet(ctx, shard.Sale(id), viewFields...), p.Get(ctx, shard.Stock(id))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, unavailable("list sales", err)
	}
	for i, id := range ids {
		f := []string{strconv.FormatInt(now.Val().UnixMilli(), 10), left[i].Val()}
		for _, field := range defs[i].Val() {
			text, _ := field.(string)
			f = append(f, text)
		}
		if f[1] == "" || f[2] == "" {
			continue // lost; the next Load brings it back
		}
		v, err := parseView(id, f)
		if err != nil {
			return nil, err
		}
		views = append(views, v)
	}
	return views, nil
}

// viewFields are the fields of keyspace.Shard.Sale in the order in which read_sale.lua answers them.
var viewFields = []string{"version", "switch", "opens_at", "closes_at", "per_buyer", "stock", "title", "amount", "currency", "accepted"}

func parseView(id string, f []string) (View, error) {
	var n [9]int64
	for i, at := range []int{0, 1, 2, 4, 5, 6, 7, 9, 11} {
		v, err := strconv.ParseInt(f[at], 10, 64)
		if err != nil {
			return View{}, unavailable("view "+id, fmt.Errorf("field %d is %q", at, f[at]))
		}
		n[i] = v
	}
	v := View{
		Sale: sale.Sale{
			ID: id, Title: f[8], Price: sale.Price{Amount: n[7], Currency: f[10]}, Stock: n[6], PerBuyer: int(n[5]),
			OpensAt: time.UnixMilli(n[3]).UTC(), Switch: sale.Switch(f[3]), Version: n[2],
		},
		Left: n[1], Accepted: n[8],
	}
	if n[4] > 0 {
		v.ClosesAt = time.UnixMilli(n[4]).UTC()
	}
	v.State = v.StateAt(time.UnixMilli(n[0]), v.Left)
	return v, nil
}
