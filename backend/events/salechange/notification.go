// Package salechange notifies this process of changed sales over Redis pub/sub: the scripts that change a sale
// publish a notification in the same step. A notification may be lost, late or forged, so nothing is decided by it:
// it only causes an earlier read. Every receiver must also poll. The package writes nothing to Redis.
package salechange

import (
	"encoding/json"
	"slices"

	"sluice/backend/sale"
)

// Type is the type of a notification.
type Type string

// The types of notifications. Rejected purchases cause none.
const (
	Opened    Type = "opened"    // created, resumed or rebuilt: purchases are possible within its window and stock
	Paused    Type = "paused"    // by an admin or by the audit
	Closed    Type = "closed"    // permanently
	SoldOut   Type = "sold_out"  // the last unit was sold
	Restocked Type = "restocked" // units are left again, or more than before
	Changed   Type = "changed"   // any other change of its definition
	Left      Type = "left"      // units were sold; at most four times a second for each process that sells
)

var types = []Type{Opened, Paused, Closed, SoldOut, Restocked, Changed, Left}

// Notification is one message.
type Notification struct {
	Type   Type
	SaleID string
	Left   int64 // units left, when the script ran
}

// version is the version of messages that scripts write and decode reads.
const version = 1

// maxMessage bounds a message in bytes; those of the scripts have about a hundred.
const maxMessage = 1024

// decode reads a message as scripts write it:
//
//	{"v":1,"type":"sold_out","sale":"shoe","left":0,"version":7}
//
// It ignores unknown fields. ok is false for any other message, such as one of another version.
func decode(text string) (n Notification, ok bool) {
	var m struct {
		Version int    `json:"v"`
		Type    Type   `json:"type"`
		Sale    string `json:"sale"`
		Left    int64  `json:"left"`
	}
	if len(text) > maxMessage || json.Unmarshal([]byte(text), &m) != nil || m.Version != version ||
		sale.ValidateID(m.Sale) != nil || m.Left < 0 || !slices.Contains(types, m.Type) {
		return Notification{}, false
	}
	return Notification{Type: m.Type, SaleID: m.Sale, Left: m.Left}, true
}
