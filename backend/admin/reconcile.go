package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/backend/admission"
	"sluice/backend/sale"
)

// Run reconciles at once and then every so often, until ctx ends; it returns nil then. A failure is logged when it begins and when it is over.
func (d *Desk) Run(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	failing := false
	for turn := 0; ; turn++ {
		err := d.RunOnce(ctx)
		if err == nil && turn%sweepEvery == 0 {
			d.sweep(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			d.log.Warn("Redis cannot be brought up to date with the sales in SQL; trying again", "err", err, "every", every)
		case err == nil && failing:
			d.log.Info("Redis is up to date with the sales in SQL again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// RunOnce brings every sale of SQL to Redis: a change that Redis has not heard of, or a whole sale that it has lost. A sale that fails does not keep the others
// from it, unless Redis or SQL is away.
//
// Redis is asked for the versions of all of them first, so a turn in which nothing has changed costs a round trip for 500 sales; and all that are missing are
// loaded together, with one look into the queue: thousands of sales beside a million dead letters take seconds, not days.
func (d *Desk) RunOnce(ctx context.Context) error {
	standings, err := d.store.SaleSummaries(ctx)
	if err != nil {
		return fmt.Errorf("desk: reconcile: %w", err)
	}
	ids, known := make([]string, len(standings)), make(map[string]bool, len(standings))
	for i, s := range standings {
		ids[i], known[s.Sale.ID] = s.Sale.ID, true
	}
	d.known.set(known)
	versions, err := d.stock.Versions(ctx, ids)
	if err != nil {
		return fmt.Errorf("desk: reconcile: %w", err)
	}
	var missing, behind []sale.Sale
	for _, s := range standings {
		switch version, held := versions[s.Sale.ID]; {
		case !held:
			missing = append(missing, s.Sale)
		case version < s.Sale.Version:
			behind = append(behind, s.Sale)
		}
	}
	var failures []error
	if len(missing) > 0 {
		err := d.stock.LoadAll(ctx, missing, func(saleID string, yield func(sale.Order) error) error { return d.store.OrdersOf(ctx, saleID, yield) })
		if err != nil {
			failures = append(failures, fmt.Errorf("desk: reconcile: %w", err))
		}
		if errors.Is(err, sale.ErrUnavailable) || ctx.Err() != nil {
			return errors.Join(failures...)
		}
		behind = append(behind, missing...) // another process may have loaded an older version of them
	}
	for _, s := range behind {
		err := d.stock.Update(ctx, s)
		if errors.Is(err, admission.ErrNotLoaded) { // it failed just now, or was lost again: it is for the next turn
			continue
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("desk: reconcile: %w", err))
		}
		if errors.Is(err, sale.ErrUnavailable) || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failures...)
}
