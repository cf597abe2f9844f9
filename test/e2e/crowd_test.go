package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
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

// hammer starts buyers of a sale, hands at a time.
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
	c.compare(saleID, "created")
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

// compare verifies that every confirmed order is a row of its buyer with one of these states, and that no buyer has two
// rows that are not cancelled.
func (c *crowd) compare(saleID string, states ...string) {
	t := c.s.t
	t.Helper()
	db := c.s.sql()
	defer db.Close(context.Background())
	rows, err := db.Query(t.Context(), "SELECT id::text, buyer, status FROM orders WHERE sale_id = $1", saleID)
	if err != nil {
		t.Fatal(err)
	}
	var id, buyer, state string
	buyers, live := map[string]string{}, map[string]int{}
	if _, err := pgx.ForEachRow(rows, []any{&id, &buyer, &state}, func() error {
		if slices.Contains(states, state) {
			buyers[id] = buyer
		}
		if state != "cancelled" {
			live[buyer]++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for buyer, n := range live {
		if n > 1 {
			t.Errorf("%s has %d rows", buyer, n)
		}
	}
	lost := 0
	for _, buyer := range slices.Sorted(maps.Keys(c.orders)) {
		if order := c.orders[buyer]; buyers[order] != buyer {
			if lost++; lost <= 5 {
				t.Errorf("%s got order %s, which is the row of %q", buyer, order, buyers[order])
			}
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d orders are lost", lost, len(c.orders))
	}
	t.Logf("%d rows, %d confirmed orders, %d answers were 503 or 408", len(buyers), len(c.orders), c.busy.Load())
}
