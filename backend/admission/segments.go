package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	redisscript "sluice/lua/redis"
)

// Segment identifies one segment of a sale and the allocation that Redis has applied. The zero value is the whole of a
// sale that lives in one shard.
type Segment struct {
	Index   int   // from 0
	Spread  int   // number of segments
	Version int64 // of the allocation
}

// text returns the field segment of the sale in Redis.
func (s Segment) text() string {
	if s.Spread < 2 {
		return ""
	}
	return strconv.Itoa(s.Index) + "/" + strconv.Itoa(s.Spread)
}

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

// States reads the segments of a sale; see spread.Segments. The error is that of ctx.
func (s *Segments) States(ctx context.Context, of spread.Sale) ([]spread.State, error) {
	states := make([]spread.State, of.Spread)
	_ = eachPart(PartsOf(sale.Sale{ID: of.ID, Spread: of.Spread}), func(p SalePart) (err error) {
		states[p.Segment], err = s.state(ctx, of, p.Segment)
		return err
	})
	if slices.ContainsFunc(states, func(s spread.State) bool { return s.Loaded }) {
		return states, nil
	}
	return states, ctx.Err()
}

func (s *Segments) state(ctx context.Context, of spread.Sale, segment int) (spread.State, error) {
	state, deployment, err := readSegment(ctx, s.client, s.space, of, segment)
	if err != nil {
		return spread.State{}, err
	}
	if !s.deployment.owns(deployment) { // its transfers are not in the database of this process
		return spread.State{}, ErrNotLoaded
	}
	if !state.Loaded {
		return spread.State{}, ErrNotLoaded
	}
	return state, nil
}

// ReadSegment returns the state of a segment also while a rebuild holds it, with a client of its shard, and the id of
// the deployment that has the shard ("": none). It returns ErrNotLoaded if the shard does not hold the segment, or an
// error of Redis.
func ReadSegment(
	ctx context.Context, client redis.Cmdable, space keyspace.Space, of spread.Sale, segment int,
) (state spread.State, owner string, err error) {
	state, owner, err = readSegment(ctx, client, space, of, segment)
	state.Loaded = err == nil
	return state, owner, err
}

// readSegment returns the state of a segment, and the id of the deployment that has its shard. The segment is not
// Loaded while a rebuild holds it.
func readSegment(
	ctx context.Context, client redis.Cmdable, space keyspace.Space, of spread.Sale, segment int,
) (state spread.State, owner string, err error) {
	shard := space.ShardOfSegment(of.ID, segment)
	var def *redis.MapStringStringCmd
	var left, deployment *redis.StringCmd
	_, err = client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		def, left = p.HGetAll(ctx, shard.Sale(of.ID)), p.Get(ctx, shard.Stock(of.ID))
		deployment = p.HGet(ctx, shard.Guard(), "deployment")
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return spread.State{}, "", err
	}
	state, err = parseState(Segment{Index: segment, Spread: of.Spread}, def, left)
	return state, deployment.Val(), err
}

// parseState returns the state of a segment. One without version is not Loaded: a rebuild holds it.
func parseState(of Segment, def *redis.MapStringStringCmd, left *redis.StringCmd) (spread.State, error) {
	var f struct {
		Version    int64  `redis:"version"`
		Segment    string `redis:"segment"`
		Allocation int64  `redis:"allocation"`
		Stock      int64  `redis:"stock"`
		Out        string `redis:"out"`
		Returned   int64  `redis:"returned"`
		Accepted   int64  `redis:"accepted"`
	}
	units, err := left.Int64()
	if errors.Is(err, redis.Nil) {
		err = ErrNotLoaded
	}
	if err = errors.Join(err, def.Scan(&f)); err != nil {
		return spread.State{}, err
	}
	if f.Segment != of.text() {
		return spread.State{}, ErrNotLoaded
	}
	state := spread.State{
		Loaded: f.Version != 0, Version: f.Allocation, Units: f.Stock, Left: units, Returns: f.Returned, Sold: f.Accepted,
	}
	if f.Out != "" {
		t, err := parseTransfer(f.Out)
		if err != nil {
			return spread.State{}, err
		}
		t.From, t.Version = of.Index, f.Allocation
		state.Out = &t
	}
	return state, nil
}

// parseTransfer parses the field out of a segment: "<units> <index of the other segment>".
func parseTransfer(text string) (t spread.Transfer, err error) {
	units, to, _ := strings.Cut(text, " ")
	t.Units, err = strconv.ParseInt(units, 10, 64)
	if err == nil {
		t.To, err = strconv.Atoi(to)
	}
	if err != nil {
		return t, fmt.Errorf("outgoing transfer %q: %w", text, err)
	}
	return t, nil
}

// SetApart takes units of a segment off sale; see spread.Segments. An error wraps sale.ErrUnavailable.
func (s *Segments) SetApart(ctx context.Context, of spread.Sale, m spread.Move) (*spread.Transfer, error) {
	reply, err := s.run(ctx, "segment_set_apart", of, m.From, m.Units, m.To).Int64Slice()
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
	if err := s.run(ctx, "segment_apply", of, segment, to.Version, to.Units).Err(); err != nil {
		return unavailable("apply an allocation", err)
	}
	return nil
}

// run runs a script on one segment. Its first argument is the segment.
func (s *Segments) run(ctx context.Context, script string, of spread.Sale, segment int, args ...any) *redis.Cmd {
	shard := s.space.ShardOfSegment(of.ID, segment)
	in := Segment{Index: segment, Spread: of.Spread}
	keys := []string{shard.Sale(of.ID), shard.Stock(of.ID), shard.Guard()}
	return redisscript.Run(ctx, s.client, script, keys, append([]any{in.text(), s.deployment.owner()}, args...)...)
}
