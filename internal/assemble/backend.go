package assemble

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"sluice/backend/admin"
	"sluice/backend/admin/adminhttp"
	"sluice/backend/admission"
	"sluice/backend/api"
	"sluice/backend/audit"
	"sluice/backend/events"
	"sluice/backend/events/notify"
	"sluice/backend/events/salechange"
	"sluice/backend/events/webhook"
	"sluice/backend/payment"
	"sluice/backend/queue"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/web/buyer"
	"sluice/backend/web/httpserver"
	"sluice/internal/outbound"
	"sluice/internal/token"
)

// BackendConfig configures NewBackend. Fields without a default in their comment are required.
type BackendConfig struct {
	Tokens         *token.Keys
	AdminToken     string
	UserRate       string            // limit per buyer, such as 10-S; empty: userlimit.DefaultRate
	LimitRedis     string            // URL of the Redis that counts for UserRate; empty: this process counts separately
	OrdersReplica  string            // URL of a streaming replica of the database for status queries; empty: none
	Callbacks      *payment.Verifier // nil: callbacks of the payment provider are rejected
	Site           *buyer.Pages      // the pages of buyers
	EdgeMetrics    []string          // URLs of the /metrics of edges and other backends
	Policies       adminhttp.PolicyTrial
	Practice       []string // sales that do not count as real for rehearsals
	Journal        JournalConfig
	MaxReady       int              // orders that may wait in one shard
	Replicas       int              // replicas of Redis that must have an order before the 202
	WebhookURLs    *outbound.Client // checks the URLs of endpoints
	PushURLs       *outbound.Client // checks the URLs of Web Push subscriptions
	PushKey        notify.Key       // zero: Web Push is off
	FilesPerStream int              // open files of an event stream in this process; 0: 1
	Registry       *prometheus.Registry
}

// PageBlocking is how many calls of a backend wait in Redis for the events of open pages.
const PageBlocking = 1

// Backend is the public API, the admin API, and the loops that reconcile Redis with SQL, rebuild it, audit it and relay
// events.
type Backend struct {
	Admin *admin.Service
	Own   *prometheus.Registry // metrics of this process alone; the live stats read them, /metrics exports both

	cfg     BackendConfig
	log     *slog.Logger
	stores  *Stores
	closers []func()
	first   []func(context.Context) error // loops that run from the start
	loops   []func(context.Context) error // loops that use verified data; see awaitVerified

	stock     *admission.Stock
	meters    queue.Meters // by shard
	mover     *spread.Mover
	refillers *spread.Refillers
	rebuilder *rebuild.Rebuilder
	journals  rebuild.JournalWriters // by shard; nil: no journal
	checker   *audit.Checker
	dead      *admin.DeadLetters
	sales     *api.SaleGauges
	changes   *salechange.Hub
	groups    *events.Admin
	webhooks  *webhook.Admin

	// Counters are those of the groups in this process.
	Counters *events.Counters

	server        httpserver.Config
	public, admin *httpserver.Server
}

// NewBackend builds the parts of a backend, each from the previous ones. Run starts them.
func NewBackend(s *Stores, cfg BackendConfig) (*Backend, error) {
	b := &Backend{cfg: cfg, log: s.log, stores: s, Own: prometheus.NewRegistry()}
	b.server = httpserver.Config{
		Metrics: httpserver.NewMetrics(b.Own), Log: b.log,
		Checks: []httpserver.Check{
			{Name: "redis", Probe: s.pingRedis, Detail: redisDetail},
			{Name: "database", Probe: s.db.Ping, Detail: databaseDetail},
		},
	}
	for _, build := range []func() error{
		b.buildQueue, b.buildRecovery, b.buildEvents, b.buildAdmin, b.buildAudit, b.buildPublicAPI, b.buildAdminAPI,
	} {
		if err := build(); err != nil {
			return nil, err
		}
	}
	b.loops = append(b.loops, b.measure)
	b.first = append(b.first, b.followKeys, b.runGuard)
	return b, nil
}

// buildQueue builds the sales in Redis and the metrics of the queue.
func (b *Backend) buildQueue() error {
	s := b.stores
	b.mover = spread.NewMover(admission.NewSegments(s.redis, s.space, s.guards.Deployment), s.tables)
	b.stock = admission.NewStock(admission.StockConfig{
		Client: s.redis, Server: s.guardedClient, Space: s.space, Deployment: s.guards.Deployment, Claimer: s.tables,
		Mover: b.mover,
	})
	b.refillers = spread.NewRefillers(b.mover)
	b.loops = append(b.loops, b.refill, b.settleEnded)
	b.meters = make(queue.Meters, len(s.queues))
	b.sales = api.NewSaleGauges()
	s.registerVerified(b.cfg.Registry)
	b.cfg.Registry.MustRegister(
		b.sales, queue.NewCollector(s.shards, b.meters, int64(b.cfg.MaxReady)))
	return nil
}

// buildRecovery builds the rebuild of Redis and the journal of accepted orders.
func (b *Backend) buildRecovery() (err error) {
	writers, closeJournals, err := b.stores.openJournals(b.cfg.Journal, b.cfg.Registry)
	b.closers = append(b.closers, closeJournals...)
	if err != nil {
		return err
	}
	if writers != nil {
		b.journals, b.first = writers, append(b.first, writers.Run)
	}
	b.rebuilder, err = b.stores.newRebuilder(writers)
	return err
}

// buildEvents builds the relay of order events, the admin of groups and webhooks, the events of open pages, and the
// sale notifications.
func (b *Backend) buildEvents() error {
	s, registry := b.stores, b.cfg.Registry
	b.Counters = events.NewCounters(registry)
	b.groups = events.NewAdmin(s.redis, s.space, s.events)
	b.webhooks = webhook.NewAdmin(webhook.NewStore(s.db), b.cfg.WebhookURLs)
	registry.MustRegister(webhook.NewCollector(b.webhooks), events.NewCollector(b.groups))
	relayed := events.RelayConfig{Log: b.log, Metrics: b.Counters, Tracer: s.tracer, Parents: s.parents}
	if s.alone {
		relayed.Turn = time.Minute // no other relay competes
	}
	relay := events.NewRelay(s.redis, s.space, s.events, relayed)
	b.changes = &salechange.Hub{}
	unguarded := func(shard keyspace.Shard) redisconn.Client { return s.guards.Of(shard).Raw() }
	receiver := salechange.NewReceiver(unguarded, s.space, b.changes, registry, b.log)
	b.loops = append(b.loops, relay.Run, receiver.Run)
	return nil
}

// reconcileEvery is the interval at which each backend brings Redis up to date with SQL. It bounds how long a change
// stays unapplied after a crash between SQL and Redis.
const reconcileEvery = 2 * time.Second

// returnEvery is how often each backend looks for orders that were not paid in time. It bounds the delay until their
// units are sold again.
const returnEvery = time.Second

// buildAdmin builds the service that changes sales and dead letters, and the expiry of unpaid orders.
func (b *Backend) buildAdmin() error {
	s := b.stores
	c := admin.Config{
		Store: s.tables, Stock: b.stock, Practice: b.cfg.Practice, Refillers: b.refillers,
		Counters: admin.NewCounters(b.cfg.Registry), Log: b.log,
	}
	for _, q := range s.queues {
		c.Shards = append(c.Shards, q)
	}
	b.Admin, b.dead = admin.New(c), admin.NewDeadLetters(c)
	expirer := admin.NewHoldExpirer(c)
	b.loops = append(b.loops,
		func(ctx context.Context) error { return b.Admin.Run(ctx, reconcileEvery) },
		func(ctx context.Context) error { return expirer.Run(ctx, returnEvery) })
	return nil
}

func (b *Backend) buildAudit() error {
	s := b.stores
	b.checker = audit.New(b.stock, s.tables)
	auditor, err := audit.NewAuditor(audit.AuditorConfig{
		Checker: b.checker, Space: s.space, Acquire: s.acquireAudit, Generation: s.verifiedGeneration,
		Pause: func(ctx context.Context, saleID, reason string) error {
			_, err := b.Admin.SetSwitch(store.WithReason(store.WithActor(ctx, store.ActorAudit), reason), saleID, sale.Paused)
			return err
		},
		Metrics: audit.NewMetrics(b.cfg.Registry), Log: b.log,
	})
	if err != nil {
		return err
	}
	b.loops = append(b.loops, auditor.Run)
	return nil
}

// auditEvery is how often each sale is audited, by the backend that takes the lock first.
const auditEvery = 30 * time.Second

// acquireAudit reports whether this process may audit a shard now. The lock is not released: it expires before the next
// audit is due.
func (s *Stores) acquireAudit(ctx context.Context, shard keyspace.Shard) bool {
	lock, err := redisconn.Acquire(ctx, s.redis, shard.AuditLock(), auditEvery*9/10)
	return err == nil && lock != nil
}

// Run registers the journals in SQL, and serves until ctx ends and open requests are answered.
func (b *Backend) Run(ctx context.Context, public, admin net.Listener) error {
	defer func() {
		for _, c := range b.closers {
			c()
		}
	}()
	if err := registerJournals(ctx, b.log, b.journals.Register); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.public.Serve(ctx, public) })
	g.Go(func() error { return b.admin.Serve(ctx, admin) })
	for _, run := range b.first {
		g.Go(func() error { return run(ctx) })
	}
	awaitVerified(ctx, b.stores.guards)
	for _, run := range b.loops {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}

// followKeys keeps the token keys current, and logs their changes and errors.
func (b *Backend) followKeys(ctx context.Context) error {
	b.cfg.Tokens.Follow(ctx, func(err error) { b.cfg.Tokens.LogChange(b.log, err) })
	return nil
}
