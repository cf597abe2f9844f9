// Package signal tells this process, soon, that something about a sale has changed: the scripts that change a sale say so over Redis pub/sub, in the same step.
// A signal may be lost, come late or be made up by whoever may publish, so nothing is decided by one: it is a reason to look now and not in a second. Whoever is told
// must also find out by itself. The package writes nothing.
package salechange

import (
	"encoding/json"
	"errors"
	"fmt"

	"sluice/backend/sale"
)

// Type is what has happened to a sale.
type Type string

// The types of signals. Refused purchases make none, however many there are.
const (
	Opened    Type = "opened"    // it can be bought, as far as its window and its stock allow: it is new, goes on, or was rebuilt
	Paused    Type = "paused"    // by an operator or by the audit
	Closed    Type = "closed"    // for good
	SoldOut   Type = "sold_out"  // the last unit was sold
	Restocked Type = "restocked" // there is something to sell again, or more of it
	Changed   Type = "changed"   // anything else of its definition
	Left      Type = "left"      // it is being sold; four times a second for each process that sells, at most
)

// Signal is one message.
type Signal struct {
	Type   Type
	SaleID string
	Left   int64 // units left, when the script ran
}

// version is the form of messages that is written and read.
const version = 1

// most is how long a message may be, in bytes; ours have a hundred.
const most = 1024

// errUnknown says that a message is not for this program: of another version, of a later one's type, or none of ours.
var errUnknown = errors.New("signal: not known here")

// Decode reads a message as scripts write it:
//
//	{"v":1,"type":"sold_out","sale":"shoe","left":0,"version":7}
//
// Fields it does not know are passed over.
func Decode(text string) (Signal, error) {
	var m struct {
		Version int    `json:"v"`
		Type    Type   `json:"type"`
		Sale    string `json:"sale"`
		Left    int64  `json:"left"`
	}
	if len(text) > most {
		return Signal{}, fmt.Errorf("%w: %d bytes", errUnknown, len(text))
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return Signal{}, fmt.Errorf("%w: %w", errUnknown, err)
	}
	switch m.Type {
	case Opened, Paused, Closed, SoldOut, Restocked, Changed, Left:
	default:
		return Signal{}, fmt.Errorf("%w: type %q", errUnknown, m.Type)
	}
	if m.Version != version || sale.ValidateID(m.Sale) != nil || m.Left < 0 {
		return Signal{}, fmt.Errorf("%w: version %d, sale %q", errUnknown, m.Version, m.Sale)
	}
	return Signal{Type: m.Type, SaleID: m.Sale, Left: m.Left}, nil
}
