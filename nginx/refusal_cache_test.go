package nginx

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
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

// What the backend says and what the edge repeats must be the same to the last byte: both through the edge, one after the other.
func TestARefusalFromMemoryIsThatOfTheBackend(t *testing.T) {
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
			first, told := s.fromMemory(func() answer { return s.buy(t, "stranger") })
			if told || first.status != 409 {
				t.Fatalf("the first refusal: from memory: %v, %d %s", told, first.status, first.body)
			}
			second := s.learned(t)
			if second.status != first.status || second.body != first.body {
				t.Errorf("from memory: %d %s, want %d %s", second.status, second.body, first.status, first.body)
			}
			if a, b := first.header.Get("X-Request-Id"), second.header.Get("X-Request-Id"); a == b || len(b) != 32 {
				t.Errorf("X-Request-Id %q, then %q: each answer has its own", a, b)
			}
			if state == "scheduled" && second.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			if want, got := steady(first.header), steady(second.header); !maps.EqualFunc(want, got, slices.Equal) {
				t.Errorf("from memory: %v, want %v", got, want)
			}
			var logged bool
			for _, entry := range s.edge.logged(2, 409) {
				logged = logged || entry["verdict"] == state && entry["upstream"] == "" && entry["rule"] == ""
			}
			if !logged {
				t.Errorf("no entry of the access log has the verdict %s", state)
			}
		})
	}
}

// soon is far enough away that the whole seconds until then do not change while a test looks.
func soon() time.Time {
	return time.Now().Add(time.Hour + 700*time.Millisecond).Truncate(10 * time.Millisecond)
}

// steady are the headers that do not differ from answer to answer. A quota is told only where one was asked.
func steady(h http.Header) http.Header {
	h = h.Clone()
	for _, name := range []string{"Date", "X-Request-Id", "Ratelimit", "Ratelimit-Policy"} {
		h.Del(name)
	}
	return h
}

// Whoever holds an order finds it, while everybody else is told "sold out" from memory.
func TestAHolderFindsHisOrderWhileOthersAreTold(t *testing.T) {
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
		a, told := s.fromMemory(func() answer { return s.edge.do("POST", dropOrders, headers...) })
		replay := strings.Contains(name, "same")
		if told || replay && (a.status != 202 || a.body != bought.body) || !replay && (a.status != 409 || !strings.Contains(a.body, `"already-bought"`)) {
			t.Errorf("%s: from memory: %v, %d %s", name, told, a.status, a.body)
		}
		if other, told := s.fromMemory(func() answer { return s.buy(t, "bob") }); other.status != 409 || !strings.Contains(other.body, `"sold-out"`) || !told && s.purchases() > 100 {
			t.Errorf("another buyer meanwhile: %d %s", other.status, other.body)
		}
	}
}

// What no verifier would take for a token holds nothing; what only a verifier can read goes to one.
func TestWhoIsToldWithoutALookAtTheSignature(t *testing.T) {
	s := startMadeShop(t, open, func(s *madeShop) {
		s.header = "drop;state=sold_out;version=7;ttl=1000;holders=1"
		s.hold("ann")
	})
	part := base64.RawURLEncoding.EncodeToString
	raw := func(claims string) string { return part([]byte(plainHeader)) + "." + part([]byte(claims)) + ".sig" }
	for _, c := range []struct {
		name    string
		headers []string
		told    bool
	}{
		{"no token", nil, true},
		{"an empty token", []string{"Token", ""}, true},
		{"another scheme", []string{"Authorization", "Basic YW5uOmFubg=="}, true},
		{"another scheme and a token", []string{"Authorization", "Basic YW5uOmFubg==", "Token", raw(`{"sub":"ann"}`)}, true},
		{"a word", []string{"Authorization", "Bearer nonsense"}, true},
		{"two segments", []string{"Authorization", "Bearer a.b"}, true},
		{"four segments", []string{"Authorization", "Bearer " + raw(`{"sub":"ann"}`) + ".x"}, true},
		{"not base64url", []string{"Authorization", "Bearer a.b+c=.d"}, true},
		{"longer than any token", []string{"Authorization", "Bearer " + raw(`{"sub":"ann","x":"`+strings.Repeat("a", 4000)+`"}`)}, true},
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
		if _, told := s.fromMemory(func() answer { return s.edge.do("POST", dropOrders, c.headers...) }); told != c.told {
			t.Errorf("%s: told from memory: %v, want %v", c.name, told, c.told)
		}
	}
}

// Memory is for purchases alone, in the one spelling that backends take for one.
func TestOnlyPurchasesAreAnsweredFromMemory(t *testing.T) {
	s := startMadeShop(t, open, nil)
	for _, c := range []struct {
		method, path, body string
		told               bool
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
		{"POST", dropOrders, strings.Repeat("x", 17000), false}, // 413, as ever
	} {
		s.learned(t)
		a, told := s.fromMemory(func() answer { return s.edge.send(c.method, c.path, c.body) })
		told = told && strings.Contains(a.body, `"sold-out"`)
		if told != c.told {
			t.Errorf("%s %s: told from memory: %v, want %v: %d %s", c.method, c.path, told, c.told, a.status, a.body)
		}
		if len(c.body) > 16384 && a.status != 413 {
			t.Errorf("a body of %d bytes: %d", len(c.body), a.status)
		}
	}
}

// A request that the edge refuses for how it is written is refused so at all times.
func TestABadlyWrittenPurchaseIsNotAnsweredFromMemory(t *testing.T) {
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
		{"a bare line feed, made up for by a space", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\nX:  y\r\nContent-Length: 0\r\n\r\n", 400},
		{"two tokens", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nToken: a\r\nToken: b\r\nContent-Length: 0\r\n\r\n", 400},
		{"many lines", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 20) + "Content-Length: 0\r\nConnection: close\r\n\r\n", 409},
		{"a dozen lines", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 9) + "Content-Length: 0\r\nConnection: close\r\n\r\n", 409},
		{"no space, much space, and an empty value", "POST " + dropOrders + " HTTP/1.1\r\nHost:x\r\nA:   b\r\nB:\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 409},
		{"the last line bare", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\n", 400},
		{"a line without a colon", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nabc\r\nContent-Length: 0\r\n\r\n", 400},
		{"two keys", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\r\nidempotency-key: a\r\nContent-Length: 0\r\n\r\n", 400},
		{"two authorizations", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nAUTHORIZATION: b\r\nContent-Length: 0\r\n\r\n", 400},
		{"an odd name", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nX(y): a\r\nContent-Length: 0\r\n\r\n", 400},
		{"a rubout", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nX: a\x7fb\r\nContent-Length: 0\r\n\r\n", 400},
		{"a tab in a value", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nX: a\tb\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 409},
		{"a control character", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nX: a\x01b\r\nContent-Length: 0\r\n\r\n", 400},
		{"a header line of 9000 bytes", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 9000) + "\r\n\r\n", 431},
		{"two lengths", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n", 400},
		{"a chunked body of 17000 bytes", "POST " + dropOrders + " HTTP/1.1\r\nHost: x\r\nToken: " + strings.TrimPrefix(signed(t, "ann"), "Bearer ") + "\r\nTransfer-Encoding: chunked\r\n\r\n4268\r\n" + strings.Repeat("a", 17000) + "\r\n0\r\n\r\n", 413},
		// The line alone is one that both workers know, from hosts that are none of these.
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

// A restock, a resume and an opening show within a second, under a flood of people who all want to know.
func TestAChangeShowsWithinASecond(t *testing.T) {
	for name, c := range map[string]struct{ before, after func(*sale.Sale) }{
		"restock": {func(*sale.Sale) {}, func(d *sale.Sale) { d.Stock += 5 }},
		"resume":  {func(d *sale.Sale) { d.Switch = sale.Paused }, func(d *sale.Sale) { d.Switch, d.Stock = sale.On, 5 }},
		"opening": {func(d *sale.Sale) { d.OpensAt = time.Now().Add(2500 * time.Millisecond); d.Stock = 5 }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := startRealShop(t, open, drop(1))
			if a := s.buy(t, "ann"); a.status != 202 {
				t.Fatal(a.body)
			}
			s.change(t, c.before)
			s.learned(t)
			var sold, told atomic.Int64
			var first, lastTold atomic.Int64 // when somebody had bought, and when the last one asked who was told of the state before
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
						asked := time.Now().UnixNano()
						switch a := s.buy(t, fmt.Sprint("buyer-", sender, "-", n)); a.status {
						case 202:
							first.CompareAndSwap(0, time.Now().UnixNano())
							sold.Add(1)
						case 409:
							told.Add(1)
							for old := lastTold.Load(); first.Load() == 0 && asked > old && !lastTold.CompareAndSwap(old, asked); old = lastTold.Load() {
							}
						default:
							t.Errorf("status %d", a.status)
						}
					}
				})
			}
			changed := s.def.OpensAt
			if c.after != nil {
				<-time.After(1200 * time.Millisecond) // the flood has been told what is known, renewed at least once
				s.change(t, c.after)
				changed = time.Now()
			}
			testenv.Eventually(t, 10*time.Second, "somebody buys", func() bool { return sold.Load() > 0 })
			close(stop)
			flood.Wait()
			late, early := time.Unix(0, lastTold.Load()).Sub(changed), time.Unix(0, first.Load()).Sub(changed)
			t.Logf("%d told, the last who did not know asked %s after the change, and the first had bought %s after it", told.Load(), late, early)
			if late > time.Second+50*time.Millisecond || early < -5*time.Millisecond { // by when it was asked: an answer may take longer than a second on its way
				t.Errorf("told what was %s after the change, want within a second; bought %s after it", late, early)
			}
			if asked := s.purchases(); int64(asked) > told.Load()/2 {
				t.Errorf("%d requests reached the backend, and %d were refused: the flood was not held off", asked, told.Load())
			}
		})
	}
}

// Knowledge ends its time to live after the request that brought it was sent, however late the answer came, and a second after it at most.
func TestKnowledgeNeverOutlivesItsTime(t *testing.T) {
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
			told := 0
			for time.Since(sent) < c.most+300*time.Millisecond || early == 0 && time.Since(sent) < 20*time.Second {
				asked := time.Since(sent)
				if a := s.edge.do("POST", dropOrders); a.status == 409 { // without a token nobody renews
					last = asked
					told++
				} else if early == 0 {
					early = time.Since(begun)
				}
			}
			t.Logf("%d answers from memory, the last asked for %s after the backend was, the first other one was there %s after", told, last, early)
			if last > c.most {
				t.Errorf("the last answer from memory was asked for %s after the backend was, want none after %s", last, c.most)
			}
			if early < c.most-100*time.Millisecond {
				t.Errorf("an answer that was there %s after the backend was asked is not from memory: memory ends early", early)
			}
		})
	}
}

func TestWithTheBackendGoneMemoryLastsItsTimeAndThen503(t *testing.T) {
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
	testenv.Eventually(t, 5*time.Second, "503", func() bool {
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
		t.Errorf("the last refusal was asked for %s after the backend was, and the first 503 was there after %s, want a second", last, early)
	}
}

// In the last fifth of its time one request at a time asks again, and nobody waits for it: a slow backend sees one.
func TestOneRequestAtATimeAsksAgain(t *testing.T) {
	s := startMadeShop(t, open, func(s *madeShop) { s.took = 50 * time.Millisecond })
	s.learned(t)
	begun, before := time.Now(), s.purchases()
	var told atomic.Int64
	var flood sync.WaitGroup
	for i := range 8 {
		bearer := signed(t, fmt.Sprint("ann-", i))
		flood.Go(func() {
			for time.Since(begun) < 3*time.Second {
				if a := s.edge.do("POST", dropOrders, "Authorization", bearer); a.status != 409 {
					t.Errorf("status %d", a.status)
				}
				told.Add(1)
			}
		})
	}
	flood.Wait()
	asked := s.purchases() - before
	t.Logf("%d answers in 3 s, %d of them by the backend", told.Load(), asked)
	if asked < 2 || asked > 16 {
		t.Errorf("the backend was asked %d times in 3 s, want about once per four fifths of a second", asked)
	}
}

// Who goes to ask and gets no clear answer may have got an order: he is let through again, and only he.
func TestWhoeverMayHaveGotAnOrderIsLetThroughAgain(t *testing.T) {
	s := startMadeShop(t, open, nil)
	for range 10 { // a busy machine may take longer than the fifth of a second in which this can be seen
		s.set(func() { s.status = 0 })
		s.learned(t)
		s.set(func() { s.status = 503 })
		sent := s.arrived[len(s.arrived)-1]
		testenv.Eventually(t, 5*time.Second, "bob goes to ask", func() bool { return s.buy(t, "bob").status == 503 })
		dan, danTold := s.fromMemory(func() answer { return s.buy(t, "dan") })
		_, bobTold := s.fromMemory(func() answer { return s.buy(t, "bob") })
		if time.Since(sent) > 990*time.Millisecond {
			continue
		}
		if dan.status != 409 || !danTold || bobTold {
			t.Errorf("after bob's 503 dan gets %d, from memory: %v, and bob from memory: %v; want memory for dan alone", dan.status, danTold, bobTold)
		}
		return
	}
	t.Fatal("ten times this took too long to be seen")
}

// Who cannot renew must not keep others from it: without a valid token no request reaches the backend.
func TestARefusedRequestGivesItsTurnBack(t *testing.T) {
	s := startMadeShop(t, `return { rules = { { name = "token", key = "token", rate = "1000r/s", burst = 1000 } } }`, nil)
	s.learned(t)
	begun, before := time.Now(), s.purchases()
	forged := "Bearer " + tokentest.HS(tokentest.Segments(plainHeader, `{"sub":"ann","exp":`+year2100+`}`), []byte("not the edge's secret, but as long as one"))
	good := signed(t, "ann")
	statuses := map[int]int{}
	for n := 0; time.Since(begun) < 3*time.Second || statuses[401] == 0 && time.Since(begun) < 20*time.Second; n++ { // a slow machine comes round seldom
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
		t.Error("hardly anybody renewed what was known before it ended: those with forged tokens kept the turn")
	}
	if asked < 2 || asked > int(16*lasted/(3*time.Second)) || statuses[401] == 0 || statuses[409] < 10*statuses[401] {
		t.Errorf("the backend was asked %d times in %v, and the answers were %v", asked, lasted, statuses)
	}
}

// A sale that is refused as a whole takes nothing from any quota, and is told also to those who have none left.
func TestARefusalFromMemoryAsksNoLimit(t *testing.T) {
	s := startMadeShop(t, `return { rules = { { name = "ip", key = "ip", rate = "1r/h", burst = 1 } } }`, nil)
	s.buy(t, "ann")
	for range 5 {
		if a := s.edge.do("POST", dropOrders); a.status != 409 || a.header.Get("RateLimit") != "" {
			t.Errorf("%d, RateLimit %q", a.status, a.header.Get("RateLimit"))
		}
	}
	if got := statuses(s.edge.do("GET", "/x"), s.edge.do("GET", "/x")); got != "409 429" {
		t.Errorf("the quota afterwards: %s, want one left", got)
	}
}

func TestThePolicyCanForbidToRepeat(t *testing.T) {
	s := startMadeShop(t, `return { rules = {}, repeat_refusals = false }`, nil)
	for n := 1; n <= 5; n++ {
		if a := s.buy(t, "ann"); a.status != 409 || s.purchases() != n {
			t.Fatalf("purchase %d: %d, %d of them reached the backend", n, a.status, s.purchases())
		}
	}
}

// A header that is not whole, is of another sale, or comes with another answer says nothing; nor does what clients say.
func TestWhatIsNotToldIsNotRepeated(t *testing.T) {
	s := startMadeShop(t, open, nil)
	for _, header := range []string{
		"drop2;state=sold_out;version=7;ttl=1000;holders=0", "drop", "drop;", "drop;state=sold_out", "drop;state=open;version=7;ttl=1000;holders=0",
		"drop;version=7;ttl=1000;holders=0", "drop;state=sold_out;ttl=1000;holders=0", "drop;state=sold_out;version=7;holders=0", "drop;state=sold_out;version=7;ttl=1000",
		"drop;state=sold_out;version=7;ttl=0;holders=0", "drop;state=sold_out;version=7;ttl=-5;holders=0", "drop;state=sold_out;version=7;ttl=1e3;holders=0",
		"drop;state=sold_out;version=7;ttl=1000;holders=", "drop;state=sold_out;version=7;ttl=1000;holders=0;", "drop;state=sold_out;version=7;ttl=1000;holders=0;;x=1",
		"drop;state=sold_out;version=7;ttl=1000;holders=0x1", "drop;state=sold_out;state=paused;version=7;ttl=1000;holders=0", "drop;state=scheduled;version=7;ttl=1000;holders=0",
		"drop; state=sold_out;version=7;ttl=1000;holders=0", "drop;state=sold_out;version=7;ttl=1000;holders=9999999999999999", "drop,drop;state=sold_out;version=7;ttl=1000;holders=0",
	} {
		s.set(func() { s.header = header })
		s.buy(t, "ann")
		if _, told := s.fromMemory(func() answer { return s.buy(t, "ann") }); told {
			t.Fatalf("%q is believed", header)
		}
	}
	whole := "drop;state=sold_out;version=7;ttl=1000;holders=0"
	for _, status := range []int{429, 503} {
		s.set(func() { s.header, s.status = whole, status })
		s.buy(t, "ann")
		if _, told := s.fromMemory(func() answer { return s.buy(t, "ann") }); told {
			t.Fatalf("a header with status %d is believed", status)
		}
	}
	s.set(func() { s.header, s.status = "", 0 })
	forged := []string{"Sluice-Sale", whole, "Sluice-Holders", "drop;accepted=9;count=0", "Authorization", signed(t, "ann")}
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
	if _, told := s.fromMemory(func() answer { return s.buy(t, "ann") }); !told {
		t.Error("a field of tomorrow makes a header unreadable")
	}
}

func TestClientsReachNothingBetweenEdgeAndBackend(t *testing.T) {
	backend := echo(t)
	e := startEdge(t, open, nil, backend.addr)
	for path, status := range map[string]int{"/.sluice/sales/drop/holders": 404, "/.sluice/sales/": 404, "/.sluice/sales": 404, "/.sluice/": 404, "/.sluice": 404, "/.SLUICE/sales/drop/holders": 404,
		"/.sluic%65/sales/drop/holders": 404, "/.sluice/bad-request": 404, "/.sluice?x": 404, "/.sluice/x?y": 404,
		// What readers could understand in two ways is refused here as elsewhere.
		"/%2esluice/sales/drop/holders": 400, "/.sluice%2fsales/drop/holders": 400, "/./.sluice/sales/drop/holders": 400, "/x/../.sluice/sales/drop/holders": 400,
		"/x/%2e%2e/.sluice/sales/x": 400, "/.sluice/sales/../x": 400} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			got := e.raw(method + " " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", status)) || method != "HEAD" && !strings.HasSuffix(got, problemBody(status, "")) {
				t.Errorf("%s %s: %.60q", method, path, got)
			}
		}
	}
	if n := len(backend.requests()); n != 0 {
		t.Errorf("%d requests reached the backend", n)
	}
}

// An order that passes through here ends what is known: its buyer is in no list yet.
func TestAnAcceptedOrderEndsWhatIsKnown(t *testing.T) {
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
	if _, told := s.fromMemory(func() answer { return s.buy(t, "bob") }); !told {
		t.Error("a replay, which is no new order, ends what is known")
	}
	s.set(func() { s.header = "drop;state=sold_out;version=7;ttl=1000;holders=1" })
	accept(false)
	if a, told := s.fromMemory(func() answer { return s.buy(t, "bob") }); told || a.status != 202 {
		t.Errorf("after a new order: from memory: %v, %d", told, a.status)
	}
	// A refusal that was under way at that time may be older than the order.
	held := make(chan struct{})
	s.set(func() { s.header, s.held = "drop;state=sold_out;version=7;ttl=1000;holders=1", held })
	late := make(chan answer)
	before := s.purchases()
	go func() { late <- s.buy(t, "bob") }()
	testenv.Eventually(t, 20*time.Second, "the late one is under way", func() bool { return s.purchases() > before })
	s.set(func() { s.header, s.held = "", nil })
	s.buy(t, "cid")
	close(held)
	if a := <-late; a.status != 409 {
		t.Fatal(a.status)
	}
	if _, told := s.fromMemory(func() answer { return s.buy(t, "cid") }); told {
		t.Error("a refusal that was under way while an order was accepted is repeated")
	}
}

// The body of a request that is answered from memory must not be read as the next request.
func TestABodyThatNobodyReadsIsNotTheNextRequest(t *testing.T) {
	s := startMadeShop(t, open, nil)
	s.learned(t)
	before := s.purchases()
	inner := "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	post := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", dropOrders, len(inner), inner)
	chunked := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", dropOrders, len(inner), inner)
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
		t.Errorf("after a chunked body the edge still says %q", rest)
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

func TestRefusalsFromMemoryAreCounted(t *testing.T) {
	t.Parallel()
	status := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
	s := &madeShop{header: "drop;state=paused;version=7;ttl=1000;holders=2"}
	s.hold("ann", "bob")
	backend := startBackend(t, s.answer)
	s.shop = &shop{backend, startEdge(t, `return { `+trusting+` rules = {} }`, func(c *Config) { c.Status = status }, backend.addr)}
	s.learned(t)
	for range 3 { // the first time the header is read, then it is remembered
		s.edge.do("POST", dropOrders, from("192.0.2.7")...)
	}
	want := []string{`cached_refusals_total{state="paused"} 4`, `cached_refusals_total{state="sold_out"} 0`, `bypass_list_fetches_total{result="ok"} 1`, "bypass_list_entries 2"}
	testenv.Eventually(t, 10*time.Second, "the metrics count what was told", func() bool {
		response, err := http.Get("http://" + status + "/metrics")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		for _, line := range want {
			if !strings.Contains(string(text), "\nsluice_edge_"+line+"\n") {
				return false
			}
		}
		return !strings.Contains(string(text), "sluice_edge_requests_total{")
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
