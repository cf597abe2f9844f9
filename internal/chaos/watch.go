package chaos

import (
	"context"
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
	At                    time.Duration // since the run began
	Waiting, Leases, Dead float64       // in Redis: messages ready or delayed (of the stream, if there is one, those leased too), batches, dead letters
	Accepted              float64       // in Redis: orders accepted, over all sales
	Rows                  float64       // in SQL
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
		began: time.Now(), url: s.disk.url,
		redis: redis.NewClient(&redis.Options{Addr: s.redis.Addr, MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: 2 * time.Second}),
	}
}

// lane is the one that processes use when nothing else is asked of them.
const lane = "sluice:{0}:"

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
	var ready, entries, delayed, leases, dead *redis.IntCmd
	accepted := make([]*redis.StringCmd, len(sales))
	if _, err := w.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		ready, entries, delayed = p.LLen(ctx, lane+"ready"), p.XLen(ctx, lane+"orders"), p.ZCard(ctx, lane+"delayed")
		leases, dead = p.ZCard(ctx, lane+"leases"), p.ZCard(ctx, lane+"dead")
		for i, id := range sales {
			accepted[i] = p.HGet(ctx, lane+"sale:"+id, "accepted")
		}
		return nil
	}); err == nil {
		s.Waiting, s.Leases, s.Dead = float64(ready.Val()+entries.Val()+delayed.Val()), float64(leases.Val()), float64(dead.Val())
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

// busy counts what is under way: messages that wait or are leased, and units on their way back.
func (w *watch) busy(ctx context.Context, db *sqlConn) (n int64, err error) {
	var counts []*redis.IntCmd
	if _, err := w.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		counts = []*redis.IntCmd{p.LLen(ctx, lane+"ready"), p.XLen(ctx, lane+"orders"), p.ZCard(ctx, lane+"delayed"), p.ZCard(ctx, lane+"leases")}
		return nil
	}); err != nil {
		return 0, err
	}
	if err := db.one(ctx, "SELECT count(*) FROM orders WHERE status = 'cancelled' AND returned IS NULL", &n); err != nil {
		return 0, err
	}
	for _, c := range counts {
		n += c.Val()
	}
	return n, nil
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
			if err := db.one(ctx, "SELECT coalesce(array_agg(id), '{}') FROM unnest($1::bigint[]) AS held (id) WHERE NOT EXISTS (SELECT FROM orders WHERE orders.id = held.id)", &missing, ids); err != nil {
				pause(ctx, 20*time.Millisecond)
				continue
			}
			missing = slices.DeleteFunc(missing, func(id int64) bool {
				return w.redis.HExists(ctx, lane+"dead:letters", strconv.FormatInt(id, 10)).Val()
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

// holds tells whether a process holds a lease.
func (w *watch) holds(ctx context.Context, pid int) bool {
	leases, err := w.redis.ZRange(ctx, lane+"leases", 0, -1).Result()
	return err == nil && slices.ContainsFunc(leases, func(batch string) bool { return isOf(batch, pid) })
}

// isOf tells whether a batch is leased by a process: batches begin with its host and process id.
func isOf(batch string, pid int) bool { return strings.Contains(batch, "-"+strconv.Itoa(pid)+"-") }

// held reads the order ids in the leases of a process.
func (w *watch) held(ctx context.Context, pid int) (ids []int64, err error) {
	leases, err := w.redis.ZRange(ctx, lane+"leases", 0, -1).Result()
	if err != nil {
		return nil, err
	}
	for _, batch := range leases {
		if !isOf(batch, pid) {
			continue
		}
		texts, err := w.redis.LRange(ctx, lane+"batch:"+batch, 0, -1).Result()
		if err != nil {
			return nil, err
		}
		entries, err := w.entries(ctx, batch)
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
func (w *watch) entries(ctx context.Context, batch string) (texts []string, err error) {
	key := lane + "orders"
	if n, err := w.redis.XLen(ctx, key).Result(); err != nil || n == 0 {
		return nil, err
	}
	pending, err := w.redis.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: key, Group: "orders", Start: "-", End: "+", Count: 1000, Consumer: batch}).Result()
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
