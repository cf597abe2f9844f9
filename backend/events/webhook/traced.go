package webhook

import (
	"context"
	"encoding/json"

	"sluice/backend/sale"
	"sluice/backend/telemetry"
)

// traced finds the traces of the deliveries' orders. Rows do not contain traces: a key in Redis does, for an hour,
// which is longer than all but the last delays between attempts.
func (s *Sender) traced(ctx context.Context, all []Delivery) []telemetry.Item {
	items := make([]telemetry.Item, len(all))
	if s.cfg.Tracer == nil || len(all) == 0 {
		return items
	}
	var asked []telemetry.Item
	var at []int
	for i, d := range all {
		var told struct {
			Data struct {
				OrderID string `json:"order_id"`
				SaleID  string `json:"sale_id"`
			}
		}
		if json.Unmarshal([]byte(d.Body), &told) != nil {
			continue
		}
		id, err := sale.ParseOrderID(told.Data.OrderID)
		if err != nil { // a ping has no order
			continue
		}
		asked, at = append(asked, telemetry.Item{Order: id, SaleID: told.Data.SaleID}), append(at, i)
	}
	if len(asked) == 0 {
		return items
	}
	s.cfg.Notes.Fill(ctx, asked)
	for i, item := range asked {
		items[at[i]] = item
	}
	return items
}
