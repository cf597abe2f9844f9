package api

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"sluice/backend/sale"
)

const (
	// maxDetails bounds the sales whose details are cached: 10 KB each.
	maxDetails = 1000
	// detailsRetry is how long pages show the previous details, or none, after a read of SQL failed.
	detailsRetry = time.Second
)

// detailsCache holds the details of sales. They change only with the version of their sale, so SQL is read once per
// version.
type detailsCache struct {
	from  Details
	now   func() time.Time
	reads singleflight.Group

	mu    sync.Mutex
	known map[string]cachedDetails // by sale
}

type cachedDetails struct {
	sale.Details
	version int64
	retry   time.Time // when to read SQL again after an error; zero: Details are those of version
}

func newDetailsCache(from Details, now func() time.Time) *detailsCache {
	return &detailsCache{from: from, now: now, known: map[string]cachedDetails{}}
}

// get returns the details of a version of a sale. If the read of SQL fails, it returns the previous details or none.
func (c *detailsCache) get(ctx context.Context, saleID string, version int64) sale.Details {
	if c.from == nil {
		return sale.Details{}
	}
	c.mu.Lock()
	found, ok := c.known[saleID]
	c.mu.Unlock()
	if ok && found.version == version && (found.retry.IsZero() || c.now().Before(found.retry)) {
		return found.Details
	}
	read, _, _ := c.reads.Do(saleID, func() (any, error) {
		details, err := c.from.Details(ctx, saleID)
		next := cachedDetails{Details: details, version: version}
		if err != nil {
			next = cachedDetails{Details: found.Details, version: version, retry: c.now().Add(detailsRetry)}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.known) >= maxDetails {
			clear(c.known)
		}
		c.known[saleID] = next
		return next.Details, nil
	})
	return read.(sale.Details)
}
