package api

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/sync/singleflight"

	"sluice/backend/admission"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
)

const (
	// maxHolders bounds a bypass list. Edges do not cache refusals of a sale with more holders.
	maxHolders = 2_000_000
	// maxCachedBytes and maxCachedLists bound the cached lists, at 4 bytes per holder.
	maxCachedBytes = 32 << 20
	maxCachedLists = 64
	// maxListAge bounds how long a list is cached while the number of accepted orders stays the same. If Redis loses
	// data, the number can reach the same value again with other buyers.
	maxListAge = time.Minute
	// listTimeout bounds one request. A list of a million holders takes about two seconds.
	listTimeout = 20 * time.Second
)

var errManyHolders = httpserver.NewProblem(problem.Unavailable,
	"This sale has more order holders than a list may contain.")

// bypassList is GET /.sluice/sales/{sale}/holders: checksums of all buyers who may hold an order of the sale. Edges
// let these buyers bypass their refusal cache.
func (h *handlers) bypassList(c *fiber.Ctx) error {
	saleID, err := httpserver.SaleParam(c)
	if err != nil {
		return err
	}
	list, err := h.bypass.get(saleID)
	switch {
	case errors.Is(err, admission.ErrBypassListTooLong):
		return errManyHolders
	case errors.Is(err, sale.ErrNotFound):
		return h.unknownSale(saleID)
	case err != nil:
		return err
	}
	resp := &c.Context().Response
	resp.Header.SetContentType(fiber.MIMEOctetStream)
	resp.Header.Set(fiber.HeaderCacheControl, "no-store")
	resp.Header.Set("Sluice-Holders", list.header)
	resp.SetBodyRaw(list.body)
	return nil
}

// bypassList is an encoded list. It is immutable, except used.
type bypassList struct {
	header   string
	body     []byte
	accepted int64
	created  time.Time
	used     time.Time // guarded by bypassLists.mu
}

func newBypassList(saleID string, h admission.BypassList, now time.Time) *bypassList {
	body := make([]byte, 0, 4*len(h.Sums))
	for _, sum := range h.Sums {
		body = binary.BigEndian.AppendUint32(body, sum)
	}
	header := fmt.Sprintf("%s;accepted=%d;count=%d", saleID, h.Accepted, len(h.Sums))
	return &bypassList{header: header, body: body, accepted: h.Accepted, created: now}
}

// bypassLists caches the lists of the sales that were used last, and builds one list at a time. A cached list is valid
// while the sale accepts no further order. It is safe for concurrent use.
type bypassLists struct {
	stock Stock
	now   func() time.Time

	requests singleflight.Group // by sale
	building chan struct{}      // holds one token while a list is built

	mu    sync.Mutex
	lists map[string]*bypassList // by sale
	bytes int                    // of all lists
}

func newBypassLists(stock Stock, now func() time.Time) *bypassLists {
	return &bypassLists{stock: stock, now: now, building: make(chan struct{}, 1), lists: map[string]*bypassList{}}
}

// get returns the list of a sale. Concurrent calls for one sale share the result.
func (l *bypassLists) get(saleID string) (*bypassList, error) {
	v, err, _ := l.requests.Do(saleID, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
		defer cancel()
		accepted, err := l.stock.Accepted(ctx, saleID)
		if err != nil {
			return nil, err
		}
		if list := l.cached(saleID, accepted); list != nil {
			return list, nil
		}
		return l.build(ctx, saleID)
	})
	if err != nil {
		return nil, err
	}
	return v.(*bypassList), nil
}

func (l *bypassLists) build(ctx context.Context, saleID string) (*bypassList, error) {
	select {
	case l.building <- struct{}{}:
		defer func() { <-l.building }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	holders, err := l.stock.BypassList(ctx, saleID, maxHolders)
	if err != nil {
		return nil, err
	}
	list := newBypassList(saleID, holders, l.now())
	l.store(saleID, list)
	return list, nil
}

// cached returns the list of a sale if it was built at the same number of accepted orders and is not too old.
func (l *bypassLists) cached(saleID string, accepted int64) *bypassList {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.lists[saleID]
	if list == nil || list.accepted != accepted || l.now().Sub(list.created) >= maxListAge {
		return nil
	}
	list.used = l.now()
	return list
}

// store adds a list, and removes the least recently used ones until the bounds are kept.
func (l *bypassLists) store(saleID string, list *bypassList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(saleID)
	for len(l.lists) >= maxCachedLists || len(l.lists) > 0 && l.bytes+len(list.body) > maxCachedBytes {
		l.remove(slices.MinFunc(slices.Collect(maps.Keys(l.lists)), func(a, b string) int {
			return l.lists[a].used.Compare(l.lists[b].used)
		}))
	}
	list.used = l.now()
	l.lists[saleID] = list
	l.bytes += len(list.body)
}

func (l *bypassLists) remove(saleID string) {
	if list := l.lists[saleID]; list != nil {
		delete(l.lists, saleID)
		l.bytes -= len(list.body)
	}
}
