package telemetry

import (
	"context"

	"sluice/backend/sale"
)

// Orders shows the batches that a worker writes. It is worker.Tracer, and safe for concurrent use.
type Orders struct {
	tracer  *Tracer
	parents *Parents
}

// NewOrders makes Orders. The tracer must not be nil: a worker that traces nothing needs no Orders, and asks Redis for no notes.
func NewOrders(tracer *Tracer, notes *Parents) *Orders { return &Orders{tracer, notes} }

// Begin begins the span of a batch. It may take a tenth of a second, when Redis does not answer.
func (o *Orders) Begin(ctx context.Context, orders []sale.Order) (context.Context, func(failed map[sale.OrderID]string, err error)) {
	items := make([]Item, len(orders))
	for i, order := range orders {
		items[i] = Item{Order: order.ID, SaleID: order.SaleID}
	}
	o.parents.Fill(ctx, items)
	ctx, batch := o.tracer.Batch(ctx, Step{Operation: "process", Destination: "orders"}, len(orders), items)
	return ctx, func(failed map[sale.OrderID]string, err error) { batch.End(err, failed) }
}
