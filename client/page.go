package client

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
)

// page is one page of a list. The JSON member with the items has the name of the list.
type page[T any] struct {
	list  string
	items []T
	next  string // "" on the last page
}

// UnmarshalJSON decodes the items and the link to the next page.
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

// pageSize is the number of items that one request of pages returns.
const pageSize = 500

// pages returns the items of all pages of a list.
func pages[T any](ctx context.Context, a *Admin, path, list string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		query := maps.Clone(query) // a sequence can be used several times, also concurrently
		query.Set("limit", strconv.Itoa(pageSize))
		for {
			var page page[T]
			page.list = list
			if err := a.Do(ctx, Request{Method: http.MethodGet, Path: path, Query: query}, &page); err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.items {
				if !yield(item, nil) {
					return
				}
			}
			if page.next == "" {
				return
			}
			query.Set("after", page.next)
		}
	}
}
