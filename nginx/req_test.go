package nginx

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// startAlone starts an nginx without sluice's configuration, with its modules on the path. SLUICE_TEST_LUA_PATH is the
// path of an installed package, which is tested instead of the modules of this repository.
func startAlone(t *testing.T) *luaServer {
	t.Helper()
	const path = "$prefix/lua/edge/?.lua"
	server, stop := startLuaWith(t, "alone.conf", path, cmp.Or(os.Getenv("SLUICE_TEST_LUA_PATH"), path))
	t.Cleanup(stop)
	return server
}

// An access phase written for resty.limit.req, in which only the name of the module has changed.
func TestLimiterReplacesRestyLimitReq(t *testing.T) {
	server := startAlone(t)
	tries, length := flood(t, "http://"+server.address+"/limited", http.StatusServiceUnavailable, 8, time.Second, false,
		func() {})
	allowed, denied, bound := count(tries, admitted), count(tries, refused), 200*length.Seconds()+101
	t.Logf("%d admitted, %d refused; the bound is %.0f", allowed, denied, bound)
	if float64(allowed) > bound || denied == 0 {
		t.Errorf("%d were admitted and %d refused, want at most %.0f admitted and the rest refused", allowed, denied, bound)
	}
	if bad, found := unjust(tries, 200, 100); found {
		t.Errorf("%d were admitted, and one was refused after %v although there was room", allowed, bad.from)
	}
}

// Every call of the interface returns what resty.limit.req 0.09 returns, except where a comment states a difference.
func TestLimiterAgreesWithRestyLimitReq(t *testing.T) {
	server := startAlone(t)
	changes, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	released := string(regexp.MustCompile(`(?m)^## \[([0-9.]+)\]`).FindSubmatch(changes)[1])
	key := 0
	for _, c := range []struct{ name, code, want string }{
		{"no such dict", `return limit.new("nowhere", 1, 1)`, "nil, shared dict not found"},
		{"a rate of zero", `return pcall(limit.new, store, 0, 1)`, "false, assertion failed!"},
		{"a negative burst", `return pcall(limit.new, store, 1, -1)`, "false, assertion failed!"},
		{"the first", `return limit.new(store, 2, 0):incoming(key, true)`, "0, 0"},
		{
			"one too many", `local l = limit.new(store, 0.01, 0) l:incoming(key, true) return l:incoming(key, true)`,
			"nil, rejected",
		},
		{
			"the second in a burst",
			`local l = limit.new(store, 0.01, 1) l:incoming(key, true) local d, e = l:incoming(key, true) return d > 99 and d <= 100, e > 0.99 and e <= 1`,
			"true, true",
		},
		{
			"a call without commit takes nothing",
			`local l = limit.new(store, 0.01, 0) return l:incoming(key), l:incoming(key), l:incoming(key, false), l:incoming(key, true)`,
			"0, 0, 0, 0, 0",
		},
		{
			"a call without commit counts earlier requests", `local l = limit.new(store, 0.01, 0) l:incoming(key, true) return l:incoming(key)`,
			"nil, rejected",
		},
		{
			"two objects share what a key has used",
			`limit.new(store, 0.01, 1):incoming(key, true) limit.new(store, 0.01, 1):incoming(key, true) return limit.new(store, 0.01, 1):incoming(key, true)`,
			"nil, rejected",
		},
		{
			"a higher burst",
			`local l = limit.new(store, 0.01, 0) l:incoming(key, true) l:set_burst(1) local d = l:incoming(key, true) return d > 99, l:incoming(key, true)`,
			"true, nil, rejected",
		},
		{
			"a lower burst",
			`local l = limit.new(store, 0.01, 9) for _ = 1, 5 do l:incoming(key, true) end l:set_burst(3) return l:incoming(key, true)`,
			"nil, rejected",
		},
		{
			"a higher rate keeps the count of requests",
			`local l = limit.new(store, 0.01, 3) for _ = 1, 3 do l:incoming(key, true) end l:set_rate(0.1) local d, e = l:incoming(key, true) return d > 29 and d <= 30, e > 2.9 and e <= 3, l:incoming(key, true)`,
			"true, true, nil, rejected",
		},
		{
			"a lower rate keeps it too",
			`local l = limit.new(store, 0.1, 3) for _ = 1, 3 do l:incoming(key, true) end l:set_rate(0.01) local d, e = l:incoming(key, true) return d > 299 and d <= 300, e > 2.9 and e <= 3`,
			"true, true",
		},
		// resty.limit.req does not return the first request of a key: its record is 0 requests above the rate.
		{
			"uncommit",
			`local l = limit.new(store, 0.01, 0) l:incoming(key, true) local ok = l:uncommit(key) return ok, l:incoming(key, true), l:incoming(key, true)`,
			"true, 0, nil, rejected",
		},
		{"uncommit of nothing", `return limit.new(store, 1, 0):uncommit(key)`, "nil, not found"},
		{
			"uncommit never makes room for more than the burst",
			`local l = limit.new(store, 0.01, 0) l:incoming(key, true) l:uncommit(key) l:uncommit(key) l:uncommit(key) l:incoming(key, true) return l:incoming(key, true)`,
			"nil, rejected",
		},
		{
			"uncommit of no key", `return pcall(limit.new(store, 1, 0).uncommit, limit.new(store, 1, 0))`,
			"false, assertion failed!",
		},
		{"an entry of another module", `ngx.shared[store]:set(key, "theirs") local l = limit.new(store, 1, 0) local _, a = l:incoming(key, true) local _, b = l:incoming(key) local _, c = l:uncommit(key) return a, b, c`,
			"shdict abused by other users, shdict abused by other users, shdict abused by other users"},
		{
			"a rate of almost zero",
			`local l = limit.new(store, 1e-300, 0) l:incoming(key, true) return l:incoming(key, true)`, "nil, rejected",
		},
		{
			"keys that are no strings",
			`local l = limit.new(store, 0.01, 0) l:incoming(12345, true) return l:incoming("12345", true)`, "nil, rejected",
		},
		// resty.limit.req accepts it, and then rejects every request of a key but the first.
		{"set_burst below zero", `local l = limit.new(store, 1, 0) return pcall(l.set_burst, l, -1)`, "false, assertion failed!"},
		{
			"fields", `local l = limit.new(store, 2, 3) local r, b = l.rate, l.burst l:set_rate(4) l:set_burst(5) return r, b, l.rate, l.burst, l.dict == ngx.shared[store], limit._VERSION == version`,
			"2000, 3000, 4000, 5000, true, true",
		},
		// resty.limit.req replaces the list.
		{"a list", `ngx.shared[store]:lpush(key, "theirs") local l = limit.new(store, 1, 0) local _, a = l:incoming(key, true) local _, b = l:incoming(key) local _, c = l:uncommit(key) return a, b, c`,
			"value is a list, value is a list, value is a list"},
		// resty.limit.req admits these without limit: it treats an error of the dict like a missing key.
		{"no key", `return limit.new(store, 1, 0):incoming(nil, true)`, "nil, nil key"},
		{"an empty key", `return limit.new(store, 1, 0):incoming("", true)`, "nil, empty key"},
		{"a key that is too long", `return limit.new(store, 1, 0):incoming(("k"):rep(70000), true)`, "nil, key too long"},
		// resty.limit.req evicts the keys of a full dict that were idle longest.
		{"a full dict", `
			local l, n, ok, err = limit.new("small", 0.01, 0), 0
			l:incoming("old", true)
			repeat n = n + 1 ok, err = l:incoming("filler " .. n, true) until not ok
			return n > 50, err, l:incoming("old", true)`, "true, no memory, nil, rejected"},
		// In resty.limit.req keys never expire.
		{
			"idle keys expire",
			`limit.new(store, 0.1, 9):incoming(key, true) local ttl = ngx.shared[store]:ttl(key) return ttl > 10 and ttl <= 15`,
			"true",
		},
	} {
		key++
		got := server.run(t, fmt.Sprintf(`
			local limit, store, key, version = require "sluice.limit.req", "my_limit_req_store", "key %d", %q
			local function show(...)
				local out = {}
				for i = 1, select("#", ...) do out[i] = tostring((select(i, ...))):gsub("^.*: (assertion failed!)$", "%%1") end
				return table.concat(out, ", ")
			end
			return show((function() %s end)())
		`, key, released, c.code))
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// The documentation names the files that the module needs.
func TestLimiterLoadsDocumentedFiles(t *testing.T) {
	got := startAlone(t).run(t, `
		require "sluice.limit.req"
		local names = {}
		for name in pairs(package.loaded) do
			if name:find("^sluice") then names[#names + 1] = name end
		end
		table.sort(names)
		return table.concat(names, " ")
	`)
	if want := "sluice.clock sluice.limit.fraction sluice.limit.gcra sluice.limit.lock sluice.limit.req " +
		"sluice.limit.zone"; got != want {
		t.Errorf("it loads %s, want %s", got, want)
	}
}

// resty.limit.traffic calls every limiter without commit, then commits one after the other, and uncommits when one
// refuses.
func TestLimitersCanBeCombined(t *testing.T) {
	got := startAlone(t).run(t, `
		local limit = require "sluice.limit.req"
		local wide, narrow = limit.new("my_limit_req_store", 0.01, 4), limit.new("my_limit_req_store", 0.01, 1)
		local function both()
			if not wide:incoming("wide") or not narrow:incoming("narrow") then return false end
			wide:incoming("wide", true)
			if narrow:incoming("narrow", true) then return true end
			wide:uncommit("wide")
			return false
		end
		local out = {}
		for i = 1, 4 do out[i] = tostring(both()) end
		local n = 0
		while wide:incoming("wide", true) do n = n + 1 end
		return table.concat(out, " ") .. " " .. n
	`)
	if want := "true true false false 3"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Several workers that open a dict at the same time share one lock.
func TestWorkersThatOpenADictTogetherShareOneLock(t *testing.T) {
	for range 5 {
		server, stop := startLua(t, "1m")
		out := server.everywhere(t, `
			local clock, test, zone = require "sluice.clock", ngx.shared.test, require "sluice.limit.zone"
			test:incr("ready", 1, 0)
			repeat until test:get("ready") >= 2
			local z = zone.new(test)
			local inside = 0
			local from = clock.now()
			repeat
				assert(z:enter())
				test:set("count", (test:get("count") or 0) + 1) -- not atomic: two at a time lose counts
				inside = inside + 1
				z:leave()
			until clock.now() - from > 50000
			test:incr("total", inside, 0)
			test:incr("done", 1, 0)
			repeat until test:get("done") >= 2
			return ("%d %d"):format(test:get("count"), test:get("total"))
		`)
		stop()
		var counted, total int
		if _, err := fmt.Sscan(out[0], &counted, &total); err != nil || counted != total || out[0] != out[1] {
			t.Fatalf("%q and %q, %v: want as many counts as turns", out[0], out[1], err)
		}
	}
}

// An entry of another module under the key of the lock is an error, for any value, without a wait for its holder. After
// its removal the lock works.
func TestForeignLockEntryIsAnError(t *testing.T) {
	server, stop := startLua(t, "1m")
	defer stop()
	for _, entry := range []string{
		`set("sluice: lock", "theirs")`, `set("sluice: lock", true)`, `set("sluice: lock", 5)`, `set("sluice: lock", 1e15 + 0.5)`,
		`set("sluice: lock", -1)`, `lpush("sluice: lock", 1)`,
	} {
		for _, gone := range []string{`flush_all()`, `delete("sluice: lock")`} {
			got := server.run(t, `
				local zone, test = require "sluice.limit.zone", ngx.shared.test
				local z = zone.new(test)
				test:flush_all()
				test:`+entry+`
				local _, err = z:enter()
				test:`+gone+`
				local now = z:enter()
				z:leave()
				return tostring(err) .. "; " .. tostring(now ~= nil)
			`)
			if want := `shdict abused by other users: the entry "sluice: lock" is not a lock; true`; got != want {
				t.Errorf("%s, %s: %s, want %s", entry, gone, got, want)
			}
		}
	}
}

// Rates are numbers here, and not text as in a policy.
func TestRatesAsNumbersAreExactFractions(t *testing.T) {
	server := requireLua(t)
	for rate, want := range map[string]string{
		"1": "1 1000000", "200": "1 5000", "20000": "1 50", "1000000": "1 1", "3": "3 1000000", "0.5": "1 2000000",
		"33.3": "333 10000000", "1/60": "1 60000000", "1/3600": "1 3600000000",
		"1/86400": "1 86400000000", "100/60": "1 600000", "7/3": "7 3000000", "1e6/3": "1 3", "2.5e6": "5 2",
		"1e-9": "1 1000000000000000", "1e300": "1000000 1", "0.00001": "1 100000000000",
	} {
		got := server.run(t,
			`local count, period = require("sluice.limit.fraction").of(`+rate+`) return ("%.0f %.0f"):format(count, period)`)
		if got != want {
			t.Errorf("%s: %s, want %s", rate, got, want)
		}
	}
	// A rate without a short fraction is rounded down by little, and never up.
	for _, rate := range []float64{math.Pi, math.E / 1e4, 1e5 * math.Sqrt2, 0.1 + 0.2, 1e-7 * math.Pi, 123456.789} {
		got := server.run(
			t,
			fmt.Sprintf(
				`local count, period = require("sluice.limit.fraction").of(%.17g) return ("%%.0f %%.0f"):format(count, period)`,
				rate,
			),
		)
		var count, period float64
		if _, err := fmt.Sscan(got, &count, &period); err != nil {
			t.Fatal(err)
		}
		if is := count / period * 1e6; is > rate*(1+1e-15) || is < rate*(1-1e-4) {
			t.Errorf("%.17g became %.17g", rate, is)
		}
	}
}

// Two workers race for one key through the module alone.
func TestLimiterKeepsBoundWhileWorkersRace(t *testing.T) {
	for _, c := range []struct{ rate, burst float64 }{{1000, 3000}, {20000, 0}, {1.0 / 60, 50}, {333333.3, 2}} {
		key := fmt.Sprintf("race alone %d", time.Now().UnixNano())
		out := requireLua(t).everywhere(t, fmt.Sprintf(`
			local clock, test = require "sluice.clock", ngx.shared.test
			local l = require("sluice.limit.req").new("sluice_buckets", %.17g, %v)
			local key = %q
			test:incr(key, 1, 0)
			local admitted, first = 0, clock.now()
			while test:get(key) < 2 do
				assert(clock.now() - first < 5000000, "the other worker did not start")
			end
			first = clock.now()
			repeat
				for _ = 1, 100 do
					if l:incoming(key, true) then admitted = admitted + 1 end
				end
			until clock.now() - first > 300000
			for _ = 1, 100000 do -- what the bucket kept while the machine was busy
				if not l:incoming(key, true) then break end
				admitted = admitted + 1
			end
			return ("%%.0f %%.0f %%d"):format(first, clock.now(), admitted)
		`, c.rate, c.burst, key))
		first, last, admitted := math.Inf(1), 0.0, 0.0
		for _, line := range out {
			var from, to, n float64
			if _, err := fmt.Sscan(line, &from, &to, &n); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			first, last, admitted = min(first, from), max(last, to), admitted+n
		}
		bound := math.Floor(c.rate*(last-first)/1e6) + c.burst + 1
		t.Logf("%v/s burst %v: %.0f admitted, the bound is %.0f", strings.TrimSuffix(fmt.Sprintf("%.2f", c.rate), ".00"),
			c.burst, admitted, bound)
		// Only for bursts that cover three seconds: a stalled machine then does not reduce the number of admitted
		// requests.
		if admitted > bound || c.burst >= 3*c.rate && admitted < 0.9*bound {
			t.Errorf("admitted %.0f, want at most %.0f and, with this burst, most of it", admitted, bound)
		}
	}
}
