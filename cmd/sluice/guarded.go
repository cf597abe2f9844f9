package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// rebuilder returns the Rebuilder of this process.
func (s *stores) rebuilder(log *slog.Logger) (*rebuild.Rebuilder, error) {
	return rebuild.New(rebuild.Config{
		Pinner: s.guard, Store: s.sql, Space: s.space, Log: log,
		// unblocks earlier than the heartbeat
		Rebuilt: func(ctx context.Context) { _ = s.guard.Check(ctx, s.sql.Generations) },
		Pause: func(ctx context.Context, saleID, reason string) error {
			_, err := s.sql.SetSwitch(store.WithReason(store.WithActor(ctx, "rebuild"), reason), saleID, sale.Paused)
			return err
		},
	})
}

// guardBackend watches Redis, and rebuilds it when its data is not verified.
func (s *stores) guardBackend(ctx context.Context, log *slog.Logger, r *rebuild.Rebuilder) error {
	failing := false
	// another rebuild, for example one that an admin started, may have ended between the guard's look and now
	unverified := func(ctx context.Context) bool {
		err := s.guard.Check(ctx, s.sql.Generations)
		_, ok := s.guard.Verified()
		return err != nil || !ok
	}
	return s.guard.Run(ctx, s.sql.Generations, func(ctx context.Context) {
		err := r.RunIf(ctx, unverified)
		switch {
		case err == nil:
			failing = false
		case errors.Is(err, rebuild.ErrBusy) || ctx.Err() != nil:
		case !failing:
			failing = true
			log.Error("Redis cannot be verified; trying again", "err", err)
		}
	})
}

// guardWorker watches Redis, and leaves the rebuild to the backends.
func (s *stores) guardWorker(ctx context.Context) error {
	return s.guard.Run(ctx, s.sql.Generations, nil)
}

// restorer returns the Restorer of this process.
func (s *stores) restorer() *rebuild.Restorer {
	return rebuild.NewRestorer(s.guard.Raw(), s.space, s.sql.Orders)
}

// source returns the worker.Source of this process.
func (s *stores) source() *rebuild.Source { return rebuild.NewSource(s.guard, s.restorer()) }

// guardCollector exports whether Redis is verified.
func guardCollector(g *guard.Guard) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_redis_verified",
		Help: "Whether the data in Redis is verified: 1, or 0 while purchases wait for a rebuild.",
	}, func() float64 {
		if _, ok := g.Verified(); ok {
			return 1
		}
		return 0
	})
}

// auditEvery is how often each sale is audited, by whichever backend is first.
const auditEvery = 30 * time.Second

// acquireAudit reports whether this process may audit a shard now. The lock is not released: it expires before the next
// audit is due.
func (s *stores) acquireAudit(ctx context.Context, shard keyspace.Shard) bool {
	lock, err := redisconn.Acquire(ctx, s.redis, shard.AuditLock(), auditEvery*9/10)
	return err == nil && lock != nil
}

// verifiedGeneration is the generation of Redis as of now, if its data is verified.
func (s *stores) verifiedGeneration(ctx context.Context) (int64, bool) {
	if !s.guard.CheckNow(ctx, s.sql.Generations) {
		return 0, false
	}
	return s.guard.Generation(), true
}
