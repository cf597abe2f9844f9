package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"

	"sluice/backend/events/webhook"
	"sluice/backend/queue"
	"sluice/backend/recovery/guard"
	"sluice/backend/sale"
	"sluice/backend/worker"
	"sluice/gateway"
	"sluice/gateway/policy"
	"sluice/internal/token"
	"sluice/lua"
)

type upConfig struct {
	backendConfig
	groupConfig
	data, policy string
}

// embedded reports which stores run inside this process.
func (cfg upConfig) embedded() (redis, database bool) { return cfg.redisURL == "", cfg.database == "" }

func (p *program) upCommand() *cobra.Command {
	var cfg upConfig
	c := &cobra.Command{
		Use:   "up",
		Short: "Run everything in one process with a demo sale, without other servers",
		Long: `Run the Go gateway, the API, a worker, a watcher, an embedded Redis and SQLite in one process, and
create a demo sale. The data directory keeps secrets, the database and a journal of accepted orders:
kill -9 loses none. "sluice token", "sale" and "dead" read it.`,
		Example: `  sluice up
  sluice up --listen :8080 --data /var/lib/sluice
  sluice up --redis redis://127.0.0.1:6379/0 --database postgres://sluice@127.0.0.1/sluice`,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.up(cmd.Context(), cfg) },
	}
	f := c.Flags()
	p.str(f, &cfg.listen, "listen", envListen, defaultListen, "where buyers are answered, host:port")
	p.str(f, &cfg.admin, "admin", envAdmin, defaultAdmin, "address of the admin listener, host:port")
	p.journalFlags(f, &cfg.journal)
	p.groupFlags(f, &cfg.groupConfig)
	p.str(f, &cfg.data, "data", envData, defaultData, "directory for secrets and the database")
	p.str(
		f,
		&cfg.redisURL,
		"redis",
		envRedis,
		"",
		"a real Redis instead of the embedded one, redis://host:port/db, or redis://sentinel:26379/db?master_name=NAME",
	)
	p.str(
		f,
		&cfg.database,
		"database",
		envDatabase,
		"",
		"a database instead of SQLite in the data directory, postgres://... or sqlite:...",
	)
	p.queueFlags(f, &cfg.backendConfig)
	p.pageFlags(f, &cfg.backendConfig)
	p.consoleFlags(f, &cfg.backendConfig)
	p.str(
		f,
		&cfg.policy,
		"policy",
		envPolicy,
		"",
		"edge policy, read again when it changes (default: lua/policy.lua here, else the built-in one)",
	)
	return c
}

func (p *program) up(ctx context.Context, cfg upConfig) error {
	var bad problems
	bad.checkListen("listen", cfg.listen)
	bad.checkListen("admin", cfg.admin)
	cfg.backendConfig.webPush = p.webPushEnv()
	cfg.groupConfig.webPush.webPushKeys = cfg.backendConfig.webPush
	if cfg.groupConfig.webPush.contact == "" {
		cfg.groupConfig.webPush.contact = unknownContact
	}
	bad.checkGroups(cfg.groupConfig)
	if cfg.redisURL != "" {
		bad.checkRedis("--redis", cfg.redisURL)
	}
	if cfg.policy == "" && isFile("lua/policy.lua") {
		cfg.policy = "lua/policy.lua"
	}
	if cfg.policy != "" {
		if err := policy.Check(cfg.policy); err != nil {
			bad.add("%v", err)
		}
	}
	if err := bad.err(); err != nil {
		return err
	}

	data := dataDir(cfg.data)
	unlock, err := data.open()
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.fillSecrets(&cfg, data); err != nil {
		return err
	}
	ownRedis, ownDatabase := cfg.embedded()
	cfg.journal.dir = data.path(journalFolder)
	var identify guard.Identify
	if ownRedis {
		identify = guard.FixedID("embedded") // it has no run_id, and is empty whenever it starts
	}
	if ownDatabase {
		cfg.database = "sqlite:" + data.path(databaseFile)
	}
	if ownRedis {
		embedded, err := startEmbeddedRedis(ctx)
		if err != nil {
			return err
		}
		defer embedded.stop()
		cfg.redisURL = embedded.url
	}

	cfg.backendConfig.hooks = cfg.groupConfig.hooks
	cfg.practice = []string{demoSale}
	cfg.filesPerStream = 3 // to the gateway, from there to the API, and there
	w := workerConfig{concurrency: 2, batch: 500}
	cfg.blocking = cfg.shards*w.concurrency + 3*groupBlocking + pageBlocking
	log := p.logger()
	tracer, err := p.openTracer(ctx, "sluice", log)
	if err != nil {
		return err
	}
	defer tracer.Close()
	registry := newRegistry()
	counters := worker.NewCounters(registry)
	s, err := openStores(ctx, log, cfg.storesConfig, identify, queue.Config{OnReclaim: counters.Reclaimed})
	if err != nil {
		return err
	}
	defer s.close()
	s.trace(tracer)
	if ownRedis {
		if _, err := restoreUndelivered(ctx, data, s.sql.Orders, s.pushRaw); err != nil {
			return err
		}
	}
	b, err := newBackend(cfg.backendConfig, log, s, registry)
	if err != nil {
		return err
	}
	if err := b.verify(ctx); err != nil {
		return err
	}
	if err := b.service.RunOnce(ctx); err != nil {
		return err
	}
	if err := createDemo(ctx, b); err != nil {
		return err
	}

	front, err := listen(ctx, "listen", cfg.listen)
	if err != nil {
		return err
	}
	admin, err := listen(ctx, "admin", cfg.admin)
	if err != nil {
		return err
	}
	behind, err := listen(ctx, "listen", "127.0.0.1:0")
	if err != nil {
		return err
	}
	edge, err := gateway.New(gateway.Config{
		Listen:            cfg.listen,
		Upstreams:         []string{"http://" + behind.Addr().String()},
		PolicyPath:        cfg.policy,
		PolicySource:      lua.Policy,
		Secret:            cfg.secret,
		Logger:            log,
		Registry:          b.own,
		SaleNotifications: true,
	})
	if err != nil {
		return usageError{err}
	}
	where := server{Public: "http://" + reachable(front.Addr()), Admin: "http://" + reachable(admin.Addr())}
	if err := data.setServer(where); err != nil {
		return err
	}
	if err := p.printWelcome(cfg, where, ownRedis, ownDatabase); err != nil {
		return err
	}

	err = runStages(ctx,
		stage{"worker", func(ctx context.Context) error {
			work, stop := context.WithCancel(context.WithoutCancel(ctx))
			defer stop()
			if ownRedis { // what it holds is gone with the process
				context.AfterFunc(ctx, func() { awaitIdle(work, log, s.shards()); stop() })
			} else {
				context.AfterFunc(ctx, stop)
			}
			return runWorker(work, log, s, w, counters)
		}},
		stage{"points", func(ctx context.Context) error { return runPoints(ctx, log, s, cfg.groupConfig, b.events) }},
		stage{"webhooks", func(ctx context.Context) error {
			return runWebhooks(ctx, log, s, cfg.groupConfig.hooks, b.events, webhook.NewCounters(registry))
		}},
		stage{"web-push", func(ctx context.Context) error {
			return runWebPush(ctx, log, s, cfg.groupConfig.webPush, b.events, registry)
		}},
		stage{"backend", func(ctx context.Context) error { return b.run(ctx, behind, admin) }},
		stage{"gateway", func(ctx context.Context) error { return edge.Serve(ctx, front) }},
	)
	if ownRedis {
		save, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, saveUndelivered(save, data, b.stock, s.sql.Sales))
	}
	return err
}

// unknownContact is the contact for push services without --web-push-contact. Some of them require one that exists.
const unknownContact = "mailto:nobody@example.com"

func (p *program) fillSecrets(cfg *upConfig, data dataDir) error {
	if cfg.backendConfig.webPush.vapid == "" {
		key, err := data.vapid()
		if err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
		cfg.backendConfig.webPush.vapid, cfg.groupConfig.webPush.vapid = key, key
	}
	cfg.userRate, cfg.limitRedisURL = p.getenv(envUserRate), p.getenv(envLimitRedis)
	cfg.paymentSecret = p.getenv(envPayment)
	for _, s := range []struct {
		to        *string
		env, file string
	}{{&cfg.secret, envSecret, tokenSecretFile}, {&cfg.adminToken, envAdminToken, adminTokenFile}} {
		if *s.to = p.getenv(s.env); *s.to != "" {
			continue
		}
		var err error
		if *s.to, err = data.secret(s.file); err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
	}
	return cfg.check2()
}

// embeddedURL stands for the Redis that up brings itself.
const embeddedURL = "redis://embedded"

// check2 is check without the stores that up brings itself.
func (cfg upConfig) check2() error {
	c := cfg.backendConfig
	if c.redisURL == "" {
		c.redisURL = embeddedURL
	}
	if c.database == "" {
		c.database = "embedded"
	}
	return c.check()
}

const demoSale = "demo"

func createDemo(ctx context.Context, b *backend) error {
	_, err := b.service.Create(ctx, "sluice up", sale.Sale{
		ID:       demoSale,
		Title:    "Demo: the last hundred",
		Price:    sale.Price{Amount: 1999, Currency: "EUR"},
		Stock:    100,
		PerBuyer: 1,
		OpensAt:  time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		Switch:   sale.On,
	})
	if errors.Is(err, sale.ErrExists) {
		return nil // from an earlier start, changed since
	}
	return err
}

// reachable is the address under which this machine reaches a listener.
func reachable(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return a.String()
	}
	return fmt.Sprintf("127.0.0.1:%d", tcp.Port)
}

func (p *program) printWelcome(cfg upConfig, at server, ownRedis, ownDatabase bool) error {
	key, err := token.NewKey(cfg.secret)
	if err != nil {
		return usage("%w", err)
	}
	buyer, err := key.Sign(fmt.Sprintf("you-%d", time.Now().Unix()), 24*time.Hour)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, `sluice is up.

  page         %s/s/%s#token=%s
  public API   %s      GET /v1/sales, POST /v1/sales/%s/orders
  console      %s/admin/      sign in with the token in %s
  admin API    %s      sluice sale list, sluice sale audit %s
  data         %s

Buy one unit and query the order:

  order=$(curl -s -X POST -H 'Authorization: Bearer %s' %s/v1/sales/%s/orders | grep -oE '[0-9]{17,}' | head -n 1); echo "order $order"
  curl -s -H 'Authorization: Bearer %s' "%s/v1/orders/$order?wait=10s"; echo

`, at.Public, demoSale, buyer, at.Public, demoSale, at.Admin, consoleToken(p, cfg.data), at.Admin, demoSale, cfg.data, buyer, at.Public, demoSale, buyer, at.Public)
	switch {
	case ownRedis && ownDatabase:
		fmt.Fprintln(
			p.out,
			"The embedded Redis and SQLite are for one machine. A power failure may lose the orders of the last second.",
		)
	case ownRedis:
		fmt.Fprintln(p.out, "The embedded Redis is for one machine. A power failure may lose the orders of the last second.")
	case ownDatabase:
		fmt.Fprintln(p.out, "The embedded SQLite is for one machine.")
	}
	return nil
}

// awaitIdle waits until the queue is empty, at most ten seconds.
func awaitIdle(ctx context.Context, log *slog.Logger, q queue.Shards) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		stats, err := q.Stats(ctx)
		if err == nil && stats.Ready+stats.Delayed+stats.Leased == 0 {
			return
		}
		select {
		case <-ctx.Done():
			log.Warn(
				"the queue is not empty; its orders stay in the data directory for the next start",
				"ready",
				stats.Ready,
				"delayed",
				stats.Delayed,
				"leased",
				stats.Leased,
			)
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}
