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
	b := make([]byte, 0, 64)
	b = strconv.AppendInt(b, int64(m.ID), 10)
	b = append(append(b, ' '), m.SaleID...)
	b = strconv.AppendInt(append(b, ' '), int64(m.Slot), 10)
	b = strconv.AppendInt(append(b, ' '), m.Serial, 10)
	b = append(append(b, ' '), m.Buyer...)
	return string(b)
}

// errMessage is the error of DecodeMessage and DecodeDeadLine.
var errMessage = errors.New("keyspace: not a queue message")

// DecodeMessage parses the wire form. The status of the order is queued.
func DecodeMessage(s string) (Message, error) {
	var f [5]string
	rest := s
	for i := range 4 {
		field, after, found := strings.Cut(rest, " ")
		if !found {
			return Message{}, errMessage
		}
		f[i], rest = field, after
	}
	f[4] = rest
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
