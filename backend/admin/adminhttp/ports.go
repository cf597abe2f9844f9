package adminhttp

import (
	"context"
	"time"

	"sluice/backend/admin"
	"sluice/backend/admin/livestats"
	"sluice/backend/events"
	"sluice/backend/events/webhook"
	"sluice/backend/queue"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// The services behind the routes. Their errors are those of package sale, *admin.PendingError and
// *store.RefusedError. They must be safe for concurrent use. The contexts of changes carry the actor and the reason for
// the action log (store.WithActor, store.WithReason).

// Service changes and shows sales, rehearsals and orders (admin.Service).
type Service interface {
	Create(ctx context.Context, s sale.Sale) (admin.View, error)
	Show(ctx context.Context, id string) (admin.View, error)
	List(ctx context.Context) ([]admin.View, error)
	Page(ctx context.Context, q store.SalesQuery) ([]admin.View, error)
	Restock(ctx context.Context, id string, add int64, requestKey string) (admin.View, error)
	Describe(ctx context.Context, id string, to sale.Details) (admin.View, error)
	SetSwitch(ctx context.Context, id string, to sale.Switch) (admin.View, error)
	Open(ctx context.Context, id string) (admin.View, error)

	Rehearse(ctx context.Context, r admin.Rehearsal) (admin.View, error)
	Rehearsals(ctx context.Context) ([]admin.View, error)
	RemoveRehearsal(ctx context.Context, id string) (orders int64, err error)

	Order(ctx context.Context, id sale.OrderID) (admin.OrderDetails, error)
	CancelOrder(ctx context.Context, id sale.OrderID) (admin.OrderDetails, error)
}

// DeadLetters shows and settles dead orders (admin.DeadLetters).
type DeadLetters interface {
	List(ctx context.Context, q queue.DeadQuery) (admin.DeadPage, error)
	Find(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error)
	Retry(ctx context.Context, id sale.OrderID) (sale.Status, error)
	Cancel(ctx context.Context, id sale.OrderID) (admin.Cancelled, error)
	Drop(ctx context.Context, key string) error
	Settle(ctx context.Context, s admin.Settlement) (admin.SettledPage, error)
}

// Store is the part of SQL that the routes read and write without package admin (package store).
type Store interface {
	OrderPage(ctx context.Context, q store.OrderQuery) (rows []store.OrderRow, next sale.OrderID, err error)
	Callbacks(ctx context.Context, q store.CallbackQuery) ([]store.Callback, error)
	SettleRefund(ctx context.Context, number int64, note string) (store.Callback, error)
	Log(ctx context.Context, q store.LogQuery) ([]store.LogEntry, error)
	Record(ctx context.Context, action, target, detail string) error
	SaveReport(ctx context.Context, r store.RehearsalReport) error
	Reports(ctx context.Context) ([]store.RehearsalReport, error)
	Report(ctx context.Context, id string) (store.RehearsalReport, error)
}

// Rebuilder rebuilds Redis from SQL, the queue and the journals (rebuild.Rebuilder).
type Rebuilder interface {
	Run(ctx context.Context, only ...string) error
	Status() rebuild.Status
}

// Events shows the consumer groups of order events and settles their dead letters (events.Admin).
type Events interface {
	Status(ctx context.Context) (events.Status, error)
	DeadLetters(ctx context.Context, q events.DeadLetterQuery) ([]events.DeadLetter, error)
	Retry(ctx context.Context, group, eventID string) error
	Drop(ctx context.Context, group, eventID string) error
	Remove(ctx context.Context, group string) error
}

// Webhooks manages webhook endpoints and their deliveries (webhook.Admin).
type Webhooks interface {
	Add(ctx context.Context, s webhook.Settings, strict bool) (webhook.Endpoint, error)
	List(ctx context.Context) ([]webhook.Endpoint, error)
	Show(ctx context.Context, id string) (webhook.Endpoint, error)
	Change(ctx context.Context, id string, s webhook.Settings) (webhook.Endpoint, error)
	Remove(ctx context.Context, id string) error
	Pause(ctx context.Context, id string) (webhook.Endpoint, error)
	Resume(ctx context.Context, id string) (webhook.Endpoint, error)
	Rotate(ctx context.Context, id string, keep time.Duration) (secret string, err error)
	Ping(ctx context.Context, id string) (deliveryID string, err error)
	Deliveries(ctx context.Context, q webhook.DeliveryQuery) ([]webhook.Delivery, error)
	Delivery(ctx context.Context, endpointID, id string) (webhook.Delivery, []webhook.DeliveryAttempt, error)
	Redeliver(ctx context.Context, endpointID, id string) error
	RedeliverSince(ctx context.Context, endpointID string, since time.Time) (int64, error)
}

// LiveStats holds the samples that the console shows (livestats.Stats).
type LiveStats interface {
	Since(at int64) (samples []livestats.Sample, more <-chan struct{})
	Sources() []livestats.Source
	Started() time.Time
}
