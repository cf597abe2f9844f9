package client

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
)

// page is one page of a list of orders or of dead letters.
type page[T any] struct {
	Orders      []T    `json:"orders"`
	Dead        []T    `json:"dead"`
	Next        string `json:"next"`               // "" on the last page
	Unavailable []int  `json:"unavailable_shards"` // could not be read
}

const pageSize = 500

// pages returns the items of all pages of a list. If shards were unavailable, an error after the last item names them.
func pages[T any](ctx context.Context, a *Admin, path string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		query := maps.Clone(query) // a sequence can be used several times, also concurrently
		query.Set("limit", strconv.Itoa(pageSize))
		var none T
		var unavailable []int
		for {
			var page page[T]
			if err := a.Do(ctx, Request{Method: http.MethodGet, Path: path, Query: query}, &page); err != nil {
				yield(none, err)
				return
			}
			if page.Orders == nil && page.Dead == nil { // an empty list is not nil
				yield(none, noList(path))
				return
			}
			unavailable = append(unavailable, page.Unavailable...)
			for _, item := range append(page.Orders, page.Dead...) {
				if !yield(item, nil) {
					return
				}
			}
			if page.Next == "" {
				break
			}
			query.Set("after", page.Next)
		}
		if len(unavailable) > 0 {
			yield(none, fmt.Errorf("%w: the list lacks the items of shards %v", Unavailable, unavailable))
		}
	}
}

// items returns the list of a response, or an error if a successful response has none. An empty list is not nil.
func items[T any](path string, list []T, err error) ([]T, error) {
	if err == nil && list == nil {
		err = noList(path)
	}
	return list, err
}

func noList(path string) error {
	return fmt.Errorf("client: GET %s: the response is not that of a sluice server: it has no list", path)
}
