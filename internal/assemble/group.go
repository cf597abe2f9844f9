package assemble

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"sluice/backend/events"
	"sluice/backend/events/notify"
	"sluice/backend/events/points"
	"sluice/backend/events/webhook"
	"sluice/internal/outbound"
)

// GroupConfig configures RunGroup.
type GroupConfig struct {
	Points   points.Rule
	WebPush  notify.WebConfig // without a key, events are acknowledged and nothing is sent
	PushHold time.Duration    // lease of a Web Push message
	Counters *events.Counters
	Registry prometheus.Registerer

	Webhooks       *outbound.Client // the caller closes it
	WebhookTimeout time.Duration    // for the whole answer of an endpoint
	WebhookKeep    time.Duration    // for delivered webhooks
}

// Groups are the groups of consumers that RunGroup runs.
var Groups = []string{points.Group, notify.Group, webhook.Group}

// GroupBlocking is how many calls of one group wait in Redis.
const GroupBlocking = 3

// groupIdle is the time after which the unacknowledged events of an instance go to another instance. It is short,
// because the handlers of groups only write to SQL, which takes less than a second.
const groupIdle = 10 * time.Second

// webhookLease is the time by which the lease of a delivery exceeds the timeout of its request.
const webhookLease = 5 * time.Second

// RegisterGroups registers all groups, so that later events are kept until each group has handled them. RunGroup also
// registers its group, but events that all other groups have handled by then are deleted.
func (s *Stores) RegisterGroups(ctx context.Context) error {
	for _, group := range Groups {
		if err := events.Register(ctx, s.events, s.redis, s.space, group); err != nil {
			return err
		}
	}
	return nil
}

// RunGroup runs one instance of a group until ctx ends.
func (s *Stores) RunGroup(ctx context.Context, group string, cfg GroupConfig) error {
	var handler events.Handler
	send := func(context.Context) error { return nil }
	switch group {
	case points.Group:
		handler = points.Handler(points.NewStore(s.db), cfg.Points)
	case notify.Group:
		service := s.webPush(cfg)
		handler, send = service.Handle, service.Run
	case webhook.Group:
		handler, send = s.webhooks(cfg)
	default:
		return fmt.Errorf("there is no group %q", group)
	}
	consumer, err := events.New(s.redis, s.space, s.events, group, handler,
		events.Config{Batch: 500, Idle: groupIdle, Metrics: cfg.Counters, Tracer: s.tracer, Log: s.log})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return consumer.Run(ctx) })
	g.Go(func() error { return send(ctx) })
	return g.Wait()
}

// webhooks returns the handler that stores deliveries, and the service that sends them.
func (s *Stores) webhooks(cfg GroupConfig) (events.Handler, func(context.Context) error) {
	db, sent := webhook.NewStore(s.db), webhook.NewCounters(cfg.Registry)
	progress := events.NewProgress(s.redis, s.space, s.events, webhook.Group)
	sender := webhook.NewSender(db, cfg.Webhooks, progress.Position, webhook.SenderConfig{
		Lease: cfg.WebhookTimeout + webhookLease, Keep: cfg.WebhookKeep,
		Metrics: sent, Log: s.log, Tracer: s.tracer, Parents: s.parents,
	})
	return webhook.Handler(db, func(n int64) {
		sent.Added(n)
		sender.Wake()
	}), sender.Run
}

// webPush returns the service that stores and sends Web Push messages.
func (s *Stores) webPush(cfg GroupConfig) *notify.Service {
	db := notify.NewStore(s.db)
	config := notify.Config{Hold: cfg.PushHold, Registerer: cfg.Registry, Log: s.log}
	cfg.Registry.MustRegister(notify.NewCollector(db))
	if cfg.WebPush.Key.Private == "" {
		s.log.Info("Web Push is off: SLUICE_VAPID_KEY is not set (sluice group vapid prints one)")
	} else {
		config.Web = &cfg.WebPush
	}
	return notify.New(db, config)
}
