package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"sluice/backend/admission"
	"sluice/backend/api"
	"sluice/backend/board"
	"sluice/backend/desk"
	"sluice/backend/deskpage"
	"sluice/backend/epoch"
	"sluice/backend/event"
	"sluice/backend/ledger"
	"sluice/backend/order"
	"sluice/backend/payment"
	"sluice/backend/push"
	"sluice/backend/queue"
	"sluice/backend/rebuild"
	"sluice/backend/redisconn"
	"sluice/backend/signal"
	"sluice/backend/web"
	"sluice/backend/webhook"
	"sluice/internal/token"
)

// reconcileEvery is how often each backend brings Redis up to date with SQL. It bounds how long a change stays unseen whose author died half way.
const reconcileEvery = 2 * time.Second

// keysEvery is how often a file of token keys is looked at, as the gateway looks at its policy.
const keysEvery = time.Second

type backendConfig struct {
	storesConfig
	listen, admin                string
	limitRedisURL                string
	secret, adminToken, userRate string
	tokenKeys                    string
	paymentSecret                string
	signIn                       string
	edgeMetrics                  []string
	journal                      journalConfig
	maxReady, redisWait          int
	hooks                        webhookConfig
	webPush                      webPushConfig
	pauseRedis                   func(ctx context.Context, span time.Duration) error // nil: CLIENT PAUSE
}

func (p *program) backendCommand() *cobra.Command {
	var cfg backendConfig
	c := &cobra.Command{
		Use:   "backend",
		Short: "Run the API and the operator's API",
		Long: `Decide purchases. Run two or more behind an edge. Needs ` + envSecret + ` (at least 32 bytes, the same everywhere),
--token-keys or both, and ` + envAdminToken + `. With ` + envLimitRedis + ` the per-user limit (` + envUserRate + `) counts over all backends; without it, each counts for itself.`,
		Example: `  sluice backend --listen :8080 --admin 127.0.0.1:8081 --redis redis://10.0.0.3:6379/0 --database postgres://sluice@10.0.0.4/sluice`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.secret, cfg.adminToken = p.getenv(envSecret), p.getenv(envAdminToken)
			cfg.limitRedisURL, cfg.userRate = p.getenv(envLimitRedis), p.getenv(envUserRate)
			cfg.paymentSecret, cfg.webPush = p.getenv(envPayment), p.webPushEnv()
			cfg.blocking = pushBlocking
			if err := cfg.check(); err != nil {
				return err
			}
			log := p.logger()
			tracer, err := p.openTracer(cmd.Context(), "sluice-backend", log)
			if err != nil {
				return err
			}
			defer tracer.Close()
			s, err := openStores(cmd.Context(), log, cfg.storesConfig, nil, queue.Config{})
			if err != nil {
				return err
			}
			defer s.close()
			s.trace(tracer)
			if p.getenv("GOGC") == "" {
				debug.SetGCPercent(gcPercent)
			}
			b, err := newBackend(cfg, log, s, newRegistry())
			if err != nil {
				return err
			}
			public, err := listen(cmd.Context(), "listen", cfg.listen)
			if err != nil {
				return err
			}
			admin, err := listen(cmd.Context(), "admin", cfg.admin)
			if err != nil {
				return err
			}
			log.Info("backend is up", "listen", public.Addr().String(), "admin", admin.Addr().String())
			return b.run(cmd.Context(), public, admin)
		},
	}
	f := c.Flags()
	p.str(f, &cfg.listen, "listen", envListen, defaultListen, "where to listen, host:port")
	p.str(f, &cfg.admin, "admin", envAdmin, defaultAdmin, "where operators are answered, host:port; keep it private")
	p.str(f, &cfg.redisURL, "redis", envRedis, "", redisHelp)
	p.str(f, &cfg.database, "database", envDatabase, "", "order store, postgres://... or sqlite:...")
	p.queueFlags(f, &cfg)
	p.str(f, &cfg.journal.dir, "journal", envJournal, "", "folder of this backend's own in which accepted orders are written down until they are rows (default: nowhere)")
	p.journalFlags(f, &cfg.journal)
	p.allowPrivateFlag(f, &cfg.hooks)
	p.str(f, &cfg.tokenKeys, "token-keys", envKeys, "", keysHelp+"; read again when it changes")
	p.pageFlags(f, &cfg)
	p.deskFlags(f, &cfg)
	return c
}

// pageFlags are about the pages that buyers see.
func (p *program) pageFlags(f *pflag.FlagSet, cfg *backendConfig) {
	p.str(f, &cfg.signIn, "sign-in", envSignIn, "", "where the page sends buyers who have no token, https://shop.example/login?back={url}; they come back with #token=TOKEN (default: a field for the token)")
}

func (cfg backendConfig) check() error {
	var bad mistakes
	bad.checkListen("listen", cfg.listen)
	bad.checkListen("admin", cfg.admin)
	bad.checkTokens(cfg.secret, cfg.tokenKeys)
	bad.checkJournal(cfg.journal)
	bad.checkLanes(cfg.lanes)
	bad.checkDriver(cfg.queue)
	bad.checkPrivate(cfg.hooks)
	bad.checkWebPush(cfg.webPush)
	bad.checkMetricsURLs(cfg.edgeMetrics)
	if cfg.maxReady < 1 {
		bad.add("--max-ready must be at least 1")
	}
	bad.checkWait(cfg.redisWait, cfg.redisURL == embeddedURL)
	if cfg.adminToken == "" {
		bad.add("%s is not set: it guards the operator's API", envAdminToken)
	}
	if cfg.redisURL == "" {
		bad.add("no Redis: set %s or --redis", envRedis)
	} else {
		bad.checkRedis("--redis", cfg.redisURL)
	}
	if cfg.limitRedisURL != "" {
		bad.checkRedis(envLimitRedis, cfg.limitRedisURL)
	}
	if cfg.database == "" {
		bad.add("no database: set %s or --database", envDatabase)
	}
	if _, err := web.New(web.Config{SignIn: cfg.signIn}); err != nil {
		bad.add("--sign-in: %v", err)
	}
	if cfg.paymentSecret != "" {
		if _, err := payment.NewVerifier(cfg.paymentSecret, time.Now); err != nil {
			bad.add("%s: %v", envPayment, err)
		}
	}
	if cfg.userRate != "" {
		if _, err := admission.NewUserLimiter(cfg.userRate, nil); err != nil {
			bad.add("%s: %v", envUserRate, err)
		}
	}
	return bad.err()
}

// returnEvery is how often each backend looks for orders that were not paid in time. It bounds how late their units are sold again.
const returnEvery = time.Second

// gcPercent lets the heap grow to five times what is live before it is collected: a backend keeps little and makes much garbage, so collecting at the
// default costs a tenth of its time and saves a few megabytes. GOGC in the environment wins.
const gcPercent = 400

// backend is the API, the operator's API, and the loops that keep Redis up to date and cancel what is not paid in time.
type backend struct {
	public, operator *api.App
	desk             *desk.Desk
	returner         *desk.Returner
	stock            *admission.Stock
	registry         *prometheus.Registry
	figures          *prometheus.Registry // what the desk shows of this process; /metrics has both
	board            *board.Board
	keys             *token.File
	log              *slog.Logger
	stores           *stores
	rebuilder        *rebuild.Rebuilder
	keeper           *rebuild.Keeper // nil: no journal
	auditor          *ledger.Auditor
	meters           queue.Meters // by lane
	sales            *api.SaleGauges
	relay            *event.Relay
	live             *push.Live
	signals          *signal.Receiver
	events           *event.Counters
	closers          []func()
}

func newBackend(cfg backendConfig, log *slog.Logger, s *stores, registry *prometheus.Registry) (*backend, error) {
	b := &backend{registry: registry, figures: prometheus.NewRegistry(), stock: admission.NewStock(s.redis, s.space).OnlyVerified(), stores: s, rebuilder: s.rebuilder(log), meters: make(queue.Meters, len(s.queues)), sales: api.NewSaleGauges()}
	b.registry.MustRegister(guardCollector(s.guard), b.sales,
		api.NewQueueCollector(s.lanes(), b.meters, int64(cfg.maxReady)))
	eventDesk := event.NewDesk(s.redis, s.space, s.orders)
	b.events = event.NewCounters(b.registry)
	urls, err := cfg.hooks.client()
	if err != nil {
		return nil, err
	}
	hooks := webhook.NewDesk(s.orders, urls)
	b.registry.MustRegister(webhook.NewCollector(hooks))
	b.registry.MustRegister(event.NewCollector(eventDesk))
	b.relay = event.NewRelay(s.redis, s.space, s.orders, event.RelayConfig{Log: log, Relayed: b.events.Relayed, Tracer: s.tracer, Notes: s.notes})
	hub := &signal.Hub{}
	b.signals = signal.NewReceiver(s.guard.Raw(), s.space, hub, signal.NewMetrics(b.registry), log)
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
	counters := desk.NewCounters(b.registry)
	b.desk = desk.New(s.orders, b.stock, s.deskLanes(), log)
	b.desk.CountWith(counters)
	if cfg.pauseRedis == nil {
		cfg.pauseRedis = s.pauseRedis
	}
	b.desk.PauseWith(cfg.pauseRedis)
	b.returner = desk.NewReturner(s.orders, b.stock, counters, log)
	metrics := api.NewMetrics(b.figures)
	admitter := admission.NewAdmitter(s.pipe, s.space, admission.NewSequencer(s.redis, s.space, time.Now))
	admitter.MaxReady(int64(cfg.maxReady))
	admitter.AwaitReplicas(s.redis, cfg.redisWait)
	if cfg.queue == driverStream {
		admitter.IntoStream()
	}
	keeper, closeJournal, err := s.openJournal(cfg.journal, log)
	if err != nil {
		return nil, err
	}
	b.closers = append(b.closers, closeJournal)
	if keeper != nil {
		b.keeper = keeper
		admitter.RecordTo(keeper)
	}
	books := ledger.New(b.stock, s.orders)
	b.auditor = ledger.NewAuditor(books, s.orders, s.space, ledger.AuditorConfig{
		Turn: s.auditTurn, Pause: b.pause, Generation: s.verifiedGeneration, Metrics: ledger.NewMetrics(b.registry), Log: log,
	})
	checks := []api.Check{{Name: "redis", Probe: s.pingRedis}, {Name: "database", Probe: s.orders.Ping}}
	var callbacks api.Callbacks // without a secret there are none
	if cfg.paymentSecret != "" {
		if callbacks, err = payment.NewVerifier(cfg.paymentSecret, time.Now); err != nil {
			return nil, usage("%s: %w", envPayment, err)
		}
	}
	pages, err := web.New(web.Config{SignIn: cfg.signIn})
	if err != nil {
		return nil, usage("--sign-in: %w", err)
	}
	b.live = push.NewLive(s.redis, s.space, push.LiveConfig{Registerer: b.registry, Log: log})
	public := api.PublicConfig{
		Admitter: admitter, Stock: b.stock, Orders: s.orders, Dead: s.lanes(), Tokens: keys, Points: s.orders, Limiter: limiter, Signals: hub, Pages: pages,
		Callbacks: callbacks, Payments: s.orders, Known: b.known, Away: b.away, Checks: checks, Metrics: metrics, Tracer: s.tracer, Log: log,
	}
	if err := cfg.webPush.serve(&public, s, b.live); err != nil {
		return nil, err
	}
	if b.public, err = api.NewPublic(public); err != nil {
		return nil, err
	}
	b.board = board.New(board.Config{Queue: s.lanes(), Pace: b.meters, Books: s.orders, Own: b.figures, URLs: cfg.edgeMetrics, Log: log})
	b.registry.MustRegister(b.board.Collector())
	deskPages, err := deskpage.New()
	if err != nil {
		return nil, err
	}
	b.operator, err = api.NewOperator(api.OperatorConfig{
		Desk: b.desk, Ledger: books, Rebuild: b.rebuilder, Pace: b.meters, MaxReady: int64(cfg.maxReady), Queue: s.lanes(), Events: eventDesk, Webhooks: hooks, Token: cfg.adminToken,
		Board: b.board, Pages: deskPages, Gatherer: prometheus.Gatherers{b.registry, b.figures}, Checks: checks, Metrics: metrics, Log: log,
	})
	return b, err
}

// known tells whether a sale that Redis does not hold may exist all the same: SQL has it, or Redis is about to be rebuilt.
func (b *backend) known(saleID string) bool {
	return b.desk.Known(saleID) || !b.stores.guard.Sure(context.Background(), b.stores.orders)
}

// away is how long buyers are kept away from a sale whose queue is full.
func (b *backend) away(saleID string) time.Duration {
	return b.meters.Away(int(b.stores.space.LaneOf(saleID)))
}

// pause pauses a sale on behalf of the audit.
func (b *backend) pause(ctx context.Context, saleID, reason string) error {
	_, err := b.desk.Pause(order.WithReason(ctx, reason), "audit", saleID)
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

// followKeys takes over a file of token keys that has changed. A bad one is logged once, and the old keys stay.
func (b *backend) followKeys(ctx context.Context) error {
	t := time.NewTicker(keysEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		switch changed, err := b.keys.Reload(); {
		case err != nil:
			b.log.Error("the token keys have mistakes, those before them stay", "err", err)
		case changed:
			b.log.Info("the token keys have changed", "keys", b.keys.Set().Names())
		}
	}
}

// verify makes sure that Redis may be trusted, before anything else is done with it.
func (b *backend) verify(ctx context.Context) error {
	if err := b.stores.guard.Look(ctx, b.stores.orders); err != nil {
		return err
	}
	if _, ok := b.stores.guard.Verified(); ok {
		return nil
	}
	if b.keeper != nil { // the rebuild waits for its journal
		keeping, stop := context.WithCancel(ctx)
		var kept errgroup.Group
		kept.Go(func() error { return b.keeper.Run(keeping) })
		defer func() { stop(); _ = kept.Wait() }()
	}
	for {
		err := b.rebuilder.Run(ctx)
		if err != nil && !errors.Is(err, rebuild.ErrBusy) {
			return err
		}
		if err := b.stores.guard.Look(ctx, b.stores.orders); err != nil {
			return err
		}
		if _, ok := b.stores.guard.Verified(); ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(epoch.Heartbeat):
		}
	}
}

// run serves until ctx ends and open requests are answered.
func (b *backend) run(ctx context.Context, public, admin net.Listener) error {
	defer func() {
		for _, c := range b.closers {
			c()
		}
	}()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return api.Serve(ctx, b.public, public) })
	g.Go(func() error { return api.Serve(ctx, b.operator, admin) })
	g.Go(func() error { return b.stores.guardBackend(ctx, b.log, b.rebuilder) })
	if b.keeper != nil {
		g.Go(func() error { return b.keeper.Run(ctx) })
	}
	g.Go(func() error { return b.auditor.Run(ctx) })
	g.Go(func() error { return b.relay.Run(ctx) })
	g.Go(func() error { return b.live.Run(ctx) })
	g.Go(func() error { return b.signals.Run(ctx) })
	g.Go(func() error { return b.measure(ctx) })
	g.Go(func() error { return b.board.Run(ctx) })
	g.Go(func() error { return b.desk.Run(ctx, reconcileEvery) })
	g.Go(func() error { return b.followKeys(ctx) })
	g.Go(func() error { return b.returner.Run(ctx, returnEvery) })
	return g.Wait()
}
