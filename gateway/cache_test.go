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

func TestIndividualResponsesAreNotCached(t *testing.T) {
	for what, change := range map[string]func(*saleBackend){
		"a cookie":    func(s *saleBackend) { s.header = map[string]string{"Set-Cookie": "a=b"} },
		"Vary":        func(s *saleBackend) { s.header = map[string]string{"Vary": "Origin"} },
		"an encoding": func(s *saleBackend) { s.header = map[string]string{"Content-Encoding": "br"} },
		"two headers": func(s *saleBackend) {
			s.header = map[string]string{"Sluice-Sale": "drop;state=sold_out;version=7;ttl=1000;holders=0"}
		},
		"an invalid Retry-After": func(s *saleBackend) { s.header = map[string]string{"Retry-After": "soon"} },
		"chunks":                 func(s *saleBackend) { s.header = map[string]string{"Transfer-Encoding": "chunked"} },
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
