package nginx

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/backend/sale"
	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

// A refusal from memory is byte for byte that of the backend.
func TestCachedRefusalIsThatOfTheBackend(t *testing.T) {
	t.Parallel()
	limited := `return { rules = { { name = "ip", key = "ip", rate = "1r/h", burst = 0, mode = "shadow" } } }`
	for state, prepare := range map[string]func(*testing.T, *realShop){
		"sold_out": func(t *testing.T, s *realShop) {
			for _, buyer := range []string{"ann", "bob"} {
				if a := s.buy(t, buyer); a.status != 202 {
					t.Fatalf("%s: %d %s", buyer, a.status, a.body)
				}
			}
		},
		"paused": func(t *testing.T, s *realShop) {
			s.buy(t, "ann")
			s.change(t, func(d *sale.Sale) { d.Switch = sale.Paused })
		},
		"closed":    func(t *testing.T, s *realShop) { s.change(t, func(d *sale.Sale) { d.Switch = sale.Closed }) },
		"scheduled": func(t *testing.T, s *realShop) { s.change(t, func(d *sale.Sale) { d.OpensAt = soon() }) },
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			s := startRealShop(t, limited, drop(2))
			prepare(t, s)
			first, cached := s.fromMemory(func() answer { return s.buy(t, "stranger") })
			if cached || first.status != 409 {
				t.Fatalf("the first refusal: from memory: %v, %d %s", cached, first.status, first.body)
			}
			second := s.learned(t)
			if second.status != first.status || second.body != first.body {
				t.Errorf("from memory: %d %s, want %d %s", second.status, second.body, first.status, first.body)
			}
			if a, b := first.header.Get("X-Request-Id"), second.header.Get("X-Request-Id"); a == b || len(b) != 32 {
				t.Errorf("X-Request-Id %q, then %q: each response has its own", a, b)
			}
			if state == "scheduled" && second.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			if want, got := steady(first.header), steady(second.header); !maps.EqualFunc(want, got, slices.Equal) {
				t.Errorf("from memory: %v, want %v", got, want)
			}
			testenv.Eventually(t, time.Minute, "the access log has the verdict "+state, func() bool {
				return slices.ContainsFunc(s.edge.logged(2, 409), func(entry map[string]any) bool {
					return entry["verdict"] == state && entry["upstream"] == "" && entry["rule"] == ""
				})
			})
		})
	}
}

// soon returns an instant for which the whole seconds until then do not change during a test.
func soon() time.Time {
	return time.Now().Add(time.Hour + 700*time.Millisecond).Truncate(10 * time.Millisecond)
}

// steady returns the headers that do not differ between responses. Only a request that limits have judged has a quota.
func steady(h http.Header) http.Header {
	h = h.Clone()
	for _, name := range []string{"Date", "X-Request-Id", "Ratelimit", "Ratelimit-Policy"} {
		h.Del(name)
	}
	return h
}

// A buyer with an order reaches the backend, while other buyers get "sold out" from memory.
func TestHolderReachesBackendWhileOthersDoNot(t *testing.T) {
	s := startRealShop(t, open, drop(2))
	bought := s.edge.do("POST", dropOrders, "Authorization", signed(t, "ann"), "Idempotency-Key", `"click"`)
	if bought.status != 202 || s.buy(t, "Zoë").status != 202 {
		t.Fatalf("buying: %d %s", bought.status, bought.body)
	}
	s.learned(t)
	escaped := hs256(plainHeader, `{"sub":"\u0061nn","exp":`+year2100+`}`)
	spaced := hs256(plainHeader, "{ \"exp\" : "+year2100+" , \"sub\"\t:\n\"ann\" }")
	for name, headers := range map[string][]string{
		"the same request": {"Authorization", signed(t, "ann"), "Idempotency-Key", `"click"`},
		"without a key":    {"Authorization", signed(t, "ann")},
		"another token":    {"Authorization", "bEaReR  " + hs256(plainHeader, `{"exp":`+year2100+`,"sub":"ann","x":1}`)},
		"a header token":   {"Token", hs256(plainHeader, `{"sub":"ann","exp":`+year2100+`}`)},
		"escapes":          {"Authorization", "Bearer " + escaped},
		"white space":      {"Authorization", "Bearer " + spaced},
		"not ASCII":        {"Authorization", "Bearer " + hs256(plainHeader, `{"sub":"Zoë","exp":`+year2100+`}`)},
	} {
		s.learned(t)
		a, cached := s.fromMemory(func() answer { return s.edge.do("POST", dropOrders, headers...) })
		replay := strings.Contains(name, "same")
		if cached || replay && (a.status != 202 || a.body != bought.body) ||
			!replay && (a.status != 409 || !strings.Contains(a.body, `"already-bought"`)) {
			t.Errorf("%s: from memory: %v, %d %s", name, cached, a.status, a.body)
		}
		if other, cached := s.fromMemory(
			func() answer { return s.buy(t, "bob") },
		); other.status != 409 || !strings.Contains(other.body, `"sold-out"`) ||
			!cached && s.purchases() > 100 {
			t.Errorf("another buyer at the same time: %d %s", other.status, other.body)
		}
	}
}

// A request whose token no verifier accepts is refused from memory. One whose token only a verifier can read is not.
func TestUnverifiedSubjectDecidesBypass(t *testing.T) {
	s := startMadeShop(t, open, func(s *madeShop) {
		s.header = "drop;state=sold_out;version=7;ttl=1000;holders=1"
		s.hold("ann")
	})
	part := base64.RawURLEncoding.EncodeToString
	raw := func(claims string) string { return part([]byte(plainHeader)) + "." + part([]byte(claims)) + ".sig" }
	for _, c := range []struct {
		name    string
		headers []string
		cached  bool
	}{
		{"no token", nil, true},
		{"an empty token", []string{"Token", ""}, true},
		{"another scheme", []string{"Authorization", "Basic YW5uOmFubg=="}, true},
		{"another scheme and a token", []string{"Authorization", "Basic YW5uOmFubg==", "Token", raw(`{"sub":"ann"}`)}, true},
		{"a word", []string{"Authorization", "Bearer nonsense"}, true},
		{"two segments", []string{"Authorization", "Bearer a.b"}, true},
		{"four segments", []string{"Authorization", "Bearer " + raw(`{"sub":"ann"}`) + ".x"}, true},
		{"not base64url", []string{"Authorization", "Bearer a.b+c=.d"}, true},
		{
			"longer than any token",
			[]string{"Authorization", "Bearer " + raw(`{"sub":"ann","x":"`+strings.Repeat("a", 4000)+`"}`)}, true,
		},
		{"another buyer", []string{"Authorization", "Bearer " + raw(`{"sub":"bob"}`)}, true},
		{"another buyer in the header token", []string{"Token", raw(`{"sub":"bob"}`)}, true},
		{"bearer wins", []string{"Authorization", "Bearer " + raw(`{"sub":"bob"}`), "Token", raw(`{"sub":"ann"}`)}, true},
		{"a holder's name", []string{"Authorization", "Bearer " + raw(`{"sub":"ann"}`)}, false},
		{"a holder's name in the header token", []string{"Token", raw(`{"sub":"ann"}`)}, false},
		{"two names", []string{"Authorization", "Bearer " + raw(`{"sub":"bob","sub":"eve"}`)}, false},
		{"two names, one in capitals", []string{"Authorization", "Bearer " + raw(`{"sub":"bob","SuB":"eve"}`)}, false},
		{"no name", []string{"Authorization", "Bearer " + raw(`{"exp":1}`)}, false},
		{"no claims", []string{"Authorization", "Bearer a..b"}, false},
		{"an escape somewhere", []string{"Authorization", "Bearer " + raw(`{"sub":"bob","x":"\n"}`)}, false},
		{"a number", []string{"Authorization", "Bearer " + raw(`{"sub":5}`)}, false},
		{"a name as a value", []string{"Authorization", "Bearer " + raw(`{"x":"sub"}`)}, false},
		{"an unfinished name", []string{"Authorization", "Bearer " + raw(`{"sub":"bob`)}, false},
		{"nothing after the name", []string{"Authorization", "Bearer " + raw(`{"sub"`)}, false},
	} {
		s.learned(t)
		if _, cached := s.fromMemory(
			func() answer { return s.edge.do("POST", dropOrders, c.headers...) },
		); cached != c.cached {
			t.Errorf("%s: from memory: %v, want %v", c.name, cached, c.cached)
		}
	}
}

// Only purchases, in their canonical spelling, are refused from memory.
func TestOnlyPurchasesAreRefusedFromMemory(t *testing.T) {
	s := startMadeShop(t, open, nil)
	for _, c := range []struct {
		method, path, body string
		cached             bool
	}{
		{"POST", dropOrders, "", true},
		{"POST", dropOrders, "{}", true},
		{"POST", dropOrders + "?x=1", "", true},
		{"POST", dropOrders + "?", "", true},
		{"GET", dropOrders, "", false},
		{"HEAD", dropOrders, "", false},
		{"PUT", dropOrders, "", false},
		{"DELETE", dropOrders, "", false},
		{"POST", dropOrders + "/", "", false},
		{"POST", "/v1/sales/DROP/orders", "", false},
		{"POST", "/V1/sales/drop/orders", "", false},
		{"POST", "/v1/sales/dro%70/orders", "", false},
		{"POST", "/v1/sales/drop2/orders", "", false},
		{"POST", "/v1/sales/drop", "", false},
		{"POST", dropOrders, strings.Repeat("x", 17000), false}, // 413
	} {
		s.learned(t)
		a, cached := s.fromMemory(func() answer { return s.edge.send(c.method, c.path, c.body) })
		cached = cached && strings.Contains(a.body, `"sold-out"`)
		if cached != c.cached {
			t.Errorf("%s %s: from memory: %v, want %v: %d %s", c.method, c.path, cached, c.cached, a.status, a.body)
		}
		if len(c.body) > 16384 && a.status != 413 {
			t.Errorf("a body of %d bytes: %d", len(c.body), a.status)
		}
	}
}

// A malformed purchase gets its 400 also while the sale is refused from memory.
func TestMalformedPurchaseIsNotRefusedFromMemory(t *testing.T) {
	s := startMadeShop(t, open, nil)
	for _, c := range []struct {
		name, request string
		status        int
	}{
		{"a good one", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 409},
		{"HTTP/1.0", "POST " + dropOrders + " HTTP/1.0\r\nContent-Length: 0\r\n\r\n", 409},
		{"two spaces", "POST  " + dropOrders + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 400},
		{"an absolute target", "POST http://x" + dropOrders + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 400},
		{"a bare line feed", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\nContent-Length: 0\r\n\r\n", 400},
		{
			"a bare line feed, made up for by a space",
			"POST " + dropOrders + " HTTP/1.1\r\nHost: x\nX:  y\r\nContent-Length: 0\r\n\r\n", 400,
		},
		{
			"two tokens", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nToken: a\r\nToken: b\r\nContent-Length: 0\r\n\r\n",
			400,
		},
		{
			"many lines",
			"POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 20) + "Content-Length: " +
				"0\r\nConnection: close\r\n\r\n",
			409,
		},
		{
			"a dozen lines",
			"POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 9) + "Content-Length: " +
				"0\r\nConnection: close\r\n\r\n",
			409,
		},
		{
			"no space, much space, and an empty value",
			"POST " + dropOrders + " HTTP/1.1\r\nHost:x\r\nA:   b\r\nB:\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 409,
		},
		{"the last line bare", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\n", 400},
		{"a line without a colon", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nabc\r\nContent-Length: 0\r\n\r\n", 400},
		{
			"two keys",
			"POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\r\nidempotency-key: a\r\nContent-Length: " +
				"0\r\n\r\n",
			400,
		},
		{
			"two authorizations",
			"POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nAUTHORIZATION: b\r\nContent-Length: 0\r\n\r\n",
			400,
		},
		{"an odd name", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nX(y): a\r\nContent-Length: 0\r\n\r\n", 400},
		{"a rubout", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nX: a\x7fb\r\nContent-Length: 0\r\n\r\n", 400},
		{
			"a tab in a value",
			"POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nX: a\tb\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 409,
		},
		{"a control character", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nX: a\x01b\r\nContent-Length: 0\r\n\r\n", 400},
		{
			"a header line of 9000 bytes",
			"POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 9000) + "\r\n\r\n", 431,
		},
		{"two lengths", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n", 400},
		{
			"a chunked body of 17000 bytes",
			"POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nToken: " + strings.TrimPrefix(signed(t, "ann"), "Bearer ") + "\r\nTransfer-Encoding: chunked\r\n\r\n4268\r\n" + strings.Repeat("a", 17000) + "\r\n0\r\n\r\n",
			413,
		},
		// Both workers have cached the request line, but with none of these hosts.
		{"an odd host", "POST " + dropOrders + " HTTP/1.1\r\nHost: x!y\r\nContent-Length: 0\r\n\r\n", 400},
		{"another odd host", "POST " + dropOrders + " HTTP/1.1\r\nHost: x,y\r\nContent-Length: 0\r\n\r\n", 400},
		{"one more odd host", "POST " + dropOrders + " HTTP/1.1\r\nHost: (x)\r\nContent-Length: 0\r\n\r\n", 400},
	} {
		s.learned(t)
		if got := s.edge.raw(c.request); !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", c.status)) {
			t.Errorf("%s: %.60q, want %d", c.name, got, c.status)
		}
	}
}

// A restock, a resume and an opening take effect within a second, during a flood.
func TestChangeOfSaleTakesEffectWithinASecond(t *testing.T) {
	for name, c := range map[string]struct{ before, after func(*sale.Sale) }{
		"restock": {func(*sale.Sale) {}, func(d *sale.Sale) { d.Stock += 5 }},
		"resume":  {func(d *sale.Sale) { d.Switch = sale.Paused }, func(d *sale.Sale) { d.Switch, d.Stock = sale.On, 5 }},
		"opening": {func(d *sale.Sale) { d.OpensAt = time.Now().Add(8 * time.Second); d.Stock = 5 }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := startRealShop(t, open, drop(1))
			if a := s.buy(t, "ann"); a.status != 202 {
				t.Fatal(a.body)
			}
			s.change(t, c.before)
			s.learned(t)
			var sold, refusals atomic.Int64
			var first, lastStale atomic.Int64 // first purchase; sending of the last request that got the former state
			stop := make(chan struct{})
			var flood sync.WaitGroup
			for sender := range 4 {
				flood.Go(func() {
					for n := 0; ; n++ {
						select {
						case <-stop:
							return
						default:
						}
						sent := time.Now().UnixNano()
						switch a := s.buy(t, fmt.Sprint("buyer-", sender, "-", n)); a.status {
						case 202:
							first.CompareAndSwap(0, time.Now().UnixNano())
							sold.Add(1)
						case 409:
							refusals.Add(1)
							for old := lastStale.Load(); first.Load() == 0 && sent > old && !lastStale.CompareAndSwap(old, sent); old = lastStale.Load() {
							}
						default:
							t.Errorf("status %d", a.status)
						}
					}
				})
			}
			changed := s.def.OpensAt
			if c.after != nil {
				<-time.After(1200 * time.Millisecond) // the flood got the refusal, revalidated at least once
				s.change(t, c.after)
				changed = time.Now()
			}
			testenv.Eventually(t, time.Minute, "a buyer buys", func() bool { return sold.Load() > 0 })
			close(stop)
			flood.Wait()
			late, early := time.Unix(0, lastStale.Load()).Sub(changed), time.Unix(0, first.Load()).Sub(changed)
			t.Logf("%d refusals; the last stale one was requested %s after the change, the first purchase done %s after it",
				refusals.Load(), late, early)
			// counted from the request: a response may be late
			if late > time.Second+50*time.Millisecond || early < -5*time.Millisecond {
				t.Errorf("stale refusal %s after the change, want within a second; purchase %s after it", late, early)
			}
			if n := s.purchases(); int64(n) > refusals.Load()/2 {
				t.Errorf("%d requests reached the backend, and %d were refused", n, refusals.Load())
			}
		})
	}
}

// A refusal expires its ttl after the request that brought it was sent, and after a second at most.
func TestRefusalExpires(t *testing.T) {
	for _, c := range []struct {
		ttl  string
		took time.Duration
		most time.Duration
	}{{"300", 0, 300 * time.Millisecond}, {"600", 400 * time.Millisecond, 600 * time.Millisecond}, {"999999", 0, time.Second}} {
		t.Run(c.ttl, func(t *testing.T) {
			s := startMadeShop(t, open, func(s *madeShop) {
				s.header, s.took = "drop;state=sold_out;version=7;ttl="+c.ttl+";holders=0", c.took
			})
			begun := time.Now() // it is sent after this
			s.buy(t, "ann")
			s.set(func() { s.header, s.took = "", 0 })
			sent := s.arrived[0] // it was sent before
			var last, early time.Duration
			cached := 0
			for time.Since(sent) < c.most+300*time.Millisecond || early == 0 && time.Since(sent) < 20*time.Second {
				at := time.Since(sent)
				if a := s.edge.do("POST", dropOrders); a.status == 409 { // a request without a token does not revalidate
					last = at
					cached++
				} else if early == 0 {
					early = time.Since(begun)
				}
			}
			t.Logf("%d refusals from memory, the last requested %s after the backend's, the first other response %s after it",
				cached, last, early)
			if last > c.most {
				t.Errorf("the last refusal from memory was requested %s after the backend's, want none after %s", last, c.most)
			}
			if early < c.most-100*time.Millisecond {
				t.Errorf("a response %s after the backend's is not from memory: the refusal expired early", early)
			}
		})
	}
}

func TestWithoutBackendRefusalExpiresThen503(t *testing.T) {
	var arrived atomic.Int64
	backend := startBackend(t, func(w http.ResponseWriter, _ *http.Request) {
		arrived.Store(time.Now().UnixNano())
		w.Header().Set("Sluice-Sale", "drop;state=closed;version=7;ttl=1000;holders=0")
		w.WriteHeader(409)
	})
	e := startEdge(t, open, nil, backend.addr)
	begun := time.Now() // it is sent after this, and before it arrives
	e.do("POST", dropOrders)
	sent := time.Unix(0, arrived.Load())
	backend.stop()
	var last, early time.Duration
	testenv.Eventually(t, time.Minute, "503", func() bool {
		asked := time.Since(sent)
		a := e.do("POST", dropOrders, "Authorization", signed(t, "ann"))
		if a.status == 409 {
			last = asked
		} else if a.status != 503 || a.body != problemBody(503, "") {
			t.Fatalf("%d %s", a.status, a.body)
		} else if early == 0 {
			early = time.Since(begun)
		}
		return a.status == 503 && asked > time.Second
	})
	if early < 700*time.Millisecond || last > time.Second {
		t.Errorf("the last refusal was requested %s after the backend's, the first 503 came after %s, want a second", last,
			early)
	}
}

// In the last fifth of the ttl one request at a time revalidates the refusal. The others do not wait.
func TestOneRequestAtATimeRevalidates(t *testing.T) {
	s := startMadeShop(t, open, func(s *madeShop) { s.took = 50 * time.Millisecond })
	s.learned(t)
	begun, before := time.Now(), s.purchases()
	more := func() bool { // a slow machine sends few requests
		passed := time.Since(begun)
		return passed < 3*time.Second || s.purchases()-before < 2 && passed < 20*time.Second
	}
	var refusals atomic.Int64
	var flood sync.WaitGroup
	for i := range 8 {
		bearer := signed(t, fmt.Sprint("ann-", i))
		flood.Go(func() {
			for more() {
				if a := s.edge.do("POST", dropOrders, "Authorization", bearer); a.status != 409 {
					t.Errorf("status %d", a.status)
				}
				refusals.Add(1)
			}
		})
	}
	flood.Wait()
	lasted, asked := time.Since(begun), s.purchases()-before
	t.Logf("%d answers in %v, %d of them by the backend", refusals.Load(), lasted, asked)
	if asked < 2 || asked > int(16*lasted/(3*time.Second)) {
		t.Errorf("the backend got %d requests in %v, want about one per four fifths of a second", asked, lasted)
	}
}

// A buyer whose revalidating request got no clear answer may have an order: only that buyer reaches the backend again.
func TestBuyerWithUnclearAnswerReachesBackend(t *testing.T) {
	s := startMadeShop(t, open, nil)
	for range 10 { // a busy machine may take longer than the fifth of a second in which this can be seen
		s.set(func() { s.status = 0 })
		s.learned(t)
		s.set(func() { s.status = 503 })
		sent := s.arrived[len(s.arrived)-1]
		testenv.Eventually(t, time.Minute, "bob's request revalidates",
			func() bool { return s.buy(t, "bob").status == 503 })
		dan, danCached := s.fromMemory(func() answer { return s.buy(t, "dan") })
		_, bobCached := s.fromMemory(func() answer { return s.buy(t, "bob") })
		if time.Since(sent) > 990*time.Millisecond {
			continue
		}
		if dan.status != 409 || !danCached || bobCached {
			t.Errorf("after bob's 503 dan gets %d, from memory: %v, and bob from memory: %v; want memory for dan alone",
				dan.status, danCached, bobCached)
		}
		return
	}
	t.Fatal("ten tries took too long")
}

// A request that is refused returns its turn to revalidate: a forged token does not block the others.
func TestRefusedRequestReturnsItsTurn(t *testing.T) {
	s := startMadeShop(t, `return { rules = { { name = "token", key = "token", rate = "1000r/s", burst = 1000 } } }`, nil)
	s.learned(t)
	begun, before := time.Now(), s.purchases()
	forged := "Bearer " + tokentest.HS(tokentest.Segments(plainHeader, `{"sub":"ann","exp":`+year2100+`}`),
		[]byte("not the edge's secret, but as long as one"))
	good := signed(t, "ann")
	statuses := map[int]int{}
	few := func() bool { // requests of a slow machine
		return statuses[401] == 0 || statuses[409] < 10*statuses[401] || s.purchases()-before < 2
	}
	for n := 0; time.Since(begun) < 3*time.Second || few() && time.Since(begun) < 20*time.Second; n++ {
		bearer := forged
		if n%10 == 0 {
			bearer = good
		}
		statuses[s.edge.do("POST", dropOrders, "Authorization", bearer).status]++
	}
	lasted, asked, inTime := time.Since(begun), s.purchases()-before, 0
	for i := 1; i < len(s.arrived); i++ {
		if s.arrived[i].Sub(s.arrived[i-1]) < time.Second {
			inTime++
		}
	}
	t.Logf("%v, %d of them by the backend", statuses, asked)
	if 2*inTime < len(s.arrived)-1 {
		t.Error("the refusal was hardly revalidated: requests with forged tokens kept the turn")
	}
	if asked < 2 || asked > int(16*lasted/(3*time.Second)) || statuses[401] == 0 || statuses[409] < 10*statuses[401] {
		t.Errorf("the backend got %d requests in %v, and the responses were %v", asked, lasted, statuses)
	}
}

// A refusal from memory uses no quota, and also goes to clients without quota.
func TestCachedRefusalUsesNoQuota(t *testing.T) {
	s := startMadeShop(t, `return { rules = { { name = "ip", key = "ip", rate = "1r/h", burst = 1 } } }`, nil)
	s.buy(t, "ann")
	for range 5 {
		if a := s.edge.do("POST", dropOrders); a.status != 409 || a.header.Get("RateLimit") != "" {
			t.Errorf("%d, RateLimit %q", a.status, a.header.Get("RateLimit"))
		}
	}
	if got := statuses(s.edge.do("GET", "/x"), s.edge.do("GET", "/x")); got != "409 429" {
		t.Errorf("the next requests: %s, want one admitted", got)
	}
}

func TestPolicySwitchesRefusalCacheOff(t *testing.T) {
	s := startMadeShop(t, `return { rules = {}, repeat_refusals = false }`, nil)
	for n := 1; n <= 5; n++ {
		if a := s.buy(t, "ann"); a.status != 409 || s.purchases() != n {
			t.Fatalf("purchase %d: %d, %d of them reached the backend", n, a.status, s.purchases())
		}
	}
}

// A header that is incomplete, of another sale, or part of another response is ignored, as is a header of a client.
func TestUnusableSaleHintIsIgnored(t *testing.T) {
	s := startMadeShop(t, open, nil)
	for _, header := range []string{
		"drop2;state=sold_out;version=7;ttl=1000;holders=0", "drop", "drop;", "drop;state=sold_out",
		"drop;state=open;version=7;ttl=1000;holders=0",
		"drop;version=7;ttl=1000;holders=0", "drop;state=sold_out;ttl=1000;holders=0",
		"drop;state=sold_out;version=7;holders=0", "drop;state=sold_out;version=7;ttl=1000",
		"drop;state=sold_out;version=7;ttl=0;holders=0", "drop;state=sold_out;version=7;ttl=-5;holders=0",
		"drop;state=sold_out;version=7;ttl=1e3;holders=0",
		"drop;state=sold_out;version=7;ttl=1000;holders=", "drop;state=sold_out;version=7;ttl=1000;holders=0;",
		"drop;state=sold_out;version=7;ttl=1000;holders=0;;x=1",
		"drop;state=sold_out;version=7;ttl=1000;holders=0x1", "drop;state=sold_out;state=paused;version=7;ttl=1000;holders=0",
		"drop;state=scheduled;version=7;ttl=1000;holders=0",
		"drop; state=sold_out;version=7;ttl=1000;holders=0",
		"drop;state=sold_out;version=7;ttl=1000;holders=9999999999999999",
		"drop,drop;state=sold_out;version=7;ttl=1000;holders=0",
	} {
		s.set(func() { s.header = header })
		s.buy(t, "ann")
		if _, cached := s.fromMemory(func() answer { return s.buy(t, "ann") }); cached {
			t.Fatalf("%q is used", header)
		}
	}
	whole := "drop;state=sold_out;version=7;ttl=1000;holders=0"
	for _, status := range []int{429, 503} {
		s.set(func() { s.header, s.status = whole, status })
		s.buy(t, "ann")
		if _, cached := s.fromMemory(func() answer { return s.buy(t, "ann") }); cached {
			t.Fatalf("a header with status %d is used", status)
		}
	}
	s.set(func() { s.header, s.status = "", 0 })
	forged := []string{
		"Sluice-Sale",
		whole,
		"Sluice-Holders",
		"drop;accepted=9;count=0",
		"Authorization",
		signed(t, "ann"),
	}
	for range 2 {
		if a := s.edge.do("POST", dropOrders, forged...); a.status != 202 {
			t.Fatalf("a client's own Sluice-Sale: %d %s", a.status, a.body)
		}
	}
	s.set(func() { s.header = whole + ";later=x" })
	for range 20 {
		a := s.buy(t, "ann")
		for name := range a.header {
			if strings.HasPrefix(name, "Sluice-") {
				t.Errorf("the client sees %s", name)
			}
		}
	}
	if _, cached := s.fromMemory(func() answer { return s.buy(t, "ann") }); !cached {
		t.Error("an unknown field makes a header unusable")
	}
}

func TestClientsCannotReachInternalPaths(t *testing.T) {
	backend := echo(t)
	e := startEdge(t, open, nil, backend.addr)
	for path, status := range map[string]int{"/.sluice/sales/drop/holders": 404, "/.sluice/sales/": 404, "/.sluice/sales": 404, "/.sluice/": 404, "/.sluice": 404, "/.SLUICE/sales/drop/holders": 404,
		"/.sluic%65/sales/drop/holders": 404, "/.sluice/bad-request": 404, "/.sluice?x": 404, "/.sluice/x?y": 404,
		// What readers could understand in two ways is refused here as elsewhere.
		"/%2esluice/sales/drop/holders": 400, "/.sluice%2fsales/drop/holders": 400, "/./.sluice/sales/drop/holders": 400,
		"/x/../.sluice/sales/drop/holders": 400,
		"/x/%2e%2e/.sluice/sales/x":        400, "/.sluice/sales/../x": 400} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			got := e.raw(method + " " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", status)) ||
				method != "HEAD" && !strings.HasSuffix(got, problemBody(status, "")) {
				t.Errorf("%s %s: %.60q", method, path, got)
			}
		}
	}
	if n := len(backend.requests()); n != 0 {
		t.Errorf("%d requests reached the backend", n)
	}
}

// An accepted order invalidates the refusal: its buyer is in no bypass list yet.
func TestAcceptedOrderInvalidatesRefusal(t *testing.T) {
	s := startMadeShop(t, open, func(s *madeShop) {
		s.header = "drop;state=sold_out;version=7;ttl=1000;holders=1"
		s.hold("ann")
	})
	accept := func(replayed bool) {
		t.Helper()
		s.learned(t)
		s.set(func() { s.header, s.replayed = "", replayed })
		if a := s.buy(t, "ann"); a.status != 202 {
			t.Fatal(a.status)
		}
	}
	accept(true)
	if _, cached := s.fromMemory(func() answer { return s.buy(t, "bob") }); !cached {
		t.Error("a replay, which is no new order, invalidates the refusal")
	}
	s.set(func() { s.header = "drop;state=sold_out;version=7;ttl=1000;holders=1" })
	accept(false)
	if a, cached := s.fromMemory(func() answer { return s.buy(t, "bob") }); cached || a.status != 202 {
		t.Errorf("after a new order: from memory: %v, %d", cached, a.status)
	}
	// A refusal that was in progress at that time may be older than the order.
	held := make(chan struct{})
	s.set(func() { s.header, s.held = "drop;state=sold_out;version=7;ttl=1000;holders=1", held })
	late := make(chan answer)
	before := s.purchases()
	go func() { late <- s.buy(t, "bob") }()
	testenv.Eventually(t, time.Minute, "the late request is in progress", func() bool { return s.purchases() > before })
	s.set(func() { s.header, s.held = "", nil })
	s.buy(t, "cid")
	close(held)
	if a := <-late; a.status != 409 {
		t.Fatal(a.status)
	}
	if _, cached := s.fromMemory(func() answer { return s.buy(t, "cid") }); cached {
		t.Error("a refusal that was in progress while an order was accepted is used")
	}
}

// Three workers store a refusal and invalidate twice at the same time, in many orders of their calls of the shared dict
// and the clock: a refusal that is older than one of the orders does not stay. Each call takes 0.1 ms, so that a worker
// can be interrupted for longer than the margin of a mark.
func TestOlderRefusalDoesNotOutliveAnOrder(t *testing.T) {
	const run = `
		local records = require "sluice.refusal_cache.record"
		local path, entries, time, in_turns = "/v1/sales/turns/orders", {}, 0, false
		local function step() if in_turns then coroutine.yield() time = time + 100 end end
		local function now() step() return time end
		records.init {
			get = function(_, key) step() return entries[key] end,
			safe_set = function(_, key, value) step() entries[key] = value return true end,
			safe_add = function() end,
			delete = function(_, key) step() entries[key] = nil end,
		}
		math.randomseed(%d)
		local stays, kept = 0, 0
		for _ = 1, 50000 do
			entries, in_turns, time = {}, true, 0
			local first, sent, accepted, workers = math.random(0, 2000), math.random(0, 4000), {}, {}
			workers[1] = coroutine.create(function()
				while time < sent do step() end
				records.store(path, sent, { state = "sold_out", ttl = 1000, holders = 1 }, "backend")
			end)
			for i = 1, 2 do
				local at = first + math.random(0, 300)
				workers[1 + i] = coroutine.create(function()
					while time < at do step() end
					accepted[i] = time
					records.invalidate(path, now)
				end)
			end
			while #workers > 0 do
				local i = math.random(#workers)
				for _ = 1, math.random(15) do
					local ok, err = coroutine.resume(workers[i])
					if not ok then return err end
					if coroutine.status(workers[i]) == "dead" then
						table.remove(workers, i)
						break
					end
				end
			end
			in_turns = false
			local found, newest = records.find(path), math.max(unpack(accepted))
			if found and found.state == "sold_out" then
				if newest > sent then stays = stays + 1 else kept = kept + 1 end
			end
		end
		records.init(ngx.shared.test)
		return ("%%d stay, newer ones are kept: %%s"):format(stays, kept > 100)
	`
	seed := rand.IntN(1e9)
	got := requireLua(t).run(t, fmt.Sprintf(run, seed))
	if want := "0 stay, newer ones are kept: true"; got != want {
		t.Errorf("seed %d: got %q, want %q", seed, got, want)
	}
}

// The shared dict survives a reload with the files of a new version. A refusal of the old version is not used.
func TestRefusalOfAnotherVersionIsReplaced(t *testing.T) {
	got := requireLua(t).run(t, `
		local records = require "sluice.refusal_cache.record"
		local path, zone = "/v1/sales/old/orders", ngx.shared.test
		records.init(zone)
		zone:set(path, "5000 1000 sold_out 1 0 0")
		local before = records.find(path)
		records.store(path, 5000, { state = "sold_out", ttl = 1000, holders = 1 }, "backend")
		local after = records.find(path)
		zone:delete(path)
		return tostring(before) .. " " .. after.backend`)
	if got != "nil backend" {
		t.Errorf("before and after a new refusal: %s", got)
	}
}

// Without room for the mark of an order, an older refusal is not stored either, also if there is room for it then.
func TestOlderRefusalDoesNotOutliveAnOrderInAFullZone(t *testing.T) {
	got := requireLua(t).run(t, `
		local records = require "sluice.refusal_cache.record"
		local zone, wrong, marked = ngx.shared.test, {}, 0
		records.init(zone)
		local sale = { state = "sold_out", ttl = 1000, holders = 1 }
		for _, id in ipairs { "shoe", "autumn-drop", "autumn-drop-1", "sneaker-2026-11-28", ("a"):rep(40) } do
			for _, before in ipairs { true, false } do
				local path, keys = "/v1/sales/" .. id .. "/orders", {}
				zone:safe_set("accepted", 0)
				if before then records.store(path, 5000, sale, "backend") end
				for _, size in ipairs { 65536, 3000, 1000, 400, 120, 60, 1 } do
					while zone:safe_set(("fill %06d"):format(#keys), ("x"):rep(size)) do
						keys[#keys + 1] = ("fill %06d"):format(#keys)
					end
				end
				records.invalidate(path, function() return 20000 end)
				if zone:get("accepted " .. path) then marked = marked + 1 end
				for _, key in ipairs(keys) do zone:delete(key) end
				records.store(path, 15000, sale, "backend")
				if records.find(path) then wrong[#wrong + 1] = id .. ": the older refusal is stored" end
				records.store(path, 30000, sale, "backend")
				if not records.find(path) then wrong[#wrong + 1] = id .. ": the newer refusal is not" end
				zone:delete(path)
				zone:delete("accepted " .. path)
			end
		end
		zone:delete("accepted")
		return table.concat(wrong, ", ") .. (marked < 10 and "" or "every mark had room")
	`)
	if got != "" {
		t.Error(got)
	}
}

// An order with a chunked body invalidates refusals like any other.
func TestChunkedOrderInvalidatesRefusal(t *testing.T) {
	s := startMadeShop(t, open, func(s *madeShop) { s.header = "drop;state=paused;version=7;ttl=1000;holders=0" })
	s.learned(t)
	s.set(func() { s.header = "" })
	got := s.edge.raw(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: %s\r\n"+
		"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", dropOrders, signed(t, "ann")))
	if !strings.HasPrefix(got, "HTTP/1.1 202 ") {
		t.Fatal(got)
	}
	if a, cached := s.fromMemory(func() answer { return s.buy(t, "ann") }); cached || a.status != 202 {
		t.Errorf("the buyer repeats it: from memory: %v, %d", cached, a.status)
	}
}

// The unread body of a request that is refused from memory is not the next request.
func TestUnreadBodyIsNotTheNextRequest(t *testing.T) {
	s := startMadeShop(t, open, nil)
	s.learned(t)
	before := s.purchases()
	inner := "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	post := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", dropOrders, len(inner), inner)
	chunked := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
		dropOrders, len(inner), inner)
	got := s.edge.raw(post + post + chunked + "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	reader := bufio.NewReader(strings.NewReader(got))
	for i, want := range []int{409, 409, 409} { // chunks go to a backend, and end the connection
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatalf("answer %d: %v in %q", i, err, got)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		if response.StatusCode != want {
			t.Errorf("answer %d: %d, want %d", i, response.StatusCode, want)
		}
	}
	if rest, _ := io.ReadAll(reader); len(rest) > 0 {
		t.Errorf("after a chunked body the edge still sends %q", rest)
	}
	if n := s.purchases() - before; n != 1 {
		t.Errorf("%d purchases reached the backend, want the chunked one", n)
	}
	for _, r := range s.requests() {
		if r.path == "/smuggled" {
			t.Error("a body was read as a request")
		}
	}
}

func TestCachedRefusalsAreCounted(t *testing.T) {
	t.Parallel()
	s := &madeShop{header: "drop;state=paused;version=7;ttl=1000;holders=2"}
	s.hold("ann", "bob")
	backend := startBackend(t, s.answer)
	s.shop = &shop{
		backend,
		startEdge(t, `return { `+trusting+` rules = {} }`,
			func(c *Config) { c.Status = testenv.FreeAddress(t) }, backend.addr),
	}
	s.learned(t)
	for range 3 { // the first time the header is read, then it is remembered
		s.edge.do("POST", dropOrders, from("192.0.2.7")...)
	}
	want := []string{
		`cached_refusals_total{state="paused"} 4`,
		`cached_refusals_total{state="sold_out"} 0`,
		`bypass_list_fetches_total{result="ok"} 1`,
		"bypass_list_entries 2",
	}
	testenv.Eventually(t, time.Minute, "the metrics have the refusals", func() bool {
		text := s.edge.metrics()
		for _, line := range want {
			if !strings.Contains(text, "\nsluice_edge_"+line+"\n") {
				return false
			}
		}
		return !strings.Contains(text, "sluice_edge_requests_total{")
	})
	named := 0
	for _, entry := range s.edge.logged(4, 409) {
		if entry["client"] == "192.0.2.7" && entry["verdict"] == "paused" {
			named++
		}
	}
	if named != 3 {
		t.Errorf("%d entries of the access log have the client that a trusted proxy named, want 3", named)
	}
}
