package keyspace

import (
	"strconv"
	"strings"
)

// DeadLine is the line of one dead letter in Shard.DeadIndex. lua/redis/include/dead_letters.lua writes the same form.
type DeadLine struct {
	Key     string // key of the letter in Shard.DeadLetters
	Message Message
	Backed  bool // the letter holds a unit
}

// EncodeDeadLine returns the wire form. The message must be valid, and the key must not contain a space.
func EncodeDeadLine(d DeadLine) string {
	unit := 0
	if d.Backed {
		unit = 1
	}
	return d.Message.SaleID + " " + strconv.Itoa(unit) + " " + d.Key + " " + EncodeMessage(d.Message)
}

// DecodeDeadLine parses the wire form. It returns ErrMessage for the line of a text that is not a message.
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
