package refusalcache

import (
	"context"
	"errors"
	"io"
	"time"
)

// Source fetches the bypass list of a sale from a backend: the value of the header Sluice-Holders, and the body. The
// cache closes the body.
type Source func(ctx context.Context, sale string) (header string, body io.ReadCloser, err error)

const (
	fetchTimeout  = 20 * time.Second       // a backend needs about two seconds for a million entries
	fetchRetry    = 500 * time.Millisecond // after a failure
	fetchTooLarge = 30 * time.Second       // after a list that exceeds the limits
	listAge       = 4 * time.Minute        // an older list is fetched again

	// listExpiry is the age beyond which a list is not used. After a data loss the count of accepted orders can fall and
	// then reach the count of the list again, with orders of other buyers.
	listExpiry = 5 * time.Minute
)

func (c *Cache) fetch(s *sale) {
	c.mu.Lock() // so that none starts after Close
	defer c.mu.Unlock()
	if c.running.Err() != nil {
		return
	}
	c.fetches.Go(func() {
		ctx, cancel := context.WithTimeout(c.running, fetchTimeout)
		defer cancel()
		list, err := c.fetchList(ctx, s.id)
		c.fetched(s, list, err)
	})
}

func (c *Cache) fetchList(ctx context.Context, id string) (*bypassList, error) {
	header, body, err := c.config.Source(ctx, id)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return readBypassList(header, body, id, &c.budget)
}

func (c *Cache) fetched(s *sale, list *bypassList, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := c.config.Now()
	s.fetching = false
	c.config.OnFetch(err == nil)
	if err != nil {
		wait := fetchRetry
		if errors.Is(err, errTooLarge) {
			wait = fetchTooLarge
		}
		s.retryAt = now + wait.Milliseconds()
		if first := !s.failed; first && c.running.Err() == nil {
			c.config.Logger.Warn("bypass list not available, refusals of the sale are not cached", "sale", s.id, "err", err)
		}
		s.failed = true
		return
	}
	s.failed = false
	list.fetched = now
	s.setList(list)
	if s.latest != nil && list.accepted < s.latest.Holders {
		s.retryAt = now + fetchRetry.Milliseconds() // the list does not contain the last accepted order
	}
	s.publish(now)
}
