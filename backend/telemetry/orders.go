package telemetry

import (
	"context"

	"sluice/backend/sale"
)

// Orders traces the batches that a worker writes. It implements worker.Tracer and is safe for concurrent use.
type Orders struct {
	tracer  *Tracer
	parents *Parents
}

// NewOrders returns Orders. The tracer must not be nil: a worker without tracing does not use Orders.
func NewOrders(tracer *Tracer, parents *Parents) *Orders { return &Orders{tracer, parents} }

// Begin starts the span of a batch. It takes up to lookupTimeout if Redis does not respond.
func (o *Orders) Begin(
	ctx context.Context, orders []sale.Order,
) (context.Context, func(failed map[sale.OrderID]string, err error)) {
	items := make([]Item, len(orders))
	for i, order := range orders {
		items[i] = Item{Order: order.ID, SaleID: order.SaleID, Message: order.ID.String()}
	}
	o.parents.Fill(ctx, items)
	ctx, batch := o.tracer.Batch(ctx, Step{Operation: "process", Destination: "orders"}, len(orders), items)
	return ctx, func(failed map[sale.OrderID]string, err error) { batch.End(err, failed) }
}
