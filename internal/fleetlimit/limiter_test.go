package fleetlimit_test

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/redisconn"
	"sluice/internal/fleetlimit"
	"sluice/test/testenv"
)

// fleet returns limiters that share a Redis server.
func fleet(t *testing.T, server redisconn.Client, n int) []*fleetlimit.Limiter {
	t.Helper()
	start := time.Now()
	client := fleetlimit.NewClient(server, func() float64 { return float64(time.Since(start).Nanoseconds()) / 1e3 })
	limiters := make([]*fleetlimit.Limiter, n)
	for i := range limiters {
		limiters[i] = fleetlimit.NewLimiter(fleetlimit.LimiterConfig{Client: client})
	}
	return limiters
}

// known makes a new Redis server usable, as if it had started long ago.
func known(t *testing.T, server redisconn.Client, l *fleetlimit.Limiter, r *fleetlimit.Rule, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if d := l.Take(r, key); d.Outcome != fleetlimit.Unavailable {
			t.Fatalf("the first request to a new server has outcome %d", d.Outcome)
		}
	}
	names, err := server.Keys(t.Context(), "sluice:limit:*:start").Result()
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		if err := server.HSet(t.Context(), name, "since", 1).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// The wait after a start of Redis begins for all clients, before the first request of one of them.
func TestRunBeginsTheWaitForAllClients(t *testing.T) {
	server := testenv.StartRedis(t).Client()
	starts := func() map[string]string {
		found := map[string]string{}
		names, err := server.Keys(t.Context(), "sluice:limit:*").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if !strings.HasSuffix(name, ":start") {
				continue // the lanes of a client
			}
			if found[name], err = server.HGet(t.Context(), name, "since").Result(); err != nil {
				t.Fatal(name, err)
			}
		}
		return found
	}
	client := fleetlimit.NewClient(server, fleetlimit.Now)
	client.Begin(t.Context())
	first := starts()
	if len(first) != 16 {
		t.Fatalf("the keys are %v, want the start of each of 16 tags", first)
	}
	client.Begin(t.Context())
	if again := starts(); !maps.Equal(again, first) {
		t.Errorf("the starts are %v, and later %v", first, again)
	}
	for name := range first {
		if err := server.HSet(t.Context(), name, "since", 1).Err(); err != nil { // long ago
			t.Fatal(err)
		}
	}
	client.Begin(t.Context())
	l := fleetlimit.NewLimiter(fleetlimit.LimiterConfig{Client: client})
	r := fleetlimit.NewRule("buy", 2, 1_000_000, 9)
	for i := range 40 {
		if d := l.Take(r, strconv.Itoa(i)); d.Outcome != fleetlimit.Admitted {
			t.Errorf("client %d has outcome %d", i, d.Outcome)
		}
	}
	for name := range first {
		if err := server.HSet(t.Context(), name, "run", "another server").Err(); err != nil {
			t.Fatal(err)
		}
	}
	client.Begin(t.Context())
	for name, since := range starts() {
		if since == "1" {
			t.Errorf("%s is from the previous server", name)
		}
	}
}

// If one server of a cluster fails, the wait of the other servers begins nevertheless.
func TestRunBeginsTheWaitOfAllServersThatAnswer(t *testing.T) {
	server := testenv.StartRedis(t).Client()
	if err := server.Set(t.Context(), "sluice:limit:{0}:start", "not a hash", 0).Err(); err != nil {
		t.Fatal(err)
	}
	fleetlimit.NewClient(server, fleetlimit.Now).Begin(t.Context())
	names, err := server.Keys(t.Context(), "sluice:limit:*:start").Result()
	if err != nil || len(names) != 16 {
		t.Errorf("the keys are %v, %v, want the start of each of 16 tags", names, err)
	}
}

func TestFleetSharesTheBurst(t *testing.T) {
	server := testenv.StartRedis(t).Client()
	r := fleetlimit.NewRule("buy", 1, 3_600_000_000, 9) // one an hour
	l := fleet(t, server, 3)
	known(t, server, fleet(t, server, 1)[0], r, "a", "b")
	var admitted, refused int
	var mu sync.Mutex
	var running sync.WaitGroup
	for i := range 60 {
		running.Go(func() {
			d := l[i%3].Take(r, "a")
			mu.Lock()
			defer mu.Unlock()
			switch d.Outcome {
			case fleetlimit.Admitted:
				admitted++
			case fleetlimit.Refused:
				refused++
			default:
				t.Errorf("outcome %d", d.Outcome)
			}
		})
	}
	running.Wait()
	// A slot may be left over at an edge, and the first slot of an idle rule is up to an hour ahead.
	if admitted < 7 || admitted > 10 {
		t.Errorf("%d of 60 requests admitted, and %d refused: want the burst of 9, and at most one more", admitted, refused)
	}
	if d := l[0].Take(r, "b"); d.Outcome != fleetlimit.Admitted {
		t.Errorf("another client has outcome %d", d.Outcome)
	}
}

func TestStoppedEdgeReturnsItsSlots(t *testing.T) {
	server := testenv.StartRedis(t).Client()
	r := fleetlimit.NewRule("buy", 1, 3_600_000_000, 9)
	l := fleet(t, server, 2)
	known(t, server, fleet(t, server, 1)[0], r, "a")
	for range 3 {
		if d := l[0].Take(r, "a"); d.Outcome != fleetlimit.Admitted {
			t.Fatalf("outcome %d", d.Outcome)
		}
	}
	d := l[0].Take(r, "a")
	l[0].Refund(d)
	l[0].Close()
	n := 0
	for range 20 {
		if l[1].Take(r, "a").Outcome == fleetlimit.Admitted {
			n++
		}
	}
	if n < 5 || n > 7 { // the refunded slot is lost
		t.Errorf("%d requests admitted after an edge has spent 3 or 4 of 9 or 10 slots and stopped", n)
	}
}

func TestUnreachableRedisIsNotCalledForEachRequest(t *testing.T) {
	server := testenv.NewOnceClient("127.0.0.1:1")
	t.Cleanup(func() { server.Close() })
	failed := 0
	client := fleetlimit.NewClient(server, func() float64 { return 1 })
	l := fleetlimit.NewLimiter(fleetlimit.LimiterConfig{Client: client, OnLease: func(r fleetlimit.Result) {
		if r == fleetlimit.Failed {
			failed++
		}
	}})
	r := fleetlimit.NewRule("buy", 1, 1000, 100)
	for range 10 {
		if d := l.Take(r, "a"); d.Outcome != fleetlimit.Unavailable {
			t.Errorf("outcome %d", d.Outcome)
		}
	}
	if failed != 1 {
		t.Errorf("%d calls for 10 requests", failed)
	}
}

func TestRestartedRedisIsNotTrusted(t *testing.T) {
	server := testenv.StartRedis(t).Client()
	r := fleetlimit.NewRule("buy", 1, 3_600_000_000, 9)
	first := fleet(t, server, 1)[0]
	known(t, server, first, r, "a")
	l := fleet(t, server, 1)[0]
	if d := l.Take(r, "a"); d.Outcome != fleetlimit.Admitted {
		t.Fatalf("outcome %d", d.Outcome)
	}
	if err := server.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if d := fleet(t, server, 1)[0].Take(r, "a"); d.Outcome != fleetlimit.Unavailable {
		t.Errorf("an emptied server: outcome %d", d.Outcome)
	}
}

// leasingRedis leases slots of the first lane. It calls returned for each call that returns slots.
type leasingRedis struct {
	redis.Scripter
	returned func(context.Context) error
}

func (r leasingRedis) EvalSha(ctx context.Context, _ string, keys []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	if isLease := len(keys) == 2; isLease {
		cmd.SetVal([]any{int64(0), int64(1_000_000), int64(0), int64(0), "1", int64(2)})
	} else if err := r.returned(ctx); err != nil {
		cmd.SetErr(err)
	}
	return cmd
}

// leasing returns a limiter that holds a slot of each of n clients.
func leasing(t *testing.T, server leasingRedis, now func() float64, n int) *fleetlimit.Limiter {
	t.Helper()
	l := fleetlimit.NewLimiter(fleetlimit.LimiterConfig{Client: fleetlimit.NewClient(server, now)})
	r := fleetlimit.NewRule("buy", 1, 3_600_000_000, 9)
	for i := range n {
		if d := l.Take(r, strconv.Itoa(i)); d.Outcome != fleetlimit.Admitted {
			t.Fatalf("outcome %d", d.Outcome)
		}
	}
	return l
}

// An edge may stop while it returns slots of idle clients. The other slots must not be lost.
func TestEdgeThatStopsDuringASweepReturnsItsSlots(t *testing.T) {
	const clients = 256
	now := 0.0
	var returns atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	l := leasing(t, leasingRedis{returned: func(ctx context.Context) error {
		if returns.Add(1) == 1 { // the first call fails because the edge stops
			stop()
			return ctx.Err()
		}
		return nil
	}}, func() float64 { return now }, clients)
	now += 6_000_000
	l.Sweep(ctx)
	l.Close()
	if n := returns.Load(); n < clients/2 {
		t.Errorf("%d of %d clients have their slots returned", n, clients)
	}
}

// An edge that stops has little time to return the slots of thousands of clients.
func TestSlotsOfSeveralClientsAreReturnedConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients = 1024
		var returns atomic.Int64
		second := make(chan struct{}) // closed when a second call is in progress
		l := leasing(t, leasingRedis{returned: func(ctx context.Context) error {
			if returns.Add(1) == 2 {
				close(second)
			}
			select {
			case <-second:
			case <-ctx.Done():
			}
			return ctx.Err()
		}}, func() float64 { return 0 }, clients)
		l.Close()
		if n := returns.Load(); n != clients {
			t.Errorf("%d of %d clients have their slots returned", n, clients)
		}
	})
}

// An edge on one processor has ten connections. Leases, for which requests wait, need some of them.
func TestReturnsLeaveConnectionsForLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, connections = 1024, 10
		var mu sync.Mutex
		running, most := 0, 0
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			running += n
			most = max(most, running)
		}
		l := leasing(t, leasingRedis{returned: func(context.Context) error {
			count(1)
			<-time.After(time.Millisecond) // until all calls that may run concurrently have begun
			count(-1)
			return nil
		}}, func() float64 { return 0 }, clients)
		l.Close()
		if most >= connections {
			t.Errorf("%d calls return slots concurrently, on %d connections", most, connections)
		}
	})
}

// pollRedis has no slot for an hour. It holds further leases of a client until release is closed.
type pollRedis struct {
	redis.Scripter
	release       chan struct{}
	known         sync.Map
	running, most atomic.Int64
}

func (r *pollRedis) EvalSha(ctx context.Context, _ string, keys []string, _ ...any) *redis.Cmd {
	if _, again := r.known.LoadOrStore(keys[0], true); again {
		r.most.Store(max(r.most.Load(), r.running.Add(1)))
		<-r.release
		r.running.Add(-1)
	}
	cmd := redis.NewCmd(ctx)
	cmd.SetVal([]any{int64(1), int64(3_600_000_000), int64(0)})
	return cmd
}

// Leases of clients above the limit, for which no request waits, leave connections for other leases, too.
func TestLeasesInTheBackgroundLeaveConnectionsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, connections = 100, 10
		server := &pollRedis{release: make(chan struct{})}
		l := fleetlimit.NewLimiter(fleetlimit.LimiterConfig{
			Client: fleetlimit.NewClient(server, func() float64 { return 1 }),
		})
		r := fleetlimit.NewRule("buy", 1, 3_600_000_000, 9)
		for i := range clients {
			for range 100 {
				if d := l.Take(r, strconv.Itoa(i)); d.Outcome != fleetlimit.Refused {
					t.Fatalf("outcome %d", d.Outcome)
				}
			}
		}
		synctest.Wait()
		if n := server.most.Load(); n == 0 || n >= connections {
			t.Errorf("%d leases in the background, on %d connections", n, connections)
		}
		close(server.release)
		l.Close()
	})
}

// heldRedis waits for a value from answers, then replies to a lease: no slot for an hour.
type heldRedis struct {
	redis.Scripter
	answers chan struct{}
}

func (r heldRedis) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	<-r.answers
	cmd := redis.NewCmd(ctx)
	cmd.SetVal([]any{int64(1), int64(3_600_000_000), int64(0)})
	return cmd
}

// A suspended process, or one with a slow client, leases again before its first lease has ended.
func TestSecondLeaseOfAKeyDoesNotEndTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now atomic.Int64 // us
		server := heldRedis{answers: make(chan struct{})}
		client := fleetlimit.NewClient(server, func() float64 { return float64(now.Load()) })
		l := fleetlimit.NewLimiter(fleetlimit.LimiterConfig{Client: client})
		r := fleetlimit.NewRule("buy", 1, 1000, 100)
		var running sync.WaitGroup
		for range 2 {
			for range 2 { // one leases, the other waits for it
				running.Go(func() {
					if d := l.Take(r, "a"); d.Outcome != fleetlimit.Refused {
						t.Errorf("outcome %d", d.Outcome)
					}
				})
				synctest.Wait()
			}
			now.Add(2_000_000)
		}
		for range 2 {
			server.answers <- struct{}{}
			synctest.Wait()
		}
		running.Wait()
	})
}
