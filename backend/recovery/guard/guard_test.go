package guard_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
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

// sql is a database with a deployment and a generation that a test sets.
type sql struct {
	mu                     sync.Mutex
	deployment, generation int64
	err                    error
	calls                  int
	after                  func() // called after each reading; may be nil
}

func (s *sql) Generation(context.Context, int) (deployment, generation int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	deployment, generation, err = s.deployment, s.generation, s.err
	if s.after != nil {
		s.after()
	}
	return deployment, generation, err
}

func (s *sql) set(generation int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation = generation
}

// checks returns the number of checks of a Guard.
func (s *sql) checks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func open(t *testing.T, url string, identify guard.Identify) *guard.Guard {
	t.Helper()
	redisconn.Quiet(slog.New(slog.DiscardHandler))
	return openShards(t, url, keyspace.Space{}, identify).Of(0)
}

func openShards(t *testing.T, url string, space keyspace.Space, identify guard.Identify) *guard.Shards {
	t.Helper()
	redisconn.Quiet(slog.New(slog.DiscardHandler))
	server, err := redisconn.NewServer(url)
	if err != nil {
		t.Fatal(err)
	}
	g := guard.Open(guard.Config{
		Server: server, Space: space, Identify: identify, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// verify marks the data as verified, like a rebuild.
func verify(t *testing.T, g *guard.Guard, generation int64) {
	t.Helper()
	id, err := guard.RunID(t.Context(), g.Raw())
	if err != nil {
		t.Fatal(err)
	}
	record(t, g, "run_id", id, "generation", generation, "fence", generation, "swapped", generation)
}

// record writes fields of the guard hash.
func record(t *testing.T, g *guard.Guard, fields ...any) {
	t.Helper()
	if err := g.Raw().HSet(t.Context(), keyspace.Shard(0).Guard(), fields...).Err(); err != nil {
		t.Fatal(err)
	}
}

func wantBlocked(t *testing.T, g *guard.Guard, when string) {
	t.Helper()
	ctx := t.Context()
	if err := g.Client().Set(ctx, "k", "v", 0).Err(); !errors.Is(err, guard.ErrUnverified) {
		t.Errorf("%s: the command is not blocked: %v", when, err)
	}
	_, err := g.Client().Pipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "k"); return nil })
	if !errors.Is(err, guard.ErrUnverified) {
		t.Errorf("%s: the pipeline is not blocked: %v", when, err)
	}
}

func wantAllowed(t *testing.T, g *guard.Guard, when string) {
	t.Helper()
	if err := g.Client().Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Errorf("%s: the command is blocked: %v", when, err)
	}
}

func TestConnectionToUnverifiedDataIsBlocked(t *testing.T) {
	r := testenv.StartRedis(t, "--appendonly", "yes")
	database := &sql{generation: 1}
	first := open(t, r.URL, nil)
	if first.Generation() >= 0 {
		t.Errorf("generation %d before the first check", first.Generation())
	}
	wantBlocked(t, first, "an empty Redis")
	verify(t, first, 1)
	if err := first.Check(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	wantAllowed(t, first, "verified")
	if first.Generation() != 1 {
		t.Errorf("generation %d, want 1", first.Generation())
	}

	r.Stop()
	r.Start() // with its data and another run_id
	wantBlocked(t, first, "restarted")
	wantBlocked(t, open(t, r.URL, nil), "restarted, another process")
	verify(t, first, 2)
	wantAllowed(t, open(t, r.URL, nil), "verified again, another process")

	for name, fields := range map[string][]any{
		"rebuild in progress": {"rebuilding", 3},
		"another server":      {"run_id", "other"},
		"no run_id":           {"run_id", ""},
	} {
		verify(t, first, 2)
		record(t, first, fields...)
		wantBlocked(t, open(t, r.URL, nil), name)
		first.Raw().HDel(t.Context(), keyspace.Shard(0).Guard(), "rebuilding")
	}
}

// A master that followed a stale server and was promoted again has the data of that server, and still its run_id. The
// stale server was a replica, so it has the record of the master.
func TestServerThatFollowedAnotherIsBlocked(t *testing.T) {
	r := testenv.StartRedis(t, "--repl-backlog-ttl", "1")
	c, database := r.Client(), &sql{generation: 1}
	g := open(t, r.URL, nil)
	check := func() {
		t.Helper()
		if err := g.Check(t.Context(), database); err != nil {
			t.Fatal(err)
		}
	}
	replicaOf := func(of redisconn.Client, host, port string) {
		t.Helper()
		if err := of.ReplicaOf(t.Context(), host, port).Err(); err != nil {
			t.Fatal(err)
		}
	}
	replication := func(line string) func() bool {
		return func() bool { return strings.Contains(c.Info(t.Context(), "replication").Val(), line) }
	}
	verify(t, g, 1)
	stale := testenv.StartReplica(t, r.Addr)
	check()
	wantAllowed(t, g, "the first replica")
	replicaOf(stale.Client(), "NO", "ONE")
	host, port, _ := net.SplitHostPort(stale.Addr)
	replicaOf(c, host, port)
	testenv.Eventually(t, time.Minute, "the data of the stale server", replication("master_link_status:up"))
	check()
	wantBlocked(t, g, "it follows the stale server")
	replicaOf(c, "NO", "ONE")
	wantBlocked(t, open(t, r.URL, nil), "promoted again, a new connection")
	check()
	wantBlocked(t, g, "promoted again, an open connection")

	verify(t, g, 2)
	database.set(2)
	check()
	wantAllowed(t, g, "verified")
	cleared := replication("master_replid2:" + strings.Repeat("0", 40))
	testenv.Eventually(t, time.Minute, "a server without replicas clears master_replid2", cleared)
	testenv.StartReplica(t, r.Addr)
	check()
	wantAllowed(t, g, "master_replid2 is cleared")
}

// A shard that is not verified does not block another one, also through the client for all shards.
func TestShardsAreBlockedSeparately(t *testing.T) {
	r := testenv.StartRedis(t)
	space := keyspace.Space{Shards: 2}
	g := openShards(t, r.URL, space, nil)
	verify(t, g.Of(0), 4)
	record(t, g.Of(0), "deployment", 0xa, "shards", 2)
	if err := g.Check(t.Context(), &sql{deployment: 0xa, generation: 4}); err != nil {
		t.Fatal(err)
	}
	wantBlocked(t, g.Of(1), "a shard that is not verified")
	get := func(shard keyspace.Shard) error { return g.Client().Get(t.Context(), shard.Stock("s")).Err() }
	if err := get(0); !errors.Is(err, redis.Nil) {
		t.Errorf("the verified shard: %v", err)
	}
	if err := get(1); !errors.Is(err, guard.ErrUnverified) {
		t.Errorf("the other shard: %v", err)
	}
	if err := g.Client().Get(t.Context(), space.Events()).Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("a key of no shard: %v", err)
	}
	if err := g.Client().Ping(t.Context()).Err(); err == nil {
		t.Error("a command without a key was executed")
	}
	if _, ok := g.Verified(); ok {
		t.Error("all shards are verified")
	}
}

// While the data is not verified, Run checks more often, because another process may verify it. It calls rebuild at
// most once per heartbeat.
func TestRunChecksUnverifiedDataMoreOften(t *testing.T) {
	g := open(t, "redis://"+miniredis.RunT(t).Addr(), guard.FixedID("this one"))
	database := &sql{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var tries []time.Time
	_ = g.Run(ctx, database, func(context.Context) error {
		if tries = append(tries, time.Now()); len(tries) == 4 {
			stop()
		}
		return nil
	})
	for i := range tries[1:] {
		if gap := tries[i+1].Sub(tries[i]); gap < guard.Heartbeat {
			t.Errorf("rebuild was called again after %v", gap)
		}
	}
	if extra := database.calls - 2*len(tries); extra <= 0 { // each call has a check before and after it
		t.Error("Run did not check between the calls of rebuild")
	}
}

// A rebuild that needs an operator is called again after a second, then after twice that, also if another process has
// rebuilt in between.
func TestRunCallsARebuildThatNeedsAnOperatorLessOften(t *testing.T) {
	g := open(t, "redis://"+miniredis.RunT(t).Addr(), guard.FixedID("this one"))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	results := []error{fmt.Errorf("rebuild: %w", guard.ErrKeyType), guard.ErrBusy, guard.ErrKeyType, nil}
	var tries []time.Time
	_ = g.Run(ctx, &sql{}, func(context.Context) error {
		if tries = append(tries, time.Now()); len(tries) == len(results) {
			stop()
		}
		return results[len(tries)-1]
	})
	for i, least := range []time.Duration{time.Second, time.Second, 2 * time.Second} {
		if gap := tries[i+1].Sub(tries[i]); gap < least {
			t.Errorf("call %d after %v, want %v or more", i+2, gap, least)
		}
	}
}

// The heartbeat detects changes behind an open connection: an emptied Redis, and a generation older than that in SQL.
func TestHeartbeatDetectsChangesBehindAConnection(t *testing.T) {
	r := testenv.StartRedis(t)
	database := &sql{generation: 1}
	g := open(t, r.URL, nil)
	verify(t, g, 1)
	ctx, stop := context.WithCancel(t.Context())
	called := make(chan struct{}, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Run(ctx, database, func(context.Context) error { called <- struct{}{}; return nil })
	}()
	verified := func() bool { _, ok := g.Verified(); return ok }
	testenv.Eventually(t, time.Minute, "a verified Redis", verified)
	wantAllowed(t, g, "verified")

	before := database.checks()
	g.Raw().FlushAll(ctx)
	testenv.Eventually(t, time.Minute, "an emptied Redis is detected", func() bool { return !verified() })
	// One check in progress, the one that detects it, and two around the call of rebuild.
	if n := database.checks() - before; n > 4 {
		t.Errorf("%d checks until it was detected", n)
	}
	wantBlocked(t, g, "emptied")
	<-called
	database.set(2)
	verify(t, g, 2)
	testenv.Eventually(t, time.Minute, "a verified Redis again", verified)
	wantAllowed(t, g, "verified again")

	database.set(3)
	testenv.Eventually(t, time.Minute, "an older generation is detected", func() bool { return !verified() })
	wantBlocked(t, g, "an older generation")
	verify(t, g, 3)
	testenv.Eventually(t, time.Minute, "the current generation", verified)

	database.mu.Lock()
	database.err = sale.ErrUnavailable
	database.mu.Unlock()
	r.Pause()
	for range 3 {
		_ = g.Check(ctx, database)
	}
	if !verified() {
		t.Error("unavailable stores blocked the commands")
	}
	r.Resume()
	stop()
	<-done
}

// Redis is emptied after a check has observed it, and a new connection notices that before the check ends.
func TestCheckDoesNotHideALaterObservation(t *testing.T) {
	g := open(t, testenv.StartRedis(t).URL, nil)
	verify(t, g, 2)
	database := &sql{generation: 1} // the check reads SQL again after its observation
	database.after = func() {
		if database.generation++; database.calls == 2 {
			g.Raw().FlushAll(t.Context())
			wantBlocked(t, g, "emptied")
		}
	}
	if err := g.Check(t.Context(), database); err != nil || database.calls != 2 {
		t.Fatalf("%v after %d readings of SQL", err, database.calls)
	}
	if _, ok := g.Verified(); ok {
		t.Error("an emptied Redis is verified")
	}
}

// A database that was restored from an older backup has an older generation than Redis. Workers could not write.
func TestDatabaseOlderThanRedisIsDetected(t *testing.T) {
	g := open(t, testenv.StartRedis(t).URL, nil)
	database := &sql{generation: 3}
	verify(t, g, 3)
	check := func() (reason string, verified bool) {
		t.Helper()
		if err := g.Check(t.Context(), database); err != nil {
			t.Fatal(err)
		}
		return g.Verified()
	}
	if reason, ok := check(); !ok {
		t.Fatal(reason)
	}
	// A rebuild ends between the readings of SQL and of Redis.
	database.after = func() {
		database.generation = 4
		verify(t, g, 4)
	}
	if reason, ok := check(); !ok {
		t.Errorf("a rebuild during the check: %s", reason)
	}
	database.after = nil
	database.err = sale.ErrUnavailable
	if reason, ok := check(); !ok {
		t.Errorf("without the database: %s", reason)
	}
	database.err, database.generation = nil, 2
	want := "the data is of generation 4, and the database of generation 2: it is older than the data"
	if reason, ok := check(); ok || reason != want {
		t.Errorf("the restored database: verified %v, reason %q", ok, reason)
	}
	wantBlocked(t, g, "the restored database")
	database.generation = 5
	verify(t, g, 5)
	if reason, ok := check(); !ok {
		t.Errorf("after a rebuild: %s", reason)
	}
}

// The data of another deployment is not used, and a process that knows no deployment compares nothing. A process that
// has read its id keeps it.
func TestDataOfAnotherDeploymentIsBlocked(t *testing.T) {
	r := testenv.StartRedis(t)
	g := open(t, r.URL, nil)
	verify(t, g, 1)
	record(t, g, "deployment", 0xa)
	for database, allowed := range map[int64]bool{0: true, 0xa: true, 0xb: false} {
		g := open(t, r.URL, nil)
		if err := g.Check(t.Context(), &sql{deployment: database, generation: 1}); err != nil {
			t.Fatal(err)
		}
		if reason, ok := g.Verified(); ok != allowed {
			t.Errorf("deployment %x: verified %v, reason %q", database, ok, reason)
		}
		if err := g.Check(t.Context(), &sql{generation: 1}); err != nil {
			t.Fatal(err)
		}
		if _, ok := g.Verified(); ok != allowed {
			t.Errorf("deployment %x, and SQL has lost it: verified %v", database, ok)
		}
		err := guard.CheckOwner(t.Context(), g.Raw(), 0, guard.Owner{Deployment: database, Shards: 1})
		if _, foreign := errors.AsType[*guard.DeploymentError](err); foreign == allowed {
			t.Errorf("deployment %x: %v", database, err)
		}
	}
}

// hung is a database that responds to nothing until it is closed.
type hung chan struct{}

func (h hung) Generation(context.Context, int) (deployment, generation int64, err error) {
	<-h
	return 0, 0, errors.New("the database has ended")
}

// A database that does not respond does not hide that another deployment has taken the data over, or that Redis was
// emptied.
func TestHungDatabaseHidesNoChange(t *testing.T) {
	for name, change := range map[string]func(*guard.Guard){
		"taken over": func(g *guard.Guard) { record(t, g, "deployment", 0xb) },
		"emptied":    func(g *guard.Guard) { g.Raw().FlushAll(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			g := open(t, testenv.StartRedis(t).URL, nil)
			verify(t, g, 1)
			record(t, g, "deployment", 0xa)
			if err := g.Check(t.Context(), &sql{deployment: 0xa, generation: 1}); err != nil {
				t.Fatal(err)
			}
			wantAllowed(t, g, "before")
			change(g)
			database, checked := make(hung), make(chan error)
			go func() { checked <- g.Check(t.Context(), database) }()
			select {
			case err := <-checked:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(time.Minute):
				t.Error("the check waits for the database")
				defer func() { <-checked }()
			}
			defer close(database)
			wantBlocked(t, g, name)
		})
	}
}

// Events and other keys of no shard are not used in a Redis of another deployment, and not before a check has found an
// owner. A rebuild of a shard does not block them.
func TestKeysOfNoShardBelongToTheDeployment(t *testing.T) {
	r := testenv.StartRedis(t)
	space := keyspace.Space{Shards: 2}
	g := openShards(t, r.URL, space, nil)
	want := func(when string, blocked bool) {
		t.Helper()
		err := g.Client().Get(t.Context(), space.Events()).Err()
		if errors.Is(err, guard.ErrUnverified) != blocked || !blocked && !errors.Is(err, redis.Nil) {
			t.Errorf("%s: %v, want blocked: %t", when, err, blocked)
		}
		if err := g.Raw().Get(t.Context(), space.Events()).Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("%s: the raw client: %v", when, err)
		}
	}
	check := func() {
		t.Helper()
		if err := g.Check(t.Context(), &sql{deployment: 0xa, generation: 1}); err != nil {
			t.Fatal(err)
		}
	}
	want("before a check", true)
	check()
	want("an empty Redis, before its rebuild", false)
	verify(t, g.Of(0), 1)
	record(t, g.Of(0), "deployment", 0xb, "shards", 2)
	check()
	want("one shard is of another deployment", true)
	record(t, g.Of(0), "deployment", 0xa, "rebuilding", 1)
	check()
	want("a rebuild of one shard", false)
	record(t, g.Of(0), "shards", 3)
	check()
	want("another number of shards", true)
	r.Stop()
	if err := g.Check(t.Context(), &sql{deployment: 0xa, generation: 1}); err == nil {
		t.Fatal("a check of a stopped Redis returned no error")
	}
	if err := g.Client().Get(t.Context(), space.Events()).Err(); !errors.Is(err, guard.ErrUnverified) {
		t.Errorf("after a check that found no Redis: %v, want the result of the check before", err)
	}
}

func TestCheckNowChecksAfterTheCall(t *testing.T) {
	r := testenv.StartRedis(t)
	database := &sql{generation: 1}
	g := open(t, r.URL, nil)
	verify(t, g, 1)
	if !g.CheckNow(t.Context(), database) {
		t.Fatal("CheckNow of verified data is false")
	}
	for range 20 {
		g.Raw().FlushAll(t.Context())
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if g.CheckNow(t.Context(), database) {
					t.Error("CheckNow of an emptied Redis is true")
				}
			})
		}
		wg.Wait()
		verify(t, g, 1)
		if !g.CheckNow(t.Context(), database) {
			t.Fatal("CheckNow after verification is false")
		}
	}
}

// A check that failed reports nothing about Redis, for none of the calls that share it.
func TestFailedCheckIsNotSharedAsVerified(t *testing.T) {
	r := testenv.StartRedis(t)
	database := &sql{generation: 1}
	g := open(t, r.URL, nil)
	verify(t, g, 1)
	if !g.CheckNow(t.Context(), database) {
		t.Fatal("CheckNow of verified data is false")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	g.Raw().FlushAll(t.Context())
	var wg sync.WaitGroup
	for range 500 {
		wg.Go(func() {
			if g.CheckNow(ended, database) {
				t.Error("CheckNow of an emptied Redis is true")
			}
		})
	}
	wg.Wait()
	verify(t, g, 1)
	if !g.CheckNow(t.Context(), database) {
		t.Fatal("CheckNow after a failed check is false")
	}
}

// A rebuild follows each change of the data and of the server. The journals are woken then, also by a server that has
// restarted with the same record: it can lack orders.
func TestRebuildsWakesAfterAChange(t *testing.T) {
	id := "one"
	g := open(t, testenv.StartRedis(t).URL, func(context.Context, redis.Cmdable) (string, error) { return id, nil })
	for _, step := range []struct {
		when string
		do   func()
		wake bool
	}{
		{"verified", func() { record(t, g, "run_id", "one", "generation", 1, "fence", 1, "swapped", 1) }, true},
		{"no change", func() {}, false},
		{"another server", func() { id = "two" }, true},
		{"no further change", func() {}, false},
		{"a rebuild", func() { record(t, g, "fence", 2, "rebuilding", 2) }, true},
		{"emptied", func() { g.Raw().FlushAll(t.Context()) }, true},
	} {
		step.do()
		if err := g.Check(t.Context(), &sql{generation: 1}); err != nil {
			t.Fatal(err)
		}
		woken := false
		select {
		case <-g.Rebuilds():
			woken = true
		default:
		}
		if woken != step.wake {
			t.Errorf("%s: woken: %v, want %v", step.when, woken, step.wake)
		}
	}
}

// A pinned client does not connect to another server, even at the same address.
func TestPinnedClientRejectsAnotherServer(t *testing.T) {
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
		t.Errorf("the client wrote to another server: %v", err)
	}
}

// Blocked commands do not open connections.
func TestBlockedCommandsDoNotConnect(t *testing.T) {
	r := testenv.StartRedis(t)
	g := open(t, r.URL, nil)
	wantBlocked(t, g, "first")
	before := connections(t, g)
	for range 5000 {
		_ = g.Client().Get(t.Context(), "k").Err()
	}
	if more := connections(t, g) - before; more > 5 {
		t.Errorf("5000 blocked commands opened %d connections", more)
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

func TestFixedIDNeedsNoRunID(t *testing.T) {
	m := miniredis.RunT(t)
	g := open(t, "redis://"+m.Addr()+"/0", guard.FixedID("embedded"))
	wantBlocked(t, g, "empty")
	record(t, g, "run_id", "embedded", "generation", 1, "fence", 1)
	if err := g.Check(t.Context(), &sql{generation: 1}); err != nil {
		t.Fatal(err)
	}
	wantAllowed(t, g, "verified")
}

// Some proxies do not return a run_id.
func TestServerWithoutRunIDIsAnError(t *testing.T) {
	m := miniredis.RunT(t)
	g := open(t, "redis://"+m.Addr()+"/0", nil)
	if err := g.Check(t.Context(), &sql{}); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	err := open(t, "redis://"+testenv.FreeAddress(t)+"/0", nil).Check(t.Context(), &sql{})
	if !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("no server: %v", err)
	}
}

// A process with another number of shards would look for sales in the wrong shards.
func TestNumberOfShardsMustMatch(t *testing.T) {
	r := testenv.StartRedis(t)
	g := open(t, r.URL, nil) // one shard
	ctx := t.Context()
	check := func(shards int) error { return guard.CheckOwner(ctx, g.Raw(), 0, guard.Owner{Shards: shards}) }
	if err := check(3); err != nil {
		t.Errorf("a Redis without a recorded number: %v", err)
	}
	verify(t, g, 1)
	record(t, g, "shards", 3)
	wantBlocked(t, g, "configured for one shard of three")
	var wrong *guard.ShardsError
	if err := check(2); !errors.As(err, &wrong) || wrong.Redis != 3 || wrong.Process != 2 {
		t.Errorf("configured for two shards of three: %v", err)
	}
	if err := check(3); err != nil {
		t.Errorf("configured for three shards of three: %v", err)
	}
	record(t, g, "shards", 1)
	wantAllowed(t, open(t, r.URL, nil), "configured for one shard of one")
	r.Stop()
	if err := check(1); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("stopped Redis: %v", err)
	}
}

func TestStatusShowsPlaceAndContent(t *testing.T) {
	r := testenv.StartRedis(t)
	g := openShards(t, r.URL, keyspace.Space{}, nil)
	status := func() guard.Status { return g.Status(t.Context(), &sql{generation: 3})[0] }
	want := guard.Status{Slot: -1, Master: r.Addr, Reason: "Redis is new or was emptied"}
	if got := status(); got != want {
		t.Errorf("empty: %+v, want %+v", got, want)
	}
	verify(t, g.Of(0), 3)
	if err := g.Of(0).Raw().SAdd(t.Context(), keyspace.Shard(0).Sales(), "a", "b").Err(); err != nil {
		t.Fatal(err)
	}
	want = guard.Status{Slot: -1, Master: r.Addr, Verified: true, Generation: 3, Sales: 2}
	if got := status(); got != want {
		t.Errorf("verified: %+v, want %+v", got, want)
	}
	r.Stop()
	if got := status(); got.Verified || got.Reason == "" || got.Sales != -1 {
		t.Errorf("stopped: %+v", got)
	}
}

// Status has the error of the last rebuild by this process until the data is verified, also by another process. The
// first of consecutive errors is logged.
func TestStatusHasTheErrorOfTheLastRebuild(t *testing.T) {
	r := testenv.StartRedis(t)
	redisconn.Quiet(slog.New(slog.DiscardHandler))
	server, err := redisconn.NewServer(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	var log testenv.Buffer
	g := guard.Open(guard.Config{Server: server, Log: slog.New(slog.NewTextHandler(&log, nil))})
	t.Cleanup(func() { _ = g.Close() })
	database := &sql{generation: 3}
	ctx, stop := context.WithCancel(t.Context())
	results, done := make(chan error), make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Run(ctx, database, func(ctx context.Context, _ keyspace.Shard) error {
			select {
			case err := <-results:
				return err
			case <-ctx.Done():
				return nil
			}
		})
	}()
	defer func() { stop(); <-done }()
	fail := func(texts ...string) {
		for _, text := range texts {
			results <- errors.New(text)
		}
		results <- guard.ErrBusy // the next call, when the errors before are noted
	}
	want := func(when, reason string, logged int) {
		t.Helper()
		got := g.Status(t.Context(), database)[0].Reason
		if n := strings.Count(log.String(), "cannot be verified"); got != reason || n != logged {
			t.Errorf("%s: %q and %d lines of the log, want %q and %d", when, got, n, reason, logged)
		}
	}

	const reason = "Redis is new or was emptied"
	want("before a rebuild", reason, 0)
	fail("the database rejects it", "the disk is full")
	want("two errors", reason+"; the last rebuild failed: the disk is full", 1)
	verify(t, g.Of(0), 3)
	want("verified by another process", "", 1)
	g.Raw().FlushAll(t.Context())
	want("emptied again", reason, 1)
	fail("no memory")
	want("an error after that", reason+"; the last rebuild failed: no memory", 2)
	fail("rebuild: " + reason)
	want("an error with the reason", reason, 2)
}

// A caller reports ErrUnverified as unavailable, and the text states that once.
func TestErrUnverifiedIsUnavailableWithoutItsText(t *testing.T) {
	if !errors.Is(guard.ErrUnverified, sale.ErrUnavailable) {
		t.Error("it is not unavailable")
	}
	err := fmt.Errorf("queue: %w: %w", sale.ErrUnavailable, guard.ErrUnverified)
	if n := strings.Count(err.Error(), sale.ErrUnavailable.Error()); n != 1 {
		t.Errorf("%q has the text %d times", err, n)
	}
}
