package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	redisscript "sluice/lua/redis"
)

// ErrNotLoaded reports that Redis does not hold the sale. Load loads it.
var ErrNotLoaded = errors.New("admission: sale is not loaded")

// StockConfig configures a Stock.
type StockConfig struct {
	Client redisconn.Client
	// Server returns a client of the server that Client uses for a shard; nil if Client is that of one server.
	Server func(keyspace.Shard) redisconn.Client
	Space  keyspace.Space
	// Claimer is required to load and update sales with several segments.
	Claimer Claimer
	// Mover proves that sales with several segments are sold out. If it is nil, such a sale is reported as open when it is
	// sold out.
	Mover *spread.Mover
	// Deployment is that of the process. If the data in Redis belongs to another deployment, changes of a sale fail. Load
	// also fails if no rebuild has verified the data. If Deployment is nil, the data of any deployment is changed.
	Deployment Deployment
}

// Claimer holds the allocations of segments in SQL (store.Store).
type Claimer interface {
	// Claim claims the allocation of a segment before the segment is loaded. Transfers that the segment began before the
	// claim can no longer be committed.
	Claim(ctx context.Context, saleID string, segment int) (spread.Allocation, error)
	// Allocations returns the allocations of a sale by segment.
	Allocations(ctx context.Context, saleID string) ([]spread.Allocation, error)
}

// Stock keeps the sales in Redis that Admit reads. SQL is the source of truth, and Redis is derived from it. A Stock is
// safe for concurrent use.
type Stock struct {
	cfg     StockConfig
	spreads sync.Map // number of segments by id of a sale; it never changes
}

// NewStock returns a Stock. It does not connect.
func NewStock(cfg StockConfig) *Stock {
	if cfg.Server == nil {
		cfg.Server = func(keyspace.Shard) redisconn.Client { return cfg.Client }
	}
	return &Stock{cfg: cfg}
}

// Deployment returns the id of the deployment in SQL, 0 if it is not known. nil stands for any deployment.
type Deployment func() int64

// owns reports whether data with this id of a deployment, "" for none, belongs to the deployment, as check_owner does.
func (d Deployment) owns(id string) bool {
	owner := d.owner()
	return owner == "" || owner == "0" || owner == id
}

// owner returns the argument of scripts that include check_owner: the id, or "" for any deployment.
func (d Deployment) owner() string {
	if d == nil {
		return ""
	}
	return strconv.FormatInt(d(), 10)
}

// Update applies a newer definition to all parts of a loaded sale. In a sale in one shard, the units left change by the
// difference between both stocks. In a segment, they change by its allocation in SQL. The allocation is applied before
// the definition, so a segment with the version of a restock also has the units of the restock. A version that is not
// newer changes nothing. Update returns ErrNotLoaded if a part is not loaded, an error that wraps sale.ErrUnavailable,
// or that of the Claimer. After an error, other parts may be changed.
func (s *Stock) Update(ctx context.Context, def sale.Sale) error {
	s.LearnSpread(def)
	return s.updateParts(ctx, def, spread.PartsOf(def))
}

// UpdatePart is Update for one part of a sale.
func (s *Stock) UpdatePart(ctx context.Context, p SalePart) error {
	return s.updateParts(ctx, p.Sale, []spread.Part{p.Part()})
}

// updateParts updates parts of one sale.
func (s *Stock) updateParts(ctx context.Context, def sale.Sale, parts []spread.Part) error {
	allocations, err := s.allocations(ctx, def)
	if err != nil {
		return err
	}
	return eachPart(parts, func(part spread.Part) error { return s.updatePart(ctx, def, part, allocations) })
}

// allocations returns the allocations of a sale by segment; none for a sale in one shard.
func (s *Stock) allocations(ctx context.Context, def sale.Sale) ([]spread.Allocation, error) {
	if def.Spread < 2 {
		return nil, nil
	}
	all, err := s.cfg.Claimer.Allocations(ctx, def.ID)
	if err == nil && len(all) != def.Spread {
		err = fmt.Errorf("admission: sale %s has %d segments, and SQL has %d allocations", def.ID, def.Spread, len(all))
	}
	return all, err
}

func (s *Stock) updatePart(
	ctx context.Context, def sale.Sale, part spread.Part, allocations []spread.Allocation,
) error {
	if part.Spread > 1 {
		a := allocations[part.Segment]
		segments := NewSegments(s.cfg.Client, s.cfg.Space, s.cfg.Deployment)
		err := segments.run(ctx, "segment_apply", part, a.Version, a.Units).Err()
		// After an error SEGMENT, the definition is applied anyway, so that a pause takes effect. Either the segment is not
		// loaded, which update_sale reports, or the audit reports the difference.
		if err != nil && !redis.HasErrorPrefix(err, "SEGMENT") {
			return unavailable("apply an allocation of sale "+def.ID, err)
		}
	}
	shard := s.ShardOf(part)
	keys := []string{shard.Sale(def.ID), shard.Stock(def.ID), shard.Guard()}
	args := append([]any{def.Version, string(def.Switch)}, definition(def)...)
	args = append(args, s.cfg.Deployment.owner())
	result, err := redisscript.Run(ctx, s.cfg.Client, "update_sale", keys, args...).Text()
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
// number of orders accepted, the part of the sale, the version of its allocation (0 for a sale in one shard), the
// number of the last return in SQL, and the ids of cancelled orders with a unit among the units left and a row that
// lacks the number of the return. The stock of a segment is its allocation.
func SaleArgs(
	d sale.Sale, left, accepted int64, in spread.Part, allocation, lastReturn int64, returned []any,
) []any {
	args := append([]any{d.ID}, definition(d)...)
	return append(append(args, left, accepted, segmentField(in), allocation, lastReturn), returned...)
}

// Accepted returns the number of orders that a sale has ever accepted. All parts are read during the call. It returns
// sale.ErrNotFound if Redis holds no part of the sale, or a rebuild holds them all; other errors wrap
// sale.ErrUnavailable.
func (s *Stock) Accepted(ctx context.Context, id string) (total int64, err error) {
	held, err := s.partViews(ctx, []string{id})
	switch {
	case err != nil:
		return 0, err
	case len(held) == 0:
		return 0, fmt.Errorf("sale %s: %w", id, sale.ErrNotFound)
	case len(held) < held[0].Spread:
		return 0, unavailable("orders accepted of sale "+id, spread.ErrUnreadable)
	}
	for _, v := range held {
		total += v.Accepted
	}
	return total, nil
}

// LastSerial returns the serial of the last order that Redis accepted in a part of a sale, also while a rebuild holds
// it. It returns sale.ErrNotFound, or an error that wraps sale.ErrUnavailable.
func (s *Stock) LastSerial(ctx context.Context, of spread.Part) (int64, error) {
	n, err := s.cfg.Client.HGet(ctx, s.ShardOf(of).Sale(of.SaleID), "accepted").Int64()
	if errors.Is(err, redis.Nil) {
		return 0, fmt.Errorf("sale %s: %w", of.SaleID, sale.ErrNotFound)
	}
	if err != nil {
		return 0, unavailable("last serial of sale "+of.SaleID, err)
	}
	return of.Base() + n, nil
}

// Versions returns the version of the definition of each of these parts in Redis. It omits parts that Redis does not
// hold completely. An error wraps sale.ErrUnavailable; if it does not concern others, the versions are those of the
// other parts.
func (s *Stock) Versions(
	ctx context.Context, parts []spread.Part,
) (versions map[spread.Part]int64, failed error) {
	versions = make(map[spread.Part]int64, len(parts))
	for some := range slices.Chunk(parts, salesPerRead) {
		have, left := make([]*redis.StringCmd, len(some)), make([]*redis.IntCmd, len(some))
		cmds, _ := s.cfg.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, part := range some {
				shard := s.ShardOf(part)
				have[i], left[i] = p.HGet(ctx, shard.Sale(part.SaleID), "version"), p.Exists(ctx, shard.Stock(part.SaleID))
			}
			return nil
		})
		if err := redisconn.PipelineError(cmds); err != nil {
			if failed = unavailable("versions of sales", err); ConcernsOthers(failed) {
				return nil, failed
			}
		}
		for i, part := range some {
			if version, err := have[i].Int64(); err == nil && left[i].Val() == 1 {
				versions[part] = version
			}
		}
	}
	return versions, failed
}

// Remove deletes a sale from Redis, each part in one step. The queue must not hold orders of the sale, and SQL must not
// have the sale, or the next Load restores it. Remove is idempotent. It fails while a rebuild or a move holds the shard
// of a part. An error wraps sale.ErrUnavailable. Other parts may be deleted then, but not the first: Spread reads it.
func (s *Stock) Remove(ctx context.Context, def sale.Sale) error {
	parts := spread.PartsOf(def)
	remove := func(part spread.Part) error { return s.RemoveFrom(ctx, s.ShardOf(part), def.ID) }
	if err := eachPart(parts[1:], remove); err != nil {
		return err
	}
	return remove(parts[0])
}

// RemoveFrom is Remove for the part of a sale in one shard.
func (s *Stock) RemoveFrom(ctx context.Context, shard keyspace.Shard, id string) error {
	keys := []string{
		shard.Sale(id), shard.Stock(id), shard.Buyers(id), shard.Returns(id), shard.Sales(), shard.Guard(),
	}
	if err := redisscript.Run(ctx, s.cfg.Client, "remove_sale", keys, id, s.cfg.Deployment.owner()).Err(); err != nil {
		return unavailable("remove sale "+id, err)
	}
	s.spreads.Delete(id)
	return nil
}
