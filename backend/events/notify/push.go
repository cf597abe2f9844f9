// Package push tells buyers what becomes of their orders: live to their open pages (Live), to their browsers while no page is open (Web Push), and by adapters such
// as mail. It is a group of the events (package event). It decides nothing about orders, and what it tells is only a hint: the order itself
// is what GET /v1/orders/{order} says.
package notify

import (
	"context"
	"strings"
	"time"

	"sluice/backend/events"
	"sluice/backend/sale"
)

// Group is the name of the group.
const Group = "push"

// Web is the channel of Web Push. No adapter may have this name.
const Web = "web"

// ErrPermanent says that a message can never be sent. An adapter wraps it when trying again cannot help; every other error is tried again.
var ErrPermanent = events.ErrPermanent

// Message is what a buyer is told: one event of one order.
type Message struct {
	ID      string // the event's: the same however often it is told, so whoever shows it can tell the copies
	Type    events.Type
	OrderID sale.OrderID
	SaleID  string
	Buyer   string
	Was     sale.Status
	At      time.Time
}

// Adapter sends messages somewhere. It must be safe for concurrent use. A message may come twice, when a process dies after it was sent and before that was
// written down; the ID is the same then.
type Adapter interface {
	Name() string
	// Send ends soon after the context does. An error that wraps ErrPermanent is final.
	Send(ctx context.Context, m Message) error
}

// told are the events that buyers are told of; later kinds are none of this program's business until they have a text.
func told(t events.Type) bool {
	return t == events.Created || t == events.Paid || t == events.Cancelled
}

func messageOf(e events.Event) Message {
	return Message{ID: e.ID, Type: e.Type, OrderID: e.OrderID, SaleID: e.SaleID, Buyer: e.Buyer, Was: e.Was, At: e.At}
}

// status is what the order became.
func (m Message) status() sale.Status {
	return sale.Status(strings.TrimPrefix(string(m.Type), "order."))
}
