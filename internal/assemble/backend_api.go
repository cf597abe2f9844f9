package assemble

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/admin/adminhttp"
	"sluice/backend/admin/livestats"
	"sluice/backend/admin/session"
	"sluice/backend/admission"
	"sluice/backend/api"
	"sluice/backend/api/userlimit"
	"sluice/backend/events/notify"
	"sluice/backend/events/points"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
)

// buildPublicAPI builds the API of buyers with admission behind it.
func (b *Backend) buildPublicAPI() error {
	cfg, s := b.cfg, b.stores
	admitter, err := b.newAdmitter()
	if err != nil {
		return err
	}
	limiter, err := b.newUserLimiter()
	if err != nil {
		return err
	}
	openPages, openStreams := roomForStreams(cfg.FilesPerStream, b.log)
	live := notify.NewLive(s.redis, s.space, notify.LiveConfig{Pages: openPages, Registerer: cfg.Registry, Log: b.log})
	b.loops = append(b.loops, live.Run)
	c := api.Config{
		Admitter:    admitter,
		Stock:       b.stock,
		Finder:      admission.NewFinder(b.stock),
		Dead:        s.shards,
		Tokens:      cfg.Tokens,
		Points:      points.NewStore(s.db),
		Orders:      s.tables,
		Details:     s.tables,
		Limiter:     limiter,
		SaleChanges: b.changes,
		Pages:       cfg.Site,
		MaxStreams:  openStreams,
		Callbacks:   cfg.Callbacks,
		Known:       b.known,
		Intact:      b.intact,
		Archived:    b.Admin.Archived,
		QueueFull:   b.queueFull,
		Metrics:     api.NewMetrics(b.Own),
		Live:        live,
		Server:      b.server,
	}
	c.Server.Tracer = s.tracer
	if c.Rows, err = b.newRows(); err != nil {
		return err
	}
	if cfg.PushKey.Private != "" {
		c.Subscriptions, c.PushKey, c.CheckPushURL = notify.NewStore(s.db), cfg.PushKey.Public, cfg.PushURLs.CheckURL
	}
	b.public, err = api.New(c)
	return err
}

// newRows returns the source of status queries: the replica if there is one, otherwise the database.
func (b *Backend) newRows() (api.Rows, error) {
	current := func() bool { return false }
	var rows api.Rows = b.stores.tables
	if b.cfg.OrdersReplica != "" {
		replica, err := store.NewReplica(b.stores.db, b.cfg.OrdersReplica, b.log)
		if err != nil {
			return nil, usage("--orders-replica: %w", err)
		}
		b.loops = append(b.loops, replica.Run)
		b.closers = append(b.closers, func() { _ = replica.Close() })
		rows, current = replica, replica.Current
	}
	b.cfg.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_orders_replica_current",
		Help: "1: status queries of orders are answered by the replica of --orders-replica.",
	}, func() float64 { return oneIf(current()) }))
	return rows, nil
}

// newAdmitter returns the Admitter, which records accepted orders in the journal if there is one.
func (b *Backend) newAdmitter() (*admission.Admitter, error) {
	s := b.stores
	c := admission.Config{
		Client: s.scripts, Space: s.space, IDs: admission.NewSequencer(s.redis, s.space, time.Now),
		MaxReady: int64(b.cfg.MaxReady), Stream: s.driver == DriverStream,
		Replicas: b.cfg.Replicas, ReplicaClient: s.guardedClient,
		Refillers: b.refillers, Tracer: s.tracer,
	}
	if b.journals != nil {
		c.Recorder = b.journals
	}
	return admission.NewAdmitter(c)
}

func (b *Backend) newUserLimiter() (*userlimit.Limiter, error) {
	if b.cfg.LimitRedis == "" {
		return userlimit.New(b.cfg.UserRate, nil)
	}
	client, err := redisconn.Open(b.cfg.LimitRedis)
	if err != nil {
		return nil, err
	}
	b.closers = append(b.closers, func() { _ = client.Close() })
	pipe, err := redisconn.NewPipeline(client)
	if err != nil {
		return nil, err
	}
	return userlimit.New(b.cfg.UserRate, pipe)
}

// known reports whether a sale that was missing in Redis may exist. It returns true if SQL had the sale at the last
// read, if the shard of the sale is held, or if Redis has the sale now. The latter occurs after a hold of a few
// milliseconds.
func (b *Backend) known(saleID string) bool {
	g := b.stores.guards.Of(b.stores.space.ShardOf(saleID))
	if b.Admin.Known(saleID) || !g.CheckNow(context.Background(), b.stores.tables) {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := b.stock.View(ctx, saleID)
	return !errors.Is(err, sale.ErrNotFound)
}

func (b *Backend) intact(id sale.OrderID) (still func(ctx context.Context) bool) {
	shard := b.stores.space.ShardOfOrder(id)
	before := b.stores.guards.Of(shard).Generation()
	return func(ctx context.Context) bool {
		generation, verified := b.stores.verifiedGeneration(ctx, shard)
		return verified && generation == before
	}
}

func (b *Backend) queueFull(home spread.Part) time.Duration {
	return b.meters.RetryAfter(int(b.stock.ShardOf(home)))
}

// buildAdminAPI builds the admin API, the live stats and the admin console.
func (b *Backend) buildAdminAPI() (err error) {
	cfg, s := b.cfg, b.stores
	liveStats := livestats.New(livestats.Config{
		Queue: s.shards, Pace: b.meters, Store: s.tables, Own: b.Own, URLs: cfg.EdgeMetrics, Log: b.log,
	})
	cfg.Registry.MustRegister(liveStats.Collector())
	b.loops = append(b.loops, liveStats.Run)
	b.admin, err = adminhttp.New(adminhttp.Config{
		Admin:         b.Admin,
		Dead:          b.dead,
		Store:         s.tables,
		Audit:         b.checker.Audit,
		Rebuilder:     b.rebuilder,
		Shards:        s.shardStatus,
		Pace:          b.meters,
		MaxReady:      int64(cfg.MaxReady),
		Queue:         s.shards,
		Events:        b.groups,
		Webhooks:      b.webhooks,
		Policies:      cfg.Policies,
		Token:         cfg.AdminToken,
		EndedSessions: session.NewRedisStore(s.guards.Raw(), s.space),
		LiveStats:     liveStats,
		Gatherer:      prometheus.Gatherers{cfg.Registry, b.Own},
		Server:        b.server,
	})
	return err
}
