package keyspace

import (
	"strconv"
	"strings"
)

// A DeadLine is the line of one dead letter in the list by sale (Shard.DeadSales). lua/redis/include/dead_letters.lua writes the same form.
type DeadLine struct {
	Key     string  // of the letter
	Message Message // what died
	Backed  bool    // it holds a unit
}

// EncodeDeadLine writes the wire form. The message must be valid, and the key hold no space.
func EncodeDeadLine(d DeadLine) string {
	unit := 0
	if d.Backed {
		unit = 1
	}
	return d.Message.SaleID + " " + strconv.Itoa(unit) + " " + d.Key + " " + EncodeMessage(d.Message)
}

// DecodeDeadLine reads the wire form. The line of a text that is no message is ErrMessage: it belongs to no sale.
func DecodeDeadLine(s string) (DeadLine, error) {
	f := strings.SplitN(s, " ", 4)
	if len(f) < 4 || f[1] != "0" && f[1] != "1" {
		return DeadLine{}, ErrMessage
	}
	m, err := DecodeMessage(f[3])
	if err != nil || m.SaleID != f[0] {
		return DeadLine{}, ErrMessage
	}
	return DeadLine{Key: f[2], Message: m, Backed: f[1] == "1"}, nil
}
