package admin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// Dead lists one page of dead orders, the longest dead first within each shard. q.After is the next of the page before. next is empty at the end; a page can
// be short, or even empty, with more to come. Errors: *sale.InvalidError for a cursor that no page came with, or one that wraps sale.ErrUnavailable.
func (d *Desk) Dead(ctx context.Context, q queue.DeadQuery) (page []queue.DeadLetter, next string, err error) {
	first, last := 0, len(d.shards)-1
	if q.SaleID != "" {
		first = int(d.space.ShardOf(q.SaleID))
		last = first
	}
	if q.Limit <= 0 {
		q.Limit = 100
	}
	limit := q.Limit
	shard, after, err := parseCursor(q.After, first, last)
	if err != nil {
		return nil, "", err
	}
	for ; shard <= last; shard, after = shard+1, "" {
		q.Limit, q.After = limit-len(page), after
		letters, more, err := d.shards[shard].DeadLetters(ctx, q)
		if err != nil {
			return nil, "", err
		}
		page = append(page, letters...)
		switch {
		case more != "":
			return page, cursor(shard, more), nil
		case len(page) >= limit && shard < last:
			return page, cursor(shard+1, ""), nil
		}
	}
	return page, "", nil
}

// cursor is a place in the dead letters of all shards: the shard's number, a tilde, and the shard's own cursor.
func cursor(shard int, after string) string { return strconv.Itoa(shard) + "~" + after }

func parseCursor(s string, first, last int) (shard int, after string, err error) {
	if s == "" {
		return first, "", nil
	}
	number, after, ok := strings.Cut(s, "~")
	shard, err = strconv.Atoi(number)
	if !ok || err != nil || shard < first || shard > last {
		bad := &sale.InvalidError{}
		bad.Add("after", "is not a cursor that came with a page")
		return 0, "", bad
	}
	return shard, after, nil
}

// DeadLetter shows one dead order. Errors: sale.ErrNotFound, or one that wraps sale.ErrUnavailable.
func (d *Desk) DeadLetter(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error) {
	_, letter, err := d.find(ctx, id)
	return letter, err
}

// find returns the shard that holds a dead letter, and the letter. It returns sale.ErrNotFound.
func (d *Desk) find(ctx context.Context, id sale.OrderID) (Shard, queue.DeadLetter, error) {
	for _, shard := range d.shards {
		letter, err := shard.DeadLetter(ctx, id)
		if errors.Is(err, sale.ErrNotFound) {
			continue
		}
		return shard, letter, err
	}
	return nil, queue.DeadLetter{}, fmt.Errorf("dead order %s: %w", id, sale.ErrNotFound)
}

// Retry puts a dead order back on the queue as if it had never failed. Errors: sale.ErrNotFound; sale.ErrConflict when somebody has begun to cancel it; or
// one that wraps sale.ErrUnavailable.
func (d *Desk) Retry(ctx context.Context, actor string, id sale.OrderID) error {
	shard, letter, err := d.find(ctx, id)
	if err != nil {
		return err
	}
	if letter.Cancelling {
		return fmt.Errorf("order %s is being cancelled: %w", id, sale.ErrConflict)
	}
	// Recorded first: what is done without a record cannot be asked about later.
	if err := d.store.Record(store.WithActor(ctx, actor), "dead.retry", id.String(), "sale "+letter.Message.SaleID+": "+letter.Reason); err != nil {
		return err
	}
	return shard.RetryDead(ctx, id)
}

// Dropped is the status of a dead order that was given up and of which there can be no row: its id is another order's, or SQL has no room for a value. The desk log
// alone tells of it.
const Dropped sale.Status = "dropped"

// Cancelled is how a dead order was settled.
type Cancelled struct {
	Order sale.Order // its status is cancelled, Dropped, or what it is as a row
	// WasRow tells that the order had become a row before it died. Then it stays what it is, as its status says, and only the dead letter is removed.
	WasRow bool
	// GivenBack tells that the unit is on sale again and the buyer may buy again. Otherwise there was none to give back: the row has it, or had it, or the order
	// never took one, as a message that somebody has put on the queue by hand.
	GivenBack bool
}

// Cancel settles a dead order for good. It is done in three steps, each of which may be repeated: the letter is marked, so that it cannot be retried any more; the
// order becomes a cancelled row, so that a worker that is late cannot sell it, unless Redis was rebuilt since; the unit and the buyer's place are given back, and the letter goes. Whatever
// dies on the way, the letter stays in the list as cancelling, and Cancel does the rest when it is asked again.
//
// The buyer's place is what proves that the order has a unit. Where there can be no row of the order, the desk log says so in its stead.
//
// Errors: sale.ErrNotFound; sale.ErrConflict for a letter that cannot be read; or one that wraps sale.ErrUnavailable: ask again.
func (d *Desk) Cancel(ctx context.Context, actor string, id sale.OrderID, reason string) (Cancelled, error) {
	shard, _, err := d.find(ctx, id)
	if errors.Is(err, sale.ErrNotFound) {
		return d.cancelledBefore(ctx, id, err)
	}
	if err != nil {
		return Cancelled{}, err
	}
	letter, err := shard.BeginCancel(ctx, id)
	if errors.Is(err, sale.ErrNotFound) {
		return d.cancelledBefore(ctx, id, err)
	}
	if err != nil {
		return Cancelled{}, err
	}
	if letter.Message.ID != id {
		return Cancelled{}, fmt.Errorf("dead order %s cannot be read, so its sale is not known: %w", id, sale.ErrConflict)
	}
	ctx, cancel := finish(ctx)
	defer cancel()
	if err := d.load(ctx, letter.Message.SaleID); err != nil {
		return Cancelled{}, err
	}
	held, err := d.stock.HaveSlots(ctx, []sale.Order{letter.Message})
	if err != nil {
		return Cancelled{}, err
	}
	done, err := d.settleInSQL(store.WithGeneration(ctx, letter.Generation), store.DeadOrder{Order: letter.Message, Unbacked: letter.Unbacked || !held[0]}, actor, reason)
	if errors.Is(err, store.ErrStale) { // whether it is a dead letter still is to be asked again
		err = fmt.Errorf("%w: %w", sale.ErrUnavailable, err)
	}
	if err != nil {
		return Cancelled{}, err
	}
	if err := shard.FinishCancel(ctx, id, done.GivenBack); err != nil && !errors.Is(err, sale.ErrNotFound) { // not found: another Cancel was faster
		return Cancelled{}, err
	}
	return done, nil
}

// settleInSQL makes a cancelled row of a dead order, or writes down that there can be none.
func (d *Desk) settleInSQL(ctx context.Context, dead store.DeadOrder, actor, reason string) (Cancelled, error) {
	wasRow, err := d.store.CancelDead(ctx, dead, actor, reason)
	done := Cancelled{Order: dead.Order, WasRow: wasRow, GivenBack: !wasRow && !dead.Unbacked}
	switch {
	case errors.Is(err, store.ErrRejected):
		done.Order.Status = Dropped
		err = d.store.DropDead(ctx, dead, actor, reason, err)
	case err == nil && wasRow:
		done.Order, err = d.store.Order(ctx, dead.ID)
	default:
		done.Order.Status = sale.StatusCancelled
	}
	return done, err
}

// cancelledBefore answers a Cancel that is repeated after it was done.
func (d *Desk) cancelledBefore(ctx context.Context, id sale.OrderID, notFound error) (Cancelled, error) {
	switch last, err := d.store.LastLog(ctx, id.String(), store.DroppedDead, store.CancelledOrder); {
	case err == nil && last.Action == store.DroppedDead:
		return Cancelled{Order: sale.Order{ID: id, Status: Dropped}, GivenBack: !last.HeldNoUnit()}, nil
	case err != nil && !errors.Is(err, sale.ErrNotFound):
		return Cancelled{}, err
	}
	rows, err := d.store.OrderRows(ctx, store.OrderQuery{ID: id})
	switch {
	case err != nil:
		return Cancelled{}, err
	case len(rows) == 0 || rows[0].Status != sale.StatusCancelled:
		return Cancelled{}, notFound
	}
	return Cancelled{Order: rows[0].Order, GivenBack: !rows[0].Unbacked}, nil
}

// load makes sure that Redis holds the sale to which a unit is given back. Otherwise a load that is under way elsewhere may have counted the dead
// order as holding its unit, and nobody would give it back.
func (d *Desk) load(ctx context.Context, saleID string) error {
	s, _, err := d.store.Sale(ctx, saleID)
	if errors.Is(err, sale.ErrNotFound) {
		return nil // an order of a sale that never was: there is no stock to give back to
	}
	if err != nil {
		return err
	}
	return d.apply(ctx, s)
}

// Drop removes a text that is no message, by the key that the list of dead letters shows for it ("raw:..."). No order and no unit depends on it. Errors:
// sale.ErrNotFound, or one that wraps sale.ErrUnavailable.
func (d *Desk) Drop(ctx context.Context, actor, key string) error {
	if err := d.store.Record(store.WithActor(ctx, actor), "dead.drop", key, ""); err != nil {
		return err
	}
	for _, shard := range d.shards {
		if err := shard.DropRaw(ctx, key); !errors.Is(err, sale.ErrNotFound) {
			return err
		}
	}
	return fmt.Errorf("dead letter %s: %w", key, sale.ErrNotFound)
}
