package keyspace

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Entry is one entry of the stream Orders.
type Entry struct {
	ID   string
	Text string // its message; of an entry that somebody else has added, its fields and values as a JSON array, which is no message
}

// DecodeEntries reads an answer of XRANGE.
func DecodeEntries(answer any) ([]Entry, error) {
	all, ok := answer.([]any)
	if !ok && answer != nil {
		return nil, fmt.Errorf("keyspace: entries are a %T", answer)
	}
	entries := make([]Entry, 0, len(all))
	for _, one := range all {
		pair, ok := one.([]any)
		if !ok || len(pair) != 2 {
			return nil, errors.New("keyspace: an entry is no pair")
		}
		id, isID := pair[0].(string)
		fields, isFields := pair[1].([]any)
		if !isID || !isFields {
			return nil, errors.New("keyspace: an entry has no id or no fields")
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
	if err != nil { // strings can be marshalled
		return fmt.Sprint(fields...)
	}
	return string(text)
}
