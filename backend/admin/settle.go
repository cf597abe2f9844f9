package admin

import (
	"context"
	"errors"
	"time"

	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// Verb is what is done with dead orders.
type Verb string

// The verbs.
const (
	RetryDead  Verb = "retry"
	CancelDead Verb = "cancel"
)

// DeadFilter names dead orders. Zero fields let all pass; texts that are no messages never do: they are dropped one by one.
type DeadFilter struct {
	SaleID        string
	ErrorContains string    // part of the error message, case-insensitive
	DiedAfter     time.Time // not before it
	DiedBefore    time.Time // before it
}

// Settlement asks for one page of dead orders to be settled.
type Settlement struct {
	Verb   Verb
	Filter DeadFilter
	Reason string // for the desk log
	DryRun bool   // only tell which they are
	Limit  int    // at most this many; 0 means 100
	After  string // the Next of the page before
}

// Settled is what became of one dead order.
type Settled struct {
	Letter    queue.DeadLetter
	Status    sale.Status // dead, when it was a dry run or could not be settled
	GivenBack bool        // its unit is on sale again
	Err       error       // why it could not be settled: it is gone, or the present state does not allow it
}

// Settle retries or cancels the dead orders that a filter names, the longest dead first, one after the other and each as Retry and Cancel do. next is the After of the page
// after this one, empty at the end; a page may hold fewer than asked for, or none, with more to come.
//
// An error means that the rest was not looked at; what was settled before is told. To ask again is harmless: an order that is cancelled is no dead letter any
// more, and one that was retried comes back, if it dies again, behind the cursor's end, which the present time as DiedBefore keeps out.
func (d *Desk) Settle(ctx context.Context, actor string, s Settlement) (done []Settled, next string, err error) {
	if s.Limit <= 0 {
		s.Limit = 100
	}
	const pages = 20
	next = s.After
	for range pages {
		var letters []queue.DeadLetter
		letters, next, err = d.Dead(ctx, queue.DeadQuery{
			SaleID: s.Filter.SaleID, ErrorContains: s.Filter.ErrorContains, DiedAfter: s.Filter.DiedAfter, DiedBefore: s.Filter.DiedBefore, Limit: s.Limit - len(done), After: next,
		})
		if err != nil {
			return done, "", err
		}
		for _, letter := range letters {
			if letter.Message.ID == 0 {
				continue
			}
			settled := Settled{Letter: letter, Status: sale.StatusDead}
			if !s.DryRun {
				settled.Status, settled.GivenBack, settled.Err = d.settle(ctx, actor, s, letter.Message.ID)
				if settled.Err != nil && !errors.Is(settled.Err, sale.ErrNotFound) && !errors.Is(settled.Err, sale.ErrConflict) {
					return done, "", settled.Err
				}
			}
			done = append(done, settled)
		}
		if next == "" || len(done) >= s.Limit {
			break
		}
	}
	return done, next, nil
}

func (d *Desk) settle(ctx context.Context, actor string, s Settlement, id sale.OrderID) (now sale.Status, givenBack bool, err error) {
	if s.Verb == RetryDead {
		if err := d.Retry(store.WithReason(ctx, s.Reason), actor, id); err != nil {
			return sale.StatusDead, false, err
		}
		return sale.StatusQueued, false, nil
	}
	done, err := d.Cancel(ctx, actor, id, s.Reason)
	if err != nil {
		return sale.StatusDead, false, err
	}
	return done.Order.Status, done.GivenBack, nil
}
