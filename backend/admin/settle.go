package admin

import (
	"context"
	"errors"
	"time"

	"sluice/backend/admission"
	"sluice/backend/queue"
	"sluice/backend/sale"
)

// Verb is what Settle does with dead orders.
type Verb string

// The verbs.
const (
	RetryDead  Verb = "retry"
	CancelDead Verb = "cancel"
)

// Settlement is one page of dead orders to settle. A dead letter never matches if its key is not an order id; Drop
// removes such dead letters one by one.
type Settlement struct {
	queue.DeadQuery // Limit bounds the orders of the page; 0: 100
	Verb            Verb
	DryRun          bool // only return the matching orders
}

// Settled is the result for one dead order.
type Settled struct {
	DeadLetter   queue.DeadLetter
	Status       sale.Status // dead after a dry run or an error
	UnitReturned bool        // the unit is on sale again
	Err          error       // why this order was not settled, for example because it does not exist any more
}

// SettledPage is the result for a page of dead orders.
type SettledPage struct {
	Orders []Settled
	Next   string // After of the next page; empty at the end
	// DiedBefore is that of the request or, if the request has none, the end of the millisecond of the call. Callers pass
	// it with the requests of the next pages, so that an order that dies again after a retry is not selected again.
	DiedBefore  time.Time
	Unavailable []int // shards that could not be read: this page and the next pages omit their dead orders
}

// Settle retries or cancels the dead orders that match a filter, oldest first, as Retry and Cancel do. A page may be
// short or empty although more pages follow.
//
// An error that may concern other orders as well, such as an unavailable store, ends the call: the remaining orders are
// not processed, and the page holds the results so far. Repeating the call is harmless: a cancelled order is not a dead
// letter any more, and a retried one that fails again is excluded if DiedBefore is that of the first page.
func (s *DeadLetters) Settle(ctx context.Context, wanted Settlement) (page SettledPage, err error) {
	if wanted.Limit <= 0 {
		wanted.Limit = defaultDeadPage
	}
	if wanted.DiedBefore.IsZero() {
		wanted.DiedBefore = time.Now().Truncate(time.Millisecond).Add(time.Millisecond) // the unit of DiedAt
	}
	page.DiedBefore = wanted.DiedBefore
	const pages = 20
	q := wanted.DeadQuery
	for range pages {
		q.Limit = wanted.Limit - len(page.Orders)
		found, err := s.List(ctx, q)
		if err != nil {
			return page, err
		}
		for _, letter := range found.Letters {
			if letter.Key != letter.Message.ID.String() { // not a message, or the id is that of another dead order
				continue
			}
			settled := Settled{DeadLetter: letter, Status: sale.StatusDead}
			if !wanted.DryRun {
				s.settle(ctx, wanted.Verb, &settled)
			}
			if err := settled.Err; admission.ConcernsOthers(err) && !errors.Is(err, errNoUnitYet) {
				return page, err
			}
			page.Orders = append(page.Orders, settled)
			if ctx.Err() != nil {
				return page, ctx.Err()
			}
		}
		page.Unavailable = append(page.Unavailable, found.Unavailable...)
		q.After = found.Next
		if q.After == "" || len(page.Orders) >= wanted.Limit {
			break
		}
	}
	page.Next = q.After
	return page, nil
}

// settle retries or cancels one dead order.
func (s *DeadLetters) settle(ctx context.Context, verb Verb, one *Settled) {
	id := one.DeadLetter.Message.ID
	var done Cancelled
	if verb == RetryDead {
		done.Order.Status, one.Err = s.Retry(ctx, id)
	} else {
		done, one.Err = s.Cancel(ctx, id)
	}
	if one.Err == nil {
		one.Status, one.UnitReturned = done.Order.Status, done.UnitReturned
	}
}
