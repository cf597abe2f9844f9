package main

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"sluice/backend/events"
	"sluice/backend/events/webhook"
	"sluice/internal/outbound"
)

const (
	envAllowPrivate   = "SLUICE_ALLOW_PRIVATE"
	envWebhookTimeout = "SLUICE_WEBHOOK_TIMEOUT"
)

// webhookConfig is what webhooks are sent with.
type webhookConfig struct {
	private []string
	timeout time.Duration
	keep    time.Duration
}

// allowPrivateFlag is the one that backends need too, to judge the URLs of endpoints.
func (p *program) allowPrivateFlag(f *pflag.FlagSet, cfg *webhookConfig) {
	f.StringSliceVar(
		&cfg.private,
		"allow-private",
		p.list(envAllowPrivate),
		"networks that webhooks may be sent to though they are not public, such as 10.0.0.0/8; there also by http:// ["+envAllowPrivate+"]",
	)
}

const (
	defaultWebhookTimeout = 15 * time.Second
	maxWebhookTimeout     = 2 * time.Minute
	minWebhookKeep        = time.Hour
)

func (p *program) webhookFlags(f *pflag.FlagSet, cfg *webhookConfig) {
	p.allowPrivateFlag(f, cfg)
	timeout, err := time.ParseDuration(p.getenv(envWebhookTimeout))
	if err != nil {
		timeout = defaultWebhookTimeout
		if p.getenv(envWebhookTimeout) != "" {
			timeout = 0 // refused
		}
	}
	f.DurationVar(
		&cfg.timeout,
		"webhook-timeout",
		timeout,
		"how long an endpoint may take for its whole answer ["+envWebhookTimeout+"]",
	)
	f.DurationVar(
		&cfg.keep,
		"webhook-keep",
		7*24*time.Hour,
		"how long delivered webhooks stay in the log; those that are not delivered stay",
	)
}

func (cfg webhookConfig) networks() ([]netip.Prefix, error) {
	return outbound.ParseNetworks(cfg.private)
}

func (m *problems) checkPrivate(cfg webhookConfig) {
	if _, err := cfg.networks(); err != nil {
		m.add("--allow-private: %v", err)
	}
}

func (m *problems) checkWebhooks(cfg webhookConfig) {
	m.checkPrivate(cfg)
	if cfg.timeout < 100*time.Millisecond || cfg.timeout > maxWebhookTimeout {
		m.add("--webhook-timeout must be between 100ms and %s", strings.TrimSuffix(maxWebhookTimeout.String(), "0s"))
	}
	if cfg.keep < minWebhookKeep {
		m.add("--webhook-keep must be at least 1h")
	}
}

// client is what webhooks are sent with, and their URLs judged.
func (cfg webhookConfig) client() (*outbound.Client, error) {
	networks, err := cfg.networks()
	if err != nil {
		return nil, usage("--allow-private: %w", err)
	}
	return outbound.New(outbound.Config{AllowPrivate: networks, Timeout: cfg.timeout, UserAgent: "sluice-webhooks"}), nil
}

// webhookLease is how much longer a delivery is leased than its request may take.
const webhookLease = 5 * time.Second

// runWebhooks runs one instance of the group that sends webhooks, until ctx ends: what brings deliveries stops first.
func runWebhooks(
	ctx context.Context,
	log *slog.Logger,
	s *stores,
	cfg webhookConfig,
	counters *events.Counters,
	sent *webhook.Counters,
) error {
	client, err := cfg.client()
	if err != nil {
		return err
	}
	defer client.Close()
	sender := webhook.NewSender(
		webhook.NewStore(s.db),
		client,
		events.NewProgress(s.redis, s.space, s.events, webhook.Group),
		webhook.SenderConfig{
			Lease: cfg.timeout + webhookLease, Keep: cfg.keep, Metrics: sent, Log: log, Tracer: s.tracer, Notes: s.notes,
		},
	)
	handler := webhook.Handler(webhook.NewStore(s.db), func(n int64) {
		sent.Added(n)
		sender.Wake()
	})
	c, err := events.New(
		s.redis,
		s.space,
		s.events,
		webhook.Group,
		handler,
		events.Config{Batch: 500, Idle: pointsIdle, Metrics: counters, Tracer: s.tracer, Log: log},
	)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.Run(ctx) })
	g.Go(func() error { return sender.Run(ctx) })
	return g.Wait()
}
