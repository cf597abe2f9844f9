// Package assemble opens the stores of a process and wires the parts that run on them: the backend, workers, watchers
// and the groups that consume order events. It reads no flags and no environment.
package assemble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/events"
	"sluice/backend/queue"
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/journal"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/telemetry"
	"sluice/internal/loop"
	"sluice/internal/plural"
)

// UsageError is an error in a setting or in input, which the user can correct.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

func usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// StoresConfig configures OpenStores. Redis or Embedded, Database and Shards are required.
type StoresConfig struct {
	Redis, Database string // URLs
	Shards          int
	Existing        bool           // see OpenStores
	Embedded        *EmbeddedRedis // instead of Redis; may be nil
	Driver          string         // DriverList or DriverStream
	Blocking        int            // connections per shard that wait in Redis for work
	Queue           queue.Config
	Tracer          *telemetry.Tracer // nil: nothing is traced
	Log             *slog.Logger
}

// Stores are the open connections of one process.
type Stores struct {
	guards  *guard.Shards
	alone   bool             // no other process uses Redis
	redis   redisconn.Client // guarded
	scripts redis.Scripter   // runs the script of purchases
	space   keyspace.Space
	driver  string
	queues  []*queue.List // by shard
	shards  queue.Shards  // the same
	log     *slog.Logger
	tracer  *telemetry.Tracer
	parents *telemetry.Parents // nil without tracer
	stop    context.CancelFunc

	db       *store.DB
	tables   *store.Store // of db
	recovery recoveryTables
	events   *events.Store
}

// OpenStores opens both stores. Redis may be down; OpenStores waits for the database, because its tables must be
// migrated before any component runs. Invalid URLs, and a number of shards that differs from that of the database, are
// a UsageError.
//
// With Existing, for a command of an admin, the database must be that of a running deployment. OpenStores then creates
// and migrates nothing, tries to connect to the database once, for a few seconds at most, and returns a UsageError if
// the data in Redis belongs to another database.
func OpenStores(ctx context.Context, cfg StoresConfig) (_ *Stores, err error) {
	s := &Stores{
		space: keyspace.Space{Shards: cfg.Shards}, driver: cfg.Driver, log: cfg.Log, tracer: cfg.Tracer,
		alone: cfg.Embedded != nil, stop: func() {},
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	changed := loop.NewWake()
	tables := store.Config{
		OnChange: changed.Up, Queries: cfg.Tracer.Queries(), Existing: cfg.Existing, Exclusive: s.alone,
	}
	if err := s.openDatabase(ctx, cfg.Database, tables); err != nil {
		return nil, err
	}
	// Read the deployment before using Redis, which may hold the data of another one.
	var deployment int64
	if err := awaitDatabase(ctx, s.log, cfg.Existing, func() (err error) { // it may become unavailable again
		deployment, err = s.claim(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	if s.guards, err = openGuards(ctx, cfg, deployment, redisconn.Blocking(cfg.Blocking)); err != nil {
		return nil, err
	}
	if err := s.openClients(); err != nil {
		return nil, err
	}
	if cfg.Existing {
		if err := s.checkDeployment(ctx, deployment); err != nil {
			return nil, err
		}
	}
	waking, stop := context.WithCancel(context.WithoutCancel(ctx)) // for as long as the stores are used
	s.stop = stop
	go func() { _ = events.RunWaker(waking, s.redis, s.space, changed) }()
	s.queues = openQueues(s.guards, s.space, cfg.Driver, cfg.Queue)
	for _, q := range s.queues {
		s.shards = append(s.shards, q)
	}
	if s.tracer != nil {
		s.parents = telemetry.NewParents(s.redis, s.space)
	}
	return s, nil
}

func (s *Stores) openClients() error {
	s.redis = s.guards.Client()
	var pipes []*redisconn.Pipeline // by shard
	for _, shard := range s.space.All() {
		client := s.guards.Of(shard).Client()
		if s.tracer != nil {
			client.AddHook(s.tracer.Commands(redisconn.Addr(client)))
		}
		pipe, err := redisconn.NewPipeline(client)
		if err != nil {
			return err
		}
		pipes = append(pipes, pipe)
	}
	if s.scripts = pipes[0]; len(pipes) > 1 {
		s.scripts = redisconn.NewPipelines(s.redis, func(key string) *redisconn.Pipeline {
			shard, _ := keyspace.ShardOfKey(key)
			return pipes[shard]
		})
	}
	return nil
}

func (s *Stores) guardedClient(shard keyspace.Shard) redisconn.Client {
	return s.guards.Of(shard).Client()
}

// openGuards opens the guards of all shards. deployment is 0 if it is not known.
func openGuards(
	ctx context.Context, cfg StoresConfig, deployment int64, options ...redisconn.Option,
) (*guard.Shards, error) {
	c := guard.Config{
		Space: keyspace.Space{Shards: cfg.Shards}, Deployment: deployment, Log: cfg.Log, Options: options,
	}
	url := cfg.Redis
	if e := cfg.Embedded; e != nil {
		url = e.url()
		c.Identify = guard.FixedID("embedded") // it has no run_id, and is empty whenever it starts
		c.Heartbeat, c.Options = embeddedHeartbeat, append(c.Options, e.option())
	}
	server, err := redisconn.NewServer(url)
	if err != nil {
		return nil, usage("--redis: %w", err)
	}
	c.Server = server
	guards := guard.Open(c)
	if err := checkAccess(ctx, guards.Of(0).Raw()); err != nil {
		_ = guards.Close()
		return nil, err
	}
	if cfg.Embedded == nil {
		warnEviction(ctx, guards, c.Space, cfg.Log)
	}
	return guards, nil
}

// warnEviction logs a warning for each server that deletes keys when its memory is full. It skips servers that do not
// respond.
func warnEviction(ctx context.Context, guards *guard.Shards, space keyspace.Space, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	seen := map[string]bool{}
	for _, shard := range space.All() {
		client := guards.Of(shard).Raw()
		info := client.InfoMap(ctx)
		id, policy := info.Item("Server", "run_id"), info.Item("Memory", "maxmemory_policy")
		if policy != "" && policy != "noeviction" && !seen[id] {
			log.Warn("Redis deletes keys when its memory is full, and accepted orders with them: "+
				"set maxmemory-policy noeviction", "address", redisconn.Addr(client), "maxmemory-policy", policy)
		}
		seen[id] = true
	}
}

// checkAccess returns a UsageError if Redis rejects the user, the password or the number of the database. A Redis that
// does not answer is not an error, because it may answer later.
func checkAccess(ctx context.Context, client redisconn.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); redisconn.Denied(err) {
		return usage("Redis: %s: correct the user, the password or the number of the database in --redis or SLUICE_REDIS_URL",
			strings.TrimSuffix(err.Error(), "."))
	}
	return nil
}

// embeddedHeartbeat is the interval at which the embedded Redis is checked. A long interval is sufficient: the server
// fails only with the process, and each rebuild causes a check.
const embeddedHeartbeat = 5 * time.Second

// Close closes the connections that are open.
func (s *Stores) Close() {
	s.stop()
	if s.guards != nil {
		_ = s.guards.Close()
	}
	if s.db != nil {
		_ = s.db.Close()
	}
}

// openDatabase waits until the database is available, and opens the tables.
func (s *Stores) openDatabase(ctx context.Context, url string, cfg store.Config) error {
	err := awaitDatabase(ctx, s.log, cfg.Existing, func() (err error) {
		s.db, err = store.Open(ctx, url, cfg)
		return err
	})
	if _, bad := errors.AsType[*store.URLError](err); bad {
		return usage("--database: %w", err)
	}
	if err != nil {
		return err
	}
	s.tables, s.events = store.New(s.db), events.NewStore(s.db)
	s.recovery = recoveryTables{s.tables, journal.NewRegistry(s.db)}
	return nil
}

// awaitDatabase repeats do while the database is unavailable; with once, it returns the error instead.
func awaitDatabase(ctx context.Context, log *slog.Logger, once bool, do func() error) error {
	if !once {
		return Await(ctx, log, "the database", do)
	}
	err := do()
	if errors.Is(err, sale.ErrUnavailable) && ctx.Err() == nil {
		err = fmt.Errorf("the database cannot be used, and nothing was changed: %w", err)
	}
	return err
}

// Await repeats do while it returns sale.ErrUnavailable, and logs that the process waits for the store. It returns the
// last error of do.
func Await(ctx context.Context, log *slog.Logger, store string, do func() error) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := do()
		if !errors.Is(err, sale.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		log.Warn("waiting for "+store, "err", err)
		loop.Sleep(ctx, wait)
	}
}

// claim makes the database that of a deployment, and returns the id of the deployment. All processes must use the same
// number of shards, because the number determines the shard of each sale. It must be at least the number of segments of
// every sale, because two segments of a sale in one shard would have the same keys.
func (s *Stores) claim(ctx context.Context) (deployment int64, err error) {
	want := len(s.space.All())
	deployment, have, err := s.tables.ClaimDeployment(ctx, want)
	if err == nil && have != want {
		return 0, usage("--shards is %d, but this database was created with %s: use the same number in every process "+
			"(to change it: docs/deploy.md)", want, plural.Count(have, "shard"))
	}
	if err != nil {
		return 0, err
	}
	all, err := s.tables.SaleSummaries(ctx)
	var widest store.SaleSummary
	for _, one := range all {
		if one.Spread > widest.Spread {
			widest = one
		}
	}
	if widest.Spread > want {
		return 0, usage("--shards is %d, but sale %s has %d segments, each in a shard of its own: set the number back to at "+
			"least %d, or archive the sale with the previous number first", want, widest.ID, widest.Spread, widest.Spread)
	}
	return deployment, err
}
