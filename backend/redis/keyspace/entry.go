package keyspace

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Entry is one entry of the stream Orders.
type Entry struct {
	ID string
	// Text is the message. For an entry that another program added, it is a JSON array of its fields and values, which is
	// not a message.
	Text string
}

// DecodeEntries parses a reply of XRANGE.
func DecodeEntries(reply any) ([]Entry, error) {
	all, ok := reply.([]any)
	if !ok && reply != nil {
		return nil, fmt.Errorf("keyspace: XRANGE replied with %T", reply)
	}
	entries := make([]Entry, 0, len(all))
	for _, one := range all {
		pair, ok := one.([]any)
		if !ok || len(pair) != 2 {
			return nil, errors.New("keyspace: an entry is not a pair")
		}
		id, isID := pair[0].(string)
		fields, isFields := pair[1].([]any)
		if !isID || !isFields {
			return nil, errors.New("keyspace: an entry lacks its id or its fields")
		}
		entries = append(entries, Entry{id, entryText(fields)})
	}
	return entries, nil
}

func entryText(fields []any) string {
	if len(fields) == 2 && fields[0] == "m" {
		if text, ok := fields[1].(string); ok {
			return text
		}
	}
	text, err := json.Marshal(fields)
	if err != nil { // not reached: strings can be marshalled
		return fmt.Sprint(fields...)
	}
	return string(text)
}
