package api

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/sale"
	"sluice/backend/web/httpserver/servertest"
)

// fakeDetails returns a description that counts the reads.
type fakeDetails struct {
	mu    sync.Mutex
	reads int
	err   error
}

func (f *fakeDetails) Details(context.Context, string) (sale.Details, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	return sale.Details{Description: strings.Repeat("x", f.reads)}, f.err
}

// SQL is read once for each version of a sale. While SQL does not answer, the previous details are shown, and SQL is
// read once a second.
func TestDetailsAreReadOncePerVersion(t *testing.T) {
	now := time.Unix(0, 0)
	from := &fakeDetails{}
	c := newDetailsCache(from, func() time.Time { return now })
	want := func(version int64, description string) {
		t.Helper()
		if got := c.get(t.Context(), "drop", version).Description; got != description {
			t.Errorf("version %d: %q, want %q", version, got, description)
		}
	}
	want(1, "x")
	now = now.Add(time.Hour)
	want(1, "x")
	want(2, "xx")
	from.err = servertest.ErrRedisDown
	want(3, "xx")
	want(3, "xx")
	if from.reads != 3 {
		t.Errorf("%d reads", from.reads)
	}
	now = now.Add(detailsRetry)
	want(3, "xx")
	from.err = nil
	now = now.Add(detailsRetry)
	want(3, "xxxxx")
	want(3, "xxxxx")
	for i := range 3 * maxDetails {
		c.get(t.Context(), "s"+time.Duration(i).String(), 1)
	}
	if len(c.known) > maxDetails {
		t.Errorf("%d sales are cached", len(c.known))
	}
}

func TestPageHasDetails(t *testing.T) {
	w := newWorld()
	cfg := w.config(t)
	from := &fakeDetails{}
	cfg.Details = from
	s := serve(t, cfg)
	const about = `<section class="about" dir="auto"><p>x</p>`
	if a := s.Do("GET", "/s/drop", ""); a.Status != 200 || !strings.Contains(a.Body, about) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	w.do(func() { v := w.sales["drop"]; v.Version++; w.sales["drop"] = v })
	from.err = servertest.ErrRedisDown
	if a := s.Do("GET", "/s/drop", ""); a.Status != 200 || !strings.Contains(a.Body, `<p>x</p>`) {
		t.Errorf("without SQL: %d %s", a.Status, a.Body)
	}
}
