package assemble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
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
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/web/buyer"
	"sluice/backend/web/httpserver"
	"sluice/internal/loop"
	"sluice/internal/outbound"
	"sluice/internal/token"
)

// BackendConfig configures NewBackend. Fields without a default in their comment are required.
type BackendConfig struct {
	Tokens         *token.File
	AdminToken     string
	UserRate       string            // limit per buyer, such as 10-S; empty: admission.DefaultUserRate
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
	Stock *admission.Stock
	Own   *prometheus.Registry // metrics of this process alone; the live stats read them, /metrics exports both

	cfg     BackendConfig
	log     *slog.Logger
	stores  *Stores
	closers []func()
	first   []func(context.Context) error // loops that run from the start
	loops   []func(context.Context) error // loops that use verified data; see awaitVerified

	verifyWait time.Duration // the bound of awaitVerified

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
	b := &Backend{cfg: cfg, log: s.log, stores: s, Own: prometheus.NewRegistry(), verifyWait: verifyWait}
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

// pingRedis returns nil if at least one shard is available, verified and writable: a backend that can sell from some
// shards stays in use.
func (s *Stores) pingRedis(ctx context.Context) error {
	shards := s.space.All()
	results := make(chan error, len(shards))
	for _, shard := range shards {
		go func() { results <- s.pingShard(ctx, shard) }()
	}
	var failed []error
	for range shards {
		err := <-results
		if err == nil {
			return nil
		}
		failed = append(failed, err)
	}
	return fmt.Errorf("redis: %w", errors.Join(failed...))
}

func (s *Stores) pingShard(ctx context.Context, shard keyspace.Shard) error {
	client := s.guards.Of(shard).Client()
	if s.alone { // the embedded Redis rejects no write, and SETRANGE would create the key
		return client.Ping(ctx).Err()
	}
	return redisconn.Writable(ctx, client, shard.RebuildLock())
}

// shardStatus returns the state of each shard, by number. The Reason of a verified shard is why its Redis rejects
// writes.
func (s *Stores) shardStatus(ctx context.Context) []guard.Status {
	all := s.guards.Status(ctx, s.tables)
	var wg sync.WaitGroup
	for i := range all {
		if now := &all[i]; now.Verified {
			wg.Go(func() {
				if err := s.pingShard(ctx, now.Shard); err != nil {
					now.Reason = cmp.Or(shardDetail(err), err.Error())
				}
			})
		}
	}
	wg.Wait()
	return all
}

// redisDetail describes an error of pingRedis, with the state of every shard; "" if all are down.
func redisDetail(err error) string {
	shards, failed := errors.AsType[joinedErrors](err)
	if !failed {
		return ""
	}
	var states []string
	for _, err := range shards.Unwrap() {
		states = append(states, cmp.Or(shardDetail(err), "down"))
	}
	slices.Sort(states)
	states = slices.Compact(states)
	if slices.Equal(states, []string{"down"}) {
		return ""
	}
	return strings.Join(states, "; ")
}

// joinedErrors is an error of errors.Join.
type joinedErrors interface {
	error
	Unwrap() []error
}

// shardDetail describes an error of pingShard; "" if it is not one of these.
func shardDetail(err error) string {
	switch {
	case errors.Is(err, guard.ErrUnverified):
		return "not verified (sluice shard list has the reason)"
	case redis.IsReadOnlyError(err):
		return "read-only (it is a replica; the URL must lead to the master)"
	case redis.IsOOMError(err):
		return "its memory is full (raise maxmemory)"
	case redis.IsNoReplicasError(err):
		return "too few replicas (min-replicas-to-write)"
	case redis.HasErrorPrefix(err, "MISCONF"):
		return "it cannot save (its log names the reason, such as a full disk)"
	case redis.HasErrorPrefix(err, "NOPERM"):
		return "its user lacks a permission (the log names the command)"
	}
	return ""
}

func databaseDetail(err error) string {
	if errors.Is(err, store.ErrReadOnly) {
		return "read-only (the URL must lead to the primary)"
	}
	return ""
}

// buildQueue builds the sales in Redis and the metrics of the queue.
func (b *Backend) buildQueue() error {
	s := b.stores
	b.mover = spread.NewMover(admission.NewSegments(s.redis, s.space, s.guards.Deployment), s.tables)
	b.Stock = admission.NewStock(admission.StockConfig{
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
	if b.rebuilder, err = b.stores.newRebuilder(); err != nil {
		return err
	}
	writers, closeJournals, err := b.stores.openJournals(b.cfg.Journal)
	b.closers = append(b.closers, closeJournals)
	if writers != nil {
		b.journals, b.first = writers, append(b.first, writers.Run)
	}
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
	unguarded := func(shard keyspace.Shard) *redis.Client { return s.guards.Of(shard).Raw() }
	receiver := salechange.NewReceiver(unguarded, s.space, b.changes, salechange.NewMetrics(registry), b.log)
	b.loops = append(b.loops, relay.Run, receiver.Run)
	return nil
}

// guardedClient returns the guarded client of a shard.
func (s *Stores) guardedClient(shard keyspace.Shard) *redis.Client {
	return s.guards.Of(shard).Client()
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
		Store: s.tables, Stock: b.Stock, Practice: b.cfg.Practice, Counters: admin.NewCounters(b.cfg.Registry), Log: b.log,
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

// buildAudit builds the audit on request and the periodic one.
func (b *Backend) buildAudit() error {
	s := b.stores
	b.checker = audit.New(b.Stock, s.tables)
	auditor, err := audit.NewAuditor(audit.AuditorConfig{
		Checker: b.checker, Space: s.space, Acquire: s.acquireAudit, Generation: s.verifiedGeneration,
		Pause: func(ctx context.Context, saleID, reason string) error {
			_, err := b.Admin.Pause(store.WithReason(ctx, reason), store.ActorAudit, saleID)
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

// Run serves until ctx ends and open requests are answered.
func (b *Backend) Run(ctx context.Context, public, admin net.Listener) error {
	defer func() {
		for _, c := range b.closers {
			c()
		}
	}()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.public.Serve(ctx, public) })
	g.Go(func() error { return b.admin.Serve(ctx, admin) })
	for _, run := range b.first {
		g.Go(func() error { return run(ctx) })
	}
	b.awaitVerified(ctx)
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

// every calls do immediately and then at each tick of the interval, until ctx ends.
func every(ctx context.Context, interval time.Duration, do func()) {
	for ctx.Err() == nil {
		do()
		loop.Tick(ctx, interval)
	}
}

// meterEvery is how often the pace of the queue is measured.
const meterEvery = 2 * time.Second

// measure updates the meters of the queue until ctx ends. They keep their values while Redis does not respond.
func (b *Backend) measure(ctx context.Context) error {
	every(ctx, meterEvery, func() {
		ctx, cancel := context.WithTimeout(ctx, meterEvery)
		defer cancel()
		views, err := b.Stock.List(ctx)
		if err != nil {
			return
		}
		b.sales.Set(views)
		shards, err := b.stores.shards.ByShard(ctx)
		if err != nil {
			return
		}
		accepted := make([]int64, len(shards))
		for _, v := range views {
			if len(v.Segments) == 0 {
				accepted[b.stores.space.ShardOf(v.ID)] += v.Accepted
			}
			for _, segment := range v.Segments {
				accepted[segment.Shard] += segment.Accepted
			}
		}
		for i, one := range shards {
			if one != nil {
				b.meters[i].Sample(time.Now(), accepted[i], *one)
			}
		}
	})
	return nil
}
