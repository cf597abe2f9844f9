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

// backend is the public API, the admin API, and the loops that reconcile Redis with SQL, rebuild it, audit it and relay
// events.
type backend struct {
	cfg      backendConfig
	log      *slog.Logger
	stores   *stores
	registry *prometheus.Registry
	own      *prometheus.Registry // metrics of this process alone; the live stats read them, /metrics exports both
	closers  []func()

	keys      *token.File
	stock     *admission.Stock
	meters    queue.Meters // by shard
	rebuilder *rebuild.Rebuilder
	journal   *rebuild.JournalWriter // nil: no journal
	checker   *audit.Checker
	auditor   *audit.Auditor
	service   *admin.Service
	expirer   *admin.HoldExpirer
	sales     *api.SaleGauges
	live      *notify.Live
	liveStats *livestats.Stats

	changes  *salechange.Hub
	receiver *salechange.Receiver
	events   *events.Counters
	groups   *events.Admin
	webhooks *webhook.Admin
	relay    *events.Relay

	checks        []httpserver.Check
	metrics       *httpserver.Metrics
	public, admin *httpserver.Server
}

// newBackend builds the parts of a backend, each from those before it. run starts them.
func newBackend(
	cfg backendConfig, log *slog.Logger, s *stores, registry *prometheus.Registry,
) (*backend, error) {
	b := &backend{cfg: cfg, log: log, stores: s, registry: registry, own: prometheus.NewRegistry()}
	b.metrics = httpserver.NewMetrics(b.own)
	b.checks = []httpserver.Check{{Name: "redis", Probe: s.pingRedis}, {Name: "database", Probe: s.db.Ping}}
	for _, build := range []func() error{
		b.buildTokens, b.buildQueue, b.buildRecovery, b.buildEvents, b.buildAdmin, b.buildAudit, b.buildPublicAPI,
		b.buildAdminAPI,
	} {
		if err := build(); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// buildTokens opens the keys that verify tokens.
func (b *backend) buildTokens() (err error) {
	if b.keys, err = token.Open(b.cfg.tokenKeys, b.cfg.secret); err != nil {
		return usage("%w", err)
	}
	if private := b.keys.Set().Private(); len(private) > 0 {
		b.log.Warn("the file of token keys holds private parts, which no backend needs", "keys", private)
	}
	return nil
}

// buildQueue builds the sales in Redis and the metrics of the queue.
func (b *backend) buildQueue() error {
	s := b.stores
	b.stock = admission.NewStock(admission.StockConfig{Client: s.redis, Space: s.space, RequireVerified: true})
	b.meters = make(queue.Meters, len(s.queues))
	b.sales = api.NewSaleGauges()
	b.registry.MustRegister(
		guardCollector(s.guard),
		b.sales,
		queue.NewCollector(s.shards(), b.meters, int64(b.cfg.maxReady)),
	)
	return nil
}

// buildRecovery builds the rebuild of Redis and the journal of accepted orders.
func (b *backend) buildRecovery() (err error) {
	if b.rebuilder, err = b.stores.rebuilder(b.log); err != nil {
		return err
	}
	writer, closeJournal, err := b.stores.openJournal(b.cfg.journal, b.log)
	if err != nil {
		return err
	}
	b.journal, b.closers = writer, append(b.closers, closeJournal)
	return nil
}

// buildEvents builds the relay of order events, the admin of groups and webhooks, the events of open pages, and the
// sale notifications.
func (b *backend) buildEvents() error {
	s := b.stores
	urls, err := b.cfg.hooks.client()
	if err != nil {
		return err
	}
	b.events = events.NewCounters(b.registry)
	b.groups = events.NewAdmin(s.redis, s.space, s.events)
	b.webhooks = webhook.NewAdmin(webhook.NewStore(s.db), urls)
	b.registry.MustRegister(webhook.NewCollector(b.webhooks), events.NewCollector(b.groups))
	b.relay = events.NewRelay(s.redis, s.space, s.events, events.RelayConfig{
		Log: b.log, Relayed: b.events.Relayed, Tracer: s.tracer, Notes: s.notes,
	})
	b.changes = &salechange.Hub{}
	b.receiver = salechange.NewReceiver(s.guard.Raw(), s.space, b.changes, salechange.NewMetrics(b.registry), b.log)
	return nil
}

// buildAdmin builds the service that changes sales and dead letters, and the expiry of unpaid orders.
func (b *backend) buildAdmin() error {
	c := admin.Config{
		Store: b.stores.sql, Stock: b.stock, Shards: b.stores.adminShards(), Practice: b.cfg.practice,
		Counters: admin.NewCounters(b.registry), Log: b.log,
	}
	b.service, b.expirer = admin.New(c), admin.NewHoldExpirer(c)
	return nil
}

// buildAudit builds the audit on request and the periodic one.
func (b *backend) buildAudit() (err error) {
	s := b.stores
	b.checker = audit.New(b.stock, s.sql)
	b.auditor, err = audit.NewAuditor(audit.AuditorConfig{
		Checker: b.checker, Space: s.space, Acquire: s.acquireAudit, Pause: b.pause, Generation: s.verifiedGeneration,
		Metrics: audit.NewMetrics(b.registry), Log: b.log,
	})
	return err
}

// buildPublicAPI builds the API of buyers with admission behind it.
func (b *backend) buildPublicAPI() error {
	cfg, s := b.cfg, b.stores
	admitter, err := b.newAdmitter()
	if err != nil {
		return err
	}
	limiter, err := b.userLimiter(cfg)
	if err != nil {
		return err
	}
	var callbacks api.Callbacks // nil without a secret: callbacks are rejected
	if cfg.paymentSecret != "" {
		if callbacks, err = payment.NewVerifier(cfg.paymentSecret, time.Now); err != nil {
			return usage("%s: %w", envPayment, err)
		}
	}
	site, err := buyer.New(buyer.Config{SignIn: cfg.signIn})
	if err != nil {
		return usage("--sign-in: %w", err)
	}
	openPages, openStreams := roomForStreams(cfg.filesPerStream, b.log)
	b.live = notify.NewLive(s.redis, s.space, notify.LiveConfig{Pages: openPages, Registerer: b.registry, Log: b.log})
	c := api.Config{
		Admitter: admitter, Stock: b.stock, Orders: s.sql, Dead: s.shards(), Tokens: b.keys, Points: points.NewStore(s.db),
		Limiter: limiter, SaleChanges: b.changes, Pages: site, MaxStreams: openStreams, Callbacks: callbacks,
		Known: b.known, QueueFull: b.away, Metrics: api.NewMetrics(b.own),
		Server: httpserver.Config{Checks: b.checks, Metrics: b.metrics, Tracer: s.tracer, Log: b.log},
	}
	if err := cfg.webPush.serve(&c, s, b.live); err != nil {
		return err
	}
	b.public, err = api.New(c)
	return err
}

// buildAdminAPI builds the admin API, the live stats and the admin console.
func (b *backend) buildAdminAPI() error {
	cfg, s := b.cfg, b.stores
	b.liveStats = livestats.New(livestats.Config{
		Queue: s.shards(), Pace: b.meters, Store: s.sql, Own: b.own, URLs: cfg.edgeMetrics, Log: b.log,
	})
	b.registry.MustRegister(b.liveStats.Collector())
	console, err := pages.New()
	if err != nil {
		return err
	}
	b.admin, err = adminhttp.New(adminhttp.Config{
		Admin: b.service, Auditor: b.checker, Rebuilder: b.rebuilder, Pace: b.meters, MaxReady: int64(cfg.maxReady),
		Queue: s.shards(), Events: b.groups, Webhooks: b.webhooks, Token: cfg.adminToken,
		EndedSessions: session.NewRedisStore(s.guard.Raw(), s.space), LiveStats: b.liveStats, Pages: console,
		Gatherer: prometheus.Gatherers{b.registry, b.own},
		Server:   httpserver.Config{Checks: b.checks, Metrics: b.metrics, Log: b.log},
	})
	return err
}

// newAdmitter returns the Admitter, which records accepted orders in the journal if there is one.
func (b *backend) newAdmitter() (*admission.Admitter, error) {
	s := b.stores
	c := admission.Config{
		Client: s.pipe, Space: s.space, IDs: admission.NewSequencer(s.redis, s.space, time.Now),
		MaxReady: int64(b.cfg.maxReady), Stream: b.cfg.queue == driverStream,
		Replicas: b.cfg.redisWait, ReplicaClient: s.redis,
	}
	if b.journal != nil {
		c.Recorder = b.journal
	}
	return admission.NewAdmitter(c)
}

// known reports whether a sale that Redis does not hold may exist: SQL has it, or Redis is about to be rebuilt.
func (b *backend) known(saleID string) bool {
	return b.service.Known(saleID) || !b.stores.guard.CheckNow(context.Background(), b.stores.sql.Generations)
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
