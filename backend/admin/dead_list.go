package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/internal/loop"
)

const defaultDeadPage = 100

// DeadPage is a page of dead letters.
type DeadPage struct {
	Letters []queue.DeadLetter
	Next    string // After of the next page; empty at the end
	// Unavailable are the shards that this page and the next pages omit, because they could not be read.
	Unavailable []int
}

// List returns one page of dead letters, oldest first within each shard. q.After is the Next of the previous page. A
// page may be short or empty although more pages follow. Errors: *sale.InvalidError for an invalid cursor, or an
// *UnavailableError if no shard that can have the dead letters is available.
func (s *DeadLetters) List(ctx context.Context, q queue.DeadQuery) (page DeadPage, err error) {
	from, after, err := parseCursor(q.After, len(s.shards))
	if err != nil {
		return DeadPage{}, err
	}
	if q.Limit <= 0 {
		q.Limit = defaultDeadPage
	}
	limit := q.Limit
	shards := s.shardsOf(ctx, q.SaleID)
	down := &UnavailableError{}
	var responds []error // by shard, read when the first one is found to be down; nil error: the shard responds
	for i, shard := range shards {
		switch {
		case shard < from:
			continue
		case shard > from:
			after = ""
		}
		if responds != nil && responds[shard] != nil {
			down.add(shard, responds[shard])
			continue
		}
		q.Limit, q.After = limit-len(page.Letters), after
		letters, more, err := s.shards[shard].DeadLetters(ctx, q)
		if errors.Is(err, sale.ErrUnavailable) && ctx.Err() == nil {
			down.add(shard, err)
			responds = loop.Each(s.shards, -1, func(_ int, shard Shard) error {
				_, err := shard.HasRaw(ctx, rawProbe)
				return err
			})
			continue
		}
		if err != nil {
			return DeadPage{}, fmt.Errorf("shard %d: %w", shard, err)
		}
		page.Letters = append(page.Letters, letters...)
		if more != "" {
			page.Next = cursor(shard, more)
			break
		}
		if len(page.Letters) >= limit && i < len(shards)-1 {
			page.Next = cursor(shards[i+1], "")
			break
		}
	}
	if len(down.Shards) == len(shards) {
		return DeadPage{}, down
	}
	page.Unavailable = down.Shards
	return page, nil
}

// shardsOf returns the shards that can have the dead letters of a sale: those of its parts, or all if Redis does not
// hold the sale or saleID is empty.
func (s *DeadLetters) shardsOf(ctx context.Context, saleID string) (shards []int) {
	k, all := 0, saleID == ""
	if !all {
		var err error
		k, err = s.stock.Spread(ctx, saleID)
		all = err != nil
	}
	for i := range s.shards {
		if _, holds := s.space.SegmentIn(saleID, k, keyspace.Shard(i)); holds || all {
			shards = append(shards, i)
		}
	}
	return shards
}

// rawProbe is a key that no dead letter has.
const rawProbe = "raw:"

// cursor encodes a position in the dead letters of all shards: the shard's number, a tilde, and the shard's own cursor.
func cursor(shard int, after string) string { return strconv.Itoa(shard) + "~" + after }

func parseCursor(s string, shards int) (shard int, after string, err error) {
	if s == "" {
		return 0, "", nil
	}
	number, after, ok := strings.Cut(s, "~")
	shard, err = strconv.Atoi(number)
	if !ok || err != nil || shard < 0 || shard >= shards {
		return 0, "", sale.Invalid("after", "must be the next of the previous page")
	}
	return shard, after, nil
}

// Find returns one dead letter. Errors: sale.ErrNotFound, or one that wraps sale.ErrUnavailable.
func (s *DeadLetters) Find(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error) {
	_, letter, err := s.find(ctx, id)
	return letter, err
}

// find returns a dead letter and the number of its shard: the shard that allocated the id, or another one for a message
// that was put on its queue by hand. If none has it, the error wraps sale.ErrNotFound, or is an *UnavailableError if
// the shard that allocated the id could not be read.
func (s *DeadLetters) find(ctx context.Context, id sale.OrderID) (int, queue.DeadLetter, error) {
	home := int(s.space.ShardOfOrder(id))
	letter, missing := s.shards[home].DeadLetter(ctx, id)
	if missing == nil {
		return home, letter, nil
	}
	letters := make([]queue.DeadLetter, len(s.shards))
	errs := loop.Each(s.shards, -1, func(i int, shard Shard) (err error) {
		if i == home {
			return missing
		}
		letters[i], err = shard.DeadLetter(ctx, id)
		return err
	})
	if i := slices.Index(errs, nil); i >= 0 {
		return i, letters[i], nil
	}
	if errors.Is(missing, sale.ErrUnavailable) {
		missing = &UnavailableError{[]int{home}, missing}
	}
	return 0, queue.DeadLetter{}, missing
}
