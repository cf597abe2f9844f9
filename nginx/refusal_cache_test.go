package nginx

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

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
		elapsed := time.Since(sent)
		a := e.do("POST", dropOrders, "Authorization", signed(t, "ann"))
		if a.status == 409 {
			last = elapsed
		} else if a.status != 503 || a.body != problemBody(503, "") {
			t.Fatalf("%d %s", a.status, a.body)
		} else if early == 0 {
			early = time.Since(begun)
		}
		return a.status == 503 && elapsed > time.Second
	})
	if early < 700*time.Millisecond || last > time.Second {
		t.Errorf("the last refusal was requested %s after the backend's, the first 503 came after %s, want a second", last,
			early)
	}
}

// In the last fifth of the ttl one request at a time revalidates the refusal. The others do not wait.
func TestOneRequestAtATimeRevalidates(t *testing.T) {
	s := startMadeShop(t, open, func(s *madeShop) { s.took = 50 * time.Millisecond })
	s.awaitCached(t)
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
	lasted, forwarded := time.Since(begun), s.purchases()-before
	t.Logf("%d answers in %v, %d of them by the backend", refusals.Load(), lasted, forwarded)
	if forwarded < 2 || forwarded > int(16*lasted/(3*time.Second)) {
		t.Errorf("the backend got %d requests in %v, want about one per four fifths of a second", forwarded, lasted)
	}
}

// A buyer whose revalidating request got no clear answer may have an order: only that buyer reaches the backend again.
func TestBuyerWithUnclearAnswerReachesBackend(t *testing.T) {
	s := startMadeShop(t, open, nil)
	for range 10 { // a busy machine may take longer than the fifth of a second in which this can be seen
		s.set(func() { s.status = 0 })
		s.awaitCached(t)
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
			t.Errorf("after bob's 503 dan gets %d, from memory: %v, and bob from memory: %v; want 409, true and false",
				dan.status, danCached, bobCached)
		}
		return
	}
	t.Fatal("ten tries took too long")
}

// A request that is refused returns its turn to revalidate: a forged token does not block the others.
func TestRefusedRequestReturnsItsTurn(t *testing.T) {
	s := startMadeShop(t, `return { rules = { { name = "token", key = "token", rate = "1000r/s", burst = 1000 } } }`, nil)
	s.awaitCached(t)
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
	lasted, forwarded, inTime := time.Since(begun), s.purchases()-before, 0
	for i := 1; i < len(s.arrived); i++ {
		if s.arrived[i].Sub(s.arrived[i-1]) < time.Second {
			inTime++
		}
	}
	t.Logf("%v, %d of them by the backend", statuses, forwarded)
	if 2*inTime < len(s.arrived)-1 {
		t.Error("the refusal was hardly revalidated: requests with forged tokens kept the turn")
	}
	most := int(16 * lasted / (3 * time.Second))
	if forwarded < 2 || forwarded > most || statuses[401] == 0 || statuses[409] < 10*statuses[401] {
		t.Errorf("the backend got %d requests in %v, and the responses were %v", forwarded, lasted, statuses)
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
