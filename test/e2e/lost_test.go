package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

// crowd are buyers that retry with the same key on 503 and 408.
type crowd struct {
	s        *stack
	accepted atomic.Int64
	busy     atomic.Int64 // answers with 503, or 408 of a backend that was paused
	rejected atomic.Int64 // those that did not take as long as a timeout
	stop     atomic.Bool
	pause    time.Duration                  // of a buyer before the next purchase
	answered func(began time.Time, ok bool) // called after each request, if not nil
	buyer    func(hand, i int) string       // the names of buyers; nil: "b<hand>-<i>"

	mu     sync.Mutex
	orders map[string]string // buyer -> the order of the last answer
	wg     sync.WaitGroup
	ended  chan struct{} // closed when no buyer is left, because the sale is sold out
}

func hammer(s *stack, saleID string, hands int) *crowd {
	c := &crowd{s: s}
	c.start(saleID, hands)
	return c
}

// start starts the buyers. The fields must be set before.
func (c *crowd) start(saleID string, hands int) {
	c.orders = map[string]string{}
	if c.buyer == nil {
		c.buyer = func(hand, i int) string { return fmt.Sprintf("b%d-%d", hand, i) }
	}
	for hand := range hands {
		c.wg.Go(func() {
			for i := 0; !c.stop.Load(); i++ {
				if !c.buy(saleID, c.buyer(hand, i), (hand+i)%len(c.s.bases)) {
					return
				}
				time.Sleep(c.pause) //nolint:forbidigo // the rate of a buyer, not a wait for something
			}
		})
	}
	c.ended = make(chan struct{})
	go func() { c.wg.Wait(); close(c.ended) }()
}

// buy returns false when the sale is sold out.
func (c *crowd) buy(saleID, buyer string, at int) bool {
	for try_ := 0; !c.stop.Load(); try_++ {
		began := time.Now()
		a, err := try("POST", c.s.bases[(at+try_)%len(c.s.bases)]+"/v1/sales/"+saleID+"/orders", c.s.token(buyer), "",
			"Idempotency-Key", `"`+saleID+`"`)
		if c.answered != nil {
			c.answered(began, err == nil && a.Status < 400)
		}
		switch {
		case err != nil:
			time.Sleep(5 * time.Millisecond) //nolint:forbidigo // the rate of a buyer's requests, not a wait for something
		case a.Status == 202, a.Code == "already-bought":
			c.mu.Lock()
			c.orders[buyer] = a.OrderID
			c.mu.Unlock()
			c.accepted.Add(1)
			return true
		case a.Code == "sold-out":
			return false
		case a.Status == 503, a.Status == 408:
			c.busy.Add(1)
			if !slow(began) {
				c.rejected.Add(1)
			}
			time.Sleep(5 * time.Millisecond) //nolint:forbidigo // as above
		default:
			c.s.t.Errorf("%s gets %d %s", buyer, a.Status, a.Body)
			return false
		}
	}
	return false
}

// slow reports whether a request has taken as long as the shortest timeout of a backend. Its answer of 503 may be the
// fault of a slow machine, and not of the state of a shard.
func slow(began time.Time) bool { return time.Since(began) >= redisconn.DialTimeout }

// await waits for n accepted orders, or until the sale is sold out: buyers continue while a server starts slowly.
func (c *crowd) await(n int64) {
	c.s.t.Helper()
	soldOut := func() bool {
		select {
		case <-c.ended:
			return true
		default:
			return false
		}
	}
	for have := c.accepted.Load(); have < n && !soldOut(); have = c.accepted.Load() {
		testenv.Eventually(c.s.t, 60*time.Second, fmt.Sprintf("sold out, or more than %d orders accepted", have),
			func() bool { return soldOut() || c.accepted.Load() > have })
	}
}

// check waits for the queue to drain and verifies: every unit is one row, every confirmed order is among them, and
// the audit balances.
func (c *crowd) check(saleID string, stock int64) {
	t := c.s.t
	t.Helper()
	defer c.stop.Store(true)
	c.await(math.MaxInt64) // until it is sold out
	r := c.s.settle(saleID, stock)
	if !r.Balanced || r.Left != 0 || r.Dead != 0 {
		t.Errorf("audit: %+v", r)
	}
	c.unanswered(saleID)
	c.compare(saleID)
}

// unanswered verifies that the dead letters of a sale are unbacked orders that no answer confirmed: Redis lost such an
// order before it was in a journal, its buyer got 503 and bought again, and a worker that had leased it restored it
// when the sale was sold out.
func (c *crowd) unanswered(saleID string) {
	t := c.s.t
	t.Helper()
	var page struct {
		Dead []struct {
			OrderID  string `json:"order_id"`
			Buyer    string
			Unbacked bool
		}
	}
	a := c.s.adminAPI("GET", "/admin/v1/dead?sale="+saleID, "")
	if err := json.Unmarshal(a.Body, &page); err != nil || a.Status != 200 {
		t.Errorf("dead letters: %d %s, %v", a.Status, a.Body, err)
	}
	for _, letter := range page.Dead {
		if !letter.Unbacked || c.orders[letter.Buyer] == letter.OrderID {
			t.Errorf("the order of an answer is dead: %+v", letter)
		} else {
			t.Logf("unbacked: %+v", letter)
		}
	}
}

// compare verifies that every confirmed order is a row, and that no buyer has two.
func (c *crowd) compare(saleID string) {
	t := c.s.t
	t.Helper()
	db, err := pgx.Connect(t.Context(), c.s.pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	rows, err := db.Query(t.Context(), "SELECT buyer, id::text FROM orders WHERE sale_id = $1 AND status = 'created'",
		saleID)
	if err != nil {
		t.Fatal(err)
	}
	sold := map[string]string{}
	for rows.Next() {
		var buyer, id string
		if err := rows.Scan(&buyer, &id); err != nil {
			t.Fatal(err)
		}
		if _, twice := sold[buyer]; twice {
			t.Errorf("%s has two rows", buyer)
		}
		sold[buyer] = id
	}
	lost := 0
	for _, buyer := range slices.Sorted(maps.Keys(c.orders)) {
		if sold[buyer] != c.orders[buyer] {
			if lost++; lost <= 5 {
				t.Errorf("%s got order %s, and has the row %q", buyer, c.orders[buyer], sold[buyer])
			}
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d orders are lost", lost, len(c.orders))
	}
	t.Logf("%d rows, %d confirmed orders, %d answers were 503 or 408", len(sold), len(c.orders), c.busy.Load())
}

const lostStock = 3000

// Redis is killed during purchases and starts again with the files of some seconds ago; backends are killed and paused
// while they rebuild it. Recovery needs no admin.
func TestRedisComesBackOlder(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(s *stack){
		"undisturbed":      func(*stack) {},
		"rebuilder killed": func(s *stack) { s.backends[0].crash() },
		"rebuilder paused": func(s *stack) {
			s.backends[0].Signal(syscall.SIGSTOP)
			time.AfterFunc(7*time.Second, func() { s.backends[0].Signal(syscall.SIGCONT) }) // longer than its lock lasts
		},
		"worker killed": func(s *stack) { s.workers[0].crash() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startStack(t, shape{backends: 2, workers: 2, journal: true})
			s.createSale("s", lostStock)
			buyers := hammer(s, "s", 8)
			buyers.await(500)
			files, older := filepath.Join(s.redis.Dir, "appendonlydir"), filepath.Join(t.TempDir(), "older")
			copyDir(t, files, older)
			buyers.await(1250)
			s.redis.Kill()
			if err := os.RemoveAll(files); err != nil {
				t.Fatal(err)
			}
			copyDir(t, older, files)
			s.redis.Start()
			began := time.Now()
			trouble(s)
			at := buyers.accepted.Load()
			buyers.await(at + 100)
			t.Logf("sold again %v after Redis was back", time.Since(began).Round(time.Millisecond))
			buyers.check("s", lostStock)
		})
	}
}

func TestRedisIsEmptied(t *testing.T) {
	t.Parallel()
	s := startStack(t, shape{backends: 2, workers: 2, journal: true})
	s.createSale("s", lostStock)
	buyers := hammer(s, "s", 8)
	for _, n := range []int64{500, 1750} {
		buyers.await(n)
		s.redis.Client().FlushAll(t.Context())
	}
	buyers.check("s", lostStock)
}

// The processes reach Redis through a name whose address changes: first the master, then a replica that had stopped
// replicating.
func TestReplicaIsPromoted(t *testing.T) {
	t.Parallel()
	master := testenv.StartRedis(t)
	_, port, _ := net.SplitHostPort(master.Addr)
	replica := testenv.StartRedis(t, "--replicaof", "127.0.0.1 "+port)
	name := newName(t, master.Addr)
	s := startStack(t,
		shape{backends: 2, workers: 2, journal: true, redis: master, redisURL: "redis://" + name.addr + "/0"})
	s.createSale("s", lostStock)
	buyers := hammer(s, "s", 8)
	buyers.await(400)
	testenv.Eventually(t, time.Minute, "a replica that follows", func() bool {
		return strings.Contains(replica.Client().Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	// from here on disconnected from its master, as by a network fault
	if err := replica.Client().ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	buyers.await(1250)
	name.move(replica.Addr)
	began := time.Now()
	at := buyers.accepted.Load()
	buyers.await(at + 100)
	t.Logf("sold again %v after the failover", time.Since(began).Round(time.Millisecond))
	buyers.check("s", lostStock)
}

// name is an address that forwards connections to one server, and after a move, which cuts them, to another.
type name struct {
	addr string

	mu    sync.Mutex
	to    string
	conns []net.Conn
}

func newName(t *testing.T, to string) *name {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	n := &name{addr: ln.Addr().String(), to: to}
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			n.mu.Lock()
			out, err := net.Dial("tcp", n.to)
			if err != nil {
				in.Close()
			} else {
				n.conns = append(n.conns, in, out)
				go func() { _, _ = io.Copy(out, in); out.Close(); in.Close() }()
				go func() { _, _ = io.Copy(in, out); out.Close(); in.Close() }()
			}
			n.mu.Unlock()
		}
	}()
	return n
}

func (n *name) move(to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.to = to
	for _, c := range n.conns {
		c.Close()
	}
	n.conns = nil
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-r", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v %s", err, out)
	}
}
