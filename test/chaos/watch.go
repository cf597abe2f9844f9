package chaos

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
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
	redis  *redis.Client
	shards int    // how many queues the sales of the run are spread over
	url    string // of PostgreSQL

	mu       sync.Mutex
	samples  []Sample
	recovery []time.Duration // from the kill of a worker until all it held were rows or dead letters
	stuck    []int64         // orders of killed workers that became neither
	open     sync.WaitGroup
}

func newWatch(s *stage) *watch {
	return &watch{
		began:  time.Now(),
		url:    s.disk.url,
		redis:  s.redis.client(),
		shards: s.redis.shards,
	}
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

// busy counts work in progress: messages that wait or are leased, and units not yet returned.
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
	return n + sum(counts) + moves, err
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

// killed tracks the orders that a worker held when it was killed, until all have become rows or dead letters.
func (w *watch) killed(ctx context.Context, pid int) {
	at := time.Now()
	w.open.Go(func() {
		ids, err := w.held(ctx, pid)
		if err != nil || len(ids) == 0 {
			return
		}
		db := &sqlConn{url: w.url}
		defer db.close()
		var missing []int64
		defer func() {
			if len(missing) > 0 {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.stuck = append(w.stuck, missing...)
			}
		}()
		for first := true; ctx.Err() == nil; {
			if err := db.one(ctx, "SELECT coalesce(array_agg(id), '{}') FROM unnest($1::bigint[]) AS held (id) "+
				"WHERE NOT EXISTS (SELECT FROM orders WHERE orders.id = held.id)", &missing, ids); err != nil {
				pause(ctx, 20*time.Millisecond)
				continue
			}
			missing = slices.DeleteFunc(missing, func(id int64) bool {
				return slices.ContainsFunc(w.inShards("dead:letters"), func(key string) bool {
					return w.redis.HExists(ctx, key, strconv.FormatInt(id, 10)).Val()
				})
			})
			if len(missing) == 0 {
				if !first { // otherwise they were rows before the kill
					w.mu.Lock()
					w.recovery = append(w.recovery, time.Since(at))
					w.mu.Unlock()
				}
				return
			}
			first, ids = false, missing
			pause(ctx, 20*time.Millisecond)
		}
	})
}

// neverWritten lists the orders of killed workers that became neither rows nor dead letters. If Redis has lost data, it
// omits orders that were never confirmed to a buyer.
func (w *watch) neverWritten(h *History) (wrong []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, order := range w.stuck {
		id := strconv.FormatInt(order, 10)
		if _, confirmed := h.Confirmed[id]; confirmed || h.losses() == 0 {
			wrong = append(wrong, "order "+id+" of a killed worker is neither a row nor dead")
		}
	}
	return wrong
}

// holds reports whether a process holds a lease.
func (w *watch) holds(ctx context.Context, pid int) bool {
	batches, err := w.batchesOf(ctx, pid)
	return err == nil && len(batches) > 0
}

// leased is one batch: the beginning of its shard's keys, and its name.
type leased struct{ shard, batch string }

// batchesOf lists the batches that a process has leased: their names begin with its host and process id.
func (w *watch) batchesOf(ctx context.Context, pid int) (batches []leased, err error) {
	leases := make([]*redis.StringSliceCmd, w.shards)
	if err := all(w.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range w.inShards("leases") {
			leases[i] = p.ZRange(ctx, key, 0, -1)
		}
		return nil
	})); err != nil {
		return nil, err
	}
	for i, shard := range w.inShards("") {
		for _, batch := range leases[i].Val() {
			if strings.Contains(batch, "-"+strconv.Itoa(pid)+"-") {
				batches = append(batches, leased{shard, batch})
			}
		}
	}
	return batches, nil
}

// held reads the order ids in the leases of a process.
func (w *watch) held(ctx context.Context, pid int) (ids []int64, err error) {
	batches, err := w.batchesOf(ctx, pid)
	if err != nil {
		return nil, err
	}
	for _, b := range batches {
		texts, err := w.redis.LRange(ctx, b.shard+"batch:"+b.batch, 0, -1).Result()
		if err != nil {
			return nil, err
		}
		entries, err := w.entries(ctx, b)
		if err != nil {
			return nil, err
		}
		for _, text := range append(texts, entries...) {
			id, _, _ := strings.Cut(text, " ")
			if n, err := strconv.ParseInt(id, 10, 64); err == nil {
				ids = append(ids, n)
			}
		}
	}
	return ids, nil
}

// entries reads what a batch holds of the stream.
func (w *watch) entries(ctx context.Context, b leased) (texts []string, err error) {
	key := b.shard + "orders"
	if n, err := w.redis.XLen(ctx, key).Result(); err != nil || n == 0 {
		return nil, err
	}
	pending, err := w.redis.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: key, Group: "orders", Start: "-", End: "+", Count: 1000, Consumer: b.batch,
	}).Result()
	if err != nil && !redis.HasErrorPrefix(err, "NOGROUP") {
		return nil, err
	}
	for _, p := range pending {
		found, err := w.redis.XRange(ctx, key, p.ID, p.ID).Result()
		if err != nil {
			return nil, err
		}
		for _, e := range found { // none, if it was acknowledged meanwhile
			if text, ok := e.Values["m"].(string); ok {
				texts = append(texts, text)
			}
		}
	}
	return texts, nil
}

// sqlConn is a connection that is opened at first use, and again after an error. It is not safe for concurrent use.
type sqlConn struct {
	url  string
	conn *pgx.Conn
}

func (c *sqlConn) one(ctx context.Context, sql string, into any, args ...any) error {
	return c.query(ctx, sql, args, into)
}

// row reads the columns of one row.
func (c *sqlConn) row(ctx context.Context, sql string, into ...any) error {
	return c.query(ctx, sql, nil, into...)
}

func (c *sqlConn) query(ctx context.Context, sql string, args []any, into ...any) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if c.conn == nil || c.conn.IsClosed() {
		conn, err := pgx.Connect(ctx, c.url)
		if err != nil {
			return err
		}
		c.conn = conn
	}
	err := c.conn.QueryRow(ctx, sql, args...).Scan(into...)
	if err != nil {
		c.close()
	}
	return err
}

func (c *sqlConn) close() {
	if c.conn != nil {
		_ = c.conn.Close(context.Background())
		c.conn = nil
	}
}
