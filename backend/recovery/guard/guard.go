// Package guard blocks commands to a Redis server whose data has not been verified. Each shard has a guard of its own,
// so a shard that waits for a rebuild does not block the others.
//
// A Redis server that restarts or fails over closes its connections, and can return without orders that it had
// accepted. A rebuild (package rebuild) verifies the data and records the server's run_id in Redis. The guard compares
// the run_id of the server with the recorded one on every new connection, and on a heartbeat, which detects changes
// behind an open connection: FLUSHALL, or a proxy that connects to another server. The heartbeat also compares the
// generation of the data with the one in SQL, which detects a server with older data, and a database that was restored
// from an older backup. Data that another deployment has verified is never used. The package never writes to Redis.
package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/internal/loop"
)

// Heartbeat is the default interval at which Run checks verified data.
const Heartbeat = 400 * time.Millisecond

// unverifiedInterval is the interval at which Run checks unverified data, because another process may verify it, and a
// Redis that is not available, because it may have been replaced.
const unverifiedInterval = Heartbeat / 4

// checkTimeout bounds the calls of a check to Redis, and each reading of SQL.
const checkTimeout = 2 * time.Second

// sqlWait is how long a check of verified data waits for SQL. A database that hangs does not delay the observation of
// Redis, so two heartbeats after a change of the owner every process has noticed it.
const sqlWait = Heartbeat / 2

// Generations returns the id of the deployment, 0 if it has none, and the current generation of a shard in SQL
// (store.Store).
type Generations interface {
	Generation(ctx context.Context, shard int) (deployment, generation int64, err error)
}

// Config configures Open.
type Config struct {
	Server *redisconn.Server // required
	Space  keyspace.Space
	// Deployment is the id in SQL; 0 if it is not known yet, and then a check reads it. Data of another deployment is not
	// verified. While the id is not known, the guard does not compare deployments.
	Deployment int64
	Identify   Identify           // nil: RunID
	Log        *slog.Logger       // slog.Default() if nil
	Options    []redisconn.Option // of all clients
	// Heartbeat is the interval at which Run checks verified data; 0 or less: the constant.
	Heartbeat time.Duration
}

// Guard guards the connections to the server of one shard. It is safe for concurrent use.
type Guard struct {
	server   *redisconn.Server
	shard    keyspace.Shard
	shards   int // number of shards, which is the same in all processes
	identify Identify
	client   redisconn.Client // guarded
	raw      redisconn.Client
	log      *slog.Logger
	options  []redisconn.Option
	interval time.Duration // Config.Heartbeat

	blocked       atomic.Bool  // changed while mu is held
	blocks        atomic.Int64 // calls of block; changed while mu is held
	generation    atomic.Int64 // of the last verified observation; 0 if none
	minGeneration atomic.Int64 // highest generation seen in SQL
	deployment    atomic.Int64 // id in SQL; 0 if not known
	owned         atomic.Bool  // by the last check: the deployment is known, and it owns the data or Redis is empty
	foreign       atomic.Bool  // by the last check: another deployment owns the data, or the number of shards differs
	changed       loop.Wake    // wakes Run after block

	rebuilds loop.Wake // see Rebuilds

	mu     sync.Mutex
	reason string      // why commands are blocked
	failed error       // of the last rebuild by this process; nil once the data is verified
	seen   observation // by the last check

	checkMu      sync.Mutex
	checkStarted time.Time // start of the last check of CheckNow; guarded by checkMu
	checkErr     error     // its error
}

// newGuard returns the Guard of one shard. It does not connect.
func newGuard(cfg Config, shard keyspace.Shard) *Guard {
	g := &Guard{
		server: cfg.Server.For(shard.Guard()), shard: shard, shards: len(cfg.Space.All()), identify: cfg.Identify,
		log: cmp.Or(cfg.Log, slog.Default()), options: slices.Clip(cfg.Options), changed: loop.NewWake(),
	}
	if g.identify == nil {
		g.identify = RunID
	}
	g.deployment.Store(cfg.Deployment)
	g.rebuilds, g.interval = loop.NewWake(), cmp.Or(max(cfg.Heartbeat, 0), Heartbeat)
	if g.shards > 1 {
		g.log = g.log.With("shard", int(g.shard))
	}
	g.raw = g.server.Open(g.options...)
	g.client = g.server.Open(append(g.options, redisconn.OnConnect(g.onConnect))...)
	g.client.AddHook(gate(g.blocked.Load))
	return g
}

// Client returns the guarded client. Its commands fail with ErrUnverified while the data is not verified.
func (g *Guard) Client() redisconn.Client { return g.client }

// Raw returns a client that is not guarded. It must not be used to sell or to take orders from the queue.
func (g *Guard) Raw() redisconn.Client { return g.raw }

// Close closes both clients.
func (g *Guard) Close() error { return errors.Join(g.client.Close(), g.raw.Close()) }

// Generation returns the generation of the data that guarded commands access, or -1 if it is not known yet.
func (g *Guard) Generation() int64 {
	if n := g.generation.Load(); n > 0 {
		return n
	}
	return -1
}

// Verified reports whether guarded commands are allowed, by the last check; if not, it returns the reason, with the
// error of the last rebuild by this process.
func (g *Guard) Verified() (reason string, ok bool) {
	if !g.blocked.Load() && g.generation.Load() > 0 {
		return "", true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failed != nil && !strings.Contains(g.failed.Error(), g.reason) {
		return g.reason + "; the last rebuild failed: " + g.failed.Error(), false
	}
	return g.reason, false
}

// CheckNow reports whether the data is verified, by a check that begins after the call. Concurrent calls share a check,
// also one that fails. Callers use it when data is missing, because Redis may have been emptied since the last
// heartbeat.
func (g *Guard) CheckNow(ctx context.Context, sql Generations) bool {
	called := time.Now()
	g.checkMu.Lock()
	defer g.checkMu.Unlock()
	if !g.checkStarted.After(called) {
		g.checkStarted = time.Now()
		g.checkErr = g.Check(ctx, sql)
	}
	_, ok := g.Verified()
	return ok && g.checkErr == nil
}

// onConnect accepts a new connection if the data of its server is verified.
func (g *Guard) onConnect(ctx context.Context, cn redisconn.Connection) error {
	o, err := g.observe(ctx, cn)
	if err != nil {
		return err
	}
	generation, reason := o.verified(g.minGeneration.Load(), g.owner())
	if reason != "" {
		g.block(reason)
		return ErrUnverified
	}
	raise(&g.generation, generation)
	return nil
}

// Deployment returns the id of the deployment of this process, 0 if it has none or is not known yet.
func (g *Guard) Deployment() int64 { return g.deployment.Load() }

// owner returns the deployment of this process.
func (g *Guard) owner() Owner { return Owner{Deployment: g.deployment.Load(), Shards: g.shards} }

// raise sets n to at least to.
func raise(n *atomic.Int64, to int64) {
	for {
		have := n.Load()
		if have >= to || n.CompareAndSwap(have, to) {
			return
		}
	}
}

// block blocks guarded commands and wakes Run.
func (g *Guard) block(reason string) {
	g.mu.Lock()
	g.reason = reason
	g.blocks.Add(1)
	wasBlocked := g.blocked.Swap(true)
	g.mu.Unlock()
	if !wasBlocked {
		level := slog.LevelWarn
		if g.generation.Load() == 0 { // the usual start of a process
			level = slog.LevelInfo
		}
		g.log.Log(context.Background(), level, "Redis is not verified; purchases wait for a rebuild", "reason", reason)
	}
	g.changed.Up()
}

// unblock unblocks guarded commands after an observation of verified data, unless block was called since: blocks is the
// number of its calls before the observation. unblock returns whether commands were blocked until now.
func (g *Guard) unblock(blocks int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.blocks.Load() != blocks {
		return false
	}
	g.failed = nil
	return g.blocked.Swap(false)
}

// Check observes Redis, and reads the generation from SQL if SQL is available. It blocks or unblocks the guarded
// client. If it returns an error, Redis was not available and nothing changed.
func (g *Guard) Check(ctx context.Context, sql Generations) error {
	defer g.server.Watch()() // a server that does not answer may have been replaced
	inSQL, known := g.readSQL(ctx, sql)
	timed, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	blocks := g.blocks.Load()
	o, err := g.observe(timed, g.raw)
	if err != nil {
		return sale.Unavailable(err)
	}
	g.note(o)
	owner := g.owner()
	foreign := o.check(owner) != nil
	g.foreign.Store(foreign)
	g.owned.Store(!foreign && owner.Deployment != 0)
	generation, reason := o.verified(g.minGeneration.Load(), owner)
	if known && inSQL < generation { // a rebuild may have ended since SQL was read, so SQL is read again
		if inSQL, known = g.readSQL(ctx, sql); known && inSQL < generation {
			reason = fmt.Sprintf("the data is of generation %d, and the database of generation %d: it is older than the data",
				generation, inSQL)
		}
	}
	if reason != "" {
		g.block(reason)
		return nil
	}
	raise(&g.generation, generation)
	if g.unblock(blocks) {
		g.log.Info("Redis is verified; purchases continue", "generation", generation)
	}
	return nil
}

// readSQL returns the generation in SQL. known is false while SQL is unavailable or slow: purchases depend on Redis
// alone then. A query that takes longer than sqlWait continues in the background, and later checks use its result. A
// guard that does not know its deployment waits for the query.
func (g *Guard) readSQL(ctx context.Context, sql Generations) (generation int64, known bool) {
	read := make(chan int64, 1) // closed without a value after an error
	go func() {
		defer close(read)
		timed, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		deployment, generation, err := sql.Generation(timed, int(g.shard))
		if err != nil {
			return
		}
		if deployment != 0 {
			g.deployment.Store(deployment)
		}
		raise(&g.minGeneration, generation)
		read <- generation
	}()
	if g.deployment.Load() == 0 {
		generation, known = <-read
		return generation, known
	}
	select {
	case generation, known = <-read:
		return generation, known
	case <-time.After(sqlWait):
		return 0, false
	}
}

// note wakes the receiver of Rebuilds if the server or the record has changed since the last check.
func (g *Guard) note(o observation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.seen != o {
		g.seen = o
		g.rebuilds.Up()
	}
}

// Rebuilds returns a channel for one receiver. It receives after a check that found another server or record than the
// check before: a rebuild has begun, has made progress or has ended, or Redis was emptied or has restarted.
func (g *Guard) Rebuilds() loop.Wake { return g.rebuilds }

// RestoreFence returns the fence at which lost orders can be restored in Redis: a rebuild of this deployment has stored
// its sales and queue, and no later rebuild has begun. It returns 0 if there is none. An error wraps
// sale.ErrUnavailable.
func (g *Guard) RestoreFence(ctx context.Context) (fence int64, err error) {
	o, err := g.observe(ctx, g.raw)
	if err != nil {
		return 0, sale.Unavailable(err)
	}
	sameServer := o.Rebuilding || SameData(o.RunID, o.runID)
	if o.Swapped == o.Fence && sameServer && o.check(g.owner()) == nil {
		return o.Fence, nil
	}
	return 0, nil
}

// Run checks until ctx ends. While the data is not verified, it calls rebuild, if not nil, at most once per Heartbeat,
// or less often after ErrKeyType. It logs the first of consecutive errors. It returns nil.
func (g *Guard) Run(ctx context.Context, sql Generations, rebuild func(context.Context) error) error {
	next := time.NewTimer(0)
	defer next.Stop()
	var called time.Time
	wait := Heartbeat // from one call of rebuild to the next
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		case <-g.changed:
		}
		err := g.Check(ctx, sql)
		if err == nil && g.blocked.Load() && rebuild != nil && time.Since(called) >= wait {
			called = time.Now()
			failed := rebuild(ctx)
			wait = rebuildWait(wait, failed)
			g.noteRebuild(ctx, failed)
			_ = g.Check(ctx, sql)
		}
		select { // drop a wake-up that came during the check: if commands are blocked, the next check is soon anyway
		case <-g.changed:
		default:
		}
		if g.blocked.Load() || err != nil {
			next.Reset(unverifiedInterval)
		} else {
			wait = Heartbeat
			next.Reset(loop.UntilTick(g.interval))
		}
	}
}

// rebuildWait returns the time between a call of rebuild, which returned err, and the next one. last is that before the
// call. A rebuild that needs an operator reads a part of SQL and fails, so it is repeated after 1 s, doubling to 30 s.
func rebuildWait(last time.Duration, err error) time.Duration {
	switch {
	case errors.Is(err, ErrKeyType):
		return min(max(2*last, time.Second), 30*time.Second)
	case errors.Is(err, ErrBusy):
		return last
	}
	return Heartbeat
}

// noteRebuild notes the result of a rebuild for Verified. A rebuild by another process is no result, and neither is the
// end of ctx.
func (g *Guard) noteRebuild(ctx context.Context, err error) {
	if errors.Is(err, ErrBusy) || ctx.Err() != nil {
		return
	}
	g.mu.Lock()
	before := g.failed
	g.failed = err
	g.mu.Unlock()
	if err != nil && before == nil {
		g.log.Error("Redis cannot be verified; trying again", "err", err)
	}
}
