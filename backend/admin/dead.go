package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/backend/admission"
	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/internal/loop"
)

// Shard is the queue of one shard (queue.List).
type Shard interface {
	DeadLetters(ctx context.Context, q queue.DeadQuery) (page []queue.DeadLetter, next string, err error)
	DeadLetter(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error)
	RetryDead(ctx context.Context, id sale.OrderID) error
	BeginCancel(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error)
	FinishCancel(ctx context.Context, id sale.OrderID, returnUnit bool) error
	// HasRaw and DropRaw find and remove an entry that is not a message.
	HasRaw(ctx context.Context, key string) (bool, error)
	DropRaw(ctx context.Context, key string) error
}

// DeadLetters shows and settles the dead letters of all shards. It is safe for concurrent use, by any number of
// processes.
type DeadLetters struct {
	store  Store
	stock  Stock
	shards []Shard
	space  keyspace.Space
	// refillers may be nil.
	refillers *spread.Refillers
}

// NewDeadLetters returns DeadLetters. It uses Store, Stock, Shards and Refillers of the configuration.
func NewDeadLetters(cfg Config) *DeadLetters {
	return &DeadLetters{cfg.Store, cfg.Stock, cfg.Shards, keyspace.Space{Shards: len(cfg.Shards)}, cfg.Refillers}
}

// findOrder is find. It returns a *store.RefusedError if the dead letter does not contain the message of the order.
func (s *DeadLetters) findOrder(ctx context.Context, id sale.OrderID) (int, queue.DeadLetter, error) {
	number, letter, err := s.find(ctx, id)
	if err == nil && letter.Message.ID != id {
		err = store.Refused("the dead letter of order %s is unreadable, so its sale is unknown", id)
	}
	return number, letter, err
}

// Retry puts a dead order back on the queue without its failures, and returns sale.StatusQueued. It may be repeated: if
// an earlier call has requeued the order, it returns the status of its row, or sale.StatusQueued before it is a row.
// Errors: sale.ErrNotFound; a *store.RefusedError if the order is being cancelled, if no unit or no slot of its buyer
// is left for it, if its dead letter is unreadable, or if its sale is archived, also if it was archived after an
// earlier call; or one that wraps sale.ErrUnavailable.
func (s *DeadLetters) Retry(ctx context.Context, id sale.OrderID) (sale.Status, error) {
	number, letter, err := s.findOrder(ctx, id)
	if errors.Is(err, sale.ErrNotFound) {
		return s.retriedBefore(ctx, id, err)
	}
	if err != nil {
		return "", err
	}
	if letter.Cancelling {
		return "", store.Refused("order %s is being cancelled: to complete that, cancel it again (sluice dead cancel %s)",
			id, id)
	}
	switch archived, err := isArchived(ctx, s.store, letter.Message.SaleID); {
	case err != nil:
		return "", err
	case archived:
		return "", store.Refused("order %s cannot become a row, because its sale %s is archived: compare it with the files "+
			"of the archive, then cancel it (sluice dead cancel %s)", id, letter.Message.SaleID, id)
	}
	// The log entry comes first, so that no retry is without one.
	if err := s.store.LogRetry(ctx, letter.Message, letter.Reason); err != nil {
		return "", err
	}
	err = s.requeue(ctx, s.shards[number], letter.Message)
	switch {
	case errors.Is(err, sale.ErrNotFound): // it was requeued and the reply was lost, or another call was faster
		return s.retriedBefore(ctx, id, err)
	case errors.Is(err, sale.ErrConflict) && !errors.Is(err, sale.ErrUnavailable): // its text has the reason
		err = store.Refused("%s", strings.TrimSuffix(err.Error(), ": "+sale.ErrConflict.Error()))
	}
	return sale.StatusQueued, err
}

// errNoUnitYet reports that a dead order has no unit, and that none of another segment could be moved in time.
var errNoUnitYet = errors.New("no unit could be moved to its segment")

// requeue puts a dead order back on the queue. If it has no unit and its segment has none, a unit of another segment is
// moved first. If that fails, the error wraps errNoUnitYet.
func (s *DeadLetters) requeue(ctx context.Context, shard Shard, o sale.Order) error {
	k, err := s.stock.Spread(ctx, o.SaleID)
	if s.refillers == nil || err != nil || k < 2 {
		return shard.RetryDead(ctx, o.ID)
	}
	var lacked bool
	err = s.refillers.Retry(ctx, spread.HomePart(o.SaleID, o.Buyer, k), func() (lacksUnit bool, err error) {
		err = shard.RetryDead(ctx, o.ID)
		lacked = errors.Is(err, queue.ErrNoUnit)
		return lacked, err
	})
	if lacked && errors.Is(err, sale.ErrUnavailable) {
		err = fmt.Errorf("order %s: %w: %w", o.ID, errNoUnitYet, err)
	}
	return err
}

// retriedBefore returns the status of an order that has no dead letter because an earlier or concurrent Retry requeued
// it. It returns notFound if the log has no retry of the order, or has an entry that the dead letter was cancelled or
// dropped. Such an entry is written before the dead letter is removed, so it is final, even if a retry was logged after
// it. An order that was requeued can become a row, and the row can be cancelled. The entry of that cancellation has the
// same action and does not count.
func (s *DeadLetters) retriedBefore(ctx context.Context, id sale.OrderID, notFound error) (sale.Status, error) {
	retry, err := s.store.LastLog(ctx, id.String(), store.RetriedDead)
	if errors.Is(err, sale.ErrNotFound) {
		return "", notFound
	}
	if err != nil {
		return "", err
	}
	rows, err := s.store.OrderRows(ctx, store.OrderQuery{ID: id})
	if err != nil {
		return "", err
	}
	cancelledRow := len(rows) > 0 && rows[0].Status == sale.StatusCancelled && !rows[0].Died && !rows[0].Unbacked
	switch last, err := s.store.LastLog(ctx, id.String(), store.CancelledOrder, store.DroppedDead); {
	case err == nil && (last.Action == store.DroppedDead || !cancelledRow):
		return "", notFound
	case err != nil && !errors.Is(err, sale.ErrNotFound):
		return "", err
	}
	if len(rows) > 0 {
		return rows[0].Status, nil
	}
	saleID := retry.SaleID // "" if unknown, which counts as not archived
	switch archived, err := isArchived(ctx, s.store, saleID); {
	case err != nil:
		return "", err
	case archived: // after the order became a row, as a sale with queued orders is not archived
		return "", store.Refused("order %s was requeued before, and its sale %s is archived: the files of the archive have "+
			"the order (sluice sale show %s lists them)", id, saleID, saleID)
	}
	return sale.StatusQueued, nil
}

// Dropped is the status of a dead order that was cancelled but cannot become a row, because another order has its id,
// its sale is archived, or SQL rejects one of its values. Only the action log records it.
const Dropped sale.Status = "dropped"

// Cancelled is the result of Cancel.
type Cancelled struct {
	// Order has the status cancelled, Dropped, or that of its row if it was already a row. In the last case only the dead
	// letter is removed.
	Order sale.Order
	// UnitReturned is true if the unit is on sale again and the buyer may buy again. It is false if the row holds the
	// unit or has returned it, and if the order never had one, for example because its message was put on the queue by
	// hand.
	UnitReturned bool
}

// Cancel settles a dead order in three steps, each of which may be repeated:
//
//  1. The dead letter is marked, so that it cannot be retried.
//  2. The order becomes a cancelled row, so that a late worker cannot write it. If Redis was rebuilt since step 1, this
//     step fails, and the call must be repeated.
//  3. The unit and the buyer's slot are returned, and the dead letter is removed.
//
// After a crash the dead letter stays with the mark, and the next call of Cancel continues. The buyer's slot proves
// that the order has a unit. If the order cannot become a row, an entry in the action log takes the place of the row.
//
// Errors: sale.ErrNotFound; a *store.RefusedError for an unreadable dead letter; or one that wraps sale.ErrUnavailable,
// after which the call may be repeated.
func (s *DeadLetters) Cancel(ctx context.Context, id sale.OrderID) (Cancelled, error) {
	number, letter, err := s.findOrder(ctx, id)
	shard := s.shards[number]
	if err == nil {
		letter, err = shard.BeginCancel(ctx, id)
	}
	if errors.Is(err, sale.ErrNotFound) {
		return s.cancelledBefore(ctx, id, err)
	}
	if err != nil {
		return Cancelled{}, err
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	if err := s.load(ctx, letter.Message); err != nil {
		return Cancelled{}, err
	}
	hasSlot, err := s.stock.HaveSlots(ctx, []sale.Order{letter.Message})
	if err != nil {
		return Cancelled{}, err
	}
	if !hasSlot[0] && !letter.Unbacked { // a concurrent Cancel removes the slot and the dead letter in one step
		if _, err := shard.DeadLetter(ctx, id); errors.Is(err, sale.ErrNotFound) {
			return s.cancelledBefore(ctx, id, err)
		} else if err != nil {
			return Cancelled{}, err
		}
	}
	dead := store.DeadOrder{Order: letter.Message, Unbacked: letter.Unbacked || !hasSlot[0]}
	done, err := s.settleInSQL(store.WithGeneration(ctx, number, letter.Generation), dead)
	if errors.Is(err, store.ErrStale) { // the rebuild may have removed the dead letter
		err = fmt.Errorf("%w: %w", sale.ErrUnavailable, err)
	}
	if err != nil {
		return Cancelled{}, err
	}
	err = shard.FinishCancel(ctx, id, done.UnitReturned)
	if err != nil && !errors.Is(err, sale.ErrNotFound) { // not found: a concurrent Cancel was faster
		return Cancelled{}, err
	}
	return done, nil
}

// settleInSQL turns a dead order into a cancelled row, or records that it cannot become one.
func (s *DeadLetters) settleInSQL(ctx context.Context, dead store.DeadOrder) (Cancelled, error) {
	wasRow, err := s.store.CancelDead(ctx, dead)
	done := Cancelled{Order: dead.Order, UnitReturned: !wasRow && !dead.Unbacked}
	switch {
	case errors.Is(err, store.ErrRejected):
		done.Order.Status = Dropped
		err = s.store.DropDead(ctx, dead, err)
	case err == nil && wasRow:
		done.Order, err = s.store.Order(ctx, dead.ID)
	default:
		done.Order.Status = sale.StatusCancelled
	}
	return done, err
}

// cancelledBefore returns the result of an earlier Cancel of the same order. If the order was a row already, its status
// may be another, and the action log has the cancellation.
func (s *DeadLetters) cancelledBefore(ctx context.Context, id sale.OrderID, notFound error) (Cancelled, error) {
	last, err := s.store.LastLog(ctx, id.String(), store.DroppedDead, store.CancelledOrder)
	logged := err == nil
	switch {
	case logged && last.Action == store.DroppedDead:
		return Cancelled{Order: sale.Order{ID: id, Status: Dropped}, UnitReturned: !last.HeldNoUnit()}, nil
	case !logged && !errors.Is(err, sale.ErrNotFound):
		return Cancelled{}, err
	}
	rows, err := s.store.OrderRows(ctx, store.OrderQuery{ID: id})
	if err != nil {
		return Cancelled{}, err
	}
	if len(rows) == 0 || rows[0].Status != sale.StatusCancelled && !logged {
		return Cancelled{}, notFound
	}
	row := rows[0]
	returned := row.Status == sale.StatusCancelled && !row.Unbacked && !row.Returning
	return Cancelled{Order: row.Order, UnitReturned: returned}, nil
}

// load loads the home segment of an order into Redis, if it is missing, before the order's unit is returned. If another
// process loaded the segment during the return, it could count the unit as taken, and the unit would be lost. Other
// segments of the sale are not needed. The units of an archived sale are not returned.
func (s *DeadLetters) load(ctx context.Context, o sale.Order) error {
	found, _, err := s.store.Sale(ctx, o.SaleID)
	if errors.Is(err, sale.ErrNotFound) {
		return nil // an order of a sale that never existed has no unit
	}
	if err != nil {
		return err
	}
	s.stock.LearnSpread(found)
	home := admission.SalePart{Sale: found, Segment: spread.Home(o.Buyer, found.Spread)}
	update := func() error { return s.stock.UpdatePart(ctx, home) }
	return apply(ctx, s.store, s.stock, []admission.SalePart{home}, update)
}

// Drop removes a dead letter that is not a message, by its key in the list ("raw:..."). No order and no unit depends
// on it. It may be repeated. Errors: sale.ErrNotFound, or one that wraps sale.ErrUnavailable.
func (s *DeadLetters) Drop(ctx context.Context, key string) error {
	found := make([]bool, len(s.shards))
	errs := loop.Each(s.shards, -1, func(i int, shard Shard) (err error) {
		found[i], err = shard.HasRaw(ctx, key)
		return err
	})
	if i := slices.Index(found, true); i >= 0 {
		if err := s.store.Record(ctx, store.DroppedDead, key, ""); err != nil {
			return err
		}
		return s.shards[i].DropRaw(ctx, key)
	}
	down := &UnavailableError{}
	for i, err := range errs {
		if err != nil {
			down.add(i, err)
		}
	}
	if len(down.Shards) > 0 {
		return down
	}
	_, err := s.store.LastLog(ctx, key, store.DroppedDead)
	if errors.Is(err, sale.ErrNotFound) {
		err = fmt.Errorf("dead letter %s: %w", key, sale.ErrNotFound)
	}
	return err // nil: an earlier Drop has removed it
}
