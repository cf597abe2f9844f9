package assemble

import (
	"context"
	"errors"
	"time"

	"sluice/backend/admission"
	"sluice/backend/archive"
	"sluice/backend/audit"
	"sluice/backend/events/webhook"
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/move"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/internal/loop"
)

// Archive archives a sale, or continues an earlier run, with files in dir. See archive.Archiver.
func (s *Stores) Archive(ctx context.Context, saleID, dir string) (store.Archive, error) {
	stock := admission.NewStock(admission.StockConfig{
		Client: s.redis, Server: s.guardedClient, Space: s.space, Claimer: s.tables, Deployment: s.guards.Deployment,
	})
	deliveries := webhook.NewStore(s.db)
	return archive.New(archive.Config{
		Store: s.tables, Stock: stock, Dir: dir, Log: s.log, Audit: audit.New(stock, s.tables).Audit,
		Undelivered: func(ctx context.Context, saleID string) (bool, error) {
			waiting, err := deliveries.HasWaiting(ctx, saleID)
			if err != nil || waiting {
				return waiting, err
			}
			return s.events.HasDeadLettersOf(ctx, saleID)
		},
	}).Archive(ctx, saleID)
}

// EndedSales returns the sales that ended before an instant and have rows to archive, oldest first.
func (s *Stores) EndedSales(ctx context.Context, before time.Time) ([]string, error) {
	return s.tables.EndedSales(ctx, before)
}

// MoveShard moves a shard of a Redis Cluster to the master at an address. progress is called when a step begins, and
// during the copy with the number of keys. See move.Mover.
func (s *Stores) MoveShard(
	ctx context.Context, shard int, to string, progress func(step string, done, total int),
) (move.Result, error) {
	m, err := move.New(move.Config{
		Server: s.guards.Server(), Space: s.space, Progress: progress, Log: s.log, Store: s.recovery,
	})
	if err != nil {
		return move.Result{}, err
	}
	return m.Move(ctx, keyspace.Shard(shard), to)
}

// checkDeployment returns a UsageError if Redis holds the data of another deployment than the database, or another
// number of shards. A shard that does not respond is not compared.
func (s *Stores) checkDeployment(ctx context.Context, deployment int64) error {
	owner := guard.Owner{Deployment: deployment, Shards: len(s.space.All())}
	for _, err := range loop.Each(s.space.All(), -1, func(_ int, shard keyspace.Shard) error {
		return guard.CheckOwner(ctx, s.guards.Of(shard).Raw(), shard, owner)
	}) {
		if err != nil && !errors.Is(err, sale.ErrUnavailable) {
			return usage("%w", err)
		}
	}
	return nil
}
