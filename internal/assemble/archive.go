package assemble

import (
	"context"
	"time"

	"sluice/backend/admission"
	"sluice/backend/archive"
	"sluice/backend/audit"
	"sluice/backend/events/webhook"
	"sluice/backend/store"
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
