package keyspace

import (
	"encoding/json"
	"maps"
	"slices"
)

// EntryText returns the message of an entry of the stream Orders. For an entry that another program added, it returns
// the fields and values as a JSON array, which is not a message.
func EntryText(fields map[string]any) string {
	if text, ok := fields["m"].(string); ok && len(fields) == 1 {
		return text
	}
	var pairs []any
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		pairs = append(pairs, name, fields[name])
	}
	text, _ := json.Marshal(pairs) // strings can be marshalled
	return string(text)
}
