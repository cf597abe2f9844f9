package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"sluice/backend/events"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// Bounds of open pages.
const (
	MaxPages      = 20_000 // of one process
	MaxBuyerPages = 8      // of one buyer, in one process
	pageQueue     = 16     // events that a page may be behind before it is cut off
	recentEvents  = 4096   // that are kept for pages that come back
)

// ErrFull says that this process has as many open pages as it may, ErrTooMany that the buyer has.
var (
	ErrFull    = errors.New("too many open pages")
	ErrTooMany = errors.New("too many open pages of this buyer")
)

// LiveConfig tunes Live. Zero fields take the defaults above.
type LiveConfig struct {
	Pages, BuyerPages int
	Linger            time.Duration // how long the stream is read on after the last page has gone; 1 min
	Lost              time.Duration // without Redis for so long, pages are told to look for themselves; 10 s
	Registerer        prometheus.Registerer
	Log               *slog.Logger
}

// Live tells the pages that are open at this process of events as they happen. It reads the stream by itself and belongs to no group, so every process sees every event,
// and a page may be open at any. It reads only while somebody listens. It never knows everything: whoever listens first asks SQL how
// things are, and does so again when a page is cut off.
type Live struct {
	client redis.UniversalClient
	space  keyspace.Space
	cfg    LiveConfig
	open   prometheus.Gauge
	ended  *prometheus.CounterVec

	wanted chan struct{} // holds one token while somebody may be listening and nobody reads

	mu      sync.Mutex
	pages   map[string]map[*Page]struct{} // by buyer
	count   int
	ready   chan struct{} // closed while the stream is read; pages join only then
	reading bool
	recent  []events.Event // oldest first, without gaps
	last    int64          // position of the last event that was read
}

// Page is one open page. Close it once.
type Page struct {
	live   *Live
	buyer  string
	events chan events.Event
	end    chan struct{} // closed when it is cut off
}

// NewLive makes a Live. It does not connect yet.
func NewLive(client redis.UniversalClient, space keyspace.Space, cfg LiveConfig) *Live {
	number := func(field *int, value int) {
		if *field <= 0 {
			*field = value
		}
	}
	number(&cfg.Pages, MaxPages)
	number(&cfg.BuyerPages, MaxBuyerPages)
	if cfg.Linger <= 0 {
		cfg.Linger = time.Minute
	}
	if cfg.Lost <= 0 {
		cfg.Lost = 10 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	l := &Live{
		client: client, space: space, cfg: cfg, wanted: make(chan struct{}, 1), pages: map[string]map[*Page]struct{}{}, ready: make(chan struct{}),
		open:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_notify_pages", Help: "Open pages that are told of their buyers' orders."}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_notify_pages_closed_total", Help: "Pages cut off, because they were too slow or something may have been missed."}, []string{"why"}),
	}
	for _, why := range []string{"slow", "missed", "unread", "stopped"} {
		l.ended.WithLabelValues(why)
	}
	limit := prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_notify_pages_limit", Help: "Pages that may be open; who comes then is told to ask instead."})
	limit.Set(float64(cfg.Pages))
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(l.open, l.ended, limit)
	}
	return l
}

// Open adds a page of the buyer. From now on it is told of everything, and missed are the buyer's events after the one named after, if that is still known;
// known is false when it is not, and whoever asks must find out by itself how things are. Errors: ErrFull, ErrTooMany; sale.ErrUnavailable while the stream cannot be read.
func (l *Live) Open(ctx context.Context, buyer, after string) (p *Page, missed []events.Event, known bool, err error) {
	if p, err = l.reserve(buyer); err != nil {
		return nil, nil, false, err
	}
	for {
		l.mu.Lock()
		if l.reading {
			missed, known = l.since(buyer, after)
			l.add(p)
			l.mu.Unlock()
			return p, missed, known, nil
		}
		ready := l.ready
		l.mu.Unlock()
		select {
		case l.wanted <- struct{}{}:
		default:
		}
		select {
		case <-ready:
		case <-ctx.Done():
			l.mu.Lock()
			l.release(p)
			l.mu.Unlock()
			return nil, nil, false, fmt.Errorf("push: the stream is not read: %w", sale.ErrUnavailable)
		}
	}
}

// reserve counts a page, so that those who wait for the stream are bounded too.
func (l *Live) reserve(buyer string) (*Page, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count >= l.cfg.Pages {
		return nil, ErrFull
	}
	if len(l.pages[buyer]) >= l.cfg.BuyerPages {
		return nil, ErrTooMany
	}
	p := &Page{live: l, buyer: buyer, end: make(chan struct{})}
	if l.pages[buyer] == nil {
		l.pages[buyer] = map[*Page]struct{}{}
	}
	l.pages[buyer][p] = struct{}{}
	l.count++
	l.open.Inc()
	return p, nil
}

// add makes a page hear of events. l.mu is held.
func (l *Live) add(p *Page) { p.events = make(chan events.Event, pageQueue) }

// release forgets a page. l.mu is held.
func (l *Live) release(p *Page) {
	if _, there := l.pages[p.buyer][p]; !there {
		return
	}
	delete(l.pages[p.buyer], p)
	if len(l.pages[p.buyer]) == 0 {
		delete(l.pages, p.buyer)
	}
	l.count--
	l.open.Dec()
}

// since finds what a buyer has missed. l.mu is held.
func (l *Live) since(buyer, after string) (missed []events.Event, known bool) {
	if after == "" {
		return nil, false
	}
	i := len(l.recent) - 1
	for i >= 0 && (l.recent[i].ID != after || l.recent[i].Buyer != buyer) {
		i--
	}
	if i < 0 {
		return nil, false
	}
	for _, e := range l.recent[i+1:] {
		if e.Buyer == buyer {
			missed = append(missed, e)
		}
	}
	return missed, true
}

// Events has the events in their order.
func (p *Page) Events() <-chan events.Event { return p.events }

// Cut is closed when the page is told no more, because it is too slow or something may have been missed: it should be opened again.
func (p *Page) Cut() <-chan struct{} { return p.end }

// Close ends it.
func (p *Page) Close() {
	p.live.mu.Lock()
	defer p.live.mu.Unlock()
	p.live.release(p)
}

// cut ends a page from this side. It is counted until it is closed: it still holds a connection. l.mu is held.
func (l *Live) cut(p *Page, why string) {
	if p.events == nil { // waits for the stream
		return
	}
	select {
	case <-p.end:
	default:
		close(p.end)
		l.ended.WithLabelValues(why).Inc()
	}
}
