package store

import (
	"context"

	"sluice/backend/sale"
)

// The kinds of changes in the table outbox.
const (
	OutboxCreated   = 1
	OutboxPaid      = 2
	OutboxCancelled = 3
)

// appendOutbox appends changes of orders, of one kind, to the outbox. Orders of a rehearsal are left out, so that they
// never reach other services.
func appendOutbox(ctx context.Context, c Conn, kind int, orders ...sale.Order) error {
	ids := make([]int64, 0, len(orders))
	for _, o := range orders {
		if !sale.IsRehearsal(o.SaleID) {
			ids = append(ids, int64(o.ID))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	*c.changed = true
	_, err := c.Exec(ctx, "INSERT INTO outbox (kind, orders, at) VALUES ($1, $2, "+c.Dialect().Now+")", kind, ids)
	return err
}
