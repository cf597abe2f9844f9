package admin

import (
	"context"
	"errors"
	"time"

	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// Verb is what Settle does with dead orders.
type Verb string

// The verbs.
const (
	RetryDead  Verb = "retry"
	CancelDead Verb = "cancel"
)

// DeadFilter selects dead orders. A zero field matches all. Dead letters that are not messages never match; Drop
// removes them one by one.
type DeadFilter struct {
	SaleID        string
	ErrorContains string    // part of the last error, in upper or lower case
	DiedAfter     time.Time // inclusive
	DiedBefore    time.Time // exclusive
}

// Settlement is one page of dead orders to settle.
type Settlement struct {
	Verb   Verb
	Filter DeadFilter
	Reason string // for the admin log
	DryRun bool   // only return the matching orders
	Limit  int    // maximum; 0: 100
	After  string // next of the previous page
}

// Settled is the result for one dead order.
type Settled struct {
	DeadLetter   queue.DeadLetter
	Status       sale.Status // dead after a dry run or an error
	UnitReturned bool        // the unit is on sale again
	Err          error       // why the order was not settled: it is gone, or its state does not allow it
}

// Settle retries or cancels the dead orders that match a filter, oldest first, as Retry and Cancel do. next is the
// After of the next page, empty at the end. A page may be short or empty although more pages follow.
//
// An error means that the remaining orders were not processed; done holds the results so far. Repeating the call is
// harmless: a cancelled order is not a dead letter any more, and a retried one that fails again is excluded if
// DiedBefore is the time of the first call.
func (s *Service) Settle(
	ctx context.Context,
	actor string,
	wanted Settlement,
) (done []Settled, next string, err error) {
	if wanted.Limit <= 0 {
		wanted.Limit = defaultDeadPage
	}
	const pages = 20
	next = wanted.After
	for range pages {
		var letters []queue.DeadLetter
		letters, next, err = s.Dead(ctx, queue.DeadQuery{
			SaleID: wanted.Filter.SaleID, ErrorContains: wanted.Filter.ErrorContains, DiedAfter: wanted.Filter.DiedAfter,
			DiedBefore: wanted.Filter.DiedBefore, Limit: wanted.Limit - len(done), After: next,
		})
		if err != nil {
			return done, "", err
		}
		for _, letter := range letters {
			if letter.Message.ID == 0 {
				continue
			}
			settled := Settled{DeadLetter: letter, Status: sale.StatusDead}
			if !wanted.DryRun {
				settled.Status, settled.UnitReturned, settled.Err = s.settle(ctx, actor, wanted, letter.Message.ID)
				if settled.Err != nil && !errors.Is(settled.Err, sale.ErrNotFound) && !errors.Is(settled.Err, sale.ErrConflict) {
					return done, "", settled.Err
				}
			}
			done = append(done, settled)
		}
		if next == "" || len(done) >= wanted.Limit {
			break
		}
	}
	return done, next, nil
}

func (s *Service) settle(
	ctx context.Context, actor string, wanted Settlement, id sale.OrderID,
) (status sale.Status, unitReturned bool, err error) {
	if wanted.Verb == RetryDead {
		if err := s.Retry(store.WithReason(ctx, wanted.Reason), actor, id); err != nil {
			return sale.StatusDead, false, err
		}
		return sale.StatusQueued, false, nil
	}
	done, err := s.Cancel(ctx, actor, id, wanted.Reason)
	if err != nil {
		return sale.StatusDead, false, err
	}
	return done.Order.Status, done.UnitReturned, nil
}
