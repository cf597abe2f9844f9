// Package notify informs buyers of changes of their orders: Live streams events to open pages, and Service sends Web
// Push messages to subscribed browsers as a consumer group of the order events. Notifications are hints:
// GET /v1/orders/{order} returns the state of an order, and no decision depends on a notification.
package notify

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/events"
	"sluice/backend/store"
	"sluice/internal/loop"
	"sluice/internal/metric"
)

// Group is the name of the consumer group that sends Web Push messages.
const Group = "web-push"

const (
	// sendTimeout bounds one attempt; see also promptTimeout.
	sendTimeout = 15 * time.Second
	// concurrency is the number of messages that a process has leased concurrently: those being sent, and those that wait
	// for a slot of their push service (perHost).
	concurrency = 1024
	// perHost is the number of concurrent requests of a process to one push service: the default of outbound.Config. A
	// request counts until its result is stored, because a crash would repeat it.
	perHost = 64
	// hostWait is how long a leased message waits for a slot of its push service. Then it is released, so that messages to
	// a push service that hangs do not prevent those to others from being leased; see hostBusy.
	hostWait = 2 * time.Second
	// DefaultHold is the default of Config.Hold.
	DefaultHold = 2 * sendTimeout
	// retention is how long a settled message is kept. An event that is redelivered meanwhile is not sent again, and
	// later it is too old.
	retention = maxLifetime
)

// Config configures New. Zero fields take the defaults named here.
type Config struct {
	Web         *WebConfig            // nil: events are acknowledged and nothing is sent
	MaxAttempts int                   // after which a message is given up; 10, which takes about half an hour
	Backoff     time.Duration         // before the second attempt; doubles with each attempt up to 128 times; 5 s
	Poll        time.Duration         // interval of queries for messages that other processes have queued; 1 s
	Hold        time.Duration         // lease of a message; an attempt takes at most half of it; 30 s
	Drain       time.Duration         // how long running attempts continue after a stop; 10 s
	Registerer  prometheus.Registerer // nil: the metrics are not exported
	Log         *slog.Logger
}

func (c Config) withDefaults() Config {
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 10)
	c.Backoff = cmp.Or(c.Backoff, 5*time.Second)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Hold = cmp.Or(c.Hold, DefaultHold)
	c.Drain = cmp.Or(c.Drain, 10*time.Second)
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}

// Service is one instance of the group. Handle queues a row for each event and subscription, and Run sends the rows.
// Each row has attempts of its own, and each push service a bound of its own for concurrent requests. A push service
// that is down or slow therefore delays neither the stream nor other push services.
// Any number of processes may run a Service. Buyers choose the endpoints, so a message that cannot be sent is counted
// and dropped; it does not become a dead letter.
type Service struct {
	store    *Store
	cfg      Config
	queued   loop.Wake
	hosts    *hosts
	attempts *prometheus.CounterVec // by outcome
}

// New returns a Service. It panics if another one has registered its metrics with the same Registerer.
func New(db *Store, cfg Config) *Service {
	return &Service{
		store: db, cfg: cfg.withDefaults(), queued: loop.NewWake(), hosts: newHosts(),
		attempts: metric.With(cfg.Registerer).Counters("sluice_web_push_messages_total",
			"Attempts to send a Web Push message by outcome: sent, failed (will be retried), gone, refused, given_up.",
			"outcome", string(Sent), string(Failed), string(Gone), string(Refused), string(GivenUp)),
	}
}

// Handle is an events.Handler. It queues the messages that Run sends. An order without a buyer is an error that
// wraps events.ErrPermanent.
func (s *Service) Handle(ctx context.Context, batch []events.Event) error {
	if s.cfg.Web == nil {
		return nil
	}
	var messages []QueuedEvent
	for _, e := range batch {
		if !notifies(e.Type) {
			continue
		}
		if e.Buyer == "" {
			return fmt.Errorf("notify: %w: order %s has no buyer", events.ErrPermanent, e.OrderID)
		}
		messages = append(messages, QueuedEvent{EventID: e.ID, Buyer: store.Text(e.Buyer), Body: e.Encode()})
	}
	if len(messages) == 0 {
		return nil
	}
	if err := s.store.Enqueue(ctx, messages); err != nil {
		return err
	}
	s.queued.Up()
	return nil
}

// notifies reports whether buyers are notified of events of type t. Unknown types are skipped.
func notifies(t events.Type) bool {
	return t == events.Created || t == events.Paid || t == events.Cancelled
}

// Run sends queued messages until ctx ends. Running attempts then have Config.Drain to finish. It returns nil.
func (s *Service) Run(ctx context.Context) error {
	var pruning sync.WaitGroup
	defer pruning.Wait()
	pruning.Go(func() { s.prune(ctx) })
	if s.cfg.Web == nil {
		return nil
	}
	work, stop := loop.Outlive(ctx, s.cfg.Drain)
	defer stop()
	retry := loop.Backoff{Log: s.cfg.Log, What: "leasing notifications"}
	var err error
	pool := loop.Pool[Result]{
		Size: concurrency, Poll: s.cfg.Poll, Wake: s.queued,
		Lease: func(free int) (tasks []func() Result) {
			var leased []Message
			leased, err = s.store.Lease(ctx, s.cfg.Hold, free)
			for _, v := range leased {
				tasks = append(tasks, func() Result { return s.attempt(work, v) })
			}
			return tasks
		},
		Record: func(results []Result) { s.record(work, results) },
	}
	for ctx.Err() == nil {
		pool.Run(ctx)
		if err != nil {
			retry.Failed(ctx, err)
			continue
		}
		retry.Succeeded()
		select {
		case <-ctx.Done():
		case <-s.queued:
		case <-time.After(s.cfg.Poll):
		}
	}
	return nil
}

// prune deletes settled messages after their retention, until ctx ends.
func (s *Service) prune(ctx context.Context) {
	const batch = 1000
	loop.Repeat(ctx, time.Minute, s.cfg.Log, "deleting old notifications", func() error {
		for ctx.Err() == nil {
			if n, err := s.store.Prune(ctx, retention, batch); err != nil || n < batch {
				return err
			}
		}
		return nil
	})
}
