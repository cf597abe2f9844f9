// Package livestats samples the state of a deployment once a second for the admin console and keeps the samples of
// the last fifteen minutes. It reads the metrics of edges and backends, counts the queue and adds up the sales. The
// samples are lost when the process ends.
package livestats

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/queue"
	"sluice/backend/store"
	"sluice/internal/loop"
)

const (
	// Interval is the time between two samples.
	Interval = time.Second
	// maxSamples is fifteen minutes.
	maxSamples = 900
	// sourceTimeout bounds reading the sources of one sample, so that a hanging source affects only its own values.
	sourceTimeout = 800 * time.Millisecond
)

// Queue counts the queue of each shard (queue.Shards).
type Queue interface {
	ByShard(ctx context.Context) ([]*queue.Stats, error)
}

// Pace reports how fast the queue drains (queue.Meters).
type Pace interface {
	Within(now []*queue.Stats) (d time.Duration, ok bool)
	Shard(shard int, now *queue.Stats) queue.Pace
}

// Store reads the totals of all sales and the action log (package store).
type Store interface {
	Totals(ctx context.Context) (store.Totals, error)
	Log(ctx context.Context, q store.LogQuery) ([]store.LogEntry, error)
}

// Config configures New. Queue, Pace and Store are required.
type Config struct {
	Queue Queue
	Pace  Pace
	Store Store
	Own   prometheus.Gatherer // the metrics of this process; nil: none
	URLs  []string            // the /metrics of edges and other backends
	Log   *slog.Logger        // nil: slog.Default
	Now   func() time.Time    // nil: time.Now
}

// Stats is safe for concurrent use.
type Stats struct {
	cfg     Config
	id      string // identifies the metrics of this process when they are scraped
	started time.Time
	sources []*source

	mu      sync.Mutex
	samples []Sample // oldest first
	sold    *int64   // in the last sample
	changed chan struct{}
}

// New returns Stats without samples.
func New(cfg Config) *Stats {
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Stats{cfg: cfg, id: rand.Text(), started: cfg.Now(), samples: []Sample{}, changed: make(chan struct{})}
	if cfg.Own != nil {
		s.sources = append(s.sources, newSource(Self, ownMetrics(cfg.Own)))
	}
	client := scraper()
	for _, url := range cfg.URLs {
		edge := newSource(url, scrape(client, url))
		edge.exclude = s.id
		s.sources = append(s.sources, edge)
	}
	return s
}

// Collector returns the gauge sluice_livestats_info. By its label, this process recognizes its own metrics if its URL
// is in Config.URLs, so that all backends can have the same URLs.
func (s *Stats) Collector() prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        infoMetric,
		Help:        "1; the label identifies the process to backends that read its metrics.",
		ConstLabels: prometheus.Labels{"id": s.id},
	})
	info.Set(1)
	return info
}

// Run takes a sample every Interval until ctx ends, and then returns nil.
func (s *Stats) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		s.RunOnce(ctx)
		loop.Tick(ctx, Interval)
	}
	return nil
}

// RunOnce takes one sample. It omits sources and stores that do not answer in time.
func (s *Stats) RunOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	sample := Sample{At: s.cfg.Now().UnixMilli()}
	deltas := make([]counters, len(s.sources))
	var reads sync.WaitGroup
	for i, src := range s.sources {
		reads.Go(func() { deltas[i] = src.delta(ctx, s.cfg.Log) })
	}
	reads.Go(func() { sample.Queue = s.queue(ctx) })
	reads.Go(func() { sample.Totals = s.totals(ctx) })
	reads.Wait()
	sum := counters{}
	for _, d := range deltas {
		sum.add(d)
	}
	sample.Latency = sum.latency()
	sample.Counts = sum.counts()

	s.mu.Lock()
	defer s.mu.Unlock()
	if sample.Totals != nil {
		if s.sold != nil && sample.Totals.Sold > *s.sold {
			sample.Counts[rowsKey] = float64(sample.Totals.Sold - *s.sold)
		}
		s.sold = &sample.Totals.Sold
	}
	if len(s.samples) == maxSamples {
		copy(s.samples, s.samples[1:])
		s.samples = s.samples[:maxSamples-1]
	}
	s.samples = append(s.samples, sample)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Stats) queue(ctx context.Context) *QueueCounts {
	shards, err := s.cfg.Queue.ByShard(ctx)
	if err != nil {
		return nil
	}
	q := &QueueCounts{QueueCounts: Counts(queue.Sum(shards)), Unavailable: Unavailable(shards)}
	for i, now := range shards {
		q.PerSecond += s.cfg.Pace.Shard(i, now).PerSecond
	}
	q.DrainSeconds = DrainSeconds(s.cfg.Pace.Within(shards))
	return q
}

func (s *Stats) totals(ctx context.Context) *Totals {
	all, err := s.cfg.Store.Totals(ctx)
	if err != nil {
		return nil
	}
	last, err := s.cfg.Store.Log(ctx, store.LogQuery{Limit: 1})
	if err != nil {
		return nil
	}
	t := &Totals{Sales: all.Sales, Stock: all.Stock, Sold: all.Sold}
	if len(last) > 0 {
		t.Log = last[0].Number
	}
	return t
}

// Since returns the samples after a time in Unix milliseconds, oldest first and never nil, and a channel that is closed
// when there are more.
func (s *Stats) Since(at int64) (samples []Sample, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := len(s.samples)
	for from > 0 && s.samples[from-1].At > at {
		from--
	}
	return slices.Clone(s.samples[from:]), s.changed
}

// Started returns the time of New.
func (s *Stats) Started() time.Time { return s.started }

// Sources returns the state of all sources, this process first.
func (s *Stats) Sources() []Source {
	all := make([]Source, len(s.sources))
	for i, src := range s.sources {
		all[i] = src.current()
	}
	return all
}
