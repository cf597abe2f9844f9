package client

import "encoding/json"

// page is one page of a list, whose member has the list's name.
type page[T any] struct {
	list  string
	items []T
	next  string // "" on the last
}

func (p *page[T]) UnmarshalJSON(text []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	if next, more := members["next"]; more {
		if err := json.Unmarshal(next, &p.next); err != nil {
			return err
		}
	}
	return json.Unmarshal(members[p.list], &p.items)
}
