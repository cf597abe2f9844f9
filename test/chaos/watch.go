package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// Sample is what the stores held at one moment. NaN: the store did not answer.
type Sample struct {
	At time.Duration // since the run began
	// in Redis: messages ready or delayed (of the stream, if there is one, those leased too), batches, dead letters
	Waiting, Leases, Dead float64
	Accepted              float64 // in Redis: orders accepted, over all sales
	Rows                  float64 // in SQL
}

// watch looks at both stores directly, past all links.
type watch struct {
	began time.Time
	redis *redis.Client
	url   string // of PostgreSQL

	mu       sync.Mutex
	samples  []Sample
	recovery []time.Duration // from the kill of a worker until all it held were rows or dead letters
	stuck    []string        // orders of killed workers that became neither
	open     sync.WaitGroup
}

func newWatch(s *stage) *watch {
	return &watch{
		began: time.Now(),
		url:   s.disk.url,
		redis: redis.NewClient(
			&redis.Options{Addr: s.redis.Addr, MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: 2 * time.Second},
		),
	}
}

// shards is how many queues the sales of a run are spread over.
const shards = 2

// inShards are the keys of one name in every shard.
func inShards(name string) []string {
	keys := make([]string, shards)
	for i := range keys {
		keys[i] = "sluice:{" + strconv.Itoa(i) + "}:" + name
	}
	return keys
}

// sum adds up what was counted.
func sum(counts []*redis.IntCmd) (n int64) {
	for _, c := range counts {
		n += c.Val()
	}
	return n
}

// run takes a sample every so often until ctx ends.
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
	if _, err := w.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		waiting = counted(ctx, p, "ready", "orders", "delayed")
		leases, dead = counted(ctx, p, "leases"), counted(ctx, p, "dead")
		for _, id := range sales {
			for _, key := range inShards("sale:" + id) { // in all but its own there is nothing
				accepted = append(accepted, p.HGet(ctx, key, "accepted"))
			}
		}
		return nil
	}); err == nil || errors.Is(err, redis.Nil) {
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

// counted queues commands for the lengths of lists, streams and sorted sets in every shard.
func counted(ctx context.Context, p redis.Pipeliner, names ...string) (counts []*redis.IntCmd) {
	for _, name := range names {
		for _, key := range inShards(name) {
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
	if _, err := w.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		counts = counted(ctx, p, "ready", "orders", "delayed", "leases")
		return nil
	}); err != nil {
		return 0, err
	}
	if err := db.one(
		ctx,
		"SELECT count(*) FROM orders WHERE status = 'cancelled' AND return_number IS NULL",
		&n,
	); err != nil {
		return 0, err
	}
	return n + sum(counts), nil
}

// killed follows what a worker held when it was killed, until all of it has become rows or dead letters.
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
				w.stuck = append(w.stuck, fmt.Sprintf("orders %v of a worker that was killed are neither rows nor dead", missing))
			}
		}()
		for first := true; ctx.Err() == nil; {
			if err := db.one(ctx, "SELECT coalesce(array_agg(id), '{}') FROM unnest($1::bigint[]) AS held (id) "+
				"WHERE NOT EXISTS (SELECT FROM orders WHERE orders.id = held.id)", &missing, ids); err != nil {
				pause(ctx, 20*time.Millisecond)
				continue
			}
			missing = slices.DeleteFunc(missing, func(id int64) bool {
				return slices.ContainsFunc(inShards("dead:letters"), func(key string) bool {
					return w.redis.HExists(ctx, key, strconv.FormatInt(id, 10)).Val()
				})
			})
			if len(missing) == 0 {
				if !first { // else they were rows already when it was killed
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

// holds reports whether a process holds a lease.
func (w *watch) holds(ctx context.Context, pid int) bool {
	batches, err := w.batchesOf(ctx, pid)
	return err == nil && len(batches) > 0
}

// leased is one batch: the beginning of its shard's keys, and its name.
type leased struct{ shard, batch string }

// batchesOf lists the batches that a process has leased: their names begin with its host and process id.
func (w *watch) batchesOf(ctx context.Context, pid int) (batches []leased, err error) {
	for _, shard := range inShards("") {
		leases, err := w.redis.ZRange(ctx, shard+"leases", 0, -1).Result()
		if err != nil {
			return nil, err
		}
		for _, batch := range leases {
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

// sqlConn is a connection that is made when it is needed, and again after an error. It is not safe for concurrent use.
type sqlConn struct {
	url  string
	conn *pgx.Conn
}

func (c *sqlConn) one(ctx context.Context, sql string, into any, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if c.conn == nil || c.conn.IsClosed() {
		conn, err := pgx.Connect(ctx, c.url)
		if err != nil {
			return err
		}
		c.conn = conn
	}
	err := c.conn.QueryRow(ctx, sql, args...).Scan(into)
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
