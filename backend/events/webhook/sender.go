package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/backend/sale"
	"sluice/backend/telemetry"
	"sluice/internal/loop"
	"sluice/internal/outbound"
)

// senderStore is the part of Store that a Sender uses; tests replace it to inject faults.
type senderStore interface {
	DueEndpoints(ctx context.Context, served []string) ([]string, error)
	LeaseDeliveries(
		ctx context.Context, endpointID string, upTo int64, lease time.Duration, limit int,
	) (Endpoint, []Delivery, error)
	RecordResults(ctx context.Context, endpointID string, results []Result) (recorded []int64, err error)
	PruneDeliveries(ctx context.Context, keep time.Duration, limit int) (int, error)
}

// SenderConfig tunes a Sender. Zero fields take the defaults named here.
type SenderConfig struct {
	// Lease is how long the deliveries of a crashed sender stay leased. It must exceed the client's timeout; 20 s.
	Lease    time.Duration
	Poll     time.Duration   // interval at which an idle sender looks for due deliveries; 1 s
	Drain    time.Duration   // how long a stop waits for responses; 10 s
	Keep     time.Duration   // how long delivered ones stay stored; 7 days
	Schedule []time.Duration // delays after failed attempts, see defaultSchedule
	Metrics  *Counters       // nil: not exported
	Log      *slog.Logger
	Tracer   *telemetry.Tracer  // nil: nothing is traced
	Parents  *telemetry.Parents // of the orders; required with Tracer
}

func (c SenderConfig) withDefaults() SenderConfig {
	c.Lease = cmp.Or(c.Lease, 20*time.Second)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Drain = cmp.Or(c.Drain, 10*time.Second)
	c.Keep = cmp.Or(c.Keep, 7*24*time.Hour)
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.Metrics == nil {
		c.Metrics = NewCounters(nil)
	}
	if c.Schedule == nil {
		c.Schedule = defaultSchedule
	}
	return c
}

// Sender posts deliveries. Any number may run, in any processes, because deliveries are leased. If a sender crashes,
// its attempts fail when the leases expire, and others repeat them, so an endpoint may receive a delivery twice, with
// the same webhook-id.
// Each endpoint has a limit of its own for concurrent requests, so one that hangs does not delay the others.
type Sender struct {
	store   senderStore
	client  *outbound.Client
	written func(context.Context) int64
	cfg     SenderConfig
	woken   loop.Wake

	mu     sync.Mutex
	served map[string]bool // endpoints that are being sent to
	wg     sync.WaitGroup
}

// NewSender returns a Sender. It does not connect yet. written returns the position up to which all deliveries are
// written (events.Progress.Position).
func NewSender(
	db senderStore, client *outbound.Client, written func(context.Context) int64, cfg SenderConfig,
) *Sender {
	return &Sender{
		store: db, client: client, written: written, cfg: cfg.withDefaults(), woken: loop.NewWake(),
		served: map[string]bool{},
	}
}

// Wake makes the sender look for due deliveries. It returns immediately; a lost wake-up is compensated after Poll.
func (s *Sender) Wake() { s.woken.Up() }

// perEndpoint bounds the concurrent requests to one endpoint.
const perEndpoint = 32

// MaxRequests is the maximum number of concurrent requests of a Sender. It is the outbound.Config.PerHost of its
// client, because all endpoints may have the same host.
const MaxRequests = maxEndpoints * perEndpoint

// soon is the first interval at which a woken Sender looks again: new deliveries cannot be sent before the group has
// acknowledged their events.
const soon = 20 * time.Millisecond

// Run sends until ctx ends. Then it waits for requests in flight, releases the rest, and returns nil. It retries
// while SQL is unavailable.
func (s *Sender) Run(ctx context.Context) error {
	work, stop := loop.Outlive(ctx, s.cfg.Drain)
	defer stop()
	defer s.wg.Wait()
	s.wg.Go(func() { s.prune(ctx) })
	retry := loop.Backoff{Log: s.cfg.Log, What: "sending webhooks"}
	for wait := time.Duration(0); ctx.Err() == nil; {
		if err := s.look(ctx, work); err != nil {
			retry.Failed(ctx, err)
			continue
		}
		retry.Succeeded()
		wait = min(max(2*wait, soon), s.cfg.Poll)
		select {
		case <-ctx.Done():
		case <-s.woken:
			wait = 0
			loop.Sleep(ctx, min(soon/4, s.cfg.Poll)) // because events arrive in batches
		case <-time.After(loop.UntilTick(wait)):
		}
	}
	return nil
}

// look starts to serve the endpoints that have due deliveries.
func (s *Sender) look(ctx, work context.Context) error {
	s.mu.Lock()
	served := slices.Collect(maps.Keys(s.served))
	s.mu.Unlock()
	ids, err := s.store.DueEndpoints(ctx, served)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
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

// prune deletes old deliveries once a minute, until ctx ends.
func (s *Sender) prune(ctx context.Context) {
	const batch = 1000
	loop.Repeat(ctx, time.Minute, s.cfg.Log, "deleting old webhooks", func() error {
		for ctx.Err() == nil {
			if n, err := s.store.PruneDeliveries(ctx, s.cfg.Keep, batch); err != nil || n < batch {
				return err
			}
		}
		return nil
	})
}

// serve sends to one endpoint until nothing is due and no request is in flight.
func (s *Sender) serve(ctx, work context.Context, id string) {
	loop.Pool[Result]{
		Size: perEndpoint, Poll: s.cfg.Poll,
		Lease: func(free int) (tasks []func() Result) {
			e, leased, err := s.store.LeaseDeliveries(ctx, id, s.written(ctx), s.cfg.Lease, free)
			if err != nil && !errors.Is(err, sale.ErrNotFound) && ctx.Err() == nil {
				// look gets the same error and reports it
				s.cfg.Log.Debug("deliveries cannot be leased", "endpoint", id, "err", err)
			}
			items := s.traced(ctx, leased)
			for i, d := range leased {
				tasks = append(tasks, func() Result { return s.send(work, e, d, items[i]) })
			}
			return tasks
		},
		Record: func(all []Result) { s.record(work, id, all) },
	}.Run(ctx)
}

// traced finds the traces of the deliveries' orders. Rows do not contain traces: a key in Redis does, for an hour,
// which is longer than all but the last delays between attempts.
func (s *Sender) traced(ctx context.Context, all []Delivery) []telemetry.Item {
	items := make([]telemetry.Item, len(all))
	if s.cfg.Tracer == nil || len(all) == 0 {
		return items
	}
	for i, d := range all {
		var body struct{ Data orderData }
		_ = json.Unmarshal([]byte(d.Body), &body) // a ping has no order
		items[i] = telemetry.Item{Order: body.Data.OrderID, SaleID: body.Data.SaleID}
	}
	s.cfg.Parents.Fill(ctx, items)
	return items
}

// record retries until the results are stored or the leases have expired; then the webhooks are sent again.
func (s *Sender) record(work context.Context, id string, all []Result) {
	log := s.cfg.Log.With("endpoint", id)
	loop.Record(work, s.cfg.Lease, log, "storing results of webhooks", func(ctx context.Context) error {
		recorded, err := s.store.RecordResults(ctx, id, all)
		switch {
		case err == nil:
			s.count(id, all, recorded)
		case errors.Is(err, sale.ErrNotFound): // the endpoint was removed
			return nil
		}
		return err
	})
}

// count counts the attempts of this process by their outcomes, and logs what an admin has to know. recorded are the
// numbers of the deliveries with stored results.
func (s *Sender) count(id string, all []Result, recorded []int64) {
	for _, r := range all {
		outcome := "failed"
		switch {
		case !slices.Contains(recorded, r.Delivery.Number):
			outcome = "lost"
		case r.Released:
			outcome = "released"
		case r.State == DeliveryDelivered:
			outcome = "delivered"
		case r.State == DeliveryFailed && r.Delivery.Sequence != SequenceUnordered: // a ping has one attempt
			outcome = "given_up"
			s.cfg.Log.Warn("webhook delivery failed after its last attempt",
				"endpoint", id, "delivery", r.Delivery.ID, "err", r.Error)
		}
		if r.Gone && outcome != "lost" {
			s.cfg.Log.Warn("webhook endpoint disabled: it responded 410 Gone", "endpoint", id)
		}
		if r.Delivery.Interrupted && outcome != "given_up" { // an attempt of another process
			continue
		}
		s.cfg.Metrics.attempted(id, outcome)
		if !r.Released && !r.Delivery.Interrupted {
			s.cfg.Metrics.seconds.Observe(r.Took.Seconds())
		}
	}
}

// errInterrupted is the outcome of an attempt without a result, after its lease has expired.
var errInterrupted = errors.New("the sending process ended during the attempt, or could not store its result")

// send posts one delivery. It always returns a result. An interrupted attempt counts as failed, so that a delivery
// that crashes its processes is given up. The next attempt begins after the delay of a failed one. Its random part
// separates deliveries that were interrupted together.
func (s *Sender) send(ctx context.Context, e Endpoint, d Delivery, of telemetry.Item) Result {
	if d.Interrupted {
		return judge(Result{Delivery: d}, errInterrupted, s.cfg.Schedule, rand.Float64())
	}
	began := time.Now()
	r, err := s.post(ctx, e, d, of)
	if err != nil && ctx.Err() != nil { // cancelled by a stop: not a failure of the endpoint
		return Result{Delivery: d, State: DeliveryWaiting, Released: true}
	}
	r.Delivery, r.Took = d, time.Since(began)
	return judge(r, err, s.cfg.Schedule, rand.Float64())
}

// maxAnswer bounds the stored part of a response, in bytes.
const maxAnswer = 1 << 10

// post returns the response: Status, Answer, and the Retry-After as Hold.
func (s *Sender) post(ctx context.Context, e Endpoint, d Delivery, of telemetry.Item) (r Result, err error) {
	defer func() {
		if p := recover(); p != nil { // one bad delivery must not crash the process
			r, err = Result{}, errors.New("the sender panicked")
			s.cfg.Log.Error("panic while a webhook was sent", "delivery", d.ID, "panic", p)
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, strings.NewReader(d.Body))
	if err != nil {
		return r, errors.New("the URL of the endpoint is invalid")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "sluice-webhooks")
	if err := sign(req.Header, d.ID, time.Now(), d.Body, append([]string{e.Secret}, e.OldSecrets...)...); err != nil {
		return r, err
	}
	span := s.cfg.Tracer.Post(of, req.URL.Hostname(), d.Attempts)
	if parent := span.Parent(); parent != "" {
		req.Header.Set("traceparent", parent)
	}
	defer func() { span.End(r.Status, err) }()
	resp, err := s.client.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	begin, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return Result{
		Status: resp.StatusCode, Answer: strings.ToValidUTF8(string(begin), "\uFFFD"),
		Hold: outbound.RetryAfter(resp.Header.Get("Retry-After"), time.Now()),
	}, err
}
