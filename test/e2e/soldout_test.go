package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/test/testenv"
)

// While a sale is rejected as a whole, the edge answers from its cache; holders get through, and every change shows
// within a second.
func TestSoldOutAtNginx(t *testing.T)      { soldOut(t, shape{edge: "edge"}) }
func TestSoldOutAtTheGateway(t *testing.T) { soldOut(t, shape{edge: "gateway"}) }

// One of the two backends is behind a Unix socket.
func TestSoldOutAtNginxOverASocket(t *testing.T) {
	soldOut(t, shape{edge: "edge", socket: testenv.SocketPath(t)})
}

// Without sale notifications: no process may publish or subscribe.
func TestSoldOutWithoutNotifications(t *testing.T) { soldOut(t, mute(t, shape{edge: "gateway"})) }

// roomy has limits that no client reaches. Its headers show that a request was counted; answers from the cache have
// none.
const roomy = `return { rules = {
	{ name = "ip", key = "ip", rate = "10000r/s", burst = 10000 },
	{ name = "token", key = "token", rate = "10000r/s", burst = 10000, match = { method = "POST", path = "/v1/sales/*/orders" } },
} }`

// soon is the most time until a change shows: the second for which an answer may be repeated, and some more for a busy
// machine.
const soon = 1500 * time.Millisecond

// unknown polls until a change shows, and returns the start of the last call that did not show it, relative to the
// first call. The duration of an answer, or a pause of the machine, does not count.
func (s *stack) unknown(known func() bool) (last time.Duration) {
	s.t.Helper()
	begin := time.Now()
	testenv.Eventually(s.t, time.Minute, "the change is known", func() bool {
		asked := time.Since(begin)
		if known() {
			return true
		}
		last = asked
		return false
	})
	return last
}

func soldOut(t *testing.T, on shape) {
	on.backends, on.workers, on.policy = 2, 1, policyFile(t, roomy)
	s := startStack(t, on)
	s.createSale("drop", 3)
	orders := map[string]string{}
	for _, name := range []string{"ann", "bob", "cid"} {
		a := s.buy("drop", name, "Idempotency-Key", `"`+name+`"`)
		if a.Status != 202 {
			t.Fatalf("%s gets %d %s", name, a.Status, a.Body)
		}
		orders[name] = a.OrderID
	}

	asked := s.buy("drop", "dan")
	if asked.Code != "sold-out" || fromMemory(asked) {
		t.Fatalf("the first refusal is %d %s with headers %v", asked.Status, asked.Body, asked.Header)
	}
	known := s.awaitCached("drop", "sold-out")
	sameAnswer(t, asked, known)
	s.holdersBypassTheCache("drop", orders)
	for _, bearer := range []string{"", "x", "a.b.c.d"} {
		if a := do(t, "POST", s.base+"/v1/sales/drop/orders", bearer, ""); a.Status != 409 && a.Status != 401 {
			t.Errorf("token %q gets %d %s", bearer, a.Status, a.Body)
		}
	}

	if a := s.adminAPI("POST", "/admin/v1/sales/drop/restock", `{"add":1}`); a.Status != 200 {
		t.Fatalf("restock: %d %s", a.Status, a.Body)
	}
	orders["eve"] = s.sells("drop", "eve")
	s.awaitCached("drop", "sold-out")
	s.holdersBypassTheCache("drop", orders)

	for _, c := range []struct{ change, code string }{
		{"pause", "sale-paused"}, {"resume", "sold-out"}, {"close", "sale-closed"},
	} {
		if a := s.adminAPI("POST", "/admin/v1/sales/drop/"+c.change, ""); a.Status != 200 {
			t.Fatalf("%s: %d %s", c.change, a.Status, a.Body)
		}
		var a answer
		if took := s.unknown(func() bool { a = s.buy("drop", "dan"); return a.Code == c.code }); took > soon {
			t.Errorf("%s shows after %v", c.change, took)
		}
		s.awaitCached("drop", c.code)
		s.holdersBypassTheCache("drop", orders)
	}
	if r := s.settle("drop", 4); !r.Balanced || r.Left != 0 {
		t.Errorf("audit: %+v", r)
	}

	s.opens(t)

	for _, path := range []string{
		"/.sluice/sales/drop/holders", "/.SLUICE/sales/drop/holders", "/%2esluice/sales/drop/holders",
		"//.sluice/sales/drop/holders",
	} {
		a := do(t, "GET", s.base+path, "", "")
		if a.Status != 404 && a.Status != 400 || a.Header.Get("Sluice-Holders") != "" {
			t.Errorf("GET %s gets %d with headers %v", path, a.Status, a.Header)
		}
	}

	s.awaitCached("drop", "sale-closed")
	for _, b := range s.backends {
		b.end(9)
	}
	gone := time.Now()
	for time.Since(gone) < soon {
		if a := s.buy("drop", "dan"); a.Code != "sale-closed" && a.Status != 503 {
			t.Errorf("without a backend dan gets %d %s", a.Status, a.Body)
		}
		pace()
	}
	if a := s.buy("drop", "dan"); a.Status != 503 {
		t.Errorf("after the cached refusal has expired, dan gets %d %s", a.Status, a.Body)
	}
}

// fromMemory reports whether the edge answered from its cache, before any limit.
func fromMemory(a answer) bool { return a.Header.Get("RateLimit") == "" }

// awaitCached waits until a buyer without an order is rejected with code from the cache, and returns the answer.
func (s *stack) awaitCached(saleID, code string) (a answer) {
	s.t.Helper()
	testenv.Eventually(s.t, time.Minute, code+" from memory", func() bool {
		a = s.buy(saleID, "dan")
		return a.Code == code && fromMemory(a)
	})
	return a
}

func sameAnswer(t *testing.T, asked, known answer) {
	t.Helper()
	plain := func(h http.Header) string {
		h = h.Clone()
		for _, name := range []string{"Date", "X-Request-Id", "RateLimit", "RateLimit-Policy"} {
			h.Del(name)
		}
		return fmt.Sprint(h)
	}
	if asked.Status != known.Status || string(asked.Body) != string(known.Body) ||
		plain(asked.Header) != plain(known.Header) {
		t.Errorf("the backend returned %d %s %v\nand the edge         %d %s %v", asked.Status, asked.Body, asked.Header,
			known.Status, known.Body, known.Header)
	}
	if id := known.Header.Get("X-Request-Id"); len(id) != 32 || id == asked.Header.Get("X-Request-Id") {
		t.Errorf("the answer of the edge has the id %q, and the one before it %q", id, asked.Header.Get("X-Request-Id"))
	}
	for name := range known.Header {
		if strings.HasPrefix(strings.ToLower(name), "sluice-") {
			t.Errorf("the client sees %s", name)
		}
	}
}

// pace is the time between two requests of one buyer.
func pace() { time.Sleep(3 * time.Millisecond) } //nolint:forbidigo // the rate of a buyer, not a wait for something

// holdersBypassTheCache sends requests of every holder, for longer than a cache entry is valid, while other buyers send
// requests too.
func (s *stack) holdersBypassTheCache(saleID string, orders map[string]string) {
	s.t.Helper()
	var wg sync.WaitGroup
	until := time.Now().Add(1200 * time.Millisecond)
	memory := 0
	wg.Go(func() {
		// longer on a slow machine
		for time.Now().Before(until) || memory == 0 && time.Now().Before(until.Add(20*time.Second)) {
			a, err := try("POST", s.base+"/v1/sales/"+saleID+"/orders", s.token("dan"), "")
			if err != nil || a.Status != 409 {
				s.t.Errorf("dan gets %d %s, %v", a.Status, a.Body, err)
			} else if fromMemory(a) {
				memory++
			}
			pace()
		}
	})
	for name, order := range orders {
		wg.Go(func() {
			url, key := s.base+"/v1/sales/"+saleID+"/orders", `"`+name+`"`
			for time.Now().Before(until) {
				for _, header := range [][]string{nil, {"Idempotency-Key", key}} {
					a, err := try("POST", url, s.token(name), "", header...)
					if err != nil || a.OrderID != order {
						s.t.Errorf("%s, the holder of %s, gets %d %s, %v", name, order, a.Status, a.Body, err)
						return
					}
					pace()
				}
			}
		})
	}
	wg.Wait()
	if memory == 0 {
		s.t.Error("no answer of that time was from the cache")
	}
}

// sells waits until a buyer gets an order, and verifies that this takes no longer than a change may take to show.
func (s *stack) sells(saleID, buyer string) (order string) {
	s.t.Helper()
	took := s.unknown(func() bool {
		a := s.buy(saleID, buyer, "Idempotency-Key", `"`+buyer+`"`)
		order = a.OrderID
		return a.Status == 202
	})
	if took > soon {
		s.t.Errorf("%s gets an order after %v", buyer, took)
	}
	return order
}

// opens polls a sale from before its opening.
func (s *stack) opens(t *testing.T) {
	t.Helper()
	var id string
	var at time.Time
	for lead := 3 * time.Second; ; lead *= 2 { // on a slow machine the sale may be open before the refusal is cached
		id, at = fmt.Sprint("later-", int(lead.Seconds())), time.Now().Add(lead).Truncate(time.Millisecond)
		body := fmt.Sprintf(
			`{"id":%q,"title":"Thing","stock":5,"price":{"amount":1,"currency":"EUR"},"per_buyer":1,"opens_at":%q}`,
			id, at.UTC().Format(time.RFC3339Nano),
		)
		if a := s.adminAPI("POST", "/admin/v1/sales", body); a.Status != 201 {
			t.Fatalf("create sale: %d %s", a.Status, a.Body)
		}
		asked := s.buy(id, "dan")
		known := asked
		for known.Code == "sale-not-open" && !fromMemory(known) {
			known = s.buy(id, "dan")
		}
		if known.Code == "sale-not-open" {
			wait, err := strconv.Atoi(known.Header.Get("Retry-After"))
			if string(asked.Body) != string(known.Body) || err != nil || wait > int(lead.Seconds()) {
				t.Errorf("the backend returned %s, and the edge %s with Retry-After %q", asked.Body, known.Body,
					known.Header.Get("Retry-After"))
			}
			break
		}
		if time.Now().Before(at) || lead > time.Minute {
			t.Fatalf("a sale that opens in %s: dan gets %d %s", time.Until(at), known.Status, known.Body)
		}
	}
	var sold, last time.Time // first sale, and start of the last request that was rejected as not open
	testenv.Eventually(t, time.Minute, "the sale opens", func() bool {
		asked := time.Now()
		a := s.buy(id, "dan")
		if sold = time.Now(); a.Status != 202 {
			last = asked
		}
		if a.Status != 202 && a.Code != "sale-not-open" {
			t.Errorf("before the opening dan gets %d %s", a.Status, a.Body)
		}
		return a.Status == 202
	})
	if sold.Before(at) || last.Sub(at) > 500*time.Millisecond {
		t.Errorf(
			"the first order was accepted %v after the opening, and requests until %v after it were rejected",
			sold.Sub(at),
			last.Sub(at),
		)
	}
}
