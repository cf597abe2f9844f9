package keyspace

import (
	"strconv"
	"strings"
)

// EncodeDeadLine returns the line of a dead letter in Dead.Index: sale, unit (1 if the letter holds a unit, else 0),
// key of the letter and message, separated by spaces. lua/redis/include/dead_letters.lua writes the same form. The
// message must be valid, and the key must not contain a space.
func EncodeDeadLine(key string, m Message, backed bool) string {
	unit := 0
	if backed {
		unit = 1
	}
	return m.SaleID + " " + strconv.Itoa(unit) + " " + key + " " + EncodeMessage(m)
}

// DecodeDeadLine returns the message of a line. It returns an error for the line of a text that is not a message.
func DecodeDeadLine(line string) (Message, error) {
	f := strings.SplitN(line, " ", 4)
	if len(f) < 4 || f[1] != "0" && f[1] != "1" {
		return Message{}, errMessage
	}
	m, err := DecodeMessage(f[3])
	if err != nil || m.SaleID != f[0] {
		return Message{}, errMessage
	}
	return m, nil
}
