package notify

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/backend/events"
)

const (
	// sendTimeout bounds one attempt.
	sendTimeout = 15 * time.Second
	// concurrency is the number of messages that a process sends concurrently.
	concurrency = 64
	// DefaultHold is the default of Config.Hold.
	DefaultHold = 2 * sendTimeout
	// retention is how long a settled message is kept. An event that is redelivered meanwhile is not sent again.
	retention = time.Hour
)

// Config configures New. Zero fields take the defaults named here.
type Config struct {
	Web         *WebConfig    // nil: events are acknowledged and nothing is sent
	MaxAttempts int           // after which a message is given up; 10, which takes about half an hour
	Backoff     time.Duration // before the second attempt; doubles with each attempt up to 128 times; 5 s
	Poll        time.Duration // interval between looks for messages that other processes have queued; 1 s
	Hold        time.Duration // lease of a message; an attempt takes at most half of it; 30 s
	Drain       time.Duration // how long running attempts continue after a stop; 10 s
	Metrics     Metrics       // may be nil
	Log         *slog.Logger
}

// Outcomes of attempts.
const (
	outcomeSent    = "sent"
	outcomeFailed  = "failed"   // will be retried
	outcomeGone    = "gone"     // the subscription no longer exists
	outcomeRefused = "refused"  // the push service or the outbound client rejected the message
	outcomeGivenUp = "given_up" // all attempts failed
)

// Metrics counts attempts. It must be safe for concurrent use.
type Metrics interface {
	// Attempted counts an attempt by its outcome: sent, failed, gone, refused or given_up.
	Attempted(outcome string)
}

type uncounted struct{}

func (uncounted) Attempted(string) {}

func (c Config) withDefaults() Config {
	if c.MaxAttempts <= 0 {
		c.MaxAttempts = 10
	}
	if c.Backoff <= 0 {
		c.Backoff = 5 * time.Second
	}
	if c.Poll <= 0 {
		c.Poll = time.Second
	}
	if c.Hold <= 0 {
		c.Hold = DefaultHold
	}
	if c.Drain <= 0 {
		c.Drain = 10 * time.Second
	}
	if c.Metrics == nil {
		c.Metrics = uncounted{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Service is one instance of the group. Handle queues a row for each event and subscription, and Run sends the rows.
// Each row has attempts of its own, so a push service that is down delays neither the stream nor other subscriptions.
// Any number of processes may run a Service.
type Service struct {
	store  *Store
	cfg    Config
	sender *sender // nil without Web Push
}

// New returns a Service.
func New(db *Store, cfg Config) *Service {
	cfg = cfg.withDefaults()
	s := &Service{store: db, cfg: cfg}
	if cfg.Web != nil {
		s.sender = newSender(db, cfg)
	}
	return s
}

// Run sends queued messages until ctx ends, and then waits for running attempts. It returns nil.
func (s *Service) Run(ctx context.Context) error {
	var g errgroup.Group
	if s.sender != nil {
		g.Go(func() error { s.sender.run(ctx); return nil })
	}
	g.Go(func() error { s.prune(ctx); return nil })
	return g.Wait()
}

// Handle implements events.Handler. It queues the messages that Run sends. An order without a buyer is an error that
// wraps events.ErrPermanent.
func (s *Service) Handle(ctx context.Context, batch []events.Event) error {
	var messages []QueuedEvent
	for _, e := range batch {
		if !notifies(e.Type) {
			continue
		}
		if e.Buyer == "" {
			return fmt.Errorf("notify: %w: order %s has no buyer", events.ErrPermanent, e.OrderID)
		}
		messages = append(messages, QueuedEvent{EventID: e.ID, Buyer: e.Buyer, Body: e.Encode()})
	}
	if len(messages) == 0 || s.sender == nil {
		return nil
	}
	if err := s.store.Enqueue(ctx, messages); err != nil {
		return err
	}
	s.sender.wake()
	return nil
}

// prune deletes settled messages after their retention.
func (s *Service) prune(ctx context.Context) {
	const batch = 1000
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		n, err := s.store.Prune(ctx, retention, batch)
		if err != nil && ctx.Err() == nil {
			s.cfg.Log.Debug("settled notifications cannot be pruned; retrying", "err", err)
		}
		if err == nil && n == batch && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
