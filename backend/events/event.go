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

// Type is the type of an event.
type Type string

// The types of events.
const (
	Created   Type = "order.created"   // the order is a row
	Paid      Type = "order.paid"      // the order is paid
	Cancelled Type = "order.cancelled" // the order is cancelled and holds no unit
)

// Version is the version of the encoding of events. Decode rejects others.
const Version = 1

// ErrPermanent reports that an event can never be handled. If a handler's error wraps it, the event becomes a dead
// letter without further deliveries.
var ErrPermanent = errors.New("permanent failure")

// Event is one change of one order. Its JSON is the body in the stream, without the version.
type Event struct {
	ID      string       `json:"id"` // "<order id>.<status>": the id of a change, equal in all its deliveries
	Type    Type         `json:"type"`
	OrderID sale.OrderID `json:"order_id,string"`
	SaleID  string       `json:"sale_id"`
	Buyer   string       `json:"buyer"`
	Slot    int          `json:"nth"`   // the buyer's slot in the sale, from 1
	Price   sale.Price   `json:"price"` // of the sale, for one unit
	Was     sale.Status  `json:"was"`   // status before the event; Queued in Cancelled: the order had no Created event
	At      time.Time    `json:"at"`    // to the millisecond, by the database's clock
	// traceparent of the purchase, if its trace is sampled and was still known; else ""
	Trace string `json:"traceparent,omitempty"`

	// position in the stream, from 1; ascending in the order of changes for the events of one order
	Position   int64 `json:"-"`
	Deliveries int64 `json:"-"` // deliveries to the group, including this one
}

// ID returns the id of the event of an order's change to status.
func ID(order sale.OrderID, status sale.Status) string { return order.String() + "." + string(status) }

// Status returns the order's status after the event.
func (e Event) Status() sale.Status { return sale.Status(strings.TrimPrefix(string(e.Type), "order.")) }

type versioned struct {
	Version int `json:"v"`
	Event
}

// Encode returns the event's body in the stream: one JSON object.
func (e Event) Encode() string {
	b, _ := json.Marshal(versioned{Version, e}) // it cannot fail
	return string(b)
}

// maxText is the maximum length of a text of an event in bytes: that of a buyer.
const maxText = sale.MaxBuyerLen

// Decode decodes a body. An error wraps ErrPermanent; the event then has its ID, if that can be read.
func Decode(body string) (Event, error) {
	var v versioned
	err := json.Unmarshal([]byte(body), &v)
	// A longer id could not be in an index of a database, and an unprintable one not in a header.
	if len(v.ID) > maxText || strings.ContainsFunc(v.ID, unprintable) {
		v.ID = ""
	}
	switch {
	case err != nil && v.Version == 0:
		err = fmt.Errorf("not an event: %w", err)
	case v.Version != Version: // it may have other fields
		err = fmt.Errorf("unknown version %d", v.Version)
	case v.OrderID <= 0 || v.ID == "":
		err = errors.New("it has no order id")
	case max(len(v.Type), len(v.SaleID), len(v.Buyer)) > maxText:
		err = fmt.Errorf("a text in it is longer than %d bytes", maxText)
	case err != nil:
		err = fmt.Errorf("not an event: %w", err)
	default:
		return v.Event, nil
	}
	return Event{ID: v.ID}, fmt.Errorf("events: %w: %w", ErrPermanent, err)
}

// unprintable reports whether a character cannot be part of the id of an event.
func unprintable(r rune) bool { return r <= ' ' || r > '~' }
