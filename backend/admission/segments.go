package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	redisscript "sluice/lua/redis"
)

// Segments reads the segments of sales in Redis and changes their units; it implements spread.Segments. Each call but
// States accesses one shard. It is safe for concurrent use.
type Segments struct {
	client     redisconn.Client
	space      keyspace.Space
	deployment Deployment
}

// NewSegments returns Segments. It does not connect. A segment in the data of another deployment is not loaded, and
// SetApart and Apply fail there.
func NewSegments(client redisconn.Client, space keyspace.Space, deployment Deployment) *Segments {
	return &Segments{client, space, deployment}
}

// States reads the segments of a sale; see spread.Segments. If no segment is loaded, the error is that of ctx.
func (s *Segments) States(ctx context.Context, of spread.Sale) ([]spread.State, error) {
	states := make([]spread.State, of.Spread)
	_ = eachPart(spread.PartsOf(sale.Sale{ID: of.ID, Spread: of.Spread}), func(part spread.Part) error {
		state, deployment, err := ReadSegment(ctx, s.client, s.space, part)
		// the data of another deployment has transfers that are not in the database of this process
		if err == nil && state.Loaded && s.deployment.owns(deployment) {
			states[part.Segment] = state
		}
		return nil
	})
	if slices.ContainsFunc(states, func(s spread.State) bool { return s.Loaded }) {
		return states, nil
	}
	return states, ctx.Err()
}

// ReadSegment returns the state of a segment, read with a client of its shard, and the id of the deployment that has
// the shard ("": none). While a rebuild holds the segment, Loaded is false and the other fields are valid. ReadSegment
// returns ErrNotLoaded if the shard does not hold the segment, or an error of Redis.
func ReadSegment(
	ctx context.Context, client redis.Cmdable, space keyspace.Space, of spread.Part,
) (state spread.State, owner string, err error) {
	shard := space.ShardOfSegment(of.SaleID, of.Segment)
	var def *redis.MapStringStringCmd
	var left, deployment *redis.StringCmd
	_, err = client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		def, left = p.HGetAll(ctx, shard.Sale(of.SaleID)), p.Get(ctx, shard.Stock(of.SaleID))
		deployment = p.HGet(ctx, shard.Guard(), "deployment")
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return spread.State{}, "", err
	}
	state, err = parseState(of, def, left)
	return state, deployment.Val(), err
}

// parseState returns the state of a segment. One without version is not Loaded: a rebuild holds it.
func parseState(of spread.Part, def *redis.MapStringStringCmd, left *redis.StringCmd) (spread.State, error) {
	f, units, err := parseSale(def, left)
	if err != nil {
		return spread.State{}, err
	}
	if f.Segment != segmentField(of) {
		return spread.State{}, ErrNotLoaded
	}
	state := spread.State{
		Loaded: f.Version != 0, Version: f.Allocation, Units: f.Stock, Left: units, Returns: f.Returned, Sold: f.Accepted,
	}
	if state.Out, err = f.transfer(of.Segment); err != nil {
		return spread.State{}, err
	}
	return state, nil
}

// transfer returns the outgoing transfer of a segment; nil: none. Its error is errUnusable.
func (f *saleHash) transfer(segment int) (*spread.Transfer, error) {
	if f.Out == "" {
		return nil, nil
	}
	t := &spread.Transfer{From: segment, Version: f.Allocation}
	if _, err := fmt.Sscanf(f.Out, "%d %d", &t.Units, &t.To); err != nil {
		return nil, unusable(fmt.Errorf("outgoing transfer %q: %w", f.Out, err))
	}
	return t, nil
}

// SetApart takes units of a segment off sale; see spread.Segments. An error wraps sale.ErrUnavailable.
func (s *Segments) SetApart(ctx context.Context, of spread.Sale, m spread.Move) (*spread.Transfer, error) {
	reply, err := s.run(ctx, "segment_set_apart", of.Segment(m.From), m.Units, m.To).Int64Slice()
	switch {
	case err != nil:
		return nil, unavailable("set units apart", err)
	case len(reply) == 0:
		return nil, nil
	case len(reply) != 3:
		return nil, unavailable("set units apart", fmt.Errorf("the script returned %d numbers", len(reply)))
	}
	return &spread.Transfer{From: m.From, To: int(reply[2]), Units: reply[1], Version: reply[0]}, nil
}

// Apply applies an allocation to a segment; see spread.Segments. An error wraps sale.ErrUnavailable.
func (s *Segments) Apply(ctx context.Context, of spread.Sale, segment int, to spread.Allocation) error {
	if err := s.run(ctx, "segment_apply", of.Segment(segment), to.Version, to.Units).Err(); err != nil {
		return unavailable("apply an allocation", err)
	}
	return nil
}

// run runs a script on one segment. Its first argument is the segment.
func (s *Segments) run(ctx context.Context, script string, of spread.Part, args ...any) *redis.Cmd {
	shard := s.space.ShardOfSegment(of.SaleID, of.Segment)
	keys := []string{shard.Sale(of.SaleID), shard.Stock(of.SaleID), shard.Guard()}
	return redisscript.Run(ctx, s.client, script, keys, append([]any{segmentField(of), s.deployment.owner()}, args...)...)
}
