package webhook

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"sluice/backend/sale"
	"sluice/backend/telemetry"
)

// senderStore is the part of Store that a Sender uses; tests replace it to inject faults.
type senderStore interface {
	DueEndpoints(ctx context.Context) ([]string, error)
	LeaseDeliveries(
		ctx context.Context,
		endpointID string,
		upTo int64,
		lease time.Duration,
		limit int,
	) (Endpoint, []Delivery, error)
	RecordResults(ctx context.Context, endpointID string, results []Result) (lost int, err error)
	PruneDeliveries(ctx context.Context, keep time.Duration, limit int) (int, error)
}

// Client posts (outbound.Client): it reads a bounded answer within a bounded time.
type Client interface {
	Do(req *http.Request) (*http.Response, error)
}

// Progress returns the position up to which all deliveries are written (events.Progress).
type Progress interface {
	Position(ctx context.Context) int64
}

// SenderConfig tunes a Sender. Zero fields take the defaults named here.
type SenderConfig struct {
	PerEndpoint int // concurrent requests to one endpoint; 32
	// how long a sender that is gone keeps its deliveries; it must be longer than the client's timeout; 20 s
	Lease    time.Duration
	Poll     time.Duration   // how often an idle sender looks for what is due, 500 ms
	Drain    time.Duration   // how long a stop waits for answers; 10 s
	Keep     time.Duration   // how long delivered ones stay in the log; 7 days
	Schedule []time.Duration // Schedule
	Metrics  Metrics         // may be nil
	Log      *slog.Logger
	Tracer   *telemetry.Tracer  // nil: nothing is traced
	Notes    *telemetry.Parents // of which orders are; required with Tracer

	Now    func() time.Time // of the signatures, and of Retry-After dates; time.Now
	Jitter func() float64   // in [0, 1); random
}

// Metrics counts what a Sender does. It must be safe for concurrent use.
type Metrics interface {
	// Attempted counts attempts by outcome: delivered, failed, given_up, released (not sent, or stopped) or lost (the
	// lease expired).
	Attempted(endpoint, outcome string, n int)
	Took(d time.Duration)
}

type unmeasured struct{}

func (unmeasured) Attempted(string, string, int) {}
func (unmeasured) Took(time.Duration)            {}

func (c SenderConfig) withDefaults() SenderConfig {
	duration := func(field *time.Duration, value time.Duration) {
		if *field <= 0 {
			*field = value
		}
	}
	duration(&c.Lease, 20*time.Second)
	duration(&c.Poll, 500*time.Millisecond)
	duration(&c.Drain, 10*time.Second)
	duration(&c.Keep, 7*24*time.Hour)
	if c.PerEndpoint <= 0 {
		c.PerEndpoint = 32
	}
	if c.Schedule == nil {
		c.Schedule = Schedule
	}
	if c.Metrics == nil {
		c.Metrics = unmeasured{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	return c
}

// Sender posts deliveries. Any number may run, in any processes: deliveries are leased, and what a sender leaves
// behind that is killed goes to the others when its leases run out, so an endpoint may get one twice, with the same
// webhook-id. Each endpoint has its own places, so one that hangs keeps no other waiting.
type Sender struct {
	store    senderStore
	client   Client
	progress Progress
	cfg      SenderConfig
	woken    chan struct{}

	mu     sync.Mutex
	served map[string]bool // endpoints that are being sent to
	wg     sync.WaitGroup
}

// NewSender makes a Sender. It does not connect yet.
func NewSender(db senderStore, client Client, progress Progress, cfg SenderConfig) *Sender {
	return &Sender{
		store:    db,
		client:   client,
		progress: progress,
		cfg:      cfg.withDefaults(),
		woken:    make(chan struct{}, 1),
		served:   map[string]bool{},
	}
}

// Wake makes the sender look for due deliveries. It returns immediately; a lost wake-up is compensated after Poll.
func (s *Sender) Wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// pruneEvery is how often old deliveries are dropped, pruneBatch how many in a transaction.
const (
	pruneEvery = time.Minute
	pruneBatch = 1000
)

// soon is how often a Sender looks after it was woken: what was written is not acknowledged yet.
const soon = 20 * time.Millisecond

// Run sends until ctx ends. Then it waits for requests in flight, releases the rest, and returns nil. It retries
// while SQL is unavailable.
func (s *Sender) Run(ctx context.Context) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	pruned := time.Now()
	failing := false
	for wait := time.Duration(0); ctx.Err() == nil; {
		err := s.look(ctx, work)
		if err == nil && time.Since(pruned) >= pruneEvery {
			pruned = time.Now()
			err = s.prune(ctx)
		}
		if err != nil && !failing && ctx.Err() == nil {
			s.cfg.Log.Warn("webhooks cannot be sent now; trying again", "err", err)
		}
		if err == nil && failing {
			s.cfg.Log.Info("webhooks are sent again")
		}
		failing = err != nil
		wait = min(max(2*wait, soon), s.cfg.Poll)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.woken:
			wait = 0
			select { // with a delay, because events arrive in batches
			case <-ctx.Done():
			case <-time.After(min(soon/4, s.cfg.Poll)):
			}
		case <-timer.C:
		}
		timer.Stop()
	}
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	timer := time.NewTimer(s.cfg.Drain)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		stop()
		<-done
	}
	return nil
}

// look starts to serve the endpoints that have something due.
func (s *Sender) look(ctx, work context.Context) error {
	ids, err := s.store.DueEndpoints(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if s.served[id] {
			continue
		}
		s.served[id] = true
		s.wg.Go(func() {
			s.serve(ctx, work, id)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.served, id)
		})
	}
	return nil
}

func (s *Sender) prune(ctx context.Context) error {
	for ctx.Err() == nil {
		if n, err := s.store.PruneDeliveries(ctx, s.cfg.Keep, pruneBatch); err != nil || n < pruneBatch {
			return err
		}
	}
	return nil
}

// serve sends to one endpoint until nothing is due and no request is in flight.
func (s *Sender) serve(ctx, work context.Context, id string) {
	results := make(chan Result, s.cfg.PerEndpoint)
	underWay := 0
	for {
		if free := s.cfg.PerEndpoint - underWay; free > 0 && ctx.Err() == nil {
			e, leased, err := s.store.LeaseDeliveries(ctx, id, s.progress.Position(ctx), s.cfg.Lease, free)
			if err != nil && !errors.Is(err, sale.ErrNotFound) && ctx.Err() == nil {
				// look gets the same error and reports it
				s.cfg.Log.Debug("deliveries cannot be leased", "endpoint", id, "err", err)
			}
			items := s.traced(ctx, leased)
			for i, d := range leased {
				underWay++
				go func() { results <- s.send(work, e, d, items[i]) }()
			}
		}
		if underWay == 0 {
			return
		}
		var all []Result
		timer := time.NewTimer(s.cfg.Poll) // something else may be due meanwhile
		select {
		case r := <-results:
			all = append(all, r)
		case <-timer.C:
		}
		timer.Stop()
		for len(results) > 0 { // what has come while the last ones were written down
			all = append(all, <-results)
		}
		underWay -= len(all)
		if len(all) > 0 {
			s.record(work, id, all)
		}
	}
}

// record retries until the results are stored or the leases have expired.
func (s *Sender) record(work context.Context, id string, all []Result) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), s.cfg.Lease)
	defer cancel()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		lost, err := s.store.RecordResults(ctx, id, all)
		if err == nil {
			s.count(id, all, lost)
			return
		}
		if errors.Is(err, sale.ErrNotFound) { // the endpoint was removed
			return
		}
		s.cfg.Log.Warn("what became of webhooks cannot be written down; trying again", "endpoint", id, "err", err)
		select {
		case <-ctx.Done():
			s.cfg.Log.Warn("webhooks are sent once more", "endpoint", id, "deliveries", len(all))
			return
		case <-work.Done(): // a stop has lasted too long
			return
		case <-time.After(wait):
		}
	}
}

func (s *Sender) count(id string, all []Result, lost int) {
	counts := map[string]int{"lost": lost}
	for _, r := range all {
		outcome := "failed"
		switch {
		case r.Released:
			outcome = "released"
		case r.State == DeliveryDelivered:
			outcome = "delivered"
		case r.State == DeliveryFailed:
			outcome = "given_up"
			s.cfg.Log.Warn("a webhook is given up", "endpoint", id, "delivery", r.Delivery.ID, "err", r.Error)
		}
		if r.Gone {
			s.cfg.Log.Warn("an endpoint of webhooks is disabled: it answered 410 Gone", "endpoint", id)
		}
		counts[outcome]++
		if !r.Released {
			s.cfg.Metrics.Took(r.Took)
		}
	}
	for outcome, n := range counts {
		if n > 0 {
			s.cfg.Metrics.Attempted(id, outcome, n)
		}
	}
}

// send posts one delivery. It always returns what became of it.
func (s *Sender) send(ctx context.Context, e Endpoint, d Delivery, of telemetry.Item) (r Result) {
	began := time.Now()
	defer func() {
		if p := recover(); p != nil { // one bad delivery must not take the process along
			r = judge(
				d,
				answer{err: errors.New("the sender panicked"), took: time.Since(began)},
				s.cfg.Schedule,
				s.cfg.Now(),
				s.cfg.Jitter(),
			)
			s.cfg.Log.Error("panic while a webhook was sent", "delivery", d.ID, "panic", p)
		}
	}()
	a := s.post(ctx, e, d, of)
	if a.err != nil && ctx.Err() != nil { // cancelled by a stop: not a failure of the endpoint
		return Result{Delivery: d, State: DeliveryWaiting, Released: true}
	}
	a.took = time.Since(began)
	return judge(d, a, s.cfg.Schedule, s.cfg.Now(), s.cfg.Jitter())
}

// maxAnswer is how much of an answer the log keeps, maxError how much of an error, in bytes.
const (
	maxAnswer = 1 << 10
	maxError  = 500
)

func (s *Sender) post(ctx context.Context, e Endpoint, d Delivery, of telemetry.Item) (a answer) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, strings.NewReader(d.Body))
	if err != nil {
		return answer{err: errors.New("the URL of the endpoint cannot be read")}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "sluice-webhooks")
	if err := sign(req.Header, d.ID, s.cfg.Now(), d.Body, e.Secret, e.OldSecret); err != nil {
		return answer{err: err}
	}
	span := s.cfg.Tracer.Post(of, req.URL.Hostname(), d.Attempts)
	if parent := span.Parent(); parent != "" {
		req.Header.Set("traceparent", parent)
	}
	defer func() { span.End(a.status, a.err) }()
	resp, err := s.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	begin, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return answer{
		err:        err,
		status:     resp.StatusCode,
		retryAfter: resp.Header.Get("Retry-After"),
		body:       strings.ToValidUTF8(string(begin), "\uFFFD"),
	}
}

func oneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " ")
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "")
	}
	return text
}
