package notify

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/backend/events"
)

const (
	// sendTimeout bounds one attempt.
	sendTimeout = 15 * time.Second
	// concurrency is how many messages of one adapter are sent at once by one process, webConcurrency of Web Push.
	concurrency, webConcurrency = 4, 64
	// DefaultHold is Config.Hold.
	DefaultHold = 2 * sendTimeout
	// kept is how long a message that was sent is remembered, so that an event which is told again is not sent again.
	kept = time.Hour
)

// Config is what New needs. Zero fields take the defaults named here.
type Config struct {
	Adapters    []Adapter
	Web         *WebConfig    // nil: no Web Push
	MaxAttempts int           // after which a message that still fails is dead; 10, which takes about half an hour
	Backoff     time.Duration // before the second attempt, doubled with each further one up to 128 times as much; 5 s
	Poll        time.Duration // how often each process looks for what others have queued; 1 s
	Hold        time.Duration // how long the messages of a process that is gone stay with it, and an attempt takes half of it at most; 30 s
	Drain       time.Duration // how long a stop lets attempts go on; 10 s
	Metrics     Metrics       // may be nil
	Log         *slog.Logger
}

// Metrics counts what becomes of messages. It must be safe for concurrent use.
type Metrics interface {
	// Pushed counts attempts by outcome: sent, failed (is tried again), dead, gone (so was the browser), refused or given_up (by or for a browser's push service).
	Pushed(channel, outcome string)
}

type uncounted struct{}

func (uncounted) Pushed(string, string) {}

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

// Service is one instance of the group. What an event means for each adapter and each browser is a row of its own (Queue) with attempts of its own, so whoever is down holds up neither
// the stream nor the others. Any number of processes may run one.
type Service struct {
	store   *Store
	cfg     Config
	senders []*sender
	direct  []Adapter // cannot fail: called at once, never queued
}

// New makes a Service.
func New(db *Store, cfg Config) *Service {
	cfg = cfg.withDefaults()
	s := &Service{store: db, cfg: cfg}
	for _, a := range cfg.Adapters {
		if _, ok := a.(interface{ direct() }); ok {
			s.direct = append(s.direct, a)
			continue
		}
		s.senders = append(s.senders, newSender(db, cfg, a.Name(), concurrency, adapterChannel{a}))
	}
	if cfg.Web != nil {
		s.senders = append(s.senders, newSender(db, cfg, Web, webConcurrency, &webChannel{webPush{*cfg.Web}, db, cfg.Metrics}))
	}
	return s
}

// Run sends what is queued until ctx ends, and then finishes what is being sent. It returns nil.
func (s *Service) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, sender := range s.senders {
		g.Go(func() error { sender.run(ctx); return nil })
	}
	g.Go(func() error { s.prune(ctx); return nil })
	return g.Wait()
}

// Handle is event.Handler: it queues, and Run sends. A dead letter that a person wants sent again is sent at once, over the adapter that it names.
func (s *Service) Handle(ctx context.Context, batch []events.Event) error {
	var messages []QueuedEvent
	for _, e := range batch {
		if id, channel, ok := splitLetter(e.ID); ok {
			e.ID = id
			if err := s.resend(ctx, channel, e); err != nil {
				return err
			}
			continue
		}
		if !told(e.Type) {
			continue
		}
		if e.Buyer == "" {
			return fmt.Errorf("push: %w: order %s has no buyer", ErrPermanent, e.OrderID)
		}
		for _, a := range s.direct {
			if err := a.Send(ctx, messageOf(e)); err != nil {
				return fmt.Errorf("push: %s: %w", a.Name(), err)
			}
			s.cfg.Metrics.Pushed(a.Name(), "sent")
		}
		messages = append(messages, QueuedEvent{EventID: e.ID, Buyer: e.Buyer, Body: e.Encode()})
	}
	if len(messages) == 0 || len(s.senders) == 0 {
		return nil
	}
	var channels []string
	toSubscriptions := ""
	for _, sender := range s.senders {
		if sender.name == Web {
			toSubscriptions = Web
		} else {
			channels = append(channels, sender.name)
		}
	}
	if err := s.store.Enqueue(ctx, messages, channels, toSubscriptions); err != nil {
		return err
	}
	for _, sender := range s.senders {
		sender.poke()
	}
	return nil
}

// A dead message is a dead letter of the group. Its id, and that of the event in it, is the event's with the channel behind it, since the others are done with that event.
func letterID(eventID, channel string) string { return eventID + "." + channel }

func splitLetter(id string) (eventID, channel string, ok bool) {
	if strings.Count(id, ".") != 2 {
		return "", "", false
	}
	i := strings.LastIndexByte(id, '.')
	return id[:i], id[i+1:], true
}

func (s *Service) resend(ctx context.Context, channel string, e events.Event) error {
	for _, sender := range s.senders {
		if a, ok := sender.to.(adapterChannel); ok && sender.name == channel {
			err := a.send(ctx, Delivery{}, messageOf(e))
			if err == nil {
				s.cfg.Metrics.Pushed(channel, "sent")
			}
			return err
		}
	}
	return fmt.Errorf("push: %w: no adapter is named %s here", ErrPermanent, plain(channel))
}

// prune forgets what was settled long enough ago.
func (s *Service) prune(ctx context.Context) {
	const batch = 1000
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		n, err := s.store.Prune(ctx, kept, batch)
		if err != nil && ctx.Err() == nil {
			s.cfg.Log.Debug("sent pushes could not be forgotten; trying again", "err", err)
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
