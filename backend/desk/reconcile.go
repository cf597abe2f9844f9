package desk

import (
	"context"
	"errors"
	"fmt"
	"time"

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
func (d *Desk) RunOnce(ctx context.Context) error {
	standings, err := d.store.Standings(ctx)
	if err != nil {
		return fmt.Errorf("desk: reconcile: %w", err)
	}
	ids := make(map[string]bool, len(standings))
	for _, s := range standings {
		ids[s.Sale.ID] = true
	}
	d.known.set(ids)
	var failures []error
	for _, s := range standings {
		err := d.apply(ctx, s.Sale)
		if err != nil {
			failures = append(failures, fmt.Errorf("desk: reconcile: %w", err))
		}
		if errors.Is(err, sale.ErrUnavailable) || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failures...)
}
