package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/events"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/internal/loop"
	"sluice/internal/metric"
)

// Bounds of open pages.
const (
	MaxPages      = 20_000 // of one process
	maxBuyerPages = 8      // of one buyer, in one process
	pageQueue     = 16     // undelivered events after which a page is disconnected
	recentEvents  = 4096   // kept for pages that reconnect
)

// ErrFull means that this process has its maximum of open pages; ErrTooMany means that the buyer has.
var (
	ErrFull    = errors.New("too many open pages")
	ErrTooMany = errors.New("too many open pages of this buyer")
)

// LiveConfig configures NewLive. Zero fields take the defaults named here or above.
type LiveConfig struct {
	Pages, BuyerPages int
	Linger            time.Duration // how long the stream is still read after the last page has closed; 1 min
	Lost              time.Duration // failed reads for this long disconnect all pages; 10 s
	Registerer        prometheus.Registerer
	Log               *slog.Logger
}

// Live streams events to the pages that are open at this process. It reads the event stream outside any consumer
// group, so every process receives every event and a buyer's page may be open at any process. It reads only while
// pages are open. Live does not hold the state of orders: a page reads SQL after it was opened, and again after it
// was disconnected.
type Live struct {
	client redisconn.Client
	space  keyspace.Space
	cfg    LiveConfig
	open   prometheus.Gauge
	ended  *prometheus.CounterVec

	wanted loop.Wake // woken by a page that waits for the stream to be read
	marked time.Time // of the last mark; used by Run only

	mu      sync.Mutex
	pages   map[string]map[*Page]struct{} // by buyer
	count   int
	ready   chan struct{} // closed while the stream is read; pages are added only then
	reading bool
	recent  []events.Event // oldest first, without gaps
	last    int64          // position of the last event read
}

// Page is one open page. The caller must close it.
type Page struct {
	live   *Live
	buyer  string
	events chan events.Event // nil while the page waits for the stream
	end    chan struct{}     // closed when the page is disconnected
}

// NewLive returns a Live. Run reads the stream.
func NewLive(client redisconn.Client, space keyspace.Space, cfg LiveConfig) *Live {
	cfg.Pages = cmp.Or(cfg.Pages, MaxPages)
	cfg.BuyerPages = cmp.Or(cfg.BuyerPages, maxBuyerPages)
	cfg.Linger = cmp.Or(cfg.Linger, time.Minute)
	cfg.Lost = cmp.Or(cfg.Lost, 10*time.Second)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	metrics := metric.With(cfg.Registerer)
	l := &Live{
		client: client, space: space, cfg: cfg, wanted: loop.NewWake(),
		pages: map[string]map[*Page]struct{}{}, ready: make(chan struct{}),
		open: metrics.Gauge("sluice_notify_pages", "Open pages that receive events of their buyers' orders."),
		ended: metrics.Counters("sluice_notify_pages_closed_total",
			"Pages that were disconnected because they were too slow or may have missed an event.",
			"reason", "slow", "missed", "unread", "stopped"),
	}
	metrics.Gauge("sluice_notify_pages_limit", "Maximum number of open pages. Further pages are rejected, and poll.").
		Set(float64(cfg.Pages))
	return l
}

// Open adds a page of the buyer, which receives all events of the buyer from now on. missed are the buyer's events
// that follow the event with the id after. known is false if that event is no longer kept; the caller then reads the
// state from SQL. Errors: ErrFull, ErrTooMany, and sale.ErrUnavailable if the stream is not read before ctx ends.
func (l *Live) Open(ctx context.Context, buyer, after string) (p *Page, missed []events.Event, known bool, err error) {
	if p, err = l.reserve(buyer); err != nil {
		return nil, nil, false, err
	}
	for {
		l.mu.Lock()
		if l.reading {
			missed, known = l.since(buyer, after)
			p.events = make(chan events.Event, pageQueue)
			l.mu.Unlock()
			return p, missed, known, nil
		}
		ready := l.ready
		l.mu.Unlock()
		l.wanted.Up()
		select {
		case <-ready:
		case <-ctx.Done():
			p.Close()
			return nil, nil, false, fmt.Errorf("notify: the event stream is not read: %w", sale.ErrUnavailable)
		}
	}
}

// reserve counts a page. Pages that wait for the stream are counted as well.
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

// release removes a page. It is idempotent. l.mu is held.
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

// since returns the buyer's events after the event with the id after. l.mu is held.
func (l *Live) since(buyer, after string) (missed []events.Event, known bool) {
	if after == "" {
		return nil, false
	}
	i := len(l.recent) - 1 // from the end, because an event may be in the list twice
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

// Events returns the buyer's events in the order of the stream.
func (p *Page) Events() <-chan events.Event { return p.events }

// Cut returns a channel that is closed when the page is disconnected, because it is too slow or may have missed an
// event. The client should reconnect.
func (p *Page) Cut() <-chan struct{} { return p.end }

// Close removes the page. It is idempotent.
func (p *Page) Close() {
	p.live.mu.Lock()
	defer p.live.mu.Unlock()
	p.live.release(p)
}

// cut disconnects a page. The page is counted until Close, because it still holds a connection. l.mu is held.
func (l *Live) cut(p *Page, reason string) {
	if p.events == nil { // the page waits for the stream
		return
	}
	select {
	case <-p.end:
	default:
		close(p.end)
		l.ended.WithLabelValues(reason).Inc()
	}
}
