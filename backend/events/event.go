// Package events publishes the changes of orders to other services: a relay moves them from the outbox in SQL to a
// Redis stream, and consumer groups read the stream. Each group gets every event at least once. An event stays in SQL
// until every group has acknowledged it, so a Redis with lost or older data loses none. The package does not change
// orders.
package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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

// Event is one change of one order. Its JSON is the body in the stream, without the version.
type Event struct {
	ID      string       `json:"id"` // "<order id>.<status>": the id of a change, equal in all its deliveries
	Type    Type         `json:"type"`
	OrderID sale.OrderID `json:"order_id,string"`
	SaleID  string       `json:"sale_id"`
	Buyer   string       `json:"buyer"`
	Slot    int          `json:"nth"`   // which of the buyer's places in the sale the order takes, from 1
	Price   sale.Price   `json:"price"` // of the sale, for one unit
	Was     sale.Status  `json:"was"`   // before; a cancelled order that was only queued has never been created
	At      time.Time    `json:"at"`    // to the millisecond, by the database's clock
	// traceparent of the purchase, if its trace is sampled and was still known; else ""
	Trace string `json:"traceparent,omitempty"`

	// in the stream, ascending from 1; two events of one order have theirs in the order in which they happened
	Position   int64 `json:"-"`
	Deliveries int64 `json:"-"` // how often the group was given it, this time included
}

// ID names the event of an order that got a status.
func ID(order sale.OrderID, status sale.Status) string { return order.String() + "." + string(status) }

// Status returns the order's status after the event.
func (e Event) Status() sale.Status { return sale.Status(strings.TrimPrefix(string(e.Type), "order.")) }

type versioned struct {
	Version int `json:"v"`
	Event
}

// Encode is the event's body in the stream: one JSON object.
func (e Event) Encode() string {
	b, _ := json.Marshal(versioned{Version, e}) // no part of it can fail
	return string(b)
}

// Decode reads a body. An error wraps ErrPermanent. The event's id is set, if it can be read, even then.
func Decode(body string) (Event, error) {
	var v versioned
	err := json.Unmarshal([]byte(body), &v)
	switch {
	case err != nil && v.Version == 0:
		err = fmt.Errorf("it is no event: %w", err)
	case v.Version != Version: // it may have other fields
		err = fmt.Errorf("version %d is unknown here", v.Version)
	case v.OrderID <= 0 || v.ID == "":
		err = errors.New("it names no order")
	case err != nil:
		err = fmt.Errorf("it is no event: %w", err)
	default:
		return v.Event, nil
	}
	return Event{ID: v.ID}, fmt.Errorf("events: %w: %w", ErrPermanent, err)
}
