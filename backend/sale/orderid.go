package sale

import (
	"errors"
	"strconv"
	"time"
)

// OrderID consists of 31 bits of seconds since 2020-01-01T00:00:00Z and 32 bits of sequence number, so that ids sort by
// time to the second. It exceeds the exact range of Lua and JavaScript numbers, so it is encoded as a decimal string
// outside Go. The zero value is not an id.
type OrderID int64

// Epoch is second 0 of an order id. The 31 bits last until 2088.
var Epoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// NewOrderID combines a time and a sequence number. A time outside 2020..2088 is clamped to that range.
func NewOrderID(t time.Time, sequence uint32) OrderID {
	sec := t.Unix() - Epoch.Unix()
	sec = min(max(sec, 0), 1<<31-1)
	return OrderID(sec<<32 | int64(sequence))
}

// ParseOrderID parses a decimal order id. It accepts the form of String only.
func ParseOrderID(s string) (OrderID, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 || strconv.FormatInt(n, 10) != s {
		return 0, errors.New("must be a positive decimal number below 2^63")
	}
	return OrderID(n), nil
}

// Time returns the second in which the id was created, in UTC.
func (id OrderID) Time() time.Time { return Epoch.Add(time.Duration(id>>32) * time.Second) }

// Sequence returns the low 32 bits.
func (id OrderID) Sequence() uint32 { return uint32(id) }

func (id OrderID) String() string { return strconv.FormatInt(int64(id), 10) }
