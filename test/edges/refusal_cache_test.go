package edges

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"regexp"
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

// market is an edge in front of sales that the test defines.
type market struct {
	*edge
	mu    sync.Mutex
	sales map[string]offer
	real  http.Handler // answers instead of the offers, unless it is nil
}

// offer is the answer of a backend to purchases of a sale. The zero value accepts orders.
type offer struct {
	hint    string   // Sluice-Sale without the id; "": none
	holders []string // the buyers in the bypass list
	status  int      // 0: 202, or with a hint 409
	header  http.Header
	held    chan struct{} // the answer is sent after it is closed; nil: immediately
}

const soldOut = ";state=sold_out;version=7;ttl=1000;holders=0"

// overMarkets runs a test with each edge.
func overMarkets(t *testing.T, policy string, test func(t *testing.T, m *market)) {
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &market{sales: map[string]offer{}}
			m.edge = start(t, options{policy: policy}, m.answer)
			test(t, m)
		})
	}
}

func (m *market) offer(id string, o offer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sales[id] = o
}

var idOf = regexp.MustCompile(`^(/\.sluice|/v1)/sales/([^/]*)/(holders|orders)$`)

func (m *market) answer(w http.ResponseWriter, r *http.Request) {
	parts := idOf.FindStringSubmatch(r.URL.Path)
	m.mu.Lock()
	o, real := offer{}, m.real
	if parts != nil {
		o = m.sales[parts[2]]
	}
	m.mu.Unlock()
	switch {
	case real != nil:
		real.ServeHTTP(w, r)
		return
	case parts != nil && parts[3] == "holders":
		var sums []uint32
		for _, buyer := range o.holders {
			sums = append(sums, crc32.ChecksumIEEE([]byte(buyer)))
		}
		slices.Sort(sums)
		w.Header().Set("Sluice-Holders", fmt.Sprintf("%s;accepted=%d;count=%[2]d", parts[2], len(sums)))
		_ = binary.Write(w, binary.BigEndian, sums)
		return
	case o.held != nil:
		<-o.held
	}
	maps.Copy(w.Header(), o.header)
	status := http.StatusAccepted
	if o.hint != "" {
		status = http.StatusConflict
		w.Header().Add("Sluice-Sale", parts[2]+o.hint)
	}
	if o.status != 0 {
		status = o.status
	}
	if status >= 400 {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"code":"sold-out"}`)
		return
	}
	w.WriteHeader(status)
}

// purchase returns the request of a buyer; "": without a token.
func purchase(t *testing.T, id, buyer string, lines ...string) string {
	if buyer != "" {
		lines = append(lines, bearer(t, buyer))
	}
	return request("POST", "/v1/sales/"+id+"/orders", append(lines, "Content-Length: 0", "Connection: close")...)
}

// forwarded returns the number of requests of clients that the backend has received.
func (m *market) forwarded() (n int) {
	m.backend.mu.Lock()
	defer m.backend.mu.Unlock()
	for _, r := range m.backend.got {
		if !strings.HasPrefix(r.target, "/.sluice") {
			n++
		}
	}
	return n
}

// try sends a request. It returns the response and whether the backend has received the request.
func (m *market) try(t *testing.T, raw string) (got received, forwarded bool) {
	t.Helper()
	before := m.forwarded()
	got = m.send(t, raw)
	if len(got.codes) == 0 {
		t.Fatalf("%s does not respond to %.200q", m.name, raw)
	}
	return got, m.forwarded() > before
}

// awaitCached sends purchases of a buyer without an order until one is answered from the cache, and returns the answer.
func (m *market) awaitCached(t *testing.T, id string) (got received) {
	t.Helper()
	testenv.Eventually(t, time.Minute, "the refusal of "+id+" is cached", func() (cached bool) {
		var forwarded bool
		got, forwarded = m.try(t, purchase(t, id, "stranger", "X-Forwarded-For: 192.0.2.7"))
		return !forwarded
	})
	return got
}

// outcome sends a request while the refusal of a sale is cached. It returns "cache", "backend", or the status of the
// edge. It repeats a request that is forwarded: the refusal may have expired, or the request has revalidated it.
func (m *market) outcome(t *testing.T, id, raw string) string {
	t.Helper()
	for range 3 {
		m.awaitCached(t, id)
		switch got, forwarded := m.try(t, raw); {
		case forwarded:
		case got.codes[0] == http.StatusConflict:
			return "cache"
		default:
			return fmt.Sprint(got.codes[0])
		}
	}
	return "backend"
}

// The response from the cache is that of the real backend. It is logged and counted.
func TestEdgesRepeatTheRefusalOfTheBackend(t *testing.T) {
	const policy = `return { trusted_proxies = { "127.0.0.1" }, rules = {} }`
	overMarkets(t, policy, func(t *testing.T, m *market) {
		stock := startRealBackend(t, m)
		for state, define := range map[string]func(*sale.Sale){
			"sold_out":  func(*sale.Sale) {},
			"paused":    func(s *sale.Sale) { s.Switch = sale.Paused },
			"closed":    func(s *sale.Sale) { s.Switch = sale.Closed },
			"scheduled": func(s *sale.Sale) { s.OpensAt = time.Now().Add(time.Hour).Truncate(time.Millisecond) },
		} {
			def := loadSale(t, stock, strings.ReplaceAll(state, "_", "-"), 2)
			for _, buyer := range []string{"ann", "bob"} {
				if got := m.send(t, purchase(t, def.ID, buyer)); got.codes[0] != 202 {
					t.Fatalf("%s: %s", buyer, got.answers)
				}
			}
			updateSale(t, stock, &def, define)
			var first, second received
			for range 3 { // a second may pass, which changes Retry-After
				testenv.Eventually(t, time.Minute, "the backend refuses a purchase", func() (forwarded bool) {
					first, forwarded = m.try(t, purchase(t, def.ID, "eve"))
					return forwarded
				})
				second = m.awaitCached(t, def.ID)
				if first.answers[0] == second.answers[0] {
					break
				}
			}
			if first.codes[0] != 409 || first.answers[0] != second.answers[0] {
				t.Errorf("%s: the refusal of the backend is\n%s\nand from the cache\n%s", state, first.answers[0],
					second.answers[0])
			}
			if first.headers[0].Get("X-Request-Id") == second.headers[0].Get("X-Request-Id") {
				t.Errorf("%s: the refusal from the cache has the id of the first", state)
			}
			if (state == "scheduled") != strings.Contains(second.answers[0], "\nRetry-After: ") {
				t.Errorf("%s: %s", state, second.answers[0])
			}
			logged := regexp.MustCompile(`"client":"192.0.2.7".*"status":409,"verdict":"` + state + `","rule":"".*"upstream":""`)
			counted := regexp.MustCompile(`\nsluice_edge_cached_refusals_total\{state="` + state + `"\} [1-9]`)
			testenv.Eventually(t, time.Minute, state+" is in the log and the metrics", func() bool {
				return logged.MatchString(m.log()) && counted.MatchString(m.metrics())
			})
		}
		testenv.Eventually(t, time.Minute, "the metrics of bypass lists", func() bool {
			text := m.metrics()
			return strings.Contains(text, "\nsluice_edge_bypass_list_fetches_total{result=\"ok\"} 4\n") &&
				strings.Contains(text, "\nsluice_edge_bypass_list_entries 8\n")
		})
	})
}

// Purchases get a refusal from the cache, except those of buyers that may hold an order. Other requests, malformed
// ones and other spellings do not.
func TestEdgesAnswerPurchasesFromTheCache(t *testing.T) {
	raw := func(claims string) string { return tokentest.Segments(`{"alg":"HS256"}`, claims) + ".sig" }
	type row struct{ name, raw, want string }
	var rows []row
	for _, c := range []struct{ name, line, want string }{
		{"no token", "A: b", "cache"},
		{"an empty token", "Token:", "cache"},
		{"another scheme", "Authorization: Basic YW5uOmFubg==", "cache"},
		{"another scheme and a token", "Authorization: Basic YW5uOmFubg==\r\nToken: " + raw(`{"sub":"ann"}`), "cache"},
		{"a word", "Authorization: Bearer nonsense", "cache"},
		{"two segments", "Authorization: Bearer a.b", "cache"},
		{"four segments", "Authorization: Bearer " + raw(`{"sub":"ann"}`) + ".x", "cache"},
		{"not base64url", "Authorization: Bearer a.b+c=.d", "cache"},
		{"longer than any token", "Authorization: Bearer " + raw(`{"sub":"ann","x":"`+strings.Repeat("a", 4000)+`"}`), "cache"},
		{"another buyer", "Authorization: Bearer " + raw(`{"sub":"bob"}`), "cache"},
		{"another buyer in Token", "Token: " + raw(`{"sub":"bob"}`), "cache"},
		{"Authorization before Token", "Authorization: Bearer " + raw(`{"sub":"bob"}`) + "\r\nToken: " + raw(`{"sub":"ann"}`), "cache"},
		{"many lines", strings.Repeat("A: b\r\n", 20) + "A: b", "cache"},
		{"a dozen lines", strings.Repeat("A: b\r\n", 9) + "A: b", "cache"},
		{"no space, much space, and an empty value", "A:b\r\nB:   c\r\nD:", "cache"},
		{"a tab in a value", "A: b\tc", "cache"},

		{"a holder", bearer(t, "ann"), "backend"},
		{"another holder, not ASCII", "Token: " + raw(`{"sub":"Zoë"}`), "backend"},
		{"a scheme in other letters, two spaces", "authorization: bEaReR  " + raw(`{"x":1,"sub":"ann"}`), "backend"},
		{"a holder in Token", "Token: " + raw(`{"sub":"ann"}`), "backend"},
		{"white space in the claims", "Token: " + raw("{ \"x\" : 1 , \"sub\"\t:\n\"ann\" }"), "backend"},
		{"an escaped subject", "Token: " + raw(`{"sub":"\u0061nn"}`), "backend"},
		{"two subjects", "Token: " + raw(`{"sub":"bob","sub":"eve"}`), "backend"},
		{"two subjects, one in capitals", "Token: " + raw(`{"sub":"bob","SuB":"eve"}`), "backend"},
		{"no subject", "Token: " + raw(`{"exp":1}`), "backend"},
		{"no claims", "Authorization: Bearer a..b", "backend"},
		{"an escape elsewhere", "Token: " + raw(`{"sub":"bob","x":"\n"}`), "backend"},
		{"a number", "Token: " + raw(`{"sub":5}`), "backend"},
		{"sub as a value", "Token: " + raw(`{"x":"sub"}`), "backend"},
		{"an unfinished subject", "Token: " + raw(`{"sub":"bob`), "backend"},
		{"nothing after the name", "Token: " + raw(`{"sub"`), "backend"},

		{"two tokens", "Token: a\r\nToken: b", "400"},
		{"two Authorizations", "Authorization: a\r\nAUTHORIZATION: b", "400"},
		{"two idempotency keys", "Idempotency-Key: a\r\nidempotency-key: a", "400"},
		{"two lengths", "Content-Length: 0", "400"},
		{"a line without a colon", "abc", "400"},
		{"a bare line feed", "A: b\nC: d", "400"},
		{"an invalid name", "X(y): a", "400"},
		{"DEL in a value", "A: a\x7fb", "400"},
		{"a control character", "A: a\x01b", "400"},
		{"a line of 9000 bytes", "A: " + strings.Repeat("a", 9000), "431"},
	} {
		rows = append(rows, row{c.name, purchase(t, "drop", "", c.line), c.want})
	}
	const path = "/v1/sales/drop/orders"
	for target, want := range map[string]string{
		path + "?x=1": "cache", path + "?": "cache",
		path + "/": "backend", "/v1/sales/DROP/orders": "backend", "/V1/sales/drop/orders": "backend",
		"/v1/sales/dro%70/orders": "backend", "/v1/sales/other/orders": "backend", "/v1/sales/drop": "backend",
		"/v1/sales/drop/orders/drop/orders": "backend", "/v1/sales/orders": "backend", "/v1/sales//orders": "400",
		"http://x" + path: "400", " " + path: "400",
	} {
		rows = append(rows, row{target, request("POST", target, "Content-Length: 0", "Connection: close"), want})
	}
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "OPTIONS"} {
		rows = append(rows, row{method, request(method, path, "Content-Length: 0", "Connection: close"), "backend"})
	}
	rows = append(rows,
		row{"a body", request("POST", path, "Content-Length: 2", "Connection: close") + "{}", "cache"},
		row{"a body of 17000 bytes", request("POST", path, "Content-Length: 17000") + strings.Repeat("x", 17000), "413"},
		row{"chunks of 17000 bytes", request("POST", path, bearer(t, "ann"), "Transfer-Encoding: chunked") + "4268\r\n" +
			strings.Repeat("x", 17000) + "\r\n0\r\n\r\n", "413"},
		row{"HTTP/1.0", "POST " + path + " HTTP/1.0\r\nContent-Length: 0\r\n\r\n", "cache"},
		row{"the last line bare", "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\n", "400"},
	)
	for _, host := range []string{"x!y", "x,y", "(x)"} { // both workers of nginx have cached the request line
		rows = append(rows, row{host, "POST " + path + " HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 0\r\n\r\n", "400"})
	}
	overMarkets(t, limitless, func(t *testing.T, m *market) {
		m.offer("drop", offer{hint: ";state=sold_out;version=7;ttl=1000;holders=2", holders: []string{"ann", "Zoë"}})
		for _, r := range rows {
			if got := m.outcome(t, "drop", r.raw); got != r.want {
				t.Errorf("%s: %s, want %s", r.name, got, r.want)
			}
		}
	})
}

// A hint that is incomplete, of another sale, or beside headers for one client is ignored. So is one of a client.
func TestEdgesIgnoreUnusableHints(t *testing.T) {
	offers := []offer{{hint: soldOut, status: 429}, {hint: soldOut, status: 503}}
	for _, hint := range []string{
		"drop2" + soldOut, "drop,drop" + soldOut, "drop", "drop;", "drop;state=sold_out", "drop; state=sold_out;version=7;ttl=1000;holders=0",
		"drop;state=open;version=7;ttl=1000;holders=0", "drop;state=scheduled;version=7;ttl=1000;holders=0",
		"drop;version=7;ttl=1000;holders=0", "drop;state=sold_out;ttl=1000;holders=0",
		"drop;state=sold_out;version=7;holders=0", "drop;state=sold_out;version=7;ttl=1000",
		"drop;state=sold_out;version=7;ttl=0;holders=0", "drop;state=sold_out;version=7;ttl=-5;holders=0",
		"drop;state=sold_out;version=7;ttl=1e3;holders=0", "drop;state=sold_out;version=7;ttl=1000;holders=",
		"drop;state=sold_out;version=7;ttl=1000;holders=0x1", "drop" + soldOut + ";", "drop" + soldOut + ";;x=1",
		"drop" + soldOut + ";holders=0", "drop;state=sold_out;state=paused;version=7;ttl=1000;holders=0",
		"drop;state=sold_out;version=7;ttl=1000;holders=9999999999999999",
	} {
		offers = append(offers, offer{status: 409, header: http.Header{"Sluice-Sale": {hint}}})
	}
	overMarkets(t, limitless, func(t *testing.T, m *market) {
		for i, o := range offers {
			id := fmt.Sprint("drop-", i)
			o.header = o.header.Clone()
			for _, hint := range o.header["Sluice-Sale"] {
				o.header.Set("Sluice-Sale", strings.ReplaceAll(hint, "drop", id))
			}
			m.offer(id, o)
			for range 3 {
				if _, forwarded := m.try(t, purchase(t, id, "ann")); !forwarded {
					t.Errorf("%v is used", o)
				}
			}
		}

		for range 2 {
			got, _ := m.try(t, purchase(t, "open", "ann", "Sluice-Sale: open"+soldOut, "sluice-sale: open"+soldOut,
				"Sluice-Holders: open;accepted=9;count=0"))
			if got.codes[0] != 202 {
				t.Errorf("a client sends a hint: %s", got.answers)
			}
		}
		for _, r := range m.backend.take() {
			for name := range r.header {
				if strings.HasPrefix(name, "Sluice-") {
					t.Errorf("the backend receives %s of a client", name)
				}
			}
		}

		m.offer("drop", offer{hint: soldOut + ";later=x"}) // of a newer backend
		first, _ := m.try(t, purchase(t, "drop", "ann"))
		for _, got := range []received{first, m.awaitCached(t, "drop")} {
			if strings.Contains(got.answers[0], "Sluice-") {
				t.Errorf("the client receives %s", got.answers[0])
			}
		}
	})
}

// An accepted order removes the refusal from the cache: its buyer is in no bypass list yet. A replay is no new order.
func TestAcceptedOrderInvalidatesTheRefusal(t *testing.T) {
	overMarkets(t, limitless, func(t *testing.T, m *market) {
		refuse := offer{hint: ";state=sold_out;version=7;ttl=1000;holders=1", holders: []string{"ann"}}
		accepted := func(raw string) (cached bool) {
			t.Helper()
			if got, forwarded := m.try(t, raw); got.codes[0] != 202 || !forwarded {
				t.Fatalf("the order is not accepted: %s", got.answers)
			}
			_, forwarded := m.try(t, purchase(t, "drop", ""))
			return !forwarded
		}
		kept := false
		for range 5 { // a refusal may expire
			m.offer("drop", refuse)
			m.awaitCached(t, "drop")
			m.offer("drop", offer{header: http.Header{"Idempotency-Replayed": {"true"}}})
			kept = kept || accepted(purchase(t, "drop", "ann"))
		}
		if !kept {
			t.Error("a replay invalidates the refusal")
		}
		for name, raw := range map[string]string{
			"an order": purchase(t, "drop", "ann"),
			"a chunked order": request("POST", "/v1/sales/drop/orders", bearer(t, "ann"), "Connection: close",
				"Transfer-Encoding: chunked") + "0\r\n\r\n",
		} {
			m.offer("drop", refuse)
			m.awaitCached(t, "drop")
			m.offer("drop", offer{})
			if accepted(raw) {
				t.Errorf("after %s the refusal is used", name)
			}
		}

		// A refusal that is in progress while an order is accepted may be older than the order.
		refuse.held = make(chan struct{})
		m.offer("drop", refuse)
		late := make(chan received)
		before := m.forwarded()
		go func() { late <- m.send(t, purchase(t, "drop", "bob")) }()
		testenv.Eventually(t, time.Minute, "the late request is forwarded", func() bool { return m.forwarded() > before })
		m.offer("drop", offer{})
		m.try(t, purchase(t, "drop", "ann"))
		close(refuse.held)
		if got := <-late; got.codes[0] != 409 {
			t.Error(got.answers)
		}
		if accepted(purchase(t, "drop", "")) {
			t.Error("a refusal that was in progress while an order was accepted is used")
		}
	})
}

// A refusal from the cache uses no quota, and clients without quota get it as well.
func TestCachedRefusalUsesNoQuota(t *testing.T) {
	const policy = `return { trusted_proxies = { "127.0.0.1" }, rules = {
		{ name = "ip", key = "ip", rate = "1r/h", burst = 100 },
		{ name = "slow", key = "ip", rate = "1r/h", burst = 0, match = { path = "/v1/sales/slow/orders" } },
	} }`
	overMarkets(t, policy, func(t *testing.T, m *market) {
		m.offer("drop", offer{hint: soldOut})
		for range 10 {
			got, forwarded := m.try(t, purchase(t, "drop", ""))
			if limited := got.headers[0].Get("RateLimit") != ""; limited != forwarded {
				t.Errorf("forwarded %v, with the headers %v", forwarded, got.headers[0])
			}
		}
		want := fmt.Sprintf(`"ip";r=%d;`, 100-m.forwarded())
		got, _ := m.try(t, request("GET", "/", "Connection: close"))
		if limit := got.headers[0].Get("RateLimit"); !strings.HasPrefix(limit, want) {
			t.Errorf("RateLimit %s, want %s", limit, want)
		}

		m.offer("slow", offer{hint: soldOut})
		client := 0
		testenv.Eventually(t, time.Minute, "the second purchase of a client is refused from the cache", func() bool {
			client++
			raw := purchase(t, "slow", "", fmt.Sprintf("X-Forwarded-For: 198.51.100.%d", client))
			_, forwarded := m.try(t, raw) // uses the quota, unless another client's refusal is cached
			got, _ := m.try(t, raw)
			return forwarded && got.codes[0] == 409
		})
	})
}

func TestPolicyDisablesTheRefusalCache(t *testing.T) {
	overMarkets(t, `return { rules = {}, repeat_refusals = false }`, func(t *testing.T, m *market) {
		m.offer("drop", offer{hint: soldOut})
		for range 5 {
			if _, forwarded := m.try(t, purchase(t, "drop", "ann")); !forwarded {
				t.Error("a purchase is refused from the cache")
			}
		}
	})
}

// The unread body of a purchase that is refused from the cache is not the next request.
func TestBodyOfARefusedPurchaseIsNoRequest(t *testing.T) {
	overMarkets(t, limitless, func(t *testing.T, m *market) {
		m.offer("drop", offer{hint: soldOut})
		m.awaitCached(t, "drop")
		const path = "/v1/sales/drop/orders"
		body := request("POST", path, fmt.Sprint("Content-Length: ", len(smuggled))) + smuggled
		chunked := request(
			"POST",
			path,
			"Transfer-Encoding: chunked",
		) + fmt.Sprintf(
			"%x\r\n%s\r\n0\r\n\r\n",
			len(smuggled),
			smuggled,
		)
		got := m.send(t, body+body+chunked+request("GET", "/next", "Connection: close"))
		if fmt.Sprint(got.codes) != "[409 409 409]" || !got.closed { // a chunked body ends the connection
			t.Errorf("the edge answers %v, closed: %v", got.codes, got.closed)
		}
		for _, r := range m.backend.take() {
			if r.target != path {
				t.Errorf("the backend receives %s", r.target)
			}
		}
	})
}

// A restock, a resume and an opening take effect within a second, during a flood.
func TestChangeOfSaleTakesEffectWithinASecond(t *testing.T) {
	overMarkets(t, limitless, func(t *testing.T, m *market) {
		stock := startRealBackend(t, m)
		for name, c := range map[string]struct{ before, after func(*sale.Sale) }{
			"restock": {func(*sale.Sale) {}, func(s *sale.Sale) { s.Stock += 5 }},
			"resume":  {func(s *sale.Sale) { s.Switch = sale.Paused }, func(s *sale.Sale) { s.Switch, s.Stock = sale.On, 5 }},
			"opening": {func(s *sale.Sale) { s.OpensAt = time.Now().Add(8 * time.Second); s.Stock = 5 }, nil},
		} {
			def := loadSale(t, stock, name, 1)
			if got := m.send(t, purchase(t, name, "ann")); got.codes[0] != 202 {
				t.Fatal(got.answers)
			}
			updateSale(t, stock, &def, c.before)
			m.awaitCached(t, name)
			before := m.forwarded()
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
						switch got := m.send(t, purchase(t, name, fmt.Sprint("buyer-", sender, "-", n))); fmt.Sprint(got.codes) {
						case "[202]":
							first.CompareAndSwap(0, time.Now().UnixNano())
							sold.Add(1)
						case "[409]":
							refusals.Add(1)
							for old := lastStale.Load(); first.Load() == 0 && sent > old && !lastStale.CompareAndSwap(old, sent); {
								old = lastStale.Load()
							}
						default:
							t.Errorf("%s: %s", name, got.answers)
						}
					}
				})
			}
			changed := def.OpensAt
			if c.after != nil {
				testenv.Eventually(t, time.Minute, "the refusal is revalidated during the flood", func() bool {
					return refusals.Load() > 200 && m.forwarded() > before
				})
				updateSale(t, stock, &def, c.after)
				changed = time.Now()
			}
			testenv.Eventually(t, time.Minute, "a buyer buys", func() bool { return sold.Load() > 0 })
			close(stop)
			flood.Wait()
			late, early := time.Unix(0, lastStale.Load()).Sub(changed), time.Unix(0, first.Load()).Sub(changed)
			t.Logf("%s: %d refusals; the last stale one was requested %s after the change, the first purchase done %s after it",
				name, refusals.Load(), late, early)
			// counted from the request: a response may be late
			if late > time.Second+50*time.Millisecond || early < -5*time.Millisecond {
				t.Errorf("%s: stale refusal %s after the change, want within a second; purchase %s after it", name, late, early)
			}
			if n := m.forwarded() - before; int64(n) > refusals.Load()/2 {
				t.Errorf("%s: %d requests reached the backend, and %d were refused", name, n, refusals.Load())
			}
		}
	})
}
