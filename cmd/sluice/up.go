package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/backend/events"
	"sluice/backend/recovery/guard"
	"sluice/backend/worker"
	"sluice/gateway"
	"sluice/gateway/policy"
	"sluice/internal/assemble"
	"sluice/internal/edgeconfig"
	"sluice/internal/edgetrace"
	"sluice/lua"
)

type upFlags struct {
	backendFlags
	group        groupFlags
	data, policy string
	corsOrigins  []string
}

func (p *program) upCommand() *cobra.Command {
	var flags upFlags
	c := &cobra.Command{
		Use:        "up",
		SuggestFor: []string{"start", "run", "serve", "server"},
		Short:      "Run everything in one process with a demo sale, without other servers",
		Long: `Run the Go gateway, the API, a worker, a watcher, an embedded Redis and SQLite in one process, and
create a demo sale. The data directory keeps secrets, the database and a journal of accepted orders:
SIGKILL loses none of them. Admin commands and "sluice token" read the addresses and secrets there.`,
		Example: `  sluice up
  sluice up --listen :8080 --data /var/lib/sluice
  sluice up --redis redis://127.0.0.1:6379/0 --database postgres://sluice@127.0.0.1/sluice`,
		Annotations: map[string]string{runsUntilSignal: ""},
		RunE:        func(cmd *cobra.Command, _ []string) error { return p.up(cmd.Context(), flags) },
	}
	f := p.flags(c)
	f.listen(&flags.listen, "listen", envListen, defaultListen, "address that buyers connect to, host:port")
	f.backend(c, &flags.backendFlags)
	f.groups(&flags.group)
	f.corsOrigins(&flags.corsOrigins)
	f.str(&flags.data, "data", envData, defaultData, "directory for secrets and the database")
	f.str(&flags.stores.Redis, "redis", envRedis, "", "a real Redis instead of the embedded one, redis://host:port/db, "+
		"unix:///path?db=N, or redis://sentinel:26379/db?master_name=NAME")
	f.str(&flags.stores.Database, "database", envDatabase, "",
		"a database instead of SQLite in the data directory: sqlite:..., or with --redis postgres://...")
	f.str(&flags.policy, "policy", envPolicy, "",
		"edge policy, read again when it changes (default: lua/policy.lua of the working directory, "+
			"else the built-in one)")
	f.check(func(bad *problems) {
		if flags.stores.Redis != "" {
			bad.checkRedis(f.source("redis", envRedis), flags.stores.Redis)
		} else if flags.cfg.Replicas > 0 {
			bad.add("--redis-wait %d: the embedded Redis has no replicas; name a real one with --redis", flags.cfg.Replicas)
		} else if strings.HasPrefix(flags.stores.Database, "postgres") {
			// The embedded Redis begins empty. If other processes use the database with another Redis, both would be rebuilt
			// in turn.
			bad.add("--database postgres://...: name a Redis with --redis; the embedded one is for SQLite only")
		}
		if flags.stores.Database != "" {
			bad.checkDatabase(f.source("database", envDatabase), flags.stores.Database)
		}
		bad.checkDistinct("admin", flags.admin, flags.listen)
		flags.group.vapid = p.getenv(envVAPID)
		flags.group.cfg.WebPush.Contact = cmp.Or(flags.group.cfg.WebPush.Contact, unknownContact)
		flags.group.finish(p.getenv, bad)
		flags.private = flags.group.private
		flags.finish(p.getenv, bad)
		flags.policy = policyFile(flags.policy)
		if flags.policy != "" {
			if _, err := policy.Read(flags.policy); err != nil {
				bad.add("%v", err)
			}
		}
	})
	return c
}

func (p *program) up(ctx context.Context, flags upFlags) error {
	data := dataDir(flags.data)
	unlock, err := data.open()
	if err != nil {
		return err
	}
	defer unlock()
	public, err := listen(ctx, "listen", flags.listen) // first: if an address is not available, up must change nothing
	if err != nil {
		return err
	}
	defer public.Close()
	admin, err := listen(ctx, "admin", flags.admin)
	if err != nil {
		return err
	}
	defer admin.Close()
	backend, err := listen(ctx, "listen", "127.0.0.1:0") // for the connections of the gateway
	if err != nil {
		return err
	}
	defer backend.Close()
	started := answerStarting(ctx, p.logger(), public, admin)
	defer started()
	loud := p.quietStart()
	if err := p.fillSecrets(&flags, data); err != nil {
		return err
	}
	flags.warn(p.logger())
	own := ownStores{redis: flags.stores.Redis == "", database: flags.stores.Database == ""}
	if own.database {
		flags.stores.Database = "sqlite:" + data.path(databaseFile)
	}
	if own.redis {
		if flags.stores.Embedded, err = assemble.StartEmbeddedRedis(ctx); err != nil {
			return err
		}
		defer flags.stores.Embedded.Close()
	}
	registry := newRegistry()
	work := assemble.WorkerConfig{Concurrency: 2, Batch: 500, Counters: worker.NewCounters(registry)}
	flags.stores.Queue.OnReclaim = work.Counters.Reclaimed
	flags.stores.Blocking += flags.stores.Shards*work.Concurrency + len(assemble.Groups)*assemble.GroupBlocking
	spans, err := p.openTracing(ctx, "sluice", registry)
	if err != nil {
		return err
	}
	defer spans.Close()
	s, err := p.tracedStores(ctx, flags.stores, spans)
	if err != nil {
		return err
	}
	defer s.Close()
	defer flags.group.cfg.Webhooks.Close()
	flags.cfg.Registry, flags.cfg.Practice = registry, []string{demoSale}
	flags.cfg.Journal.Dir = data.path(journalDir)
	flags.cfg.FilesPerStream = 3 // the client's connection, and both ends of the one from the gateway to the API
	b, err := p.startBackend(ctx, s, flags.cfg)
	if err != nil {
		return orInterrupted(ctx, err)
	}
	flags.group.cfg.Registry, flags.group.cfg.Counters = registry, b.Counters
	fleet, closeFleet, err := openFleet(flags.cfg.LimitRedis, p.logger())
	if err != nil {
		return err
	}
	defer closeFleet()
	cfg := flags.gatewayConfig(backend.Addr())
	cfg.Logger, cfg.Registry, cfg.Spans, cfg.Fleet = p.logger(), b.Own, edgetrace.New(spans), fleet
	edge, err := newGateway(ctx, cfg)
	if err != nil {
		return err
	}
	where := server{
		Public: "http://" + reachable(public.Addr()),
		Admin:  "http://" + reachable(admin.Addr()),
		Expect: flags.expect,
	}
	if err := data.setServer(where); err != nil {
		return err
	}
	started()
	if err := p.printWelcome(flags, where, own); err != nil {
		return err
	}
	loud()
	defer time.AfterFunc(trimAfter, debug.FreeOSMemory).Stop()
	return assemble.RunStages(ctx, workStages(s, work, flags.group.cfg, own, p.logger()), []assemble.Stage{
		{Name: "backend", Run: func(ctx context.Context) error { return b.Run(ctx, backend, admin) }},
	}, []assemble.Stage{
		{Name: "gateway", Run: func(ctx context.Context) error { return edge.Serve(ctx, public) }},
	})
}

// trimAfter is the time after the start at which memory that only the start needed is returned to the operating system.
// Otherwise an idle process would keep it until its next garbage collection, up to two minutes later.
const trimAfter = 5 * time.Second

type ownStores struct{ redis, database bool }

// startBackend returns a backend with token keys, verified stores, the demo sale and registered groups. It waits while
// a store is unavailable.
func (p *program) startBackend(
	ctx context.Context, s *assemble.Stores, cfg assemble.BackendConfig,
) (*assemble.Backend, error) {
	b, err := assemble.NewBackend(s, cfg)
	if err != nil {
		return nil, err
	}
	if err := cfg.Tokens.Await(ctx, p.logger()); err != nil {
		return nil, err
	}
	err = assemble.Await(ctx, p.logger(), "Redis", func() error { return b.Verify(ctx) })
	if _, foreign := errors.AsType[*guard.DeploymentError](err); foreign {
		return nil, usage("--redis: %w (start sluice backend with the same stores for that)", err)
	}
	if err != nil {
		return nil, err
	}
	return b, assemble.Await(ctx, p.logger(), "the stores", func() error { // they may become unavailable again
		if err := b.Admin.RunOnce(ctx); err != nil {
			return err
		}
		if err := createDemo(ctx, b.Admin); err != nil {
			return err
		}
		return s.RegisterGroups(ctx)
	})
}

// gatewayConfig returns the settings of the gateway in front of a backend.
func (f upFlags) gatewayConfig(backend net.Addr) gateway.Config {
	return gateway.Config{
		Shared: edgeconfig.Shared{
			Upstreams:   []string{backend.String()},
			Secret:      f.secret,
			TokenKeys:   f.tokenKeys,
			Expect:      f.expect,
			CORSOrigins: f.corsOrigins,
		},
		PolicyPath:        f.policy,
		PolicySource:      lua.Policy,
		SaleNotifications: true,
	}
}

// workStages are the worker and the consumer groups. They stop together, after the stages that produce their work. With
// the embedded Redis, the worker first empties the queue, because the queue is lost when the process ends.
func workStages(
	s *assemble.Stores, work assemble.WorkerConfig, groups assemble.GroupConfig, own ownStores, log *slog.Logger,
) []assemble.Stage {
	stages := []assemble.Stage{{Name: "worker", Run: func(ctx context.Context) error {
		working, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		context.AfterFunc(ctx, func() {
			if own.redis {
				s.AwaitIdle(working)
			}
			stop()
		})
		return s.RunWorker(working, work)
	}}}
	for _, group := range assemble.Groups {
		stages = append(stages, assemble.Stage{Name: group, Run: func(ctx context.Context) error {
			err := s.RunGroup(ctx, group, groups)
			if errors.Is(err, events.ErrRemoved) { // the process continues, so that sales do
				log.Warn("the group was removed: it handles and sends nothing until sluice up starts again", "group", group)
				<-ctx.Done()
				return nil
			}
			return err
		}})
	}
	return stages
}

// unknownContact is the contact for push services without --web-push-contact. Some push services require an address
// that exists.
const unknownContact = "mailto:nobody@example.com"

const demoSale = "demo"
