package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/backend/admission"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/internal/loop"
)

// Known reports from memory whether SQL has a sale. A known sale that Redis does not hold is loaded soon. Until the
// first read of SQL, every id counts as known.
func (s *Service) Known(id string) bool {
	s.knownMu.RLock()
	defer s.knownMu.RUnlock()
	_, known := s.known[id]
	return known || !s.read
}

// Archived reports from memory whether a sale is archived. Such a sale is closed and not in Redis.
func (s *Service) Archived(id string) bool {
	s.knownMu.RLock()
	defer s.knownMu.RUnlock()
	return s.archived[id]
}

// SpreadSales returns the sales with several segments, as of the last read of SQL, that are open or open soon, or are
// paused, by id.
func (s *Service) SpreadSales(at time.Time) (open []spread.Sale) {
	return s.spreadSales(func(def sale.Sale) bool { return !ended(def, at) && def.OpensAt.Before(at.Add(refillAhead)) })
}

// EndedSpreadSales returns the sales with several segments, as of the last read of SQL, that have ended and are not
// archived, by id.
func (s *Service) EndedSpreadSales(at time.Time) []spread.Sale {
	return s.spreadSales(func(def sale.Sale) bool { return ended(def, at) })
}

func (s *Service) spreadSales(selects func(sale.Sale) bool) (selected []spread.Sale) {
	s.knownMu.RLock()
	defer s.knownMu.RUnlock()
	for _, def := range s.known {
		if def.Spread > 1 && selects(def) {
			selected = append(selected, spread.Sale{ID: def.ID, Spread: def.Spread})
		}
	}
	slices.SortFunc(selected, func(a, b spread.Sale) int { return cmp.Compare(a.ID, b.ID) })
	return selected
}

func ended(def sale.Sale, at time.Time) bool {
	return def.Switch == sale.Closed || !def.ClosesAt.IsZero() && !def.ClosesAt.After(at)
}

// refillAhead is the time before a sale opens at which backends begin to refill its segments. It exceeds the sum of the
// interval at which SQL is read and the difference between clocks.
const refillAhead = 30 * time.Second

// Run calls RunOnce at every tick of interval until ctx ends, and then returns nil. It logs when failures begin and
// end.
func (s *Service) Run(ctx context.Context, interval time.Duration) error {
	turn := 0
	loop.Repeat(ctx, interval, s.log, "applying the sales in SQL to Redis", func() error {
		err := s.RunOnce(ctx)
		if turn%sweepEvery == 0 { // also after an error, which may concern one sale or shard
			s.sweepRehearsals(ctx)
		}
		turn++
		return err
	})
	return nil
}

// RunOnce applies every sale in SQL to Redis: a newer version, or the whole sale if Redis has lost it. The failure of
// one sale does not stop the others, unless its shard or SQL is down. A shard that is down does not stop the others.
//
// It reads the versions of all sales first, so a call without changes costs one round trip per 500 sales. It loads all
// missing sales together, with one pass over the queue. Thousands of sales and a million dead letters take seconds.
func (s *Service) RunOnce(ctx context.Context) error {
	s.knownMu.Lock()
	s.created = nil
	s.knownMu.Unlock()
	summaries, err := s.store.SaleSummaries(ctx)
	if err != nil {
		return fmt.Errorf("admin: reconcile: %w", err)
	}
	archived, err := s.store.ArchivedSales(ctx)
	if err != nil {
		return fmt.Errorf("admin: reconcile: %w", err)
	}
	byShard := map[keyspace.Shard][]admission.SalePart{}
	for _, summary := range summaries {
		s.stock.LearnSpread(summary.Sale)
		for _, p := range admission.PartsOf(summary.Sale) {
			shard := s.stock.ShardOf(p.Part())
			byShard[shard] = append(byShard[shard], p)
		}
	}
	s.knownMu.Lock()
	s.read, s.known, s.archived = true, make(map[string]sale.Sale, len(summaries)), map[string]bool{}
	for _, created := range s.created {
		s.known[created.ID] = created
	}
	for _, summary := range summaries {
		s.known[summary.ID] = summary.Sale
	}
	for _, id := range archived {
		s.archived[id] = true
	}
	s.knownMu.Unlock()
	return inShards(byShard, func(_ keyspace.Shard, parts []admission.SalePart) error {
		if err := s.reconcile(ctx, parts); err != nil {
			return fmt.Errorf("admin: reconcile: %w", err)
		}
		return nil
	})
}

// removeArchived removes, of the parts that were just loaded, those of sales that were archived after RunOnce had read
// them, for example while this process was suspended. Otherwise Redis would sell their units again. If this process
// crashes before, sweepRehearsals removes the parts.
func (s *Service) removeArchived(ctx context.Context, loaded []admission.SalePart) error {
	ids, err := s.store.ArchivedSales(ctx)
	archived := make(map[string]bool, len(ids))
	for _, id := range ids {
		archived[id] = true
	}
	removed := slices.DeleteFunc(slices.Clone(loaded), func(p admission.SalePart) bool { return !archived[p.ID] })
	return errors.Join(err, removeParts(ctx, s.stock, removed))
}

// reconcile is RunOnce for the sales, and the segments of sales, in one shard.
func (s *Service) reconcile(ctx context.Context, all []admission.SalePart) error {
	parts := make([]spread.Part, len(all))
	for i, p := range all {
		parts[i] = p.Part()
	}
	versions, err := s.stock.Versions(ctx, parts)
	if admission.ConcernsOthers(err) {
		return err
	}
	failures := []error{err}
	var missing, outdated []admission.SalePart
	for i, p := range all {
		switch version, held := versions[parts[i]]; {
		case !held:
			missing = append(missing, p)
		case version < p.Version:
			outdated = append(outdated, p)
		}
	}
	if len(missing) > 0 {
		err := s.stock.LoadAll(ctx, missing, s.store.OrdersOf)
		failures = append(failures, err, s.removeArchived(ctx, missing))
		if admission.ConcernsOthers(err) || err != nil && ctx.Err() != nil {
			return errors.Join(failures...)
		}
		outdated = append(outdated, missing...) // another process may have loaded an older version
	}
	for _, o := range outdated {
		err := s.stock.UpdatePart(ctx, o)
		if errors.Is(err, admission.ErrNotLoaded) { // loading it failed, or Redis lost it again: the next call loads it
			continue
		}
		failures = append(failures, err)
		if admission.ConcernsOthers(err) || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failures...)
}
