package spread

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"sluice/backend/admission"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	redisscript "sluice/lua/redis"
	"sluice/test/testenv"
)

// The scripts in an embedded Redis and the statements in SQLite behave as the model, in every interleaving.
func TestTransfersOverStores(t *testing.T) {
	s := openServers(t)
	playSeeds(t, 40, func(k int, stock int64) stores { return s.open(t, k, stock) })
}

// servers are an embedded Redis and a database that runs reuse one after the other.
type servers struct {
	mini   *miniredis.Miniredis
	client redisconn.Client
	db     *store.Store
	runs   int
}

func openServers(t *testing.T) *servers {
	t.Helper()
	mini := miniredis.RunT(t)
	s := &servers{
		mini: mini, client: testenv.NewClient(mini.Addr()), db: storetest.Open(t, storetest.SQLite(t)),
	}
	t.Cleanup(func() { s.client.Close() })
	return s
}

// real is both stores beside the model: every call is made to both, and every difference is a violation.
type real struct {
	*servers
	model    *model
	space    keyspace.Space
	segments *admission.Segments
	of       spread.Sale
	lost     []bool // the guard blocks connections to the server of the segment
	saved    []map[string]any
	dirty    bool
	first    string // the first difference
}

func (s *servers) open(t *testing.T, k int, stock int64) *real {
	s.mini.FlushAll()
	s.runs++
	space := keyspace.Space{Shards: k}
	r := &real{
		servers: s, model: newModel(k, stock), space: space, segments: admission.NewSegments(s.client, space, nil),
		of: spread.Sale{ID: fmt.Sprintf("s%d", s.runs), Spread: k}, lost: make([]bool, k), saved: make([]map[string]any, k),
	}
	for i := range r.lost {
		r.lost[i] = true
	}
	def := r.def(stock)
	def.Spread = k
	if _, err := s.db.CreateSale(t.Context(), def); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *real) def(stock int64) sale.Sale {
	return sale.Sale{
		ID: r.of.ID, Title: "t", Price: sale.Price{Amount: 1, Currency: "EUR"}, Stock: stock, PerBuyer: 1,
		OpensAt: time.Unix(1_000_000_000, 0), Switch: sale.On, Version: 1,
	}
}

func (r *real) shard(segment int) keyspace.Shard { return r.space.ShardOfSegment(r.of.ID, segment) }

func (r *real) Difference() string { return r.first }

// differ records the first difference. Processes are goroutines, which may not end the test.
func (r *real) differ(format string, args ...any) {
	if r.first == "" {
		r.first = fmt.Sprintf(format, args...)
	}
}

// compare compares the results of the stores and of the model.
func (r *real) compare(what string, have, want any, haveErr, wantErr error) {
	r.dirty = true
	if (haveErr == nil) != (wantErr == nil) || haveErr == nil && !reflect.DeepEqual(have, want) {
		r.differ("%s: %+v, %v; the model has %+v, %v", what, have, haveErr, want, wantErr)
	}
}

func (r *real) run(segment int, script string, keys []string, args ...any) (any, error) {
	if r.lost[segment] && !strings.HasPrefix(script, "rebuild_") {
		return nil, errDown
	}
	return redisscript.Run(context.Background(), r.client, script, keys, args...).Result()
}

func (r *real) States(ctx context.Context, _ spread.Sale) ([]spread.State, error) {
	states, err := r.segments.States(ctx, r.of)
	for i := range states {
		if r.lost[i] {
			states[i] = spread.State{}
		}
	}
	return states, err
}

func (r *real) SetApart(ctx context.Context, of spread.Sale, m spread.Move) (t *spread.Transfer, err error) {
	if err = errDown; !r.lost[m.From] {
		t, err = r.segments.SetApart(ctx, r.of, m)
	}
	want, wantErr := r.model.SetApart(ctx, of, m)
	r.compare(fmt.Sprintf("set apart %+v", m), t, want, err, wantErr)
	return t, err
}

func (r *real) Apply(ctx context.Context, of spread.Sale, segment int, to spread.Allocation) (err error) {
	if err = errDown; !r.lost[segment] {
		err = r.segments.Apply(ctx, r.of, segment, to)
	}
	r.compare("apply", nil, nil, err, r.model.Apply(ctx, of, segment, to))
	return err
}

func (r *real) Allocations(ctx context.Context, _ string) ([]spread.Allocation, error) {
	return r.db.Allocations(ctx, r.of.ID)
}

func (r *real) Commit(ctx context.Context, saleID string, t spread.Transfer) ([]spread.Allocation, error) {
	all, err := r.db.Commit(ctx, r.of.ID, t)
	modelled, modelErr := r.model.Commit(ctx, saleID, t)
	r.compare(fmt.Sprintf("commit %+v", t), all, modelled, err, modelErr)
	return all, err
}

func (r *real) Buy(segment int, buyer string, order int64) (verdict, error) {
	shard := r.shard(segment)
	keys := []string{
		shard.Sale(r.of.ID), shard.Stock(r.of.ID), shard.Buyers(r.of.ID), shard.Ready(), shard.Wake(),
		shard.Dedup(buyer, "key"),
	}
	known := r.of.Spread
	if spread.Home(buyer, known) != segment {
		known++ // a process that knows another spread
	}
	reply, err := r.run(segment, "admit", keys,
		fmt.Sprintf("%s %d/%d", r.of.ID, segment, known), "", 0, "", order, buyer, "f 600000")
	var have verdict
	if err == nil {
		switch word, _, _ := strings.Cut(reply.(string), " "); word {
		case "accepted", "already_bought", "replayed":
			have = accepted
		case "sold_out":
			have = empty
		default:
			err = fmt.Errorf("answer %q", reply)
		}
	}
	want, wantErr := r.model.Buy(segment, buyer, order)
	r.compare("buy by "+buyer, have, want, err, wantErr)
	return have, err
}

func (r *real) Cancel(segment int, buyer string) error {
	order, has := r.model.orders[segment][buyer]
	if err := r.model.Cancel(segment, buyer); err != nil || !has {
		return err
	}
	r.dirty = true
	shard, id := r.shard(segment), r.of.ID
	// Without the segment no unit returns: its rebuild does not count the order.
	keys := []string{shard.Sale(id), shard.Stock(id), shard.Buyers(id), shard.Returns(id), shard.Guard()}
	_, _ = r.run(segment, "return_unit", keys, "", order, buyer)
	return nil
}

func (r *real) Restock(units int64) error {
	_, err := r.db.Restock(context.Background(), r.of.ID, units, "")
	r.compare("restock", nil, nil, err, r.model.Restock(units))
	return err
}

// ofFence identifies a rebuild of the only deployment, which has no id.
func ofFence(fence int64) string { return fmt.Sprint(fence, " 0") }

func (r *real) Begin(segment int) (int64, error) {
	fence, err := r.model.Begin(segment)
	r.dirty = true
	shard := r.shard(segment)
	r.client.HSet(context.Background(), shard.Guard(), "fence", fence)
	keys := []string{shard.Guard(), shard.Sale(r.of.ID)}
	if _, err := r.run(segment, "rebuild_suspend_sales", keys, ofFence(fence)); err != nil {
		return 0, err
	}
	return fence, err
}

func (r *real) Claim(segment int) (spread.Allocation, error) {
	have, err := r.db.Claim(context.Background(), r.of.ID, segment)
	want, wantErr := r.model.Claim(segment)
	r.compare("claim", have, want, err, wantErr)
	return have, err
}

func (r *real) Load(segment int, fence int64, claimed spread.Allocation) error {
	if r.model.segments[segment].Loaded {
		return r.model.Load(segment, fence, claimed)
	}
	shard, id, ctx := r.shard(segment), r.of.ID, context.Background()
	orders := r.model.orders[segment]
	keys := []string{shard.Guard(), shard.Sale(id), shard.Stock(id), shard.Sales(), shard.Returns(id)}
	left, sold := claimed.Units-int64(len(orders)), int64(len(orders))
	def, part := r.def(claimed.Units), r.of.Segment(segment)
	args := append([]any{ofFence(fence)}, admission.SaleArgs(def, left, sold, part, claimed.Version, 0, nil)...)
	reply, err := r.run(segment, "rebuild_sale", keys, args...)
	if err == nil && reply == "ok" {
		r.client.Del(ctx, shard.Buyers(id))
		for buyer, order := range orders {
			r.client.HSet(ctx, shard.Buyers(id), buyer, order)
		}
		reply, err = r.run(segment, "rebuild_resume_sales", keys[:2], ofFence(fence), 1, "on")
	}
	if err == nil && reply != "ok" {
		err = errDown
	}
	if err == nil {
		r.lost[segment] = false
	}
	r.compare("load", nil, nil, err, r.model.Load(segment, fence, claimed))
	return err
}

// keysOf are the keys of a segment that a server with older data has.
func (r *real) keysOf(segment int) (hashes []string, stock string) {
	shard, id := r.shard(segment), r.of.ID
	return []string{shard.Sale(id), shard.Buyers(id), shard.Returns(id)}, shard.Stock(id)
}

func (r *real) Save(segment int) {
	if !r.model.segments[segment].Loaded {
		return
	}
	hashes, stock := r.keysOf(segment)
	copied := map[string]any{stock: r.client.Get(context.Background(), stock).Val()}
	for _, key := range hashes {
		copied[key] = r.client.HGetAll(context.Background(), key).Val()
	}
	r.saved[segment] = copied
}

func (r *real) Lose(segment int, old bool) {
	r.model.Lose(segment, old)
	r.lost[segment], r.dirty = true, true
	ctx := context.Background()
	hashes, stock := r.keysOf(segment)
	replays := r.client.Keys(ctx, strings.TrimSuffix(r.shard(segment).Guard(), "guard")+"dedup:*").Val()
	r.client.Del(ctx, append(append(hashes, stock, r.shard(segment).Guard()), replays...)...)
	if !old {
		return
	}
	for key, value := range r.saved[segment] {
		if fields, isHash := value.(map[string]string); isHash && len(fields) > 0 {
			r.client.HSet(ctx, key, fields)
		} else if text, isText := value.(string); isText {
			r.client.Set(ctx, key, text, 0)
		}
	}
}

// Truth returns the truth of the model, and compares it with that of the stores.
func (r *real) Truth() truth {
	t := r.model.Truth()
	if !r.dirty {
		return t
	}
	r.dirty = false
	allocations, err := r.Allocations(context.Background(), "")
	states, stateErr := r.States(context.Background(), r.of)
	if err != nil || stateErr != nil || !reflect.DeepEqual(allocations, t.Allocations) {
		r.differ("SQL has %+v, %v, %v; the model %+v", allocations, err, stateErr, t.Allocations)
	}
	for i, want := range t.States {
		have := states[i]
		if !want.Loaded {
			want = spread.State{}
		}
		have.Returns, have.Sold, want.Returns, want.Sold = 0, 0, 0, 0
		if !reflect.DeepEqual(have, want) {
			r.differ("segment %d is %+v in Redis, and %+v in the model", i, have, want)
		}
	}
	return t
}
