package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/token"
	"sluice/test/testenv"
)

var shopKey, _ = token.NewKey(secret)

func TestCachedRefusalIsIdenticalToTheFirst(t *testing.T) {
	for _, state := range []string{"sold_out", "scheduled", "paused", "closed"} {
		t.Run(state, func(t *testing.T) {
			s := newSaleBackend(t)
			s.set(func(s *saleBackend) { s.state = state })
			e := serve(t, open, []string{s.address()})
			request := "POST " + buying + " HTTP/1.1\r\nHost: shop\r\n" + bearerOf(t,
				"ann") + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
			first := e.exact(t, request)
			second := e.exact(t, request)
			if n := s.purchases(); n != 1 {
				t.Fatalf("%d purchases reached the backend, want 1", n)
			}
			if state == "scheduled" { // a second may have passed by the wall clock
				second = strings.Replace(second, "Retry-After: 90", "Retry-After: 91", 1)
			}
			if first != second {
				t.Errorf("from the backend\n%s\nfrom the cache\n%s", first, second)
			}
			if !strings.Contains(first, " 409 ") || strings.Contains(strings.ToLower(first), "sluice-") {
				t.Errorf("the client receives\n%s", first)
			}
			if n := e.count(t, "sluice_edge_cached_refusals_total", "state", state); n != 1 {
				t.Errorf("counted %v cached refusals, want 1", n)
			}
		})
	}
}

func TestCachedRefusalHasItsOwnRequestID(t *testing.T) {
	s := newSaleBackend(t)
	e := serve(t, open, []string{s.address()})
	seen := map[string]bool{}
	for range 5 {
		id := e.buy(t, "ann").header.Get("X-Request-Id")
		if !hex32.MatchString(id) || seen[id] {
			t.Errorf("X-Request-Id %q", id)
		}
		seen[id] = true
	}
}

func TestHolderBypassesTheCache(t *testing.T) {
	s := newSaleBackend(t)
	s.set(func(s *saleBackend) { s.serial, s.holders = 2, []string{"ann", "bob"} })
	e := serve(t, open, []string{s.address()})
	e.awaitCached(t, s)
	for _, line := range []string{
		bearerOf(t, "ann"), bearerOf(t, "bob"), "token: " + sign(t, "ann", time.Hour),
		"authorization: bEARER " + sign(t, "bob", time.Minute),
	} {
		if got := e.send(t, "POST", buying, "", line); !strings.Contains(got.body, "already-bought") {
			t.Errorf("%.30s: got %d %s, want the order", line, got.status, got.body)
		}
	}
	before := s.purchases()
	for _, lines := range [][]string{
		{bearerOf(t, "dan")}, {"token: " + sign(t, "dan", time.Hour)}, {}, {"Authorization: Basic eDp5"},
		{"Authorization: Bearer x"},
		{"Authorization: Basic eDp5", "token: " + sign(t, "ann", time.Hour)}} {
		if got := e.send(t, "POST", buying, "", lines...); !strings.Contains(got.body, "sold-out") {
			t.Errorf("%.40q: got %d %s, want sold-out", lines, got.status, got.body)
		}
	}
	if n := s.purchases() - before; n != 0 {
		t.Errorf("%d of them reached the backend", n)
	}
}

func TestCachedRefusalUsesNoQuota(t *testing.T) {
	s := newSaleBackend(t)
	e := serve(t, shop, []string{s.address()})
	e.buy(t, "first")
	for range 50 {
		got := e.buy(t, "ann")
		if got.status != 409 || got.header.Get("RateLimit") != "" || got.header.Get("RateLimit-Policy") != "" {
			t.Fatalf("got %d with headers %v", got.status, got.header)
		}
	}
	if got := e.send(t, "GET", "/v1/sales/drop", ""); got.status != 200 ||
		!strings.Contains(got.header.Get("RateLimit"), `"ip";r=4`) {
		t.Errorf("after that %d, RateLimit %q, want 4 of 6 remaining", got.status, got.header.Get("RateLimit"))
	}
	if n := s.purchases(); n != 1 {
		t.Errorf("%d purchases reached the backend, want 1", n)
	}
}

func TestSaleChangesTakeEffectWithinASecond(t *testing.T) {
	for _, state := range []string{"sold_out", "scheduled", "paused", "closed"} {
		s := newSaleBackend(t)
		s.set(func(s *saleBackend) { s.state = state })
		e := serve(t, open, []string{s.address()})
		e.buy(t, "ann")
		s.set(func(s *saleBackend) { s.state, s.version = "open", 8 })
		for range 7 { // no revalidation before the last fifth
			e.ms.Add(100)
			if got := e.buy(t, "ann"); got.status != 409 {
				t.Fatalf("%s: %d before the record is stale", state, got.status)
			}
		}
		e.ms.Add(100)
		if got := e.buy(t, "ann"); got.status != 202 {
			t.Errorf("%s: after 800 ms the first purchase got %d, want 202", state, got.status)
		}
		if got := e.send(t, "POST", buying, ""); got.status != 202 { // without a token, so that it does not revalidate
			t.Errorf("%s: after an accepted order the next purchase got %d, want 202", state, got.status)
		}
	}
}

func TestReplayedOrderDoesNotInvalidateTheCache(t *testing.T) {
	s := newSaleBackend(t)
	s.set(func(s *saleBackend) { s.serial, s.holders = 1, []string{"ann"} })
	e := serve(t, open, []string{s.address()})
	e.awaitCached(t, s)
	s.set(func(s *saleBackend) { s.status, s.header = 202, map[string]string{"Idempotency-Replayed": "true"} })
	if got := e.buy(t, "ann"); got.status != 202 {
		t.Fatalf("a holder got %d", got.status)
	}
	if got := e.buy(t, "dan"); got.status != 409 {
		t.Errorf("after that others got %d, want 409", got.status)
	}
}

// Each request is tried twice: the first response ends after its head.
func TestSaleHintOfATruncatedResponseIsIgnored(t *testing.T) {
	s := newSaleBackend(t)
	tries := 0
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if tries++; tries%2 == 0 {
			s.answer(w, r)
			return
		}
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = rw.WriteString(
			"HTTP/1.1 409 Conflict\r\nSluice-Sale: drop;state=closed;version=9;ttl=1000;holders=0\r\nContent-Type: " +
				"application/problem+json\r\nContent-Length: 9\r\n\r\n{",
		)
		_ = rw.Flush()
		_ = c.Close()
	})
	e := serve(t, open, []string{b.address(), b.address()})
	for range 2 {
		if got := e.buy(t, "ann"); !strings.Contains(got.body, "sold-out") {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	if tries != 2 {
		t.Errorf("%d attempts, want 2 for the first request", tries)
	}
}

func TestExpiredRefusalIsNotUsed(t *testing.T) {
	s := newSaleBackend(t)
	s.set(func(s *saleBackend) { s.ttl = 300 })
	e := serve(t, open, []string{s.address()})
	e.buy(t, "ann")
	e.ms.Add(299)
	e.buy(t, "revalidator")
	s.set(func(s *saleBackend) { s.status = 404 })
	e.ms.Add(300)
	if got := e.buy(t, "ann"); got.status != 404 {
		t.Errorf("after its expiry: %d, want the response of the backend", got.status)
	}
}

func TestRefusalIsUsedUntilItExpiresWithTheBackendDown(t *testing.T) {
	s := newSaleBackend(t)
	e := serve(t, open, []string{s.address()})
	e.buy(t, "ann")
	s.Close()
	e.ms.Add(799)
	if got := e.buy(t, "ann"); got.status != 409 {
		t.Errorf("before its expiry: %d, want 409", got.status)
	}
	e.ms.Add(200)
	if got := e.buy(t, "revalidator"); got.status != 503 {
		t.Errorf("the revalidating request got %d, want 503", got.status)
	}
	if got := e.buy(t, "ann"); got.status != 409 {
		t.Errorf("others got %d, want 409", got.status)
	}
	e.ms.Add(1)
	if got := e.buy(t, "ann"); got.status != 503 {
		t.Errorf("after its expiry: %d, want 503", got.status)
	}
}

func TestOneRequestRevalidatesAndOthersDoNotWait(t *testing.T) {
	s := newSaleBackend(t)
	e := serve(t, open, []string{s.address()})
	e.buy(t, "ann")
	e.ms.Add(850)
	gate := make(chan struct{})
	s.set(func(s *saleBackend) { s.gate = gate })
	revalidated := make(chan response, 1)
	go func() { revalidated <- e.buy(t, "revalidator") }()
	testenv.Eventually(t, time.Minute, "one request is at the backend", func() bool { return s.purchases() == 2 })
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			if got := e.buy(t, fmt.Sprint("buyer-", i)); got.status != 409 {
				t.Errorf("buyer %d got %d", i, got.status)
			}
		})
	}
	wg.Wait()
	if n := s.purchases(); n != 2 {
		t.Errorf("%d requests reached the backend, want the first and the revalidation", n)
	}
	close(gate)
	if got := <-revalidated; got.status != 409 {
		t.Errorf("the revalidating request got %d", got.status)
	}
	e.ms.Add(799)
	e.buy(t, "ann")
	if n := s.purchases(); n != 2 {
		t.Errorf("the revalidated record is not used: %d requests", n)
	}
}

func TestForgedTokenDoesNotBlockRevalidation(t *testing.T) {
	s := newSaleBackend(t)
	e := serve(t, strings.Replace(shop, "burst = 5", "burst = 500", 1), []string{s.address()})
	e.buy(t, "ann")
	e.ms.Add(900)
	forged := bearerOf(t, "mallory")
	for range 10 {
		if got := e.send(t, "POST", buying, "", forged[:len(forged)-3]+"AAA"); got.status != 401 {
			t.Fatalf("a forged token gets %d", got.status)
		}
	}
	e.buy(t, "bob")
	if n := s.purchases(); n != 2 {
		t.Errorf("%d requests reached the backend, want the first and bob's", n)
	}
}

func TestBuyerBypassesTheCacheAfterAServerError(t *testing.T) {
	s := newSaleBackend(t)
	e := serve(t, open, []string{s.address()})
	e.buy(t, "ann")
	e.ms.Add(900)
	s.set(func(s *saleBackend) { s.status = 503 })
	if got := e.buy(t, "bob"); got.status != 503 {
		t.Fatalf("got %d", got.status)
	}
	s.set(
		func(s *saleBackend) { s.status, s.holders, s.serial = 0, []string{"bob"}, 1 },
	) // the response was lost, but not the order
	before := s.purchases()
	if got := e.buy(t, "dan"); !strings.Contains(got.body, "sold-out") || s.purchases() != before {
		t.Errorf("dan got %d %s, and %d requests reached the backend", got.status, got.body, s.purchases()-before)
	}
	if got := e.buy(t, "bob"); !strings.Contains(got.body, "already-bought") {
		t.Errorf("bob got %d %s, want his order", got.status, got.body)
	}
}

func TestNoRefusalIsCachedWithoutABypassList(t *testing.T) {
	s := newSaleBackend(t)
	s.set(func(s *saleBackend) { s.serial, s.holders, s.noList = 1, []string{"ann"}, true })
	e := serve(t, open, []string{s.address()})
	const n = 20
	for range n {
		e.buy(t, "dan")
	}
	if got := s.purchases(); got != n {
		t.Errorf("%d of %d requests reached the backend", got, n)
	}
	testenv.Eventually(t, time.Minute, "the list was requested", func() bool {
		return e.count(t, "sluice_edge_bypass_list_fetches_total", "result", "error") == 1
	})
	if got := s.lists(); got != 1 {
		t.Errorf("the list was requested %d times, want once", got)
	}
	s.set(func(s *saleBackend) { s.noList = false })
	e.ms.Add(500)
	e.awaitCached(t, s)
}

func TestBypassListIsFetchedFromAnotherBackend(t *testing.T) {
	s := newSaleBackend(t)
	s.set(func(s *saleBackend) { s.serial, s.holders = 1, []string{"ann"} })
	dead := newBackend(t, nil)
	dead.Close()
	e := serve(t, open, []string{dead.address(), s.address(), dead.address()})
	e.awaitCached(t, s)
}

func TestBypassListWithAMillionEntries(t *testing.T) {
	s := newSaleBackend(t)
	s.set(func(s *saleBackend) {
		s.serial = 1_000_000
		for i := range s.serial {
			s.holders = append(s.holders, fmt.Sprint("buyer-", i))
		}
	})
	e := serve(t, open, []string{s.address()})
	e.awaitCached(t, s)
	if got := e.buy(t, "buyer-999999"); !strings.Contains(got.body, "already-bought") {
		t.Errorf("a holder got %d %s", got.status, got.body)
	}
	e.runOnce()
	if n := e.count(t, "sluice_edge_bypass_list_entries"); n < 999_000 {
		t.Errorf("%v entries in memory", n)
	}
}

func TestOnlyPurchasesAreAnsweredFromTheCache(t *testing.T) {
	s := newSaleBackend(t)
	e := serve(t, open, []string{s.address()})
	e.buy(t, "ann")
	for _, r := range []struct{ method, target string }{
		{"GET", buying}, {"PUT", buying}, {"DELETE", buying}, {"OPTIONS", buying}, {"POST", buying + "/"},
		{"POST", "/v1/sales/dro%70/orders"}, {"POST", "/V1/sales/drop/orders"},
		{"POST", "/v1/sales/Drop/orders"}, {"POST", "/v1/sales/other/orders"},
		{"POST", "/v1/sales/drop/orders/drop/orders"}, {"POST", "/v1/sales/orders"}, {"POST", "/v1/sales//orders"},
		{"POST", "/v1/sales/drop"},
	} {
		before := e.count(t, "sluice_edge_cached_refusals_total", "state", "sold_out")
		e.send(t, r.method, r.target, "", bearerOf(t, "dan"))
		if n := e.count(t, "sluice_edge_cached_refusals_total", "state", "sold_out"); n != before {
			t.Errorf("%s %s is answered from the cache", r.method, r.target)
		}
	}
	before := s.purchases()
	if got := e.send(t, "POST", buying+"?from=page", "{}", bearerOf(t, "dan"),
		"Content-Type: application/json"); got.status != 409 ||
		s.purchases() != before {
		t.Errorf("a purchase with a query got %d, and %d requests reached the backend", got.status, s.purchases()-before)
	}
}

func TestIndividualResponsesAreNotCached(t *testing.T) {
	for what, change := range map[string]func(*saleBackend){
		"a cookie":    func(s *saleBackend) { s.header = map[string]string{"Set-Cookie": "a=b"} },
		"Vary":        func(s *saleBackend) { s.header = map[string]string{"Vary": "Origin"} },
		"an encoding": func(s *saleBackend) { s.header = map[string]string{"Content-Encoding": "br"} },
		"two headers": func(s *saleBackend) {
			s.header = map[string]string{"Sluice-Sale": "drop;state=sold_out;version=7;ttl=1000;holders=0"}
		},
		"a ttl of 0":             func(s *saleBackend) { s.ttl = 0 },
		"a field twice":          func(s *saleBackend) { s.fields = ";holders=0" },
		"an invalid Retry-After": func(s *saleBackend) { s.header = map[string]string{"Retry-After": "soon"} },
		"chunks":                 func(s *saleBackend) { s.header = map[string]string{"Transfer-Encoding": "chunked"} },
		"a hint for another sale": func(s *saleBackend) {
			s.header = map[string]string{"sluice-sale": "other;state=sold_out;version=7;ttl=1000;holders=0"}
		},
	} {
		s := newSaleBackend(t)
		s.set(change)
		e := serve(t, open, []string{s.address()})
		for range 3 {
			e.buy(t, "ann")
		}
		if n := s.purchases(); n != 3 {
			t.Errorf("%s: %d of 3 requests reached the backend", what, n)
		}
	}
}

func TestClientsCanNeitherForgeNorReadInternalData(t *testing.T) {
	s := newSaleBackend(t)
	s.set(func(s *saleBackend) { s.state = "open" })
	e := serve(t, open, []string{s.address()})
	hint := "drop;state=sold_out;version=9;ttl=1000;holders=0"
	for i := range 3 {
		got := e.send(t, "POST", buying, "", bearerOf(t, fmt.Sprint("ann-", i)), "Sluice-Sale: "+hint, "sluice-sale: "+hint,
			"Sluice-Holders: drop;accepted=9;count=0")
		if got.status != 202 {
			t.Fatalf("a request with a forged hint got %d", got.status)
		}
		for name := range s.last(t).header {
			if strings.HasPrefix(strings.ToLower(name), "sluice") {
				t.Errorf("the backend received %s of a client", name)
			}
		}
	}
	for _, target := range []string{
		"/.sluice", "/.sluice/", "/.sluice/sales/drop/holders", "/.SLUICE/sales/drop/holders", "/.Sluice/x?y",
		"/%2esluice/sales/drop/holders", "/.sl%75ice/sales/drop/holders", "/%2E%73luice/x", "//.sluice/x", "/./.sluice/x",
		"/x/../.sluice/x", "/.sluice%2fsales", `/\.sluice/x`, "/.sluice;x/sales/drop/holders/../x",
	} {
		got := e.send(t, "GET", target, "")
		if got.status != 404 && got.status != 400 {
			t.Errorf("GET %s: %d, want 404 or 400", target, got.status)
		}
	}
	for _, r := range s.requests() {
		if strings.Contains(strings.ToLower(r.target), "sluice") {
			t.Errorf("%s reached the backend", r.target)
		}
	}
}

func TestLogContainsCachedRefusals(t *testing.T) {
	s := newSaleBackend(t)
	s.set(func(s *saleBackend) { s.state = "paused" })
	log := &testenv.Buffer{}
	e := serve(t, open, []string{s.address()}, func(c *Config) { c.AccessLog = log })
	e.buy(t, "ann")
	e.buy(t, "dan")
	e.runOnce()
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || strings.Contains(lines[0], `"verdict":"paused"`) ||
		!strings.Contains(lines[1], `"status":409,"verdict":"paused","rule":""`) ||
		!strings.Contains(lines[1], `"upstream":""`) {
		t.Errorf("the log is\n%s", log)
	}
}

func TestPolicyCanDisableTheCache(t *testing.T) {
	s := newSaleBackend(t)
	e := serve(t, `return { rules = {}, repeat_refusals = false }`, []string{s.address()})
	for range 3 {
		e.buy(t, "ann")
	}
	if n := s.purchases(); n != 3 {
		t.Errorf("%d of 3 requests reached the backend", n)
	}
}

func TestInactiveSalesAreEvicted(t *testing.T) {
	s := newSaleBackend(t)
	s.set(func(s *saleBackend) { s.serial, s.holders = 1, []string{"ann"} })
	e := serve(t, open, []string{s.address()})
	e.awaitCached(t, s)
	e.runOnce()
	if n := e.count(t, "sluice_edge_bypass_list_entries"); n != 1 {
		t.Fatalf("%v entries in memory, want 1", n)
	}
	e.ms.Add(time.Minute.Milliseconds())
	e.runOnce()
	if n := e.count(t, "sluice_edge_bypass_list_entries"); n != 0 {
		t.Errorf("%v entries in memory after a minute, want none", n)
	}
	if got := e.buy(t, "dan"); got.status != http.StatusConflict {
		t.Errorf("got %d", got.status)
	}
}
