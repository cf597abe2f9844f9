package api

import (
	"context"
	"sync"
	"time"

	"sluice/backend/admission"
	"sluice/backend/events/salechange"
	"sluice/backend/sale"
	"sluice/internal/loop"
)

// saleFeeds watches sales for the event streams. One loop per watched sale reads it every second, after a change
// notification, and when it opens. It is safe for concurrent use.
type saleFeeds struct {
	stock    Stock // not coalesced, because a read that is already in progress may have begun before the notification
	changes  *salechange.Hub
	max      int
	interval time.Duration
	serving  context.Context // of the server: feeds end with it

	mu      sync.Mutex
	bySale  map[string]*saleFeed
	streams int
}

// saleFeed holds the last state of one sale, which all its streams send.
type saleFeed struct {
	saleID  string
	streams int             // guarded by saleFeeds.mu
	ctx     context.Context // ends with the last stream, or when the server drains
	end     context.CancelFunc

	mu      sync.Mutex
	latest  admission.View
	changed chan struct{} // closed and replaced when latest changes
}

const (
	feedInterval = time.Second
	feedTimeout  = time.Second
	// feedGap bounds the reads of a sale to twenty per second. Many notifications could cause more. Also, if this
	// machine's clock is ahead of that of Redis when the sale opens, the sale would be read without a pause until Redis
	// reports it as open.
	feedGap = 50 * time.Millisecond
)

func newSaleFeeds(stock Stock, changes *salechange.Hub, most int, serving context.Context) *saleFeeds {
	return &saleFeeds{
		stock: stock, changes: changes, max: most, interval: feedInterval, serving: serving, bySale: map[string]*saleFeed{},
	}
}

// subscribe joins the feed of a sale whose current state is v. ok is false if the process has the maximum number of
// streams. Every successful call needs one call of unsubscribe.
func (s *saleFeeds) subscribe(v admission.View) (f *saleFeed, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams >= s.max {
		return nil, false
	}
	s.streams++
	f = s.bySale[v.ID]
	if f == nil {
		ctx, end := context.WithCancel(s.serving)
		f = &saleFeed{saleID: v.ID, ctx: ctx, end: end, latest: v, changed: make(chan struct{})}
		s.bySale[v.ID] = f
		go s.run(f, s.changes.Listen(v.ID))
	}
	f.streams++
	return f, true
}

func (s *saleFeeds) unsubscribe(f *saleFeed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams--
	if f.streams--; f.streams == 0 {
		delete(s.bySale, f.saleID)
		f.end()
	}
}

func (s *saleFeeds) run(f *saleFeed, changes *salechange.Listener) {
	defer changes.Close()
	tick := time.NewTicker(s.interval)
	defer tick.Stop()
	opening := time.NewTimer(f.opensIn())
	defer opening.Stop()
	for {
		select {
		case <-changes.Wake():
			changes.Take() // the notification may be outdated or wrong, so the sale is read
		case <-opening.C:
		case <-tick.C:
		case <-f.ctx.Done():
			return
		}
		s.read(f)
		opening.Reset(f.opensIn())
		loop.Sleep(f.ctx, feedGap)
	}
}

// opensIn returns the time until a scheduled sale opens by this machine's clock, or a long time for any other sale.
func (f *saleFeed) opensIn() time.Duration {
	v, _ := f.current()
	if in := time.Until(v.OpensAt); v.State == sale.StateScheduled && in > -feedInterval {
		return max(in, 0)
	}
	return 24 * time.Hour
}

// read updates the feed. It keeps the last state if Redis is down or has lost the sale.
func (s *saleFeeds) read(f *saleFeed) {
	ctx, cancel := context.WithTimeout(context.Background(), feedTimeout)
	defer cancel()
	v, err := s.stock.View(ctx, f.saleID)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if v.State != f.latest.State || v.Left != f.latest.Left || v.Stock != f.latest.Stock {
		close(f.changed)
		f.changed = make(chan struct{})
	}
	f.latest = v
}

// current returns the last state, and a channel that is closed when it changes.
func (f *saleFeed) current() (admission.View, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.latest, f.changed
}
