package keyspace

import (
	"errors"
	"strconv"
	"strings"

	"sluice/backend/sale"
)

// Message is one order in the queue. Redis stores it as five fields separated by spaces:
//
//	<order id> <sale id> <nth> <serial> <buyer>
//
// The id comes first so that scripts find it with one pattern. The buyer comes last because it may contain spaces.
// lua/redis/admit.lua writes the same form.
type Message = sale.Order

// EncodeMessage returns the wire form. The order must be valid (see sale.ValidateID, sale.ValidateBuyer).
func EncodeMessage(m Message) string {
	fields := []string{m.ID.String(), m.SaleID, strconv.Itoa(m.Slot), strconv.FormatInt(m.Serial, 10), m.Buyer}
	return strings.Join(fields, " ")
}

// errMessage is the error of DecodeMessage and DecodeDeadLine.
var errMessage = errors.New("keyspace: not a queue message")

// DecodeMessage parses the wire form. The status of the order is queued.
func DecodeMessage(s string) (Message, error) {
	f := strings.SplitN(s, " ", 5)
	if len(f) < 5 {
		return Message{}, errMessage
	}
	id, err := sale.ParseOrderID(f[0])
	if err != nil {
		return Message{}, errMessage
	}
	nth, err := strconv.Atoi(f[2])
	if err != nil || nth < 1 || nth > sale.MaxPerBuyer {
		return Message{}, errMessage
	}
	serial, err := strconv.ParseInt(f[3], 10, 64)
	if err != nil || serial < 1 {
		return Message{}, errMessage
	}
	if sale.ValidateID(f[1]) != nil || sale.ValidateBuyer(f[4]) != nil {
		return Message{}, errMessage
	}
	return Message{ID: id, SaleID: f[1], Slot: nth, Serial: serial, Buyer: f[4], Status: sale.StatusQueued}, nil
}
