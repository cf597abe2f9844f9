// Package webhook notifies other systems of orders by HTTP, signed as Standard Webhooks specifies
// (www.standardwebhooks.com). It is a consumer group of package events. Its handler writes a delivery to SQL for each
// endpoint that selects an event, only once even if the group receives the event repeatedly, and a Sender posts the
// deliveries. A slow endpoint delays neither the group nor another endpoint. The package does not change orders.
package webhook

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"sluice/backend/events"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// Group is the name of the consumer group.
const Group = "webhooks"

// pingPrefix begins the ids of pings. Those of events begin with a digit.
const pingPrefix = "ping_"

// TypePing is the type of a test delivery.
const TypePing = "ping"

// Types are the types of events that an endpoint can select.
var Types = []string{string(events.Created), string(events.Paid), string(events.Cancelled)}

// payload is the body of a request.
type payload struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // of the event, not of the attempt
	Data      any       `json:"data"`
}

type orderData struct {
	OrderID sale.OrderID `json:"order_id,string"`
	SaleID  string       `json:"sale_id"`
	Buyer   string       `json:"buyer"`
	Nth     int          `json:"nth"`
	Price   sale.Price   `json:"price"`
	Was     sale.Status  `json:"was"`
}

func encode(p payload) string {
	b, _ := json.Marshal(p) // no part of it can fail
	return string(b)
}

// ID is the webhook-id of an event for an endpoint. It contains no full stop, which separates the id, the time and the
// body in the signed text.
func ID(eventID, endpointID string) string {
	return strings.ReplaceAll(eventID, ".", "_") + "_" + endpointID
}

// wants reports whether an endpoint selects an event. Events from before its creation are skipped, also when Redis
// has lost its data and old events are delivered again. The time of an event is in whole milliseconds.
func wants(e Endpoint, v events.Event) bool {
	return e.State != EndpointDisabled && !v.At.Before(e.CreatedAt.Truncate(time.Millisecond)) &&
		(len(e.Types) == 0 || slices.Contains(e.Types, string(v.Type))) &&
		(len(e.Sales) == 0 || slices.Contains(e.Sales, v.SaleID))
}

// addBatch bounds the deliveries that one transaction writes, and so its duration with many endpoints.
const addBatch = 2000

// Handler returns the group's handler. added is called after deliveries were written; it must return immediately.
func Handler(db *Store, added func(n int64)) events.Handler {
	return func(ctx context.Context, batch []events.Event) error {
		endpoints, err := db.Endpoints(ctx)
		if err != nil {
			return err
		}
		var all []NewDelivery
		for _, v := range batch {
			var body string
			for _, e := range endpoints {
				if !wants(e, v) {
					continue
				}
				if body == "" {
					order := orderData{v.OrderID, v.SaleID, v.Buyer, v.Slot, v.Price, v.Was}
					body = encode(payload{string(v.Type), v.At, order})
				}
				sequence := int64(v.OrderID)
				if e.Strict {
					sequence = SequenceStrict
				}
				all = append(all, NewDelivery{
					ID: ID(v.ID, e.ID), EndpointID: e.ID, Position: v.Position, Sequence: sequence,
					Type: store.Text(string(v.Type)), Body: body,
				})
			}
		}
		for some := range slices.Chunk(all, addBatch) { // after an error, the next call skips the written ones
			n, err := db.AddDeliveries(ctx, some)
			if err != nil {
				return err
			}
			if n > 0 {
				added(n)
			}
		}
		return nil
	}
}
