package assemble

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/journal"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/internal/loop"
)

// recoveryTables are the tables that rebuilds, moves and journals use.
type recoveryTables struct {
	*store.Store
	*journal.Registry
}

// newRebuilder returns a Rebuilder that waits for the journals of this process. Without journals, journals is nil.
func (s *Stores) newRebuilder(journals rebuild.JournalWriters) (*rebuild.Rebuilder, error) {
	return rebuild.New(rebuild.Config{
		Pinner: s.guards, Space: s.space, Log: s.log, Store: s.recovery, Journals: journals,
		// The check blocks or unblocks the guard and wakes the journal, without a wait for the next heartbeat.
		Changed: func(ctx context.Context, shard keyspace.Shard) { _ = s.guards.Of(shard).Check(ctx, s.tables) },
		Pause: func(ctx context.Context, saleID, reason string) error {
			ctx = store.WithReason(store.WithActor(ctx, store.ActorRebuild), reason)
			_, err := s.tables.SetSwitch(ctx, saleID, sale.Paused)
			return err
		},
	})
}

// restorer returns the Restorer of a shard. Its client is not guarded, because the script checks the fence.
func (s *Stores) restorer(shard keyspace.Shard) *rebuild.Restorer {
	g := s.guards.Of(shard)
	return rebuild.NewRestorer(g, g.Raw(), shard, s.tables)
}

// JournalConfig configures the journal of accepted orders.
type JournalConfig struct {
	Dir  string // empty: no journal
	Sync journal.Sync
}

// openJournals opens the journal of each shard and its writer, and exports whether it can be written; nil without a
// directory. Call closers, also after an error.
func (s *Stores) openJournals(
	cfg JournalConfig, registry prometheus.Registerer,
) (writers rebuild.JournalWriters, closers []func(), err error) {
	if cfg.Dir == "" {
		s.log.Info("no journal: if Redis loses data, accepted orders that are not rows yet are lost " +
			"(--journal DIR keeps them)")
		return nil, nil, nil
	}
	for _, shard := range s.space.All() {
		dir := cfg.Dir
		if shard > 0 { // shard 0 uses the directory itself, as with one shard
			dir = filepath.Join(dir, "shard-"+strconv.Itoa(int(shard)))
		}
		j, err := journal.Open(dir, journal.Config{Sync: cfg.Sync, Log: s.log})
		if err != nil {
			return nil, closers, journalError(err)
		}
		closers = append(closers, func() { _ = j.Close() })
		registerOfShard(registry, shard, "sluice_journal_up", "Whether the last write to the journal of a shard succeeded.",
			func() bool { return !j.Failing() })
		writers = append(writers, rebuild.NewJournalWriter(rebuild.JournalWriterConfig{
			Journal: j, Restorer: s.restorer(shard), Rebuilds: s.guards.Of(shard).Rebuilds(), Log: s.log,
			Store: s.recovery, OnlyCopy: s.alone,
		}))
	}
	return writers, closers, nil
}

// registerWait bounds the time in which a backend registers its journals before it serves.
const registerWait = 5 * time.Second

// registerJournals calls register, which stores the journals in SQL, before the first purchase. A database that rejects
// writes for longer does not stop the sales: orders wait in Redis, and the journals are needed only if Redis loses them
// too.
func registerJournals(ctx context.Context, log *slog.Logger, register func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	err := Await(bounded, log, "the database", func() error { return register(bounded) })
	switch {
	case err == nil || ctx.Err() != nil:
		return nil
	case bounded.Err() != nil:
		log.Warn("SQL does not have the journals yet: a rebuild of Redis does not wait for their orders", "err", err)
		return nil
	}
	return err
}

// journalError adds the remedy to an error of journal.Open.
func journalError(err error) error {
	remedy := "name a directory that only this backend uses"
	if errors.Is(err, syscall.ENOSPC) { // another directory lacks the orders of this one
		remedy = "make room on its disk"
	}
	return usage("--journal: %s (%s)", strings.TrimPrefix(err.Error(), "journal: "), remedy)
}

// CheckRedis checks whether the data in Redis is verified, without waiting for the heartbeat.
func (s *Stores) CheckRedis(ctx context.Context) error { return s.guards.Check(ctx, s.tables) }

// RunGuard watches Redis until ctx ends, and leaves the rebuild to the backends.
func (s *Stores) RunGuard(ctx context.Context) error { return s.guards.Run(ctx, s.tables, nil) }

// runGuard watches all shards until ctx ends, and rebuilds each when its data is not verified.
func (b *Backend) runGuard(ctx context.Context) error {
	return b.stores.guards.Run(ctx, b.stores.tables, b.rebuildUnverified)
}

// rebuildUnverified rebuilds a shard unless its data is verified meanwhile: another rebuild, for example one that an
// admin started, may have ended since the guard's check. It returns a guard.DeploymentError for the data of another
// deployment.
func (b *Backend) rebuildUnverified(ctx context.Context, shard keyspace.Shard) error {
	return b.rebuilder.RunIf(ctx, shard, func(ctx context.Context) bool {
		_, verified := b.stores.verifiedGeneration(ctx, shard)
		return !verified
	})
}

// verified checks whether the data in Redis is verified.
func (b *Backend) verified(ctx context.Context) (bool, error) {
	err := b.stores.CheckRedis(ctx)
	_, ok := b.stores.guards.Verified()
	return ok, err
}

// Verify returns when the data in Redis is verified, after a rebuild if necessary. Call it before any other use of
// Redis.
func (b *Backend) Verify(ctx context.Context) error {
	if ok, err := b.verified(ctx); err != nil || ok {
		return err
	}
	if b.journals != nil { // the rebuild waits for its journal
		writing, stop := context.WithCancel(ctx)
		written := make(chan struct{})
		go func() { _ = b.journals.Run(writing); close(written) }()
		defer func() { stop(); <-written }()
	}
	for ctx.Err() == nil {
		for _, shard := range b.stores.space.All() {
			err := b.rebuildUnverified(ctx, shard)
			if err != nil && !errors.Is(err, guard.ErrBusy) {
				return err
			}
		}
		if ok, err := b.verified(ctx); err != nil || ok {
			return err
		}
		loop.Sleep(ctx, guard.Heartbeat)
	}
	return ctx.Err()
}

// verifyWait bounds awaitVerified. A new Redis is verified in milliseconds, an emptied one after a rebuild. Tests set a
// longer one before they start.
var verifyWait = 2 * time.Second

// awaitVerified returns when g, which runs, has verified the data in Redis, or after verifyWait. It avoids failures of
// the loops that use the data, and their warnings, at the first start.
func awaitVerified(ctx context.Context, g interface{ Verified() (string, bool) }) {
	ctx, cancel := context.WithTimeout(ctx, verifyWait)
	defer cancel()
	for ctx.Err() == nil {
		if _, ok := g.Verified(); ok {
			return
		}
		loop.Sleep(ctx, 10*time.Millisecond)
	}
}

// registerVerified exports whether each shard is verified.
func (s *Stores) registerVerified(registry prometheus.Registerer) {
	for _, shard := range s.space.All() {
		registerOfShard(registry, shard, "sluice_redis_verified",
			"Whether the data of a shard in Redis is verified: 1, or 0 while purchases wait for a rebuild.",
			func() bool {
				_, verified := s.guards.Of(shard).Verified()
				return verified
			})
	}
}

// registerOfShard exports a gauge of a shard: 1 if is returns true, else 0.
func registerOfShard(registry prometheus.Registerer, shard keyspace.Shard, name, help string, is func() bool) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: name, Help: help, ConstLabels: prometheus.Labels{"shard": strconv.Itoa(int(shard))},
	}, func() float64 { return oneIf(is()) }))
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// verifiedGeneration returns the generation of a shard as of now, if its data is verified.
func (s *Stores) verifiedGeneration(ctx context.Context, shard keyspace.Shard) (int64, bool) {
	g := s.guards.Of(shard)
	if !g.CheckNow(ctx, s.tables) {
		return 0, false
	}
	return g.Generation(), true
}
