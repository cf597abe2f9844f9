package nginx

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/internal/token/tokentest"
	"sluice/internal/unixsocket"
	"sluice/test/testenv"
)

const million = 1_000_000

// A sale of a million holders: holders reach the backend, other buyers do not.
func TestBypassListOfAMillion(t *testing.T) {
	all := make([]string, million)
	for i := range all {
		all[i] = "holder-" + strconv.Itoa(i)
	}
	s := startMadeShop(t, open, func(s *madeShop) {
		s.header = fmt.Sprintf("drop;state=sold_out;version=7;ttl=1000;holders=%d", million)
		s.hold(all...)
		s.accepted = million
	})
	held := map[uint32]bool{}
	for _, sum := range s.holders {
		held[sum] = true
	}
	before := resident(t, s.edge)
	begin := time.Now()
	s.awaitCached(t)
	fetched := time.Since(begin)
	for i := range 300 {
		name := all[i*3331]
		if a, cached := s.fromMemory(func() answer { return s.buy(t, name) }); cached {
			t.Fatalf("%s holds an order and is refused from memory: %d", name, a.status)
		}
	}
	let := 0
	for i := range 300 {
		name := "nobody-" + strconv.Itoa(i)
		if held[crc32.ChecksumIEEE([]byte(name))] { // one in 4295
			let++
			continue
		}
		s.awaitCached(t)
		if _, cached := s.fromMemory(func() answer { return s.buy(t, name) }); !cached {
			let++
		}
	}
	if let > 10 { // some renew
		t.Errorf("%d of 300 other buyers reached the backend", let)
	}
	if n := s.lists(); n != 1 {
		t.Errorf("the list was fetched %d times", n)
	}
	t.Logf("fetched in %s; the workers' memory grew from %d to %d KB", fetched, before, resident(t, s.edge))
}

// resident returns the memory of the edge's workers in KB. Shared memory is counted in each.
func resident(t *testing.T, e *edge) (kb int) {
	t.Helper()
	for _, pid := range e.workers() {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, rest, _ := strings.Cut(string(text), "VmRSS:")
		var n int
		_, _ = fmt.Sscan(rest, &n)
		kb += n
	}
	return kb
}

// Without a complete list no request is refused from memory, and the list is fetched twice a second at most.
func TestIncompleteListIsNotUsed(t *testing.T) {
	for name, spoil := range map[string]func(s *madeShop, good []byte){
		"no answer":        func(s *madeShop, _ []byte) { s.noList = true },
		"no header":        func(s *madeShop, _ []byte) { s.listHead = "nonsense" },
		"another sale":     func(s *madeShop, _ []byte) { s.listHead = "drop2;accepted=3;count=3" },
		"too short a body": func(s *madeShop, good []byte) { s.listBody = good[:8] },
		"too long a body":  func(s *madeShop, good []byte) { s.listBody = append(append([]byte{}, good...), 0) },
		"not in order": func(s *madeShop, good []byte) {
			s.listBody = append(append([]byte{}, good[4:]...), good[:4]...)
		},
		"one twice": func(s *madeShop, good []byte) {
			s.listBody = append(append([]byte{}, good[:8]...), good[4:8]...)
		},
		"of an earlier time": func(s *madeShop, _ []byte) { s.accepted = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startMadeShop(t, open, func(s *madeShop) {
				s.header = "drop;state=sold_out;version=7;ttl=1000;holders=3"
				s.hold("ann", "bob", "cid")
				spoil(s, listOf(s.holders))
			})
			begin := time.Now()
			for time.Since(begin) < 700*time.Millisecond || s.count("HEAD", "/holders") == 0 && time.Since(begin) < 20*time.Second { // a slow machine sends few requests
				if _, cached := s.fromMemory(func() answer { return s.buy(t, "dan") }); cached {
					t.Fatal("refused from memory")
				}
			}
			took := time.Since(begin)
			if n, most := s.count("HEAD", "/holders"), 2+int(took/(500*time.Millisecond)); n < 1 || n > most {
				t.Errorf("%d fetches in %s, want one per half second", n, took)
			}
			s.set(func() { s.noList, s.listHead, s.listBody, s.accepted = false, "", nil, 3 })
			s.awaitCached(t)
			if _, cached := s.fromMemory(func() answer { return s.buy(t, "cid") }); cached {
				t.Error("a holder is refused from memory")
			}
		})
	}
}

// The length of a list is checked before it is fetched.
func TestTooLongListIsNotFetched(t *testing.T) {
	s := startMadeShop(t, open, func(s *madeShop) {
		s.header = "drop;state=sold_out;version=7;ttl=1000;holders=3"
		s.listHead = "drop;accepted=3;count=1048577"
	})
	for range 50 {
		if _, cached := s.fromMemory(func() answer { return s.buy(t, "dan") }); cached {
			t.Fatal("refused from memory")
		}
	}
	if n := s.lists(); n != 0 {
		t.Errorf("the list was fetched %d times", n)
	}
}

// When there are more orders than the list is complete for, refusals wait for a newer list.
func TestMoreOrdersNeedNewerList(t *testing.T) {
	s := startMadeShop(t, open, func(s *madeShop) {
		s.header = "drop;state=sold_out;version=7;ttl=1000;holders=1"
		s.hold("ann")
	})
	s.awaitCached(t)
	s.set(func() { s.hold("ann", "bob"); s.header = "drop;state=sold_out;version=8;ttl=1000;holders=2" })
	testenv.Eventually(t, time.Minute, "the edge has seen the second order",
		func() bool { s.buy(t, "dan"); return s.lists() == 2 })
	s.awaitCached(t)
	for range 20 {
		if _, cached := s.fromMemory(func() answer { return s.buy(t, "bob") }); cached {
			t.Fatal("the buyer of the second order is refused from memory")
		}
	}
	// The number of orders falls: Redis was emptied, and the list is not of these orders.
	s.set(func() { s.hold("eve"); s.header = "drop;state=sold_out;version=1;ttl=1000;holders=1" })
	testenv.Eventually(t, time.Minute, "the edge has detected it", func() bool { s.buy(t, "dan"); return s.lists() == 3 })
	s.awaitCached(t)
	if _, cached := s.fromMemory(func() answer { return s.buy(t, "eve") }); cached {
		t.Error("the buyer of the new sale is refused from memory")
	}
}

// The list is fetched from the backend that sent the refusal, at each kind of address.
func TestBypassListIsFetchedOverIPv6AndUnixSockets(t *testing.T) {
	path := testenv.SocketPath(t)
	dead := testenv.FreeAddress(t) // may be tried before the backend
	for upstream, listen := range map[string]func() (net.Listener, error){
		"":             func() (net.Listener, error) { return net.Listen("tcp6", "[::1]:0") },
		"unix:" + path: func() (net.Listener, error) { return unixsocket.Claim(t.Context(), path) },
	} {
		s := &madeShop{header: "drop;state=sold_out;version=7;ttl=1000;holders=1"}
		s.hold("ann")
		backend := startBackend(t, s.answer)
		ln, err := listen()
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(
			httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: backend.addr}))
		server.Listener.Close()
		server.Listener = ln
		server.Start()
		t.Cleanup(server.Close)
		s.shop = &shop{backend, startEdge(t, open, nil, dead, cmp.Or(upstream, ln.Addr().String()))}
		if a := s.awaitCached(t); a.status != http.StatusConflict {
			t.Errorf("behind %s: %d", ln.Addr(), a.status)
		}
		if _, cached := s.fromMemory(func() answer { return s.buy(t, "ann") }); cached {
			t.Errorf("behind %s: a holder is refused from memory", ln.Addr())
		}
	}
}

// While one request fetches a list, the others neither wait nor fetch it.
func TestOneRequestFetchesBypassList(t *testing.T) {
	s := startMadeShop(t, open, func(s *madeShop) {
		s.header = "drop;state=sold_out;version=7;ttl=1000;holders=1"
		s.hold("ann")
	})
	done := make(chan struct{}, 16)
	for range 16 {
		go func() {
			defer func() { done <- struct{}{} }()
			for range 20 {
				s.buy(t, "dan")
			}
		}()
	}
	for range 16 {
		<-done
	}
	if n := s.lists(); n != 1 {
		t.Errorf("%d fetches", n)
	}
}

// A client that disconnects while its request fetches the list does not stop the fetch.
func TestDisconnectDoesNotStopFetch(t *testing.T) {
	s := startMadeShop(t, open, func(s *madeShop) {
		s.header = "drop;state=sold_out;version=7;ttl=1000;holders=1"
		s.hold("ann")
		s.listTook = 300 * time.Millisecond
	})
	s.buy(t, "dan") // now the edge needs the list
	c, err := net.Dial("tcp", s.edge.cfg.Listen)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Length: 0\r\n\r\n", dropOrders,
		signed(t, "dan"))
	testenv.Eventually(t, time.Minute, "the fetch has begun", func() bool { return s.count("HEAD", "/holders") > 0 })
	c.Close()
	s.awaitCached(t)
	if _, cached := s.fromMemory(func() answer { return s.buy(t, "ann") }); cached {
		t.Error("a holder is refused from memory")
	}
	if n := s.lists(); n != 1 {
		t.Errorf("the list was fetched %d times", n)
	}
}

// sumOf is what the edge reads in an unverified token. The accelerator, which reads a header in nginx's memory, must
// return the same as the plain module.
func sumOf(t rapid.TB, server *luaServer, raw string) string {
	t.Helper()
	out, err := server.try(`
		local raw = ` + luaString(raw) + `
		local plain, fast = require "sluice.refusal_cache.subject", require "sluice.accel.subject"
		local head, ffi = require "sluice.accel.head", require "ffi"
		local header = "BEARER  " .. raw
		head.seen.authorization = ffi.cast("const unsigned char *", header)
		head.seen.authorization_length = #header
		local want, got = tostring(plain.sum(raw)), tostring(fast.of(head.headers))
		return got == want and got or "accelerated " .. got .. ", plain " .. want`)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, "accelerated") {
		t.Fatalf("%q: %s", raw, out)
	}
	return out
}

// Tokens that a verifier rejects, or that readers may read in different ways.
func TestUnverifiedSubjectOfHostileTokens(t *testing.T) {
	server := requireLua(t)
	part := base64.RawURLEncoding.EncodeToString
	for _, claims := range []string{
		``, `{`, `{"sub":"`, `{"sub":""}`, `{"sub":"ann`, `{"sub":"ann"}`, `{"sub":"ann","sub":"bob"}`, `{"sub":"ann","SUB":"bob"}`,
		`{"sub":"ann","xsub":"bob"}`, `{"sub":"a\u0062"}`, `{"sub":"ann\x00"}`, "{\"sub\":\"ann\x00\"}", "\x00", `{"Sub":"ann"}`,
		`{"x":1,"sub" : "ann"}`, `{"sub":5}`, strings.Repeat("x", 3000), `{"sub":"` + strings.Repeat("a", 3060),
	} {
		middle := part([]byte(claims))
		for _, raw := range []string{
			"a." + middle + ".b", "a." + middle, "a." + middle + ".b.c", "." + middle + ".", "a." + middle + "=.b", "a." + middle + "A.b",
			"a." + middle + "\x00.b", middle, ".." + middle, "a." + middle + "." + strings.Repeat("b", 4096),
		} {
			sumOf(t, server, raw)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		claims := rapid.OneOf(rapid.StringMatching(`\{"sub":"[a-c"\\,:{}]{0,12}"[a-cSUBsub"\\,:{}]{0,12}\}?`),
			rapid.String()).Draw(t, "claims")
		sumOf(t, server, rapid.SampledFrom([]string{"", "a."}).Draw(t, "header")+part([]byte(claims))+".s")
	})
}

// The unverified subject is either unknown, or the one that a verifier finds.
func TestUnverifiedSubjectIsTheVerifiedOne(t *testing.T) {
	server := requireLua(t)
	key := tokentest.Key(t, secret)
	spaces := rapid.StringMatching(`[ \t\r\n]{0,2}`)
	name := rapid.OneOf(rapid.StringMatching(`[a-zA-Z0-9._@-]{1,20}`),
		rapid.SampledFrom([]string{"sub", "Zoë", "ann", "s", "日本", "a b"}))
	plainOnes := 0
	rapid.Check(t, func(t *rapid.T) {
		text := func(s string) string {
			if rapid.IntRange(0, 9).Draw(t, "escape") > 0 {
				return `"` + s + `"`
			}
			return fmt.Sprintf(`"\u%04x%s"`, []rune(s)[0], string([]rune(s)[1:]))
		}
		var members []string
		for range rapid.IntRange(0, 3).Draw(t, "others") {
			members = append(members, text(rapid.SampledFrom([]string{"x", "Sub", "subs", "iss", "SUB", "aud"}).Draw(t, "name"))+
				spaces.Draw(
					t,
					"s",
				)+":"+spaces.Draw(t, "s")+rapid.SampledFrom([]string{`"sub"`, `5`, `{"sub":"eve"}`, `["sub"]`, `"x"`}).Draw(t, "value"))
		}
		members = append(members, text("sub")+spaces.Draw(t, "s")+":"+spaces.Draw(t, "s")+text(name.Draw(t, "sub")),
			text("exp")+":"+year2100)
		members = rapid.Permutation(members).Draw(t, "order")
		raw := hs256(plainHeader, "{"+strings.Join(members, spaces.Draw(t, "s")+",")+"}")
		got := sumOf(t, server, raw)
		subject, err := key.Verify(raw)
		if err != nil {
			return // any reading is allowed
		}
		if got == "nil" {
			return
		}
		plainOnes++
		if got != fmt.Sprint(crc32.ChecksumIEEE([]byte(subject))) {
			t.Fatalf("%v: the verifier returns %q, and the edge the sum %s", members, subject, got)
		}
	})
	if plainOnes == 0 {
		t.Error("no subject was ever found")
	}
}

// The lookup agrees with a linear search, also at the ends of the range.
func TestBypassListFindsHolders(t *testing.T) {
	server := requireLua(t)
	for _, list := range [][]uint32{
		{}, {0}, {0xffffffff}, {0, 0xffffffff}, {1, 0x7fffffff, 0x80000000, 0x80000001, 0xfffffffe},
		sums("a", "b", "c", "d", "e", "f", "g"),
	} {
		out := server.run(t, `
			local bypass_list = require "sluice.refusal_cache.bypass_list"
			local zone = ngx.shared.test
			bypass_list.init(zone)
			local id = "s`+fmt.Sprint(time.Now().UnixNano())+`"
			local body = `+luaString(string(listOf(list)))+`
			local ok, why = bypass_list.fetch(id, 5, function(_, head) return id .. ";accepted=5;count=" .. #body / 4, not head and body end)
			if not ok then return why end
			local list = bypass_list.find({ id = id, holders = 5, sent = 0 }, require("sluice.clock").now())
			local found = {}
			for _, sum in ipairs { 0, 1, 2, 0x7ffffffe, 0x7fffffff, 0x80000000, 0x80000001, 0x80000002, 0xfffffffe, 0xffffffff,`+joined(sums("a", "b", "c", "d", "e", "f", "g", "h"))+` } do
				if bypass_list.has(list, sum) then found[#found + 1] = ("%.0f"):format(sum) end
			end
			return table.concat(found, ",")
		`)
		if want := joined(list); out != want {
			t.Errorf("%v: found %s", list, out)
		}
	}
}

// Times are in seconds since the list was fetched.
func TestListFitsRefusal(t *testing.T) {
	server := requireLua(t)
	for _, c := range []struct {
		name          string
		holders, sent int // of the refusal; the list is complete for 5
		now           int
		want          string // whether the list is used, and whether a newer one is needed
	}{
		{"as many orders", 5, 1, 1, "true false"},
		{"fewer, at an earlier time", 4, -1, 1, "true false"},
		{"fewer, at a later time: the count went back", 4, 1, 1, "false true"},
		{"more", 6, -1, 1, "false true"},
		{"more, at a later time", 6, 1, 1, "false true"},
		{"the list is due for renewal", 5, 239, 240, "true true"},
		{"the list is too old", 5, 299, 300, "false true"},
	} {
		got := server.run(t, fmt.Sprintf(`
			local bypass_list = require "sluice.refusal_cache.bypass_list"
			bypass_list.init(ngx.shared.test)
			bypass_list.fetch("fit", 5, function() return "fit;accepted=5;count=0", "" end)
			local fetched = require("sluice.clock").now()
			local list, stale = bypass_list.find({ id = "fit", holders = %d, sent = fetched + %d * 1000000 }, fetched + %d * 1000000)
			return tostring(list ~= nil) .. " " .. tostring(stale)
		`, c.holders, c.sent, c.now))
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// Of concurrent callers that need a list, one fetches it. A later caller fetches none if a list that fits was stored
// meanwhile.
func TestBypassListBeginsOnce(t *testing.T) {
	server := requireLua(t)
	got := server.run(t, `
		local bypass_list = require "sluice.refusal_cache.bypass_list"
		bypass_list.init(ngx.shared.test)
		local now = require("sluice.clock").now()
		local record = { id = ("once%d"):format(now), holders = 5, sent = 0 } -- an earlier run has left others behind
		local one, other = bypass_list.begin(record, now), bypass_list.begin(record, now)
		bypass_list.fetch(record.id, 5, function() return record.id .. ";accepted=5;count=0", "" end)
		local late = bypass_list.begin(record, now)
		record.holders = 6
		return tostring(one) .. " " .. tostring(other) .. " " .. tostring(late) .. " " .. tostring(bypass_list.begin(record, now))
	`)
	if want := "true false false true"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func joined(list []uint32) string {
	texts := make([]string, len(list))
	for i, sum := range list {
		texts[i] = fmt.Sprint(sum)
	}
	return strings.Join(texts, ",")
}
