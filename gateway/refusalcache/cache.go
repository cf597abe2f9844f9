// Package refusalcache caches sale-wide refusals (sold out, scheduled, paused, closed) for at most one second, so
// that an edge answers the purchases of such a sale from memory.
//
// A backend states in the response header Sluice-Sale whether and how long its refusal may be cached. The cache
// decides for each purchase: a hit is answered from memory, a miss is forwarded, and one request at a time is
// forwarded to revalidate the record before it expires. It guarantees:
//
//   - Possible holders of an order of the sale always miss, so that a repeated purchase gets the same response. They
//     are on the sale's bypass list, which the cache fetches from a backend (Sluice-Holders).
//   - No refusal is used after its time to live, which counts from before the request was sent to the backend.
//   - Only responses of backends add to the cache. Clients cannot fill its memory.
//
// The package depends on no HTTP library, does not verify tokens, and writes no responses.
package refusalcache

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of the memory.
const (
	maxSaleEntries = 2 << 20 // bypass list entries of one sale (8 MiB); sales with more are not cached
	maxEntries     = 8 << 20 // bypass list entries of all sales (32 MiB)
	maxSales       = 1024
)

// saleExpiry is the time without a refusal of a backend, an accepted order or a notification after which a sale is
// evicted.
const saleExpiry = time.Minute

// Cache holds the refusals of all sales. Create it with New, and Close it. Safe for concurrent use. Times are
// milliseconds of Config.Now.
type Cache struct {
	config Config
	sales  atomic.Pointer[map[string]*sale] // copied on write
	mu     sync.Mutex                       // serializes writes
	budget budget

	running context.Context
	stop    context.CancelFunc
	fetches sync.WaitGroup
}

// Config configures a Cache. All fields are required.
type Config struct {
	Source  Source
	Now     func() int64 // monotonic time in milliseconds
	Logger  *slog.Logger
	OnFetch func(ok bool) // called after each fetch of a bypass list
}

// New returns an empty cache.
func New(config Config) *Cache {
	c := &Cache{config: config}
	c.sales.Store(&map[string]*sale{})
	c.running, c.stop = context.WithCancel(context.Background())
	return c
}

// Result is the result of a lookup.
type Result uint8

// The results.
const (
	Miss       Result = iota // forward the purchase
	Hit                      // answer with the record
	Revalidate               // forward the purchase to revalidate the record; see Record.Release
)

// Lookup returns the cached refusal for a purchase, given its sale and its unverified token. scratch is a buffer for
// decoding; it is returned, possibly reallocated, for the next call. The record is nil on a Miss.
func (c *Cache) Lookup(now int64, id, token, scratch []byte) (*Record, Result, []byte) {
	s := (*c.sales.Load())[string(id)]
	if s == nil {
		return nil, Miss, scratch
	}
	r := s.current.Load()
	if r == nil || now >= r.until {
		return nil, Miss, scratch
	}
	hash, found, scratch := subject(token, scratch)
	switch {
	case found == noSubject:
		return r, Hit, scratch
	case found == ambiguous || r.bypass.Load().contains(hash):
		return nil, Miss, scratch
	}
	claim := claimed | uint64(hash)
	switch current := r.revalidator.Load(); {
	case current == claim:
		return nil, Miss, scratch
	case current == 0 && now >= r.stale && r.revalidator.CompareAndSwap(0, claim):
		return r, Revalidate, scratch
	}
	return r, Hit, scratch
}

// Store adds a refusal that a backend sent with a sale hint, in response to a request sent at the given time. The
// cache keeps the response; the caller must not change it.
func (c *Cache) Store(now, sent int64, id string, hint SaleHint, resp Response) {
	s := c.sale(now, id)
	if s != nil && s.store(now, newRecord(sent, hint, resp)) {
		c.fetch(s)
	}
}

// OrderAccepted invalidates the refusals of a sale, because a backend has accepted a new order: the sale has stock,
// and one more buyer must bypass the cache. Refusals in flight are not stored.
func (c *Cache) OrderAccepted(now int64, id []byte) {
	s := (*c.sales.Load())[string(id)]
	if s == nil && validID(id) {
		s = c.sale(now, string(id))
	}
	if s != nil {
		s.invalidate(now)
	}
}

// Invalidate removes the refusals of a sale, because the sale has changed. Refusals in flight are not stored.
func (c *Cache) Invalidate(now int64, id []byte) {
	if s := (*c.sales.Load())[string(id)]; s != nil {
		s.invalidate(now)
	}
}

// sale returns the entry of a sale and creates it if necessary. It returns nil if there are maxSales others.
func (c *Cache) sale(now int64, id string) *sale {
	if s := (*c.sales.Load())[id]; s != nil {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := *c.sales.Load()
	if s := all[id]; s != nil {
		return s
	}
	if len(all) >= maxSales {
		return nil
	}
	s := &sale{id: id, budget: &c.budget, touched: now}
	next := maps.Clone(all)
	next[id] = s
	c.sales.Store(&next)
	return s
}

// Evict removes the sales that have reached saleExpiry. Call it about once a second.
func (c *Cache) Evict(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := *c.sales.Load()
	var left map[string]*sale
	for id, s := range all {
		if !s.evict(now) {
			continue
		}
		if left == nil {
			left = maps.Clone(all)
		}
		delete(left, id)
	}
	if left != nil {
		c.sales.Store(&left)
	}
}

// Entries returns the number of bypass list entries in memory.
func (c *Cache) Entries() int64 { return c.budget.used.Load() }

// Close cancels the fetches in progress and waits for them. Later calls of Store start none.
func (c *Cache) Close() {
	c.mu.Lock()
	c.stop()
	c.mu.Unlock()
	c.fetches.Wait()
}
