package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/backend/admission"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/internal/loop"
)

// Known reports from memory whether SQL has a sale. A known sale that Redis does not hold waits to be loaded. Before
// SQL was read for the first time, every id is known.
func (s *Service) Known(id string) bool {
	s.knownMu.RLock()
	defer s.knownMu.RUnlock()
	return s.known == nil || s.known[id]
}

// Archived reports from memory whether a sale is archived. Such a sale is closed and not in Redis.
func (s *Service) Archived(id string) bool {
	s.knownMu.RLock()
	defer s.knownMu.RUnlock()
	return s.archived[id]
}

// Run calls RunOnce every interval until ctx ends, and then returns nil. It logs when failures begin and end.
func (s *Service) Run(ctx context.Context, interval time.Duration) error {
	retry := loop.Backoff{Log: s.log, What: "applying the sales in SQL to Redis"}
	for turn := 0; ctx.Err() == nil; turn++ {
		if err := s.RunOnce(ctx); err != nil {
			retry.Failed(ctx, err)
			continue
		}
		retry.Succeeded()
		if turn%sweepEvery == 0 {
			s.sweepRehearsals(ctx)
		}
		loop.Sleep(ctx, interval)
	}
	return nil
}

// RunOnce applies every sale in SQL to Redis: a newer version, or the whole sale if Redis has lost it. The failure of
// one sale does not stop the others, unless its shard or SQL is down. A shard that is down does not stop the others.
//
// It reads the versions of all sales first, so a call without changes costs one round trip per 500 sales. It loads
// all missing sales together, with one pass over the queue: thousands of sales beside a million dead letters take
// seconds.
func (s *Service) RunOnce(ctx context.Context) error {
	summaries, err := s.store.SaleSummaries(ctx)
	if err != nil {
		return fmt.Errorf("admin: reconcile: %w", err)
	}
	archived, err := s.store.ArchivedSales(ctx)
	if err != nil {
		return fmt.Errorf("admin: reconcile: %w", err)
	}
	known := make(map[string]bool, len(summaries))
	byShard := map[keyspace.Shard][]store.SaleSummary{}
	for _, summary := range summaries {
		known[summary.ID] = true
		shard := s.dead.space.ShardOf(summary.ID)
		byShard[shard] = append(byShard[shard], summary)
	}
	s.knownMu.Lock()
	s.known, s.archived = known, map[string]bool{}
	for _, id := range archived {
		s.archived[id] = true
	}
	s.knownMu.Unlock()
	var failures []error
	for _, shard := range slices.Sorted(maps.Keys(byShard)) {
		failures = append(failures, s.reconcile(ctx, byShard[shard]))
	}
	return errors.Join(failures...)
}

// reconcile is RunOnce for the sales of one shard.
func (s *Service) reconcile(ctx context.Context, summaries []store.SaleSummary) error {
	ids := make([]string, len(summaries))
	for i, summary := range summaries {
		ids[i] = summary.ID
	}
	versions, err := s.stock.Versions(ctx, ids)
	if err != nil {
		return fmt.Errorf("admin: reconcile: %w", err)
	}
	var missing, outdated []sale.Sale
	for _, summary := range summaries {
		switch version, held := versions[summary.ID]; {
		case !held:
			missing = append(missing, summary.Sale)
		case version < summary.Version:
			outdated = append(outdated, summary.Sale)
		}
	}
	var failures []error
	if len(missing) > 0 {
		if err := s.stock.LoadAll(ctx, missing, func(id string, yield func(sale.Order) error) error {
			return s.store.OrdersOf(ctx, id, yield)
		}); err != nil {
			failures = append(failures, fmt.Errorf("admin: reconcile: %w", err))
			if errors.Is(err, sale.ErrUnavailable) || ctx.Err() != nil {
				return errors.Join(failures...)
			}
		}
		outdated = append(outdated, missing...) // another process may have loaded an older version
	}
	for _, o := range outdated {
		err := s.stock.Update(ctx, o)
		if errors.Is(err, admission.ErrNotLoaded) { // loading it failed, or Redis lost it again: the next call loads it
			continue
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("admin: reconcile: %w", err))
		}
		if errors.Is(err, sale.ErrUnavailable) || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failures...)
}
