package api

import (
	"context"
	"sync"
	"time"

	"sluice/backend/admission"
	"sluice/backend/events/salechange"
	"sluice/backend/sale"
)

// feeds watches sales for the event streams: one loop per sale and process looks once a second, when a signal says that the sale has changed, and when it opens,
// and tells every stream. It runs only while somebody listens.
type feeds struct {
	stock    Stock // looks by itself: a look that somebody else has begun may be older than a signal
	signals  Signals
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
	// feedGap bounds what signals can make a process look: twenty times a second for each sale that somebody watches.
	feedGap = 50 * time.Millisecond
)

func newFeeds(stock Stock, signals Signals, most int, stopping <-chan struct{}) *feeds {
	return &feeds{stock: stock, signals: signals, max: most, interval: feedInterval, stopping: stopping, bySale: map[string]*feed{}}
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
		go s.run(f, s.signals.Listen(v.ID))
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

func (s *feeds) run(f *feed, changes *salechange.Listener) {
	defer changes.Close()
	tick := time.NewTicker(s.interval)
	defer tick.Stop()
	opening := time.NewTimer(f.opensIn())
	defer opening.Stop()
	for {
		var gap <-chan time.Time
		select {
		case <-changes.Wake():
			changes.Take() // what it says may be out of date, or made up
			gap = time.After(feedGap)
		case <-opening.C:
			gap = time.After(feedGap) // a clock that is ahead of Redis's looks again
		case <-tick.C:
		case <-f.end:
			return
		case <-s.stopping:
			return
		}
		s.look(f)
		opening.Reset(f.opensIn())
		if gap == nil {
			continue
		}
		select {
		case <-gap:
		case <-f.end:
			return
		case <-s.stopping:
			return
		}
	}
}

// opensIn is how long it takes, by this machine's clock, until the sale opens; a long time when it is not waiting for that, or should have opened long ago.
func (f *feed) opensIn() time.Duration {
	v, _ := f.current()
	if in := time.Until(v.OpensAt); v.State == sale.StateScheduled && in > -feedInterval {
		return max(in, 0)
	}
	return 24 * time.Hour
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
