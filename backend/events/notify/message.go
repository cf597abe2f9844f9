// Package notify informs buyers of changes of their orders: Live streams events to open pages, and Service sends Web
// Push messages to subscribed browsers as a consumer group of the order events. Notifications are hints:
// GET /v1/orders/{order} returns the state of an order, and no decision depends on a notification.
package notify

import (
	"strings"
	"time"

	"sluice/backend/events"
	"sluice/backend/sale"
)

// Group is the name of the consumer group that sends Web Push messages.
const Group = "web-push"

// Message is the content of a notification: one event of one order.
type Message struct {
	ID      string // of the event; copies of a message have the same ID
	Type    events.Type
	OrderID sale.OrderID
	SaleID  string
	Buyer   string
	Was     sale.Status
	At      time.Time
}

// notifies reports whether buyers are notified of events of type t. Unknown types are skipped.
func notifies(t events.Type) bool {
	return t == events.Created || t == events.Paid || t == events.Cancelled
}

func messageOf(e events.Event) Message {
	return Message{ID: e.ID, Type: e.Type, OrderID: e.OrderID, SaleID: e.SaleID, Buyer: e.Buyer, Was: e.Was, At: e.At}
}

// status returns the order's status after the event.
func (m Message) status() sale.Status {
	return sale.Status(strings.TrimPrefix(string(m.Type), "order."))
}
