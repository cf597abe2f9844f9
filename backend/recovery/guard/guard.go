// Package epoch tells whether the Redis that answers is the one whose data was verified, and lets nobody near one that is not.
//
// A Redis that restarts or fails over cuts its connections, and may come back without what it had accepted. So the question is asked whenever a
// connection is made: the server's run_id must be the one that was written into Redis itself when its data was verified. What happens
// behind a connection that survives (FLUSHALL, a proxy that changes the server) is found by a heartbeat. The package never changes Redis: see package
// rebuild.
package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
)

// ErrUnverified is the answer to every command while the data of Redis is not verified. It wraps sale.ErrUnavailable.
var ErrUnverified = fmt.Errorf("the data in Redis is being verified: %w", sale.ErrUnavailable)

// Heartbeat is how often a Guard looks.
const Heartbeat = 400 * time.Millisecond

// waiting is how often it looks while it waits for the data to be verified, here or elsewhere: nothing is sold meanwhile.
const unverifiedInterval = Heartbeat / 4

// Generations tells which generation of Redis SQL goes by (order.Store).
type Generations interface {
	Generation(ctx context.Context) (int64, error)
}

// Guard watches over the connections to one Redis. It is safe for concurrent use.
type Guard struct {
	server   *redisconn.Server
	space    keyspace.Space
	identify Identify
	client   *redis.Client // guarded
	raw      *redis.Client
	log      *slog.Logger
	options  []redisconn.Option

	blocked       atomic.Bool
	generation    atomic.Int64 // of the last look that found it verified; 0: none yet
	minGeneration atomic.Int64 // what SQL goes by
	changed       chan struct{}

	mu     sync.Mutex
	reason string // it is shut

	checkMu      sync.Mutex
	checkStarted time.Time // of the last look that Sure took; guarded by sure
}

// Open makes a Guard. It does not connect yet. identify nil is RunID. The options are for all of its clients.
func Open(url string, space keyspace.Space, identify Identify, log *slog.Logger, options ...redisconn.Option) (*Guard, error) {
	if identify == nil {
		identify = RunID
	}
	if log == nil {
		log = slog.Default()
	}
	server, err := redisconn.NewServer(url)
	if err != nil {
		return nil, err
	}
	g := &Guard{server: server, space: space, identify: identify, log: log, options: slices.Clip(options), changed: make(chan struct{}, 1)}
	g.raw = server.Open(g.options...)
	g.client = server.Open(append(g.options, redisconn.OnConnect(g.onConnect))...)
	g.client.AddHook(gate{g})
	return g, nil
}

// Client is the guarded client: its commands fail with ErrUnverified unless the data was verified.
func (g *Guard) Client() *redis.Client { return g.client }

// Raw is a client that is not guarded, for looking.
func (g *Guard) Raw() *redis.Client { return g.raw }

// Close closes both clients.
func (g *Guard) Close() error { return errors.Join(g.client.Close(), g.raw.Close()) }

// Generation is the generation of the data that guarded commands see, or one that no Redis has while it is not known.
func (g *Guard) Generation() int64 {
	if n := g.generation.Load(); n > 0 {
		return n
	}
	return -1
}

// Verified tells whether guarded commands pass, as far as is known; if not, why.
func (g *Guard) Verified() (why string, ok bool) {
	if !g.blocked.Load() && g.generation.Load() > 0 {
		return "", true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reason, false
}

// Sure is Verified as of a look that begins after the call. Those who ask at the same time share one. It is for what Redis does not hold: that may be missing, or
// Redis may have been emptied since the last heartbeat.
func (g *Guard) CheckNow(ctx context.Context, sql Generations) bool {
	asked := time.Now()
	g.checkMu.Lock()
	defer g.checkMu.Unlock()
	if !g.checkStarted.After(asked) {
		g.checkStarted = time.Now()
		if err := g.Check(ctx, sql); err != nil {
			return false
		}
	}
	_, ok := g.Verified()
	return ok
}

// onConnect lets a new connection live if its server's data was verified.
func (g *Guard) onConnect(ctx context.Context, cn *redis.Conn) error {
	s, err := observe(ctx, cn, g.identify, g.space)
	if err != nil {
		return err
	}
	generation, why := s.verified(g.minGeneration.Load())
	if why != "" {
		g.block(why)
		return ErrUnverified
	}
	g.raise(&g.generation, generation)
	return nil
}

func (g *Guard) raise(n *atomic.Int64, to int64) {
	for {
		have := n.Load()
		if have >= to || n.CompareAndSwap(have, to) {
			return
		}
	}
}

func (g *Guard) block(why string) {
	g.mu.Lock()
	g.reason = why
	g.mu.Unlock()
	if !g.blocked.Swap(true) {
		g.log.Warn("Redis is not trusted; purchases wait until its data is verified", "why", why)
	}
	select {
	case g.changed <- struct{}{}: // Run acts at once
	default:
	}
}

// Look asks Redis who it is, and SQL, if it answers, what it should be. It opens or shuts the guarded client accordingly. An error says that Redis could
// not be asked; then nothing changes.
func (g *Guard) Check(ctx context.Context, sql Generations) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if n, err := sql.Generation(ctx); err == nil {
		g.raise(&g.minGeneration, n)
	} // without SQL acceptance goes on by what Redis says
	s, err := observe(ctx, g.raw, g.identify, g.space)
	if err != nil {
		return fmt.Errorf("guard: %w: %w", sale.ErrUnavailable, err)
	}
	generation, why := s.verified(g.minGeneration.Load())
	if why != "" {
		g.block(why)
		return nil
	}
	g.raise(&g.generation, generation)
	if g.blocked.Swap(false) {
		g.log.Info("Redis is verified; purchases go on", "generation", generation)
	}
	return nil
}

// Adoptable is the fence at which lost orders can be given back to Redis: its sales and its queue are in place, and no later rebuild has begun. 0 while there is
// none. An error wraps sale.ErrUnavailable.
func (g *Guard) RestoreFence(ctx context.Context) (fence int64, err error) {
	s, err := observe(ctx, g.raw, g.identify, g.space)
	if err != nil {
		return 0, fmt.Errorf("guard: %w: %w", sale.ErrUnavailable, err)
	}
	fence = s.records[0].Fence
	for _, m := range s.records {
		here := m.Rebuilding || m.RunID == s.runID // else the data is another server's
		if m.Fence != fence || m.Swapped != fence || !here {
			return 0, nil
		}
	}
	return fence, nil
}

// Run looks again and again until ctx ends, and calls unverified, if it is not nil, when the data is not verified, once a Heartbeat; it returns nil.
func (g *Guard) Run(ctx context.Context, sql Generations, unverified func(context.Context)) error {
	next := time.NewTimer(0)
	defer next.Stop()
	var tried time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		case <-g.changed:
		}
		if err := g.Check(ctx, sql); err == nil && g.blocked.Load() && unverified != nil && time.Since(tried) >= Heartbeat {
			tried = time.Now()
			unverified(ctx)
			_ = g.Check(ctx, sql)
		}
		select { // forget what was noticed before this look
		case <-g.changed:
		default:
		}
		if g.blocked.Load() {
			next.Reset(unverifiedInterval)
		} else {
			next.Reset(Heartbeat)
		}
	}
}

// Pin opens a client that only ever talks to the server that answers now, and tells its name. It is for whoever verifies: what was written to one server must not be
// taken for done on another.
func (g *Guard) Pin(ctx context.Context) (client *redis.Client, runID string, err error) {
	if runID, err = g.identify(ctx, g.raw); err != nil {
		return nil, "", fmt.Errorf("guard: %w: %w", sale.ErrUnavailable, err)
	}
	client = g.server.Open(append(g.options, redisconn.LongTimeouts, redisconn.OnConnect(func(ctx context.Context, cn *redis.Conn) error {
		id, err := g.identify(ctx, cn)
		if err == nil && id != runID {
			err = ErrUnverified
		}
		return err
	}))...)
	return client, runID, nil
}

// gate refuses commands in memory while Redis is not trusted, so that a flood of purchases is not a flood of connections.
type gate struct{ guard *Guard }

func (gate) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.guard.blocked.Load() {
			cmd.SetErr(ErrUnverified)
			return ErrUnverified
		}
		return next(ctx, cmd)
	}
}

func (h gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if h.guard.blocked.Load() {
			for _, cmd := range cmds {
				cmd.SetErr(ErrUnverified)
			}
			return ErrUnverified
		}
		return next(ctx, cmds)
	}
}
