package chaos

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/loop"
)

// killed follows the orders that a worker held when it was killed, until all are rows or dead letters. When ctx ends,
// the stores must be idle: an order that is neither then never becomes one.
func (w *watch) killed(ctx context.Context, pid int) {
	at := time.Now()
	w.following.Go(func() {
		ids, err := w.held(ctx, pid)
		if err != nil || len(ids) == 0 {
			return
		}
		db := &sqlConn{url: w.url}
		defer db.close()
		stuck, late := follow(ctx, ids, func(ctx context.Context, ids []int64) ([]int64, error) {
			return w.missing(ctx, db, ids)
		})
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stuck = append(w.stuck, stuck...)
		if late && len(stuck) == 0 {
			w.recovery = append(w.recovery, time.Since(at))
		}
	})
}

// follow queries until none of the orders is missing, or ctx has ended, and returns those that still are. late reports
// whether any was missing at first. If the queries still fail a minute after the end of ctx, the orders of the last one
// that succeeded are missing.
func follow(
	ctx context.Context, ids []int64, missing func(context.Context, []int64) ([]int64, error),
) (stuck []int64, late bool) {
	work, stop := loop.Outlive(ctx, time.Minute)
	defer stop()
	for {
		last := ctx.Err() != nil
		left, err := missing(work, ids)
		switch {
		case err != nil && work.Err() != nil:
			return ids, late
		case err != nil: // the store is down
		case len(left) == 0 || last:
			return left, late
		default:
			ids, late = left, true
		}
		pause(work, 20*time.Millisecond)
	}
}

// missing returns the orders that are neither rows nor dead letters.
func (w *watch) missing(ctx context.Context, db *sqlConn, ids []int64) (missing []int64, err error) {
	var unwritten []int64
	if err := db.one(ctx, "SELECT coalesce(array_agg(id), '{}') FROM unnest($1::bigint[]) AS held (id) "+
		"WHERE NOT EXISTS (SELECT FROM orders WHERE orders.id = held.id)", &unwritten, ids); err != nil {
		return nil, err
	}
	for _, id := range unwritten {
		dead := false
		for _, key := range w.inShards("dead:letters") {
			is, err := w.redis.HExists(ctx, key, strconv.FormatInt(id, 10)).Result()
			if err != nil {
				return nil, err
			}
			dead = dead || is
		}
		if !dead {
			missing = append(missing, id)
		}
	}
	return missing, nil
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
