package assemble

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/journal"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/internal/loop"
)

func (s *Stores) newRebuilder() (*rebuild.Rebuilder, error) {
	return rebuild.New(rebuild.Config{
		Pinner: s.guard, Space: s.space, Log: s.log,
		Store: struct {
			*store.Sales
			*store.Orders
			*store.Generations
			*journal.Registry
		}{s.sales, s.orders, s.generations, s.journals},
		// unblocks earlier than the heartbeat
		Rebuilt: func(ctx context.Context) { _ = s.CheckRedis(ctx) },
		Pause: func(ctx context.Context, saleID, reason string) error {
			_, err := s.sales.SetSwitch(store.WithReason(store.WithActor(ctx, "rebuild"), reason), saleID, sale.Paused)
			return err
		},
	})
}

func (s *Stores) restorer() *rebuild.Restorer {
	return rebuild.NewRestorer(s.guard, s.guard.Raw(), s.space, s.orders)
}

// JournalConfig configures the journal of accepted orders.
type JournalConfig struct {
	Dir  string // empty: no journal
	Sync journal.Sync
}

// openJournal opens the journal and its writer; nil without a directory. closeJournal is never nil.
func (s *Stores) openJournal(cfg JournalConfig) (_ *rebuild.JournalWriter, closeJournal func(), err error) {
	if cfg.Dir == "" {
		s.log.Info("no journal: if Redis loses data, accepted orders that are not rows yet are lost " +
			"(--journal DIR keeps them)")
		return nil, func() {}, nil
	}
	j, err := journal.Open(cfg.Dir, journal.Config{Sync: cfg.Sync, Log: s.log})
	if err != nil {
		return nil, func() {}, usage("--journal: %w", err)
	}
	return rebuild.NewJournalWriter(rebuild.JournalWriterConfig{
		Journal: j, Restorer: s.restorer(), Log: s.log,
		Store: struct {
			*store.Orders
			*journal.Registry
		}{s.orders, s.journals},
	}), func() { _ = j.Close() }, nil
}

// CheckRedis finds out whether the data in Redis is verified, without waiting for the heartbeat.
func (s *Stores) CheckRedis(ctx context.Context) error { return s.guard.Check(ctx, s.generations) }

// RunGuard watches Redis until ctx ends, and leaves the rebuild to the backends.
func (s *Stores) RunGuard(ctx context.Context) error { return s.guard.Run(ctx, s.generations, nil) }

// runGuard watches Redis until ctx ends, and rebuilds it when its data is not verified.
func (b *Backend) runGuard(ctx context.Context) error {
	failing := false
	// another rebuild, for example one that an admin started, may have ended between the guard's check and now
	unverified := func(ctx context.Context) bool {
		verified, err := b.verified(ctx)
		return err != nil || !verified
	}
	return b.stores.guard.Run(ctx, b.stores.generations, func(ctx context.Context) {
		err := b.rebuilder.RunIf(ctx, unverified)
		switch {
		case err == nil:
			failing = false
		case errors.Is(err, rebuild.ErrBusy) || ctx.Err() != nil:
		case !failing:
			failing = true
			b.log.Error("Redis cannot be verified; trying again", "err", err)
		}
	})
}

// verified checks whether the data in Redis is verified.
func (b *Backend) verified(ctx context.Context) (bool, error) {
	err := b.stores.CheckRedis(ctx)
	_, ok := b.stores.guard.Verified()
	return ok, err
}

// Verify returns when the data in Redis is verified, after a rebuild if it must be. It precedes everything else that is
// done with Redis.
func (b *Backend) Verify(ctx context.Context) error {
	if ok, err := b.verified(ctx); err != nil || ok {
		return err
	}
	if b.journal != nil { // the rebuild waits for its journal
		writing, stop := context.WithCancel(ctx)
		written := make(chan struct{})
		go func() { _ = b.journal.Run(writing); close(written) }()
		defer func() { stop(); <-written }()
	}
	for ctx.Err() == nil {
		if err := b.rebuilder.Run(ctx); err != nil && !errors.Is(err, rebuild.ErrBusy) {
			return err
		}
		if ok, err := b.verified(ctx); err != nil || ok {
			return err
		}
		loop.Sleep(ctx, guard.Heartbeat)
	}
	return ctx.Err()
}

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
func (s *Stores) acquireAudit(ctx context.Context, shard keyspace.Shard) bool {
	lock, err := redisconn.Acquire(ctx, s.redis, shard.AuditLock(), auditEvery*9/10)
	return err == nil && lock != nil
}

// verifiedGeneration returns the generation of Redis as of now, if its data is verified.
func (s *Stores) verifiedGeneration(ctx context.Context) (int64, bool) {
	if !s.guard.CheckNow(ctx, s.generations) {
		return 0, false
	}
	return s.guard.Generation(), true
}
