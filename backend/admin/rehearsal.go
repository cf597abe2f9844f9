package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/backend/admission"
	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/internal/loop"
)

const (
	// maxRehearsal bounds how far in the future a rehearsal may close, so that it ends even if its creator crashes.
	maxRehearsal = 2 * time.Hour
	// rehearsalRetention is how long a closed rehearsal is kept before any backend removes it.
	rehearsalRetention = 15 * time.Minute
	// sweepEvery is the number of runs of the reconcile loop between two sweeps of old rehearsals.
	sweepEvery = 30
)

// Rehearsal configures Rehearse.
type Rehearsal struct {
	SaleID          string    // a real sale in any state
	Stock           int64     // units of the copy; 0: the stock of the sale
	OpensAt         time.Time // zero: now
	ClosesAt        time.Time // required, at most two hours from now
	BesideRealSales bool      // allow it while a real sale is open, or opens before ClosesAt
}

// Rehearse creates a copy of a sale with an id, stock and times of its own. Admins see the copy; buyers do not,
// except the rehearsal's own (sale.Meets). Errors: *sale.InvalidError; sale.ErrNotFound; a *store.RefusedError because
// of a real sale; and those of Create.
func (s *Service) Rehearse(ctx context.Context, r Rehearsal) (View, error) {
	now := time.Now()
	if r.OpensAt.IsZero() {
		r.OpensAt = now
	}
	if err := r.validate(now); err != nil {
		return View{}, err
	}
	copied, _, err := s.store.Sale(ctx, r.SaleID)
	if err != nil {
		return View{}, err
	}
	if !r.BesideRealSales {
		if err := s.noRealSale(ctx, now, r.ClosesAt); err != nil {
			return View{}, err
		}
	}
	copied.ID = sale.RehearsalID(copied.ID, sale.NewID())
	copied.Title = truncate("Rehearsal of "+copied.Title, sale.MaxTitleLen)
	copied.Stock, copied.OpensAt, copied.ClosesAt = cmp.Or(r.Stock, copied.Stock), r.OpensAt, r.ClosesAt
	copied.PerBuyer = int(min(int64(copied.PerBuyer), copied.Stock))
	return s.create(ctx, copied)
}

func (r Rehearsal) validate(now time.Time) error {
	var bad sale.InvalidError
	if r.Stock < 0 || r.Stock > sale.MaxStock {
		bad.Add("stock", fmt.Sprintf("must be between 1 and %d", sale.MaxStock))
	}
	switch {
	case r.ClosesAt.IsZero():
		bad.Add("closes_at", "must be set")
	case !r.ClosesAt.After(now) || !r.ClosesAt.After(r.OpensAt):
		bad.Add("closes_at", "must be after opens_at and in the future")
	case r.ClosesAt.After(now.Add(maxRehearsal)):
		bad.Add("closes_at", "must be within "+maxRehearsal.String()+" from now")
	}
	if sale.IsRehearsal(r.SaleID) {
		bad.Add("sale", "must not be a rehearsal")
	}
	return bad.Err()
}

// truncate shortens a text to limit bytes at a character boundary.
func truncate(text string, limit int) string {
	return strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), limit)], ""))
}

// noRealSale returns a *store.RefusedError if a real sale is open at any time between from and to. A paused sale counts
// as open, because it may resume.
func (s *Service) noRealSale(ctx context.Context, from, to time.Time) error {
	summaries, err := s.store.SaleSummaries(ctx)
	if err != nil {
		return err
	}
	var why []string
	for _, real := range summaries {
		switch {
		case ended(real.Sale, from), sale.IsRehearsal(real.ID), slices.Contains(s.practice, real.ID), real.OpensAt.After(to):
		case real.OpensAt.After(from):
			why = append(why, fmt.Sprintf("The sale %s opens at %s, before the rehearsal ends.",
				real.ID, real.OpensAt.UTC().Format(time.RFC3339)))
		case real.Switch == sale.Paused:
			why = append(why, fmt.Sprintf("The sale %s is paused.", real.ID))
		default:
			why = append(why, fmt.Sprintf("The sale %s is open.", real.ID))
		}
	}
	if len(why) == 0 {
		return nil
	}
	if more := len(why) - maxReasons; more > 0 {
		why = append(why[:maxReasons], fmt.Sprintf("%d more such sales.", more))
	}
	return store.Refused("%s A rehearsal would slow down real buyers.", strings.Join(why, " "))
}

// maxReasons bounds the sales in the message of noRealSale.
const maxReasons = 10

// Rehearsals returns the rehearsals that are not removed yet, oldest first. Errors as of List.
func (s *Service) Rehearsals(ctx context.Context) ([]View, error) {
	views, err := s.List(ctx)
	return slices.DeleteFunc(views, func(v View) bool { return !sale.IsRehearsal(v.ID) }), err
}

// RemoveRehearsal closes a rehearsal and deletes its data in SQL and Redis; orders is the number of deleted rows.
// Queued orders must become rows first, because a leased batch cannot be revoked. After a crash the rehearsal stays
// closed; a repeated call, or the reconcile loop of any backend, deletes the rest.
//
// Errors: sale.ErrNotFound if nothing is left; a *store.RefusedError while orders are queued; *sale.InvalidError for a
// real sale; or one that wraps sale.ErrUnavailable.
func (s *Service) RemoveRehearsal(ctx context.Context, id string) (orders int64, err error) {
	if !sale.IsRehearsal(id) {
		return 0, sale.Invalid("sale", "must be a rehearsal, whose id begins with "+sale.RehearsalPrefix)
	}
	closed, err := s.store.SetSwitch(ctx, id, sale.Closed)
	if errors.Is(err, sale.ErrNotFound) { // an earlier removal may have failed or crashed after SQL
		return 0, cmp.Or(s.removeUnits(ctx, id), err)
	}
	if err != nil {
		return 0, err
	}
	if err := s.apply(ctx, closed); err != nil {
		return 0, err
	}
	if err := s.cancelAllDead(ctx, id); err != nil {
		return 0, err
	}
	n, err := s.inFlight(ctx, closed)
	if err != nil {
		return 0, err
	}
	if n > 0 {
		return 0, store.Refused("Orders of the rehearsal that are not in SQL yet: %d. It is closed; repeat the request when "+
			"workers have written them.", n)
	}
	orders, err = s.store.RemoveRehearsal(ctx, id)
	if err != nil && !errors.Is(err, sale.ErrNotFound) {
		return orders, err
	}
	// Not found: a concurrent call was faster, and apply may have loaded the sale again.
	return orders, cmp.Or(s.stock.Remove(ctx, closed), err)
}

// removeUnits deletes the data in Redis of a rehearsal that is not in SQL.
func (s *Service) removeUnits(ctx context.Context, id string) error {
	k, err := s.stock.Spread(ctx, id)
	if err != nil && !errors.Is(err, admission.ErrNotLoaded) {
		return err
	}
	return s.stock.Remove(ctx, sale.Sale{ID: id, Spread: k})
}

// inFlight returns the number of orders of a sale that are in the queue or dead.
func (s *Service) inFlight(ctx context.Context, of sale.Sale) (n int, err error) {
	for _, part := range spread.PartsOf(of) {
		count, err := s.stock.CountUnits(ctx, part)
		if err != nil {
			return 0, err
		}
		n += len(count.Ready) + len(count.Delayed) + len(count.Leased) + len(count.Dead) + int(count.Unbacked)
	}
	return n, nil
}

// cancelAllDead cancels the dead letters of a rehearsal.
func (s *Service) cancelAllDead(ctx context.Context, id string) error {
	ctx = store.WithReason(ctx, "end of the rehearsal")
	settlement := Settlement{Verb: CancelDead, DeadQuery: queue.DeadQuery{SaleID: id, Limit: 500}}
	for {
		page, err := s.dead.Settle(ctx, settlement) // if a shard is unavailable, inFlight of the caller fails
		if err != nil || page.Next == "" {
			return err
		}
		settlement.After = page.Next
	}
}

// sweepRehearsals removes rehearsals that closed more than rehearsalRetention ago. It also removes from Redis the data
// of rehearsals that SQL does not have and of archived sales, even if a rebuild has suspended them. The next sweep
// retries what fails.
func (s *Service) sweepRehearsals(ctx context.Context) {
	// Redis is read before SQL. SQL stores a new rehearsal first, so a rehearsal that SQL lacks was deleted.
	stored := make([][]string, len(s.dead.shards)) // by shard
	down := loop.Each(s.dead.shards, -1, func(i int, _ Shard) (err error) {
		stored[i], err = s.stock.SalesIn(ctx, keyspace.Shard(i))
		return err // such a shard is swept later
	})
	isDown := func(part spread.Part) bool { return down[s.stock.ShardOf(part)] != nil }
	summaries, err := s.store.SaleSummaries(ctx)
	if err != nil {
		return
	}
	inSQL := map[string]bool{}
	for _, old := range summaries {
		inSQL[old.ID] = true
		if !sale.IsRehearsal(old.ID) || time.Since(old.ClosesAt) < rehearsalRetention ||
			slices.ContainsFunc(spread.PartsOf(old.Sale), isDown) {
			continue
		}
		if orders, err := s.RemoveRehearsal(store.WithActor(ctx, store.ActorSluice), old.ID); err == nil {
			s.log.Info("old rehearsal removed", "sale", old.ID, "orders", orders)
		}
	}
	for shard, ids := range stored {
		for _, id := range ids {
			if sale.IsRehearsal(id) && !inSQL[id] || s.Archived(id) { // an archived sale was loaded by a slow process
				_ = s.stock.RemoveFrom(ctx, keyspace.Shard(shard), id)
			}
		}
	}
}
