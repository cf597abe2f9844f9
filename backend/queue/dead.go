package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/backend/sale"
)

// maxDeadScan bounds how many letters one call to DeadLetters looks at.
const maxDeadScan = 10_000

// DeadLetters lists one page, the longest dead first. next is the cursor of the page after it, empty at the end; a page can be
// short, or even empty, with more to come, because one call looks at a bounded number of letters.
func (l *List) DeadLetters(ctx context.Context, q DeadQuery) (page []DeadLetter, next string, err error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	limit := min(q.Limit, 1000)
	if limit <= 0 {
		limit = 100
	}
	from, err := parseCursor(q.After)
	if err != nil {
		return nil, "", err
	}
	least, most := q.scores(from)
	chunk := int64(max(limit, 200))
	for offset := int64(0); ; offset += chunk {
		entries, err := l.client.ZRangeByScoreWithScores(ctx, l.shard.Dead(), &redis.ZRangeBy{
			Min: least, Max: most, Offset: offset, Count: chunk,
		}).Result()
		if err != nil {
			return nil, "", wrap("dead letters", err)
		}
		last := cursor{}
		letters, err := l.letters(ctx, entries)
		if err != nil {
			return nil, "", wrap("dead letters", err)
		}
		for i, e := range entries {
			last = cursor{int64(e.Score), e.Member.(string)}
			letter := letters[i]
			if letter == nil || !from.before(last) || !q.selects(letter) {
				continue
			}
			page = append(page, *letter)
			if len(page) == limit {
				return page, last.String(), nil
			}
		}
		switch {
		case int64(len(entries)) < chunk:
			return page, "", nil
		case offset+chunk >= maxDeadScan && from.before(last):
			return page, last.String(), nil
		}
	}
}

// letters reads the letters of some entries; one that is gone meanwhile is nil.
func (l *List) letters(ctx context.Context, entries []redis.Z) ([]*DeadLetter, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Member.(string)
	}
	texts, err := l.client.HMGet(ctx, l.shard.DeadLetters(), keys...).Result()
	if err != nil {
		return nil, err
	}
	letters := make([]*DeadLetter, len(keys))
	for i, text := range texts {
		if s, ok := text.(string); ok {
			letter := decodeLetter(keys[i], s)
			letters[i] = &letter
		}
	}
	return letters, nil
}

// cursor is a place in the dead set: a time of death in ms, and among letters of the same ms the key.
type cursor struct {
	died int64
	key  string
}

func parseCursor(s string) (cursor, error) {
	if s == "" {
		return cursor{died: -1}, nil
	}
	ms, key, ok := strings.Cut(s, "-")
	died, err := strconv.ParseInt(ms, 10, 64)
	if !ok || err != nil || died < 0 {
		bad := &sale.InvalidError{}
		bad.Add("after", "is not a cursor that came with a page")
		return cursor{}, bad
	}
	return cursor{died, key}, nil
}

func (c cursor) String() string { return strconv.FormatInt(c.died, 10) + "-" + c.key }

// scores are the times of death between which the letters of a query lie, as Redis reads them.
func (q *DeadQuery) scores(from cursor) (least, most string) {
	least, most = "-inf", "+inf"
	since := from.died
	if !q.DiedAfter.IsZero() {
		since = max(since, q.DiedAfter.UnixMilli())
	}
	if since >= 0 {
		least = strconv.FormatInt(since, 10)
	}
	if !q.DiedBefore.IsZero() {
		most = strconv.FormatInt(q.DiedBefore.UnixMilli(), 10) // the letters of this very millisecond are looked at one by one
	}
	return least, most
}

func (c cursor) before(d cursor) bool {
	return c.died < d.died || c.died == d.died && c.key < d.key
}

// DeadLetter finds one. It returns sale.ErrNotFound.
func (l *List) DeadLetter(ctx context.Context, id sale.OrderID) (DeadLetter, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	text, err := l.client.HGet(ctx, l.shard.DeadLetters(), id.String()).Result()
	if errors.Is(err, redis.Nil) {
		return DeadLetter{}, notDead(id)
	}
	if err != nil {
		return DeadLetter{}, wrap("dead letter", err)
	}
	return decodeLetter(id.String(), text), nil
}

func notDead(id sale.OrderID) error {
	return fmt.Errorf("dead letter %s: %w", id, sale.ErrNotFound)
}

// RetryDead puts a dead order back at the front of the queue as if it had never failed; an unbacked one takes a unit and a place first. It returns
// sale.ErrNotFound, or sale.ErrConflict while somebody cancels it or when there is no unit or place for it.
func (l *List) RetryDead(ctx context.Context, id sale.OrderID) error {
	letter, err := l.DeadLetter(ctx, id)
	if err != nil {
		return err
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	saleID := letter.Message.SaleID
	keys := []string{
		l.shard.Dead(), l.shard.DeadLetters(), l.shard.Ready(), l.shard.Wake(), l.shard.Attempts(), l.shard.Crashes(), l.shard.Guard(),
		l.shard.Sale(saleID), l.shard.Stock(saleID), l.shard.Buyers(saleID), l.shard.DeadIndex(),
	}
	n, err := l.deadRetry.Run(ctx, l.client, keys, id.String()).Int()
	switch {
	case err != nil:
		return wrap("retry", err)
	case n == 0:
		return notDead(id)
	case n == -2:
		return fmt.Errorf("there is no unit left for order %s; restock its sale first: %w", id, sale.ErrConflict)
	case n == -3:
		return fmt.Errorf("the buyer of order %s holds other orders in its place: %w", id, sale.ErrConflict)
	case n < 0:
		return fmt.Errorf("dead letter %s is being cancelled: %w", id, sale.ErrConflict)
	}
	return nil
}

// BeginCancel marks a dead order: from now on it cannot be retried, so that the order store can be told. Doing it again gives
// the same letter, with the generation of now. It returns sale.ErrNotFound.
func (l *List) BeginCancel(ctx context.Context, id sale.OrderID) (DeadLetter, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	answer, err := l.deadBeginCancel.Run(ctx, l.client, []string{l.shard.DeadLetters(), l.shard.Guard()}, id.String()).StringSlice()
	switch {
	case err != nil:
		return DeadLetter{}, wrap("begin cancel", err)
	case len(answer) == 0:
		return DeadLetter{}, notDead(id)
	}
	letter := decodeLetter(id.String(), answer[0])
	if letter.Generation, err = strconv.ParseInt(answer[1], 10, 64); err != nil {
		return DeadLetter{}, wrap("begin cancel", fmt.Errorf("the generation of Redis is no number: %w", err))
	}
	return letter, nil
}

// FinishCancel removes a dead order that BeginCancel has marked. With giveBack, its unit goes back to the stock and its place
// back to the buyer, once; an order that has no place of its buyer has no unit either, and gives none. It returns sale.ErrNotFound, also when it is done already, or sale.ErrConflict without BeginCancel.
func (l *List) FinishCancel(ctx context.Context, id sale.OrderID, giveBack bool) error {
	letter, err := l.DeadLetter(ctx, id)
	if err != nil {
		return err
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	saleID := letter.Message.SaleID
	keys := []string{l.shard.Dead(), l.shard.DeadLetters(), l.shard.Stock(saleID), l.shard.Buyers(saleID), l.shard.Guard(), l.shard.Sale(saleID), l.shard.DeadIndex()}
	back := 0
	if giveBack {
		back = 1
	}
	n, err := l.deadFinishCancel.Run(ctx, l.client, keys, id.String(), letter.Message.Buyer, back).Int()
	switch {
	case err != nil:
		return wrap("finish cancel", err)
	case n == 0:
		return notDead(id)
	case n < 0:
		return fmt.Errorf("dead letter %s: cancelling was not begun: %w", id, sale.ErrConflict)
	}
	return nil
}

// DropRaw removes a text that is no message, by its key "raw:...". No order and no stock depend on it. It returns sale.ErrNotFound.
func (l *List) DropRaw(ctx context.Context, key string) error {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	if !strings.HasPrefix(key, rawPrefix) {
		return fmt.Errorf("dead letter %q: %w", key, sale.ErrNotFound)
	}
	removed, err := l.deadDrop.Run(ctx, l.client, []string{l.shard.Dead(), l.shard.DeadLetters(), l.shard.DeadIndex()}, key).Int()
	if err != nil {
		return wrap("drop", err)
	}
	if removed == 0 {
		return fmt.Errorf("dead letter %q: %w", key, sale.ErrNotFound)
	}
	return nil
}
