package guard_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"sluice/backend/recovery/guard"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

// sql is a database that knows the generation it is told.
type sql struct {
	mu         sync.Mutex
	generation int64
	err        error
	asked      int
}

func (s *sql) Generation(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.generation, s.err
}

// looks is how often a Guard has looked.
func (s *sql) looks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func open(t *testing.T, url string, identify guard.Identify) *guard.Guard {
	t.Helper()
	redisconn.Quiet(slog.New(slog.DiscardHandler))
	g, err := guard.Open(url, keyspace.Space{}, identify, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// stamp verifies the data as a rebuild does.
func stamp(t *testing.T, g *guard.Guard, generation int64) {
	t.Helper()
	id, err := guard.RunID(t.Context(), g.Raw())
	if err != nil {
		t.Fatal(err)
	}
	mark(t, g, "run_id", id, "generation", generation, "fence", generation, "swapped", generation)
}

func mark(t *testing.T, g *guard.Guard, fields ...any) {
	t.Helper()
	if err := g.Raw().HSet(t.Context(), keyspace.Shard(0).Guard(), fields...).Err(); err != nil {
		t.Fatal(err)
	}
}

func wantRefused(t *testing.T, g *guard.Guard, when string) {
	t.Helper()
	ctx := t.Context()
	if err := g.Client().Set(ctx, "k", "v", 0).Err(); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("%s: a command is not refused: %v", when, err)
	}
	if _, err := g.Client().Pipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "k"); return nil }); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("%s: a pipeline is not refused: %v", when, err)
	}
}

func wantPassed(t *testing.T, g *guard.Guard, when string) {
	t.Helper()
	if err := g.Client().Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Errorf("%s: a command is refused: %v", when, err)
	}
}

func TestConnectionToUnverifiedDataIsRefused(t *testing.T) {
	r := testenv.StartRedis(t, "--appendonly", "yes")
	database := &sql{}
	first := open(t, r.URL, nil)
	if first.Generation() >= 0 {
		t.Errorf("generation %d before any look", first.Generation())
	}
	wantRefused(t, first, "an empty Redis")
	stamp(t, first, 1)
	if err := first.Check(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	wantPassed(t, first, "verified")
	if first.Generation() != 1 {
		t.Errorf("generation %d", first.Generation())
	}

	r.Stop()
	r.Start() // with all its data, and another run_id
	wantRefused(t, first, "started again")
	wantRefused(t, open(t, r.URL, nil), "started again, another process")
	stamp(t, first, 2)
	wantPassed(t, open(t, r.URL, nil), "verified again, another process")

	for name, fields := range map[string][]any{
		"being rebuilt":   {"rebuilding", 3},
		"another server":  {"run_id", "somebody else's"},
		"nobody's run_id": {"run_id", ""},
	} {
		stamp(t, first, 2)
		mark(t, first, fields...)
		wantRefused(t, open(t, r.URL, nil), name)
		first.Raw().HDel(t.Context(), keyspace.Shard(0).Guard(), "rebuilding")
	}
}

func TestShardsMustAgree(t *testing.T) {
	r := testenv.StartRedis(t)
	redisconn.Quiet(slog.New(slog.DiscardHandler))
	g, err := guard.Open(r.URL, keyspace.Space{Shards: 2}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	stamp(t, g, 4)
	wantRefused(t, g, "a shard that was lost")
}

// While nothing is sold a guard looks often, for it may be another process that verifies the data. It asks for a
// rebuild once a heartbeat all the same.
func TestWaitingForAnotherProcess(t *testing.T) {
	g := open(t, "redis://"+miniredis.RunT(t).Addr(), guard.FixedID("this one"))
	database := &sql{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var tries []time.Time
	_ = g.Run(ctx, database, func(context.Context) {
		if tries = append(tries, time.Now()); len(tries) == 4 {
			stop()
		}
	})
	for i := range tries[1:] {
		if gap := tries[i+1].Sub(tries[i]); gap < guard.Heartbeat {
			t.Errorf("a rebuild was asked for again after %v", gap)
		}
	}
	if besides := database.asked - 2*len(tries); besides <= 0 { // it looks before and after each try
		t.Error("it looked no oftener than it asked for a rebuild")
	}
}

// What changes behind a connection that lives is seen by the heartbeat: an emptied Redis, and a generation that SQL has
// left behind.
func TestHeartbeatFindsWhatConnectionsDoNot(t *testing.T) {
	r := testenv.StartRedis(t)
	database := &sql{}
	g := open(t, r.URL, nil)
	stamp(t, g, 1)
	ctx, stop := context.WithCancel(t.Context())
	asked := make(chan struct{}, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Run(ctx, database, func(context.Context) { asked <- struct{}{} })
	}()
	verified := func() bool { _, ok := g.Verified(); return ok }
	testenv.Eventually(t, 5*time.Second, "a verified Redis", verified)
	wantPassed(t, g, "verified")

	before := database.looks()
	g.Raw().FlushAll(ctx)
	testenv.Eventually(t, 5*time.Second, "an emptied Redis is noticed", func() bool { return !verified() })
	if n := database.looks() - before; n > 4 { // one under way, the one that notices, and by now two around the rebuild that is asked for
		t.Errorf("it took %d looks to notice", n)
	}
	wantRefused(t, g, "emptied")
	<-asked
	stamp(t, g, 2)
	testenv.Eventually(t, 5*time.Second, "a verified Redis again", verified)
	wantPassed(t, g, "verified again")

	database.mu.Lock()
	database.generation = 3
	database.mu.Unlock()
	testenv.Eventually(t, 5*time.Second, "a generation that was overtaken is noticed", func() bool { return !verified() })
	wantRefused(t, g, "a master that was left behind")
	stamp(t, g, 3)
	testenv.Eventually(t, 5*time.Second, "the present generation", verified)

	database.mu.Lock()
	database.err = sale.ErrUnavailable
	database.mu.Unlock()
	r.Pause()
	for range 3 {
		_ = g.Check(ctx, database)
	}
	if !verified() {
		t.Error("stores that do not answer prove nothing about the data")
	}
	r.Resume()
	stop()
	<-done
}

func TestSureLooksAfterItIsAsked(t *testing.T) {
	r := testenv.StartRedis(t)
	database := &sql{}
	g := open(t, r.URL, nil)
	stamp(t, g, 1)
	if !g.CheckNow(t.Context(), database) {
		t.Fatal("a verified Redis is not sure")
	}
	for range 20 {
		g.Raw().FlushAll(t.Context())
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if g.CheckNow(t.Context(), database) {
					t.Error("sure of a Redis that was emptied before it was asked")
				}
			})
		}
		wg.Wait()
		stamp(t, g, 1)
		if !g.CheckNow(t.Context(), database) {
			t.Fatal("stamped, and not sure")
		}
	}
}

// A pinned client never talks to another server, even at the same address.
func TestPinnedClientKnowsItsServer(t *testing.T) {
	r := testenv.StartRedis(t)
	g := open(t, r.URL, nil)
	c, id, err := g.Pin(t.Context())
	if err != nil || id == "" {
		t.Fatal(id, err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	r.Kill()
	r.Start()
	if err := c.Set(t.Context(), "k", "v", 0).Err(); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("it writes to another process: %v", err)
	}
}

// A flood of refused commands is answered from memory: Redis sees a handful of connections.
func TestRefusalsDoNotFloodRedis(t *testing.T) {
	r := testenv.StartRedis(t)
	g := open(t, r.URL, nil)
	wantRefused(t, g, "first")
	before := connections(t, g)
	for range 5000 {
		_ = g.Client().Get(t.Context(), "k").Err()
	}
	if more := connections(t, g) - before; more > 5 {
		t.Errorf("5000 refusals made %d connections", more)
	}
}

func connections(t *testing.T, g *guard.Guard) int64 {
	t.Helper()
	n := g.Raw().InfoMap(t.Context(), "stats").Item("Stats", "total_connections_received")
	var total int64
	for _, d := range n {
		total = total*10 + int64(d-'0')
	}
	return total
}

func TestFixedIdentityNeedsNoRunID(t *testing.T) {
	m := miniredis.RunT(t)
	g := open(t, "redis://"+m.Addr()+"/0", guard.FixedID("embedded"))
	wantRefused(t, g, "empty")
	mark(t, g, "run_id", "embedded", "generation", 1, "fence", 1)
	if err := g.Check(t.Context(), &sql{}); err != nil {
		t.Fatal(err)
	}
	wantPassed(t, g, "verified")
}

// A server that does not tell its run_id, such as some proxies, is an error and no verdict.
func TestServerWithoutRunIDIsAnError(t *testing.T) {
	m := miniredis.RunT(t)
	g := open(t, "redis://"+m.Addr()+"/0", nil)
	if err := g.Check(t.Context(), &sql{}); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if err := open(t, "redis://"+ln.Addr().String()+"/0", nil).Check(t.Context(), &sql{}); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("nobody there: %v", err)
	}
}

// A process that was told of other shards looks for sales where they are not.
func TestShardsMustBeThoseOfRedis(t *testing.T) {
	r := testenv.StartRedis(t)
	g := open(t, r.URL, nil) // one shard
	ctx := t.Context()
	check := func(shards int) error { return guard.CheckShards(ctx, g.Raw(), keyspace.Space{Shards: shards}) }
	if err := check(3); err != nil {
		t.Errorf("a Redis that says nothing: %v", err)
	}
	stamp(t, g, 1)
	mark(t, g, "shards", 3)
	wantRefused(t, g, "told of one shard, where there are three")
	var wrong *guard.ShardsError
	if err := check(2); !errors.As(err, &wrong) || wrong.Redis != 3 || wrong.Process != 2 {
		t.Errorf("told of two shards, where there are three: %v", err)
	}
	if err := check(3); err != nil {
		t.Errorf("told of three shards, where there are three: %v", err)
	}
	mark(t, g, "shards", 1)
	wantPassed(t, open(t, r.URL, nil), "told of the shard that there is")
	r.Stop()
	if err := check(1); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("nobody answers: %v", err)
	}
}
