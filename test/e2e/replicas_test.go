package e2e

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"sluice/test/testenv"
)

// The master of two replicas is killed, and Sentinel promotes one of them. Before that, each replica is disconnected
// for a time, and then both: an order that no replica has is not confirmed. There is no journal, and no order of a 202
// is lost.
func TestNoOrderIsLostWhenAReplicaTakesOver(t *testing.T) {
	t.Parallel()
	const stock, replicas = 2500, 2
	ctx := t.Context()
	master := testenv.StartRedis(t)
	var links []*link
	for range replicas {
		l := newLink(t, master.Addr)
		links = append(links, l)
		testenv.StartReplica(t, l.addr)
	}
	sentinel := testenv.StartSentinel(t, master.Addr, replicas)
	s := startStack(
		t,
		shape{
			backends: 2,
			workers:  2,
			redis:    master,
			redisURL: sentinel.URL + "?master_name=" + testenv.SentinelMaster,
			env:      []string{fmt.Sprint("SLUICE_REDIS_WAIT=", replicas)},
		},
	)
	s.createSale("s", stock)

	first := s.buy("s", "first", "Idempotency-Key", `"one"`)
	if first.Status != 202 {
		t.Fatalf("%d %s", first.Status, first.Body)
	}
	buyers := hammer(s, "s", 8)
	buyers.await(500)
	for _, l := range links {
		refused := buyers.busy.Load()
		l.hold()
		testenv.Eventually(t, time.Minute, "buyers get 503", func() bool { return buyers.busy.Load() > refused+8 })
		if a := s.buy("s", "first", "Idempotency-Key",
			`"one"`); a.Status != 503 || a.Code != "temporarily-unavailable" || a.Header.Get("Retry-After") == "" ||
			a.OrderID != "" {
			t.Errorf("a repeated request while a replica is cut off: %d %s", a.Status, a.Body)
		}
		l.release()
		at := buyers.accepted.Load()
		buyers.await(at + 200)
	}
	if a := s.buy("s", "first", "Idempotency-Key", `"one"`); a.Status != 202 || a.OrderID != first.OrderID {
		t.Errorf("the first order is %s, and now %d %s", first.OrderID, a.Status, a.Body)
	}

	confirmed, refused := buyers.accepted.Load(), buyers.busy.Load()
	before := master.Client().Get(ctx, "sluice:{0}:sale:s:stock").Val()
	for _, l := range links {
		l.hold()
	}
	testenv.Eventually(t, time.Minute, "the master sells orders that its replicas lack", func() bool {
		_ = s.buy("s", "late") // the other buyers may all wait for orders that were sold before
		return before != master.Client().Get(ctx, "sluice:{0}:sale:s:stock").Val() && buyers.busy.Load() > refused+8
	})
	master.Kill()
	for _, l := range links {
		l.cut() // discards the data in transit
	}
	began := time.Now()
	next := testenv.Failover(t, sentinel, master.Addr)
	testenv.StartReplica(t, next) // two again
	at := buyers.accepted.Load()
	buyers.await(at + 100)
	t.Logf("%d orders confirmed before the failover; first sale %v after the master was killed", confirmed,
		time.Since(began).Round(time.Millisecond))
	buyers.check("s", stock)
}

// link is a connection to a server that can be held: then it delivers no data of the server, and a cut discards the
// data that it holds.
type link struct {
	addr string

	mu    sync.Mutex
	moves *sync.Cond
	held  bool
	conns []net.Conn
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l := &link{}
	l.moves = sync.NewCond(&l.mu)
	t.Cleanup(l.cut)
	l.addr = testenv.ProxyTCP(t, to, l.carry)
	return l
}

// carry forwards the data of the server.
func (l *link) carry(to, from net.Conn) {
	l.mu.Lock()
	l.conns = append(l.conns, to, from)
	l.mu.Unlock()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		l.mu.Lock()
		for l.held {
			l.moves.Wait()
		}
		l.mu.Unlock()
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func (l *link) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = true
}

func (l *link) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
	l.moves.Broadcast()
}

// cut ends all connections.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
	l.conns, l.held = nil, false
	l.moves.Broadcast()
}
