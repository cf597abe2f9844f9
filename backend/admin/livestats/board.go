// Package board keeps the figures that the operators' desk shows: one sample a second, of the last fifteen minutes. It counts what edges and backends
// report about themselves, looks at the queue, and adds up the sales. It decides nothing, and what it keeps may be lost with the process.
package livestats

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"sluice/backend/queue"
	"sluice/backend/store"
)

const (
	// Every is how often a sample is made.
	Every = time.Second
	// kept is how many samples are kept: a quarter of an hour.
	kept = 900
	// patience bounds the look at each source, so that one that hangs costs no more than its own figures.
	patience = 800 * time.Millisecond
)

// Queue counts the queue of each shard.
type Queue interface {
	ByShard(ctx context.Context) ([]queue.Stats, error)
}

// Pace tells how fast the queue drains (queue.Meters).
type Pace interface {
	Within() (d time.Duration, ok bool)
	Shard(shard int) queue.Pace
}

// Books are the sales and the log of the desk in SQL (order.Store).
type Books interface {
	Totals(ctx context.Context) (store.Totals, error)
	Log(ctx context.Context, q store.LogQuery) ([]store.LogEntry, error)
}

// Config is what New needs. Queue, Pace and Books are required.
type Config struct {
	Queue Queue
	Pace  Pace
	Books Books
	Own   prometheus.Gatherer // the figures of this process; nil: none
	URLs  []string            // the /metrics of edges and of other backends
	Log   *slog.Logger        // nil: slog.Default
	Now   func() time.Time    // nil: time.Now
}

// Board is safe for concurrent use.
type Board struct {
	cfg     Config
	id      string // by which it knows its own figures when they are scraped
	started time.Time
	sources []*source

	mu      sync.Mutex
	samples []Sample // the oldest first
	sold    *int64   // at the last look
	changed chan struct{}
}

// New makes a Board. It knows nothing before Run or RunOnce.
func New(cfg Config) *Board {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	b := &Board{cfg: cfg, id: rand.Text(), started: cfg.Now(), changed: make(chan struct{})}
	if cfg.Own != nil {
		b.sources = append(b.sources, &source{name: Self, read: ownFigures(cfg.Own)})
	}
	client := scraper()
	for _, url := range cfg.URLs {
		b.sources = append(b.sources, &source{name: url, read: scrape(client, url), not: b.id})
	}
	return b
}

// Collector makes sluice_board_info, which tells a board that figures come from its own process: all backends may be given the same URLs.
func (b *Board) Collector() prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_board_info", Help: "1; the label names the process to other backends that read its figures.", ConstLabels: prometheus.Labels{"id": b.id},
	})
	info.Set(1)
	return info
}

// Run makes a sample every second until ctx ends; it returns nil then.
func (b *Board) Run(ctx context.Context) error {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		b.RunOnce(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// RunOnce makes one sample. What does not answer in time is missing in it.
func (b *Board) RunOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := Sample{At: b.cfg.Now().UnixMilli()}
	deltas := make([]figures, len(b.sources))
	var g errgroup.Group
	for i, src := range b.sources {
		g.Go(func() error { deltas[i] = src.look(ctx, b.cfg.Log); return nil })
	}
	g.Go(func() error { s.Queue = b.queue(ctx); return nil })
	g.Go(func() error { s.Books = b.books(ctx); return nil })
	_ = g.Wait() // nobody returns an error: what is missing is left out
	sum := figures{}
	for _, d := range deltas {
		sum.add(d)
	}
	s.Latency = sum.latency()
	s.Counts = sum.counts()

	b.mu.Lock()
	defer b.mu.Unlock()
	if s.Books != nil {
		if b.sold != nil && s.Books.Sold > *b.sold {
			s.Counts[rowsKey] = float64(s.Books.Sold - *b.sold)
		}
		b.sold = &s.Books.Sold
	}
	if len(b.samples) == kept {
		copy(b.samples, b.samples[1:])
		b.samples = b.samples[:kept-1]
	}
	b.samples = append(b.samples, s)
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *Board) queue(ctx context.Context) *QueueFigures {
	shards, err := b.cfg.Queue.ByShard(ctx)
	if err != nil {
		return nil
	}
	q := &QueueFigures{}
	for i, s := range shards {
		q.Ready += s.Ready
		q.Delayed += s.Delayed
		q.Leased += s.Leased
		q.Leases += s.Leases
		q.Dead += s.Dead
		q.OldestSeconds = max(q.OldestSeconds, s.OldestAge.Seconds())
		if p := b.cfg.Pace.Shard(i); p.Known {
			q.PerSecond += p.PerSecond
		}
	}
	if d, ok := b.cfg.Pace.Within(); ok {
		seconds := d.Seconds()
		q.DrainSeconds = &seconds
	}
	return q
}

func (b *Board) books(ctx context.Context) *BookFigures {
	total, err := b.cfg.Books.Totals(ctx)
	if err != nil {
		return nil
	}
	f := &BookFigures{Sales: total.Sales, Stock: total.Stock, Sold: total.Sold}
	last, err := b.cfg.Books.Log(ctx, store.LogQuery{Limit: 1})
	if err != nil {
		return nil
	}
	if len(last) > 0 {
		f.Log = last[0].Number
	}
	return f
}

// Since returns the samples made after a time in Unix milliseconds, the oldest first, and a channel that is closed when there are more.
func (b *Board) Since(at int64) (samples []Sample, more <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := len(b.samples)
	for from > 0 && b.samples[from-1].At > at {
		from--
	}
	return append([]Sample(nil), b.samples[from:]...), b.changed
}

// Started is when the board began to count.
func (b *Board) Started() time.Time { return b.started }

// Sources tells of everything that figures come from, this process first.
func (b *Board) Sources() []Source {
	all := make([]Source, len(b.sources))
	for i, s := range b.sources {
		all[i] = s.state()
	}
	return all
}
