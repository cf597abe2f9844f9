package admission

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

// replicated is a shop over a master with two replicas. Both replicas must have an order before Admit confirms it.
type replicated struct {
	*shop
	t                     *testing.T
	master, first, second *testenv.Redis
}

func newReplicated(t *testing.T) replicated {
	master := testenv.StartRedis(t)
	f := replicated{
		t: t, master: master, first: testenv.StartReplica(t, master.Addr), second: testenv.StartReplica(t, master.Addr),
	}
	c := testenv.OpenPatient(t, master.URL)
	f.shop = newShop(c)
	f.groups.timeout = time.Minute // only the wait for replicas may time out
	cfg := &f.Admitter.cfg
	cfg.Replicas, cfg.ReplicaClient = 2, func(keyspace.Shard) redisconn.Client { return c }
	f.put(t, onSale("s", 3, 1))
	return f
}

// need makes the master reject writes while fewer than n replicas have reported within the last second. On a slow
// machine any of them may be late.
func (f replicated) need(n int) {
	f.t.Helper()
	for _, setting := range [][2]string{{"min-replicas-max-lag", "1"}, {"min-replicas-to-write", strconv.Itoa(n)}} {
		if err := f.c.ConfigSet(f.t.Context(), setting[0], setting[1]).Err(); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f replicated) buy(buyer, key string) (Decision, error) {
	return f.Admit(f.t.Context(), Request{SaleID: "s", Buyer: buyer, Key: key, KeyTTL: time.Minute, Fingerprint: "f"})
}

// wantUnconfirmed expects that Admit returns an error with this text and no order.
func (f replicated) wantUnconfirmed(buyer, key, text string) {
	f.t.Helper()
	d, err := f.buy(buyer, key)
	if !errors.Is(err, sale.ErrUnavailable) || !strings.Contains(err.Error(), text) || d != (Decision{}) {
		f.t.Fatalf("buyer %s: %+v, %v; want an error with %q", buyer, d, err, text)
	}
}

// confirmed repeats the request until the order is confirmed. On a slow machine replicas may need longer than
// replicaTimeout.
func (f replicated) confirmed(buyer, key string) (d Decision) {
	f.t.Helper()
	testenv.Eventually(f.t, time.Minute, "a confirmed order of "+buyer, func() bool {
		var err error
		d, err = f.buy(buyer, key)
		return err == nil && (d.Outcome == sale.Accepted || d.Outcome == sale.Replayed)
	})
	return d
}

func (f replicated) left() string { return f.c.Get(f.t.Context(), shard.Stock("s")).Val() }

// With a suspended replica, orders are not confirmed, refusals do not wait, and a later replay returns the order.
func TestOrderIsConfirmedWhenReplicasHaveIt(t *testing.T) {
	f := newReplicated(t)
	ctx := t.Context()
	first := f.confirmed("ann", "k")
	for _, r := range []*testenv.Redis{f.first, f.second} {
		if got := r.Client().HGet(ctx, shard.Buyers("s"), "ann").Val(); got != first.OrderID.String() {
			t.Errorf("a replica has order %q, and Admit returned %s", got, first.OrderID)
		}
	}
	if first.Outcome == sale.Accepted && f.c.Exists(ctx, shard.Replicated()).Val() != 0 {
		t.Error("the extra write for replays was made for a new order")
	}

	f.second.Pause()
	defer f.second.Resume()
	f.wantUnconfirmed("bob", "k", "1 of 2 replicas")
	f.wantUnconfirmed("bob", "k", "1 of 2 replicas") // a replay
	f.wantUnconfirmed("ann", "k", "1 of 2 replicas") // confirmed before, perhaps by another server
	if f.left() != "1" {
		t.Errorf("%s units left, want 1: bob has one", f.left())
	}
	waits := func() string {
		_, calls, _ := strings.Cut(f.c.Info(ctx, "commandstats").Val(), "cmdstat_wait:")
		calls, _, _ = strings.Cut(calls, ",")
		return calls
	}
	before := waits()
	f.want(t, "s", "ann", "other", sale.AlreadyBought)
	if after := waits(); before == "" || after != before {
		t.Errorf("a refusal called WAIT: %q, then %q", before, after)
	}
	held := f.c.HGet(ctx, shard.Buyers("s"), "bob").Val()

	f.second.Resume()
	if d := f.confirmed("bob", "k"); d.Outcome != sale.Replayed || d.OrderID.String() != held {
		t.Errorf("bob: %+v, want a replay of order %s", d, held)
	}
	if f.c.Exists(ctx, shard.Replicated()).Val() != 1 {
		t.Error("the write that makes WAIT cover a replay is missing")
	}
	if f.left() != "1" {
		t.Errorf("%s units left, want 1", f.left())
	}
}

// The requests of a group share the wait. Only those with an order fail with it.
func TestGroupSharesTheWaitForReplicas(t *testing.T) {
	f := newReplicated(t)
	f.second.Pause()
	defer f.second.Resume()
	var wg sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[string]int{}
	for i := range 40 {
		wg.Go(func() {
			d, err := f.buy(fmt.Sprint("b", i), "k")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				outcomes["error"]++
			} else {
				outcomes[string(d.Outcome)]++
			}
		})
	}
	wg.Wait()
	if outcomes["error"] != 3 || outcomes["sold_out"] != 37 {
		t.Errorf("outcomes of 40 requests for 3 units: %v", outcomes)
	}
}

// A master with min-replicas-to-write takes no unit without its replicas, and still returns refusals.
func TestMasterWithoutReplicasTakesNoUnit(t *testing.T) {
	f := newReplicated(t)
	f.need(2)
	f.confirmed("ann", "k")
	f.second.Pause()
	defer f.second.Resume()
	testenv.Eventually(t, time.Minute, "the master notices the missing replica", func() bool {
		return strings.Contains(f.c.Info(t.Context(), "replication").Val(), "min_slaves_good_slaves:1")
	})
	f.wantUnconfirmed("bob", "k", "NOREPLICAS")
	f.wantUnconfirmed("ann", "k", "NOREPLICAS")
	f.want(t, "s", "ann", "other", sale.AlreadyBought)
	if f.left() != "2" || f.c.HExists(t.Context(), shard.Buyers("s"), "bob").Val() {
		t.Errorf("%s units left, want 2", f.left())
	}
	f.second.Resume()
	f.confirmed("bob", "k")
}

// failover is an address that leads to one server, and from the first WAIT on to another one.
type failover struct {
	mu    sync.Mutex
	to    string
	then  string
	conns []net.Conn
	waits int
}

func (m *failover) dial() (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	conn, err := net.Dial("tcp", m.to)
	if err == nil {
		m.conns = append(m.conns, conn)
	}
	return conn, err
}

func (m *failover) process(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if strings.EqualFold(cmd.Name(), "wait") {
		m.move()
	}
	return next(ctx, cmd)
}

func (m *failover) move() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits++
	m.to = m.then
	for _, c := range m.conns {
		c.Close()
	}
	m.conns = nil
}

// The master fails between the decision and the wait. Its address then leads to a new master, which has a replica but
// not the order. The new master must not confirm the order.
func TestOnlyTheServerThatDecidedConfirms(t *testing.T) {
	decides, other := testenv.StartRedis(t), testenv.StartRedis(t)
	testenv.StartReplica(t, other.Addr)
	name := &failover{to: decides.Addr, then: other.Addr}
	c, err := redisconn.Open(decides.URL, redisconn.Dial(name.dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	c.AddHook(testenv.Commands(name.process))
	a := newAdmitter(c, c)
	a.cfg.Replicas, a.cfg.ReplicaClient = 1, func(keyspace.Shard) redisconn.Client { return c }
	if err := NewStock(StockConfig{Client: c}).Load(t.Context(), onSale("s", 3, 1), none); err != nil {
		t.Fatal(err)
	}
	d, err := a.Admit(t.Context(), Request{SaleID: "s", Buyer: "ann", Key: "k", KeyTTL: time.Minute, Fingerprint: "f"})
	if !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("Admit = %+v, %v; want an error", d, err)
	}
	if name.waits != 1 || !decides.Client().HExists(t.Context(), shard.Buyers("s"), "ann").Val() {
		t.Errorf("the order is missing, or WAIT was called %d times, want once", name.waits)
	}
}
