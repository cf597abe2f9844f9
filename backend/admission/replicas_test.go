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

	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

// flock is a shop over a master, whose orders are told when both of its replicas have them.
type flock struct {
	*house
	t                     *testing.T
	master, first, second *testenv.Redis
}

func newFlock(t *testing.T) flock {
	master := testenv.StartRedis(t)
	f := flock{t: t, master: master, first: testenv.StartReplica(t, master.Addr), second: testenv.StartReplica(t, master.Addr)}
	c, err := redisconn.Open(master.URL, hasty)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	f.house = newHouse(c)
	f.groups.timeout = time.Minute // only the wait for replicas is to end
	f.cfg.Replicas, f.cfg.ReplicaClient = 2, c
	f.put(t, onSale("s", 3, 1))
	return f
}

// need has the master refuse to write while fewer replicas than n have said a word within the last second. On a slow
// machine any of them may be late.
func (f flock) need(n int) {
	f.t.Helper()
	for _, setting := range [][2]string{{"min-replicas-max-lag", "1"}, {"min-replicas-to-write", strconv.Itoa(n)}} {
		if err := f.c.ConfigSet(f.t.Context(), setting[0], setting[1]).Err(); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f flock) ask(buyer, key string) (Decision, error) {
	return f.Admit(f.t.Context(), Request{SaleID: "s", Buyer: buyer, Key: key, KeyTTL: time.Minute, Fingerprint: "f"})
}

// wantUntold asks and wants to be told nothing.
func (f flock) wantUntold(buyer, key, because string) {
	f.t.Helper()
	d, err := f.ask(buyer, key)
	if !errors.Is(err, sale.ErrUnavailable) || !strings.Contains(err.Error(), because) || d != (Decision{}) {
		f.t.Fatalf("%s is told %+v, %v; want an error about %q", buyer, d, err, because)
	}
}

// told asks until it is told of an order, as on a slow machine replicas may need longer than anybody waits.
func (f flock) told(buyer, key string) (d Decision) {
	f.t.Helper()
	testenv.Eventually(f.t, 30*time.Second, buyer+" is told of an order", func() bool {
		var err error
		d, err = f.ask(buyer, key)
		return err == nil && (d.Outcome == sale.Accepted || d.Outcome == sale.Replayed)
	})
	return d
}

func (f flock) left() string { return f.c.Get(f.t.Context(), shard.Stock("s")).Val() }

// With a replica that stands still nobody is told of an order, those are answered at once who get none, and whoever
// asks again later finds the order of the first time.
func TestOrderIsToldWhenReplicasHaveIt(t *testing.T) {
	f := newFlock(t)
	ctx := t.Context()
	first := f.told("ann", "k")
	for _, r := range []*testenv.Redis{f.first, f.second} {
		if got := r.Client().HGet(ctx, shard.Buyers("s"), "ann").Val(); got != first.OrderID.String() {
			t.Errorf("a replica has the order %q, and the buyer was told %s", got, first.OrderID)
		}
	}
	if first.Outcome == sale.Accepted && f.c.Exists(ctx, shard.Replicated()).Val() != 0 {
		t.Error("something was written that no repetition made necessary")
	}

	f.second.Pause()
	defer f.second.Resume()
	f.wantUntold("bob", "k", "1 of 2 replicas")
	f.wantUntold("bob", "k", "1 of 2 replicas") // found, and still not told
	f.wantUntold("ann", "k", "1 of 2 replicas") // told before: nobody knows whether by this server
	if f.left() != "1" {
		t.Errorf("%s units are left, want 1: bob has one, however often he asks", f.left())
	}
	waits := func() string {
		_, calls, _ := strings.Cut(f.c.Info(ctx, "commandstats").Val(), "cmdstat_wait:")
		calls, _, _ = strings.Cut(calls, ",")
		return calls
	}
	before := waits()
	f.want(t, "s", "ann", "another", sale.AlreadyBought)
	if after := waits(); before == "" || after != before {
		t.Errorf("a refusal waited for replicas: %q, then %q", before, after)
	}
	held := f.c.HGet(ctx, shard.Buyers("s"), "bob").Val()

	f.second.Resume()
	if d := f.told("bob", "k"); d.Outcome != sale.Replayed || d.OrderID.String() != held {
		t.Errorf("bob is told %+v, and his order is %s", d, held)
	}
	if f.c.Exists(ctx, shard.Replicated()).Val() != 1 {
		t.Error("WAIT after a repetition, which writes nothing, was not made to cover the order")
	}
	if f.left() != "1" {
		t.Errorf("%s units are left, want 1", f.left())
	}
}

// Requests of one group share the wait, and only those who got an order share its failure.
func TestGroupSharesTheWait(t *testing.T) {
	f := newFlock(t)
	f.second.Pause()
	defer f.second.Resume()
	var wg sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[string]int{}
	for i := range 40 {
		wg.Go(func() {
			d, err := f.ask(fmt.Sprint("b", i), "k")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				outcomes["error"]++
			} else {
				outcomes[d.Outcome.String()]++
			}
		})
	}
	wg.Wait()
	if outcomes["error"] != 3 || outcomes["sold_out"] != 37 {
		t.Errorf("40 ask for 3 units: %v", outcomes)
	}
}

// A master that may not write without its replicas takes no unit, and goes on refusing whom it has to refuse.
func TestMasterWithoutReplicasTakesNoUnit(t *testing.T) {
	f := newFlock(t)
	f.need(2)
	f.told("ann", "k")
	f.second.Pause()
	defer f.second.Resume()
	testenv.Eventually(t, 30*time.Second, "the master misses its replica", func() bool {
		return strings.Contains(f.c.Info(t.Context(), "replication").Val(), "min_slaves_good_slaves:1")
	})
	f.wantUntold("bob", "k", "NOREPLICAS")
	f.wantUntold("ann", "k", "NOREPLICAS")
	f.want(t, "s", "ann", "another", sale.AlreadyBought)
	if f.left() != "2" || f.c.HExists(t.Context(), shard.Buyers("s"), "bob").Val() {
		t.Errorf("%s units are left, want 2", f.left())
	}
	f.second.Resume()
	f.told("bob", "k")
}

// movingName is an address that leads to one server, and from the moment at which somebody is about to WAIT to another
// one.
type movingName struct {
	mu    sync.Mutex
	to    string
	then  string
	conns []net.Conn
	waits int
}

func (m *movingName) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	conn, err := new(net.Dialer).DialContext(ctx, network, m.to)
	if err == nil {
		m.conns = append(m.conns, conn)
	}
	return conn, err
}

func (m *movingName) DialHook(next redis.DialHook) redis.DialHook { return next }
func (m *movingName) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (m *movingName) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.EqualFold(cmd.Name(), "wait") {
			m.move()
		}
		return next(ctx, cmd)
	}
}

func (m *movingName) move() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits++
	m.to = m.then
	for _, c := range m.conns {
		c.Close()
	}
	m.conns = nil
}

// The master dies between the decision and the wait, and its name leads to another one by then, which has a replica and
// not the order: it must not vouch for it.
func TestOnlyTheServerThatDecidedVouches(t *testing.T) {
	decides, other := testenv.StartRedis(t), testenv.StartRedis(t)
	testenv.StartReplica(t, other.Addr)
	name := &movingName{to: decides.Addr, then: other.Addr}
	c, err := redisconn.Open(decides.URL, func(o *redis.Options) { o.Dialer = name.dial })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	c.AddHook(name)
	a := newAdmitter(c, c)
	a.cfg.Replicas, a.cfg.ReplicaClient = 1, c
	if err := NewStock(StockConfig{Client: c}).Load(t.Context(), onSale("s", 3, 1), none); err != nil {
		t.Fatal(err)
	}
	d, err := a.Admit(t.Context(), Request{SaleID: "s", Buyer: "ann", Key: "k", KeyTTL: time.Minute, Fingerprint: "f"})
	if !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("ann is told %+v, %v", d, err)
	}
	if name.waits != 1 || !decides.Client().HExists(t.Context(), shard.Buyers("s"), "ann").Val() {
		t.Errorf("the order was not made, or nobody waited (%d)", name.waits)
	}
}
