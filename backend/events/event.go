// Package events publishes the changes of orders to other services: a relay moves them from the outbox in SQL to a
// Redis stream, and consumer groups read the stream. Each group gets every event at least once. An event stays in SQL
// until every group has acknowledged it, so a Redis with lost or older data loses none. The package does not change
// orders.
package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"sluice/backend/sale"
)

// Type is what has happened to an order.
type Type string

// The types of events.
const (
	Created   Type = "order.created"   // it is a row
	Paid      Type = "order.paid"      // it is paid
	Cancelled Type = "order.cancelled" // it will not be sold, and holds no unit any more
)

// Version is the form in which events are written. A reader refuses others.
const Version = 1

// ErrPermanent reports that an event can never be handled. If a handler's error wraps it, the event becomes a dead
// letter without further deliveries.
var ErrPermanent = errors.New("will never work")

// Event is one change of one order.
type Event struct {
	ID      string // "<order id>.<status>": the id of a change, equal in all its deliveries
	Type    Type
	OrderID sale.OrderID
	SaleID  string
	Buyer   string
	Slot    int         // which of the buyer's places in the sale the order takes, from 1
	Price   sale.Price  // of the sale, for one unit
	Was     sale.Status // the order, before: a cancelled order that was only queued has never been created
	At      time.Time   // to the millisecond, by the database's clock
	Trace   string      // traceparent of the purchase, if its trace is sampled and was still known; else ""

	Position   int64 // in the stream, ascending; two events of one order have theirs in the order in which they happened
	Deliveries int64 // how often the group was given it, this time included
}

// ID names the event of an order that got a status.
func ID(order sale.OrderID, status sale.Status) string { return order.String() + "." + string(status) }

type eventJSON struct {
	Version int         `json:"v"`
	ID      string      `json:"id"`
	Type    Type        `json:"type"`
	OrderID string      `json:"order_id"`
	SaleID  string      `json:"sale_id"`
	Buyer   string      `json:"buyer"`
	Nth     int         `json:"nth"`
	Price   sale.Price  `json:"price"`
	Was     sale.Status `json:"was"`
	At      time.Time   `json:"at"`
	Trace   string      `json:"traceparent,omitempty"`
}

// Of makes the event of a change.
func Of(c Change) Event {
	return Event{
		ID: ID(
			c.OrderID,
			c.Status,
		),
		Type:     Type("order." + string(c.Status)),
		OrderID:  c.OrderID,
		SaleID:   c.SaleID,
		Buyer:    c.Buyer,
		Slot:     c.Slot,
		Price:    c.Price,
		Was:      c.Was,
		At:       c.At.UTC().Truncate(time.Millisecond),
		Position: c.Position,
	}
}

// Encode is the event's body in the stream: one JSON object.
func (e Event) Encode() string {
	b, _ := json.Marshal(
		eventJSON{Version, e.ID, e.Type, e.OrderID.String(), e.SaleID, e.Buyer, e.Slot, e.Price, e.Was, e.At, e.Trace},
	) // no part of it can fail
	return string(b)
}

// Decode reads a body. An error wraps ErrPermanent. The event's id is set, if it can be read, even then.
func Decode(body string) (Event, error) {
	var j eventJSON
	err := json.Unmarshal([]byte(body), &j)
	if err != nil || j.Version != Version { // another version may have other fields: only what all have is read
		var head struct {
			Version int    `json:"v"`
			ID      string `json:"id"`
		}
		if err := json.Unmarshal([]byte(body), &head); err != nil {
			return Event{}, fmt.Errorf("events: %w: it is no event: %w", ErrPermanent, err)
		}
		if head.Version != Version {
			return Event{ID: head.ID}, fmt.Errorf("events: %w: version %d is unknown here", ErrPermanent, head.Version)
		}
		return Event{ID: head.ID}, fmt.Errorf("events: %w: it is no event: %w", ErrPermanent, err)
	}
	id, err := sale.ParseOrderID(j.OrderID)
	if err != nil || j.ID == "" {
		return Event{ID: j.ID}, fmt.Errorf("events: %w: it names no order", ErrPermanent)
	}
	return Event{
		ID:      j.ID,
		Type:    j.Type,
		OrderID: id,
		SaleID:  j.SaleID,
		Buyer:   j.Buyer,
		Slot:    j.Nth,
		Price:   j.Price,
		Was:     j.Was,
		At:      j.At,
		Trace:   j.Trace,
	}, nil
}
