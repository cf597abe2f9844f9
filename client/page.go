package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
)

// page is one page of a list. The JSON member with the items has the name of the list.
type page[T any] struct {
	list        string
	items       []T
	next        string // "" on the last page
	unavailable []int  // shards that could not be read
}

// UnmarshalJSON decodes the items, the link to the next page, and the unavailable shards.
func (p *page[T]) UnmarshalJSON(text []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	for name, to := range map[string]any{"next": &p.next, "unavailable_shards": &p.unavailable} {
		if text, present := members[name]; present {
			if err := json.Unmarshal(text, to); err != nil {
				return err
			}
		}
	}
	return json.Unmarshal(members[p.list], &p.items)
}

const pageSize = 500

// pages returns the items of all pages of a list. If shards were unavailable, an error after the last item names them.
func pages[T any](ctx context.Context, a *Admin, path, list string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		query := maps.Clone(query) // a sequence can be used several times, also concurrently
		query.Set("limit", strconv.Itoa(pageSize))
		var none T
		var unavailable []int
		for {
			var page page[T]
			page.list = list
			if err := a.Do(ctx, Request{Method: http.MethodGet, Path: path, Query: query}, &page); err != nil {
				yield(none, err)
				return
			}
			unavailable = append(unavailable, page.unavailable...)
			for _, item := range page.items {
				if !yield(item, nil) {
					return
				}
			}
			if page.next == "" {
				break
			}
			query.Set("after", page.next)
		}
		if len(unavailable) > 0 {
			yield(none, fmt.Errorf("%w: the list lacks the items of shards %v", Unavailable, unavailable))
		}
	}
}
