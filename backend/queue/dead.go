package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/backend/sale"
)

// maxDeadScan is the maximum number of dead letters that one call to DeadLetters reads.
const maxDeadScan = 10_000

// DeadLetters returns a page, ordered by DiedAt, and the cursor of the next page; next is empty on the last page. A
// page may be short or empty although more pages follow, because one call reads at most maxDeadScan dead letters.
func (l *List) DeadLetters(ctx context.Context, q DeadQuery) (page []DeadLetter, next string, err error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	limit := min(cmp.Or(max(q.Limit, 0), 100), 1000)
	from, err := parseCursor(q.After)
	if err != nil {
		return nil, "", err
	}
	for scanned := 0; scanned < maxDeadScan; {
		entries, more, err := l.deadAfter(ctx, &q, from, max(limit, 200))
		if err != nil {
			return nil, "", wrap("dead letters", err)
		}
		found, err := l.readDeadLetters(ctx, entries)
		if err != nil {
			return nil, "", wrap("dead letters", err)
		}
		for i, e := range entries {
			from = cursorOf(e)
			if dead := found[i]; dead != nil && q.selects(dead) {
				page = append(page, *dead)
			}
			if len(page) == limit {
				return page, from.String(), nil
			}
		}
		if !more {
			return page, "", nil
		}
		scanned += len(entries)
	}
	return page, from.String(), nil
}

// deadAfter returns keys and times of dead letters after a cursor, at least one if there are any. more reports whether
// others can follow. It does not use an offset, because an offset skips letters if others were removed since the last
// page. It reads from the time of the cursor on, and drops the letters up to the cursor. If it drops all, it reads
// twice as many.
func (l *List) deadAfter(
	ctx context.Context, q *DeadQuery, from cursor, count int,
) (entries []redis.Z, more bool, err error) {
	least, most := q.scores(from)
	for ; ; count *= 2 {
		entries, err = l.client.ZRangeByScoreWithScores(ctx, l.shard.Dead().Times(), &redis.ZRangeBy{
			Min: least, Max: most, Count: int64(count),
		}).Result()
		more = len(entries) == count
		entries = slices.DeleteFunc(entries, func(e redis.Z) bool { return !from.before(cursorOf(e)) })
		if err != nil || len(entries) > 0 || !more {
			return entries, more, err
		}
	}
}

// readDeadLetters returns the dead letters of entries. One that was removed in the meantime is nil.
func (l *List) readDeadLetters(ctx context.Context, entries []redis.Z) ([]*DeadLetter, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Member.(string)
	}
	texts, err := l.client.HMGet(ctx, l.shard.Dead().Letters(), keys...).Result()
	if err != nil {
		return nil, err
	}
	found := make([]*DeadLetter, len(keys))
	for i, text := range texts {
		if s, ok := text.(string); ok {
			dead := decodeDeadLetter(keys[i], s)
			found[i] = &dead
		}
	}
	return found, nil
}

// cursor is a position in the set of dead letters: DiedAt in milliseconds, then the key.
type cursor struct {
	died int64
	key  string
}

func cursorOf(e redis.Z) cursor { return cursor{int64(e.Score), e.Member.(string)} }

func parseCursor(s string) (cursor, error) {
	if s == "" {
		return cursor{died: -1}, nil
	}
	ms, key, ok := strings.Cut(s, "-")
	died, err := strconv.ParseInt(ms, 10, 64)
	if !ok || err != nil || died < 0 {
		return cursor{}, sale.Invalid("after", "is not a cursor returned with a page")
	}
	return cursor{died, key}, nil
}

func (c cursor) String() string { return strconv.FormatInt(c.died, 10) + "-" + c.key }

// scores returns the range of DiedAt of q, from the cursor on, as Redis scores.
func (q *DeadQuery) scores(from cursor) (least, most string) {
	least, most = strconv.FormatInt(max(from.died, q.DiedAfter.UnixMilli()), 10), "+inf"
	if !q.DiedBefore.IsZero() {
		most = strconv.FormatInt(q.DiedBefore.UnixMilli(), 10) // inclusive: selects compares this millisecond exactly
	}
	return least, most
}

func (c cursor) before(d cursor) bool {
	return c.died < d.died || c.died == d.died && c.key < d.key
}

// DeadLetter returns the dead letter of an order. Errors: sale.ErrNotFound.
func (l *List) DeadLetter(ctx context.Context, id sale.OrderID) (DeadLetter, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	text, err := l.client.HGet(ctx, l.shard.Dead().Letters(), id.String()).Result()
	if errors.Is(err, redis.Nil) {
		return DeadLetter{}, notDead(id)
	}
	if err != nil {
		return DeadLetter{}, wrap("dead letter", err)
	}
	return decodeDeadLetter(id.String(), text), nil
}

// Dead returns those of the orders that are dead letters. After an error it returns those found before.
func (l *List) Dead(ctx context.Context, ids []sale.OrderID) (dead []sale.OrderID, err error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	const chunk = 1000
	for some := range slices.Chunk(ids, chunk) {
		keys := make([]string, len(some))
		for i, id := range some {
			keys[i] = id.String()
		}
		times, err := l.client.ZMScore(ctx, l.shard.Dead().Times(), keys...).Result()
		if err != nil {
			return dead, wrap("dead letters", err)
		}
		for i, died := range times {
			if died > 0 { // 0: no dead letter
				dead = append(dead, some[i])
			}
		}
	}
	return dead, nil
}

func notDead(id sale.OrderID) error {
	return fmt.Errorf("dead letter %s: %w", id, sale.ErrNotFound)
}

// RetryDead requeues a dead order at the front of the queue and deletes its failures. An unbacked one takes a unit and
// a slot first. Errors: sale.ErrNotFound, also if the client repeated the script after a lost reply; sale.ErrConflict
// while the order is being cancelled, or if no slot is free; ErrNoUnit if no unit is free.
func (l *List) RetryDead(ctx context.Context, id sale.OrderID) error {
	dead, err := l.DeadLetter(ctx, id)
	if err != nil {
		return err
	}
	saleID := dead.Message.SaleID
	keys := []string{
		l.shard.Dead().Times(), l.shard.Dead().Letters(), l.shard.Ready(), l.shard.Wake(),
		l.shard.Attempts(), l.shard.Crashes(), l.shard.Guard(), l.shard.Sale(saleID),
		l.shard.Stock(saleID), l.shard.Buyers(saleID), l.shard.Dead().Index(),
	}
	n, err := l.run(ctx, "dead_retry", keys, id.String(), l.cfg.Deployment()).Int()
	switch {
	case err != nil:
		return wrap("retry", err)
	case n == 0:
		return notDead(id)
	case n == -2:
		return fmt.Errorf("no unit is left for order %s: %w", id, ErrNoUnit)
	case n == -3:
		return fmt.Errorf("the buyer of order %s has reached the limit per buyer with other orders: %w", id, sale.ErrConflict)
	case n < 0:
		return fmt.Errorf("dead letter %s is being cancelled: %w", id, sale.ErrConflict)
	}
	return nil
}

// BeginCancel marks a dead order as being cancelled, which rejects retries while the caller updates SQL. A repeated
// call returns the same dead letter with the current generation. Errors: sale.ErrNotFound.
func (l *List) BeginCancel(ctx context.Context, id sale.OrderID) (DeadLetter, error) {
	keys := []string{l.shard.Dead().Letters(), l.shard.Guard()}
	answer, err := l.run(ctx, "dead_begin_cancel", keys, id.String(), l.cfg.Deployment()).StringSlice()
	switch {
	case err != nil:
		return DeadLetter{}, wrap("begin cancel", err)
	case len(answer) == 0:
		return DeadLetter{}, notDead(id)
	}
	dead := decodeDeadLetter(id.String(), answer[0])
	if dead.Generation, err = strconv.ParseInt(answer[1], 10, 64); err != nil {
		return DeadLetter{}, wrap("begin cancel", fmt.Errorf("the generation in Redis is not a number: %w", err))
	}
	return dead, nil
}

// FinishCancel removes a dead order that BeginCancel marked. With returnUnit it returns the unit to the stock and the
// slot to the buyer; an order without a slot holds no unit and returns none. Errors: sale.ErrNotFound, also after an
// earlier FinishCancel; sale.ErrConflict without BeginCancel.
func (l *List) FinishCancel(ctx context.Context, id sale.OrderID, returnUnit bool) error {
	dead, err := l.DeadLetter(ctx, id)
	if err != nil {
		return err
	}
	saleID := dead.Message.SaleID
	keys := []string{
		l.shard.Dead().Times(), l.shard.Dead().Letters(), l.shard.Stock(saleID), l.shard.Buyers(saleID), l.shard.Guard(),
		l.shard.Sale(saleID), l.shard.Dead().Index(),
	}
	n, err := l.run(ctx, "dead_finish_cancel", keys, id.String(), dead.Message.Buyer, returnUnit, l.cfg.Deployment()).Int()
	switch {
	case err != nil:
		return wrap("finish cancel", err)
	case n == 0:
		return notDead(id)
	case n < 0:
		return fmt.Errorf("dead letter %s: FinishCancel without BeginCancel: %w", id, sale.ErrConflict)
	}
	return nil
}

// HasRaw reports whether a dead letter that is not a message exists, given its key "raw:...".
func (l *List) HasRaw(ctx context.Context, key string) (bool, error) {
	if !strings.HasPrefix(key, rawPrefix) {
		return false, nil
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	found, err := l.client.HExists(ctx, l.shard.Dead().Letters(), key).Result()
	return found, wrap("dead letter", err)
}

// DropRaw removes a dead letter that is not a message, given its key "raw:...". No order and no unit depend on it.
// DropRaw is idempotent. It returns sale.ErrNotFound for another key.
func (l *List) DropRaw(ctx context.Context, key string) error {
	if !strings.HasPrefix(key, rawPrefix) {
		return fmt.Errorf("dead letter %q: %w", key, sale.ErrNotFound)
	}
	keys := []string{l.shard.Dead().Times(), l.shard.Dead().Letters(), l.shard.Dead().Index(), l.shard.Guard()}
	return wrap("drop", l.run(ctx, "dead_drop", keys, key).Err())
}
