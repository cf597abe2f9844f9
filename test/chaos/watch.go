package chaos

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/recovery/guard"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
)

// Sample is the state of the stores at one instant. NaN: the store did not answer.
type Sample struct {
	At time.Duration // since the run began
	// in Redis: messages ready or delayed (of the stream, if there is one, those leased too), batches, dead letters
	Waiting, Leases, Dead float64
	Accepted              float64 // in Redis: orders accepted, over all sales
	Rows                  float64 // in SQL
}

// watch reads both stores directly, without links.
type watch struct {
	began  time.Time
	redis  redisconn.Client
	owners []redisconn.Client // of the server of each shard
	shards int                // how many queues the sales of the run are spread over
	url    string             // of PostgreSQL

	mu        sync.Mutex
	samples   []Sample
	recovery  []time.Duration // from the kill of a worker until all it held were rows or dead letters
	stuck     []int64         // orders of killed workers that became neither
	following sync.WaitGroup  // of killed
}

func newWatch(s *stage) *watch {
	w := &watch{began: time.Now(), url: s.disk.url, shards: s.redis.shards}
	w.redis, w.owners = s.redis.client()
	return w
}

// inShards returns the keys of one name in every shard.
func (w *watch) inShards(name string) []string {
	keys := make([]string, w.shards)
	for i := range keys {
		keys[i] = "sluice:{" + strconv.Itoa(i) + "}:" + name
	}
	return keys
}

// sum adds up the counts.
func sum(counts []*redis.IntCmd) (n int64) {
	for _, c := range counts {
		n += c.Val()
	}
	return n
}

// run takes samples until ctx ends.
func (w *watch) run(ctx context.Context, every time.Duration, sales func() []string) {
	db := &sqlConn{url: w.url}
	defer db.close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		s := w.look(ctx, db, sales())
		w.mu.Lock()
		w.samples = append(w.samples, s)
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *watch) look(ctx context.Context, db *sqlConn, sales []string) Sample {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	none := math.NaN()
	s := Sample{At: time.Since(w.began), Waiting: none, Leases: none, Dead: none, Accepted: none, Rows: none}
	var waiting, leases, dead []*redis.IntCmd
	var accepted []*redis.StringCmd
	if err := all(w.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		waiting = w.counted(ctx, p, "ready", "orders", "delayed")
		leases, dead = w.counted(ctx, p, "leases"), w.counted(ctx, p, "dead")
		for _, id := range sales {
			for _, key := range w.inShards("sale:" + id) { // shards without a segment of the sale have no such key
				accepted = append(accepted, p.HGet(ctx, key, "accepted"))
			}
		}
		return nil
	})); err == nil {
		s.Waiting, s.Leases, s.Dead = float64(sum(waiting)), float64(sum(leases)), float64(sum(dead))
		s.Accepted = 0
		for _, a := range accepted {
			n, _ := a.Int64()
			s.Accepted += float64(n)
		}
	}
	var rows int64
	if db.one(ctx, "SELECT count(*) FROM orders", &rows) == nil {
		s.Rows = float64(rows)
	}
	return s
}

// all returns the error of a pipeline: that of any of its commands, unless a key is missing.
func all(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		if one := cmd.Err(); one != nil && !errors.Is(one, redis.Nil) {
			return one
		}
	}
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// counted queues commands for the lengths of lists, streams and sorted sets in every shard.
func (w *watch) counted(ctx context.Context, p redis.Pipeliner, names ...string) (counts []*redis.IntCmd) {
	for _, name := range names {
		for _, key := range w.inShards(name) {
			switch name {
			case "ready":
				counts = append(counts, p.LLen(ctx, key))
			case "orders":
				counts = append(counts, p.XLen(ctx, key))
			default:
				counts = append(counts, p.ZCard(ctx, key))
			}
		}
	}
	return counts
}

// busy counts work in progress: shards that are not rebuilt yet, messages that wait or are leased, and units not yet
// returned.
func (w *watch) busy(ctx context.Context, db *sqlConn) (n int64, err error) {
	var counts []*redis.IntCmd
	if err := all(w.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		counts = w.counted(ctx, p, "ready", "orders", "delayed", "leases")
		return nil
	})); err != nil {
		return 0, err
	}
	if err := db.one(ctx, "SELECT count(*) FROM orders WHERE status = 'cancelled' AND return_number IS NULL",
		&n); err != nil {
		return 0, err
	}
	moves, err := w.moves(ctx, db)
	if err != nil {
		return 0, err
	}
	unrestored, err := w.unrestored(ctx, db)
	return n + sum(counts) + moves + unrestored, err
}

// unrestored counts the shards with data in Redis that is not verified, or that lacks orders of journals.
func (w *watch) unrestored(ctx context.Context, db *sqlConn) (n int64, err error) {
	for i, owner := range w.owners {
		id, err := guard.RunID(ctx, owner)
		if err != nil {
			return 0, err
		}
		mark, err := owner.HGetAll(ctx, keyspace.Shard(i).Guard()).Result()
		if err != nil {
			return 0, err
		}
		var journals int
		if err := db.one(ctx, "SELECT count(*) FROM journals WHERE shard = $1 AND generation::text <> $2", &journals, i,
			mark["generation"]); err != nil {
			return 0, err
		}
		verified := guard.SameData(mark["run_id"], id) && mark["rebuilding"] == ""
		if !verified || journals > 0 {
			n++
		}
	}
	return n, nil
}

// moves counts the segments of sales that have units in transfer, or that have not applied their allocation in SQL.
func (w *watch) moves(ctx context.Context, db *sqlConn) (n int64, err error) {
	var sales []string
	var segments, versions []int64
	if err := db.row(ctx, "SELECT coalesce(array_agg(sale_id), '{}'), coalesce(array_agg(segment), '{}'), "+
		"coalesce(array_agg(version), '{}') FROM segments", &sales, &segments, &versions); err != nil {
		return 0, err
	}
	states := make([]*redis.SliceCmd, len(sales))
	if err := all(w.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range sales {
			shard := keyspace.Space{Shards: w.shards}.ShardOfSegment(id, int(segments[i]))
			states[i] = p.HMGet(ctx, shard.Sale(id), "allocation", "out")
		}
		return nil
	})); err != nil {
		return 0, err
	}
	for i, s := range states {
		if v := s.Val(); v[0] != strconv.FormatInt(versions[i], 10) || v[1] != nil {
			n++
		}
	}
	return n, nil
}
