package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/admin"
	"sluice/backend/admin/adminhttp"
	"sluice/backend/admin/livestats"
	"sluice/backend/admin/pages"
	"sluice/backend/admin/session"
	"sluice/backend/admission"
	"sluice/backend/api"
	"sluice/backend/audit"
	"sluice/backend/events"
	"sluice/backend/events/notify"
	"sluice/backend/events/points"
	"sluice/backend/events/salechange"
	"sluice/backend/events/webhook"
	"sluice/backend/payment"
	"sluice/backend/queue"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/redisconn"
	"sluice/backend/store"
	"sluice/backend/web/buyer"
	"sluice/backend/web/httpserver"
	"sluice/internal/token"
)

// backend is the API, the admin API, and the loops that keep Redis up to date and cancel what is not paid in time.
type backend struct {
	public, admin *httpserver.Server
	service       *admin.Service
	expirer       *admin.HoldExpirer
	stock         *admission.Stock
	registry      *prometheus.Registry
	figures       *prometheus.Registry // what the desk shows of this process; /metrics has both
	board         *livestats.Stats
	keys          *token.File
	log           *slog.Logger
	stores        *stores
	rebuilder     *rebuild.Rebuilder
	keeper        *rebuild.JournalWriter // nil: no journal
	auditor       *audit.Auditor
	meters        queue.Meters // by shard
	sales         *api.SaleGauges
	relay         *events.Relay
	live          *notify.Live
	signals       *salechange.Receiver
	events        *events.Counters
	closers       []func()
}

func newBackend(cfg backendConfig, log *slog.Logger, s *stores, registry *prometheus.Registry) (*backend, error) {
	b := &backend{
		registry: registry, figures: prometheus.NewRegistry(), stores: s, log: log,
		stock:  admission.NewStock(admission.StockConfig{Client: s.redis, Space: s.space, RequireVerified: true}),
		meters: make(queue.Meters, len(s.queues)), sales: api.NewSaleGauges(),
	}
	var err error
	if b.rebuilder, err = s.rebuilder(log); err != nil {
		return nil, err
	}
	b.registry.MustRegister(guardCollector(s.guard), b.sales,
		queue.NewCollector(s.shards(), b.meters, int64(cfg.maxReady)))
	eventDesk := events.NewAdmin(s.redis, s.space, s.events)
	b.events = events.NewCounters(b.registry)
	urls, err := cfg.hooks.client()
	if err != nil {
		return nil, err
	}
	hooks := webhook.NewAdmin(webhook.NewStore(s.db), urls)
	b.registry.MustRegister(webhook.NewCollector(hooks))
	b.registry.MustRegister(events.NewCollector(eventDesk))
	b.relay = events.NewRelay(s.redis, s.space, s.events, events.RelayConfig{Log: log, Relayed: b.events.Relayed, Tracer: s.tracer, Notes: s.notes})
	hub := &salechange.Hub{}
	b.signals = salechange.NewReceiver(s.guard.Raw(), s.space, hub, salechange.NewMetrics(b.registry), log)
	keys, err := token.Open(cfg.tokenKeys, cfg.secret)
	if err != nil {
		return nil, usage("%w", err)
	}
	if private := keys.Set().Private(); len(private) > 0 {
		log.Warn("the file of token keys holds private parts, which no backend needs", "keys", private)
	}
	b.keys, b.log = keys, log
	limiter, err := b.userLimiter(cfg)
	if err != nil {
		return nil, err
	}
	adminConfig := admin.Config{
		Store: s.sql, Stock: b.stock, Shards: s.adminShards(), Practice: cfg.practice, Counters: admin.NewCounters(b.registry), Log: log,
	}
	b.service = admin.New(adminConfig)
	b.expirer = admin.NewHoldExpirer(adminConfig)
	metrics := httpserver.NewMetrics(b.figures)
	admitter, err := b.newAdmitter(cfg)
	if err != nil {
		return nil, err
	}
	checker := audit.New(b.stock, s.sql)
	b.auditor, err = audit.NewAuditor(audit.AuditorConfig{
		Checker: checker, Space: s.space, Acquire: s.acquireAudit, Pause: b.pause, Generation: s.verifiedGeneration,
		Metrics: audit.NewMetrics(b.registry), Log: log,
	})
	if err != nil {
		return nil, err
	}
	checks := []httpserver.Check{{Name: "redis", Probe: s.pingRedis}, {Name: "database", Probe: s.db.Ping}}
	var callbacks api.Callbacks // without a secret there are none
	if cfg.paymentSecret != "" {
		if callbacks, err = payment.NewVerifier(cfg.paymentSecret, time.Now); err != nil {
			return nil, usage("%s: %w", envPayment, err)
		}
	}
	site, err := buyer.New(buyer.Config{SignIn: cfg.signIn})
	if err != nil {
		return nil, usage("--sign-in: %w", err)
	}
	openPages, openStreams := roomForStreams(cfg.filesPerStream, log)
	b.live = notify.NewLive(s.redis, s.space, notify.LiveConfig{Pages: openPages, Registerer: b.registry, Log: log})
	public := api.Config{
		Admitter: admitter, Stock: b.stock, Orders: s.sql, Dead: s.shards(), Tokens: keys, Points: points.NewStore(s.db), Limiter: limiter,
		SaleChanges: hub, Pages: site, MaxStreams: openStreams, Callbacks: callbacks, Known: b.known, QueueFull: b.away,
		Metrics: api.NewMetrics(b.figures), Server: httpserver.Config{Checks: checks, Metrics: metrics, Tracer: s.tracer, Log: log},
	}
	if err := cfg.webPush.serve(&public, s, b.live); err != nil {
		return nil, err
	}
	if b.public, err = api.New(public); err != nil {
		return nil, err
	}
	b.board = livestats.New(livestats.Config{Queue: s.shards(), Pace: b.meters, Store: s.sql, Own: b.figures, URLs: cfg.edgeMetrics, Log: log})
	b.registry.MustRegister(b.board.Collector())
	deskPages, err := pages.New()
	if err != nil {
		return nil, err
	}
	b.admin, err = adminhttp.New(adminhttp.Config{
		Admin: b.service, Auditor: checker, Rebuilder: b.rebuilder, Pace: b.meters, MaxReady: int64(cfg.maxReady), Queue: s.shards(),
		Events: eventDesk, Webhooks: hooks, Token: cfg.adminToken, EndedSessions: session.NewRedisStore(s.guard.Raw(), s.space),
		LiveStats: b.board, Pages: deskPages, Gatherer: prometheus.Gatherers{b.registry, b.figures},
		Server: httpserver.Config{Checks: checks, Metrics: metrics, Log: log},
	})
	return b, err
}

// newAdmitter opens the journal and returns the Admitter that records in it.
func (b *backend) newAdmitter(cfg backendConfig) (*admission.Admitter, error) {
	s := b.stores
	writer, closeJournal, err := s.openJournal(cfg.journal, b.log)
	if err != nil {
		return nil, err
	}
	b.closers = append(b.closers, closeJournal)
	c := admission.Config{
		Client: s.pipe, Space: s.space, IDs: admission.NewSequencer(s.redis, s.space, time.Now),
		MaxReady: int64(cfg.maxReady), Stream: cfg.queue == driverStream, Replicas: cfg.redisWait, ReplicaClient: s.redis,
	}
	if writer != nil {
		b.keeper, c.Recorder = writer, writer
	}
	return admission.NewAdmitter(c)
}

// known reports whether a sale that Redis does not hold may exist: SQL has it, or Redis is about to be rebuilt.
func (b *backend) known(saleID string) bool {
	return b.service.Known(saleID) || !b.stores.guard.CheckNow(context.Background(), b.stores.sql)
}

// away returns the Retry-After for a sale with a full queue.
func (b *backend) away(saleID string) time.Duration {
	return b.meters.RetryAfter(int(b.stores.space.ShardOf(saleID)))
}

// pause pauses a sale on behalf of the audit.
func (b *backend) pause(ctx context.Context, saleID, reason string) error {
	_, err := b.service.Pause(store.WithReason(ctx, reason), "audit", saleID)
	return err
}

func (b *backend) userLimiter(cfg backendConfig) (*admission.UserLimiter, error) {
	rate := cfg.userRate
	if rate == "" {
		rate = admission.DefaultUserRate
	}
	if cfg.limitRedisURL == "" {
		return admission.NewUserLimiter(rate, nil)
	}
	client, err := redisconn.Open(cfg.limitRedisURL)
	if err != nil {
		return nil, usage("%s: %w", envLimitRedis, err)
	}
	pipe, err := redisconn.NewPipeline(client)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", envLimitRedis, err)
	}
	b.closers = append(b.closers, func() { _ = client.Close() })
	return admission.NewUserLimiter(rate, pipe)
}
