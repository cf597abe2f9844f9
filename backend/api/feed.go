package api

import (
	"context"
	"sync"
	"time"

	"sluice/backend/admission"
)

// feeds watches sales for the event streams: one loop per sale and process looks once a second and tells every stream, and it runs
// only while somebody listens.
type feeds struct {
	stock    Stock
	max      int
	interval time.Duration
	stopping <-chan struct{}

	mu      sync.Mutex
	bySale  map[string]*feed
	streams int
}

// feed is one sale as its streams see it.
type feed struct {
	saleID  string
	streams int // guarded by feeds.mu
	end     chan struct{}

	mu      sync.Mutex
	latest  admission.View
	changed chan struct{} // closed, and replaced, when latest has changed
}

const (
	feedInterval = time.Second
	feedTimeout  = time.Second
)

func newFeeds(stock Stock, most int, stopping <-chan struct{}) *feeds {
	return &feeds{stock: stock, max: most, interval: feedInterval, stopping: stopping, bySale: map[string]*feed{}}
}

// subscribe joins the feed of the sale, which was just seen as v. ok is false when this process has enough streams. Every successful
// subscribe needs one unsubscribe.
func (s *feeds) subscribe(v admission.View) (f *feed, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams >= s.max {
		return nil, false
	}
	s.streams++
	f = s.bySale[v.ID]
	if f == nil {
		f = &feed{saleID: v.ID, end: make(chan struct{}), latest: v, changed: make(chan struct{})}
		s.bySale[v.ID] = f
		go s.run(f)
	}
	f.streams++
	return f, true
}

func (s *feeds) unsubscribe(f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams--
	if f.streams--; f.streams == 0 {
		delete(s.bySale, f.saleID)
		close(f.end)
	}
}

func (s *feeds) run(f *feed) {
	tick := time.NewTicker(s.interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.look(f)
		case <-f.end:
			return
		case <-s.stopping:
			return
		}
	}
}

// look asks once. While the store is down, or has lost the sale, the streams keep what they know.
func (s *feeds) look(f *feed) {
	ctx, cancel := context.WithTimeout(context.Background(), feedTimeout)
	defer cancel()
	v, err := s.stock.View(ctx, f.saleID)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if v.State != f.latest.State || v.Left != f.latest.Left {
		close(f.changed)
		f.changed = make(chan struct{})
	}
	f.latest = v
}

// current is the sale as last seen, and a channel that is closed when that has changed.
func (f *feed) current() (admission.View, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.latest, f.changed
}
