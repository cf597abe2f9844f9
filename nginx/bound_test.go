package nginx

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// hot floods an edge whose one rule is 100r/s with a burst of 50. It checks the bound, and that no request was refused
// without a reason.
func hot(t *testing.T, e *edge, mayBreak bool, meanwhile func()) (allowed, denied int) {
	t.Helper()
	tries, length := flood(t, e.url("/"), http.StatusTooManyRequests, 16, 2*time.Second, mayBreak, meanwhile)
	allowed, denied = count(tries, admitted), count(tries, refused)
	bound := 100*length.Seconds() + 50 + 1
	t.Logf("%d admitted and %d refused in %v; the bound is %.0f", allowed, denied, length, bound)
	if float64(allowed) > bound {
		t.Errorf("admitted %d, want at most %.0f", allowed, bound)
	}
	if bad, found := unjust(tries, 100, 50); found {
		t.Errorf("%d were admitted, and one was refused without a reason, after %v", allowed, bad.from)
	}
	return allowed, denied
}

const hotPolicy = `return { rules = { { name = "hot", key = "ip", rate = "100r/s", burst = 50 } } }`

// Any interval of length L admits at most rate*L + burst + 1, with any number of workers, through HTTP.
func TestWorkersKeepBoundOfHotKey(t *testing.T) {
	variants(t, workersKeepBoundOfHotKey)
}

func workersKeepBoundOfHotKey(t *testing.T, f *variant) {
	e := startEdge(t, hotPolicy, f.on(t))
	allowed, denied := hot(t, e, false, func() {})
	if denied == 0 {
		t.Error("nothing was refused: the load was too low")
	}
	workers := map[any]bool{}
	for _, entry := range e.logged(allowed, 200) {
		if entry["verdict"] == "allow" {
			workers[entry["worker"]] = true
		}
	}
	if len(workers) != 2 {
		t.Errorf("%d workers admitted requests, want 2", len(workers))
	}
}

// Workers of two generations share the buckets during a reload, and a killed worker releases nothing.
func TestBoundHoldsWhileWorkersComeAndGo(t *testing.T) {
	variants(t, boundHoldsWhileWorkersComeAndGo)
}

func boundHoldsWhileWorkersComeAndGo(t *testing.T, f *variant) {
	e := startEdge(t, hotPolicy, f.on(t))
	hot(t, e, true, func() {
		for range 3 {
			if err := e.cfg.Reload(t.Context()); err != nil {
				t.Error(err)
			}
			killAWorker(t, e)
		}
	})
}

// killAWorker kills one of the workers of the edge.
func killAWorker(t *testing.T, e *edge) {
	t.Helper()
	_ = syscall.Kill(workerOf(t, e.master().Pid), syscall.SIGKILL)
}

// Two workers race for one key without HTTP, millions of times a second. A limiter that reads and writes without a lock
// fails here.
func TestRacingWorkersKeepBound(t *testing.T) {
	variants(t, racingWorkersKeepBound)
}

func racingWorkersKeepBound(t *testing.T, f *variant) {
	for _, c := range []struct {
		rate  string
		burst int
	}{{"1r/m", 50000}, {"1000r/s", 3000}, {"1000r/s", 10}, {"20000r/s", 0}, {"1000000r/s", 5}, {"1r/m", 0}, {"1r/m", 3}, {"90r/m", 0}, {"333333.33r/s", 2}} {
		t.Run(fmt.Sprintf("%s burst %d", strings.ReplaceAll(c.rate, "/", " per "), c.burst), func(t *testing.T) {
			perSecond := map[string]float64{"1r/m": 1. / 60, "90r/m": 1.5}[c.rate]
			if perSecond == 0 {
				perSecond, _ = strconv.ParseFloat(strings.TrimSuffix(c.rate, "r/s"), 64)
			}
			first, last, admitted := race(t, f, c.rate, c.burst) // us, us, requests
			length := (last - first) / 1e6
			bound := math.Floor(perSecond*length) + float64(c.burst) + 1
			t.Logf("%.0f admitted in %.3f s, the bound is %.0f", admitted, length, bound)
			if admitted > bound {
				t.Errorf("admitted %.0f, above the bound of %.0f", admitted, bound)
			}
			// Only for bursts that cover three seconds: a stalled machine then does not reduce the number of admitted
			// requests.
			if float64(c.burst) >= 3*perSecond && admitted < 0.9*bound {
				t.Errorf("admitted %.0f, below nine tenths of the bound of %.0f", admitted, bound)
			}
		})
	}
}

// race lets two workers admit on one new bucket for 0.3 s. It returns the microseconds of the first and the last turn,
// and how many requests were admitted.
func race(t *testing.T, f *variant, rate string, burst int) (first, last, admitted float64) {
	t.Helper()
	out := f.lua(t).everywhere(t, fmt.Sprintf(`
		local req, clock, aim = require "sluice.limit.rules", require "sluice.clock", require("take").aim
		local count, period = require("sluice.policy.rate").parse(%q)
		local rules = { { count = count, period = period, tolerance = %d * period, failed = "error test" } } -- on a busy machine a worker may not get the lock
		local keys = { %q }
		-- Each waits for the other one.
		ngx.shared.test:incr(keys[1], 1, 0)
		local admitted, first = 0, clock.now()
		while ngx.shared.test:get(keys[1]) < 2 do
			assert(clock.now() - first < 5000000, "the other worker did not start")
		end
		aim(rules, keys)
		first = clock.now()
		repeat
			for _ = 1, 100 do
				if req.admit(rules, 1) then admitted = admitted + 1 end
			end
		until clock.now() - first > 300000
		for _ = 1, 100000 do -- what the bucket kept while the machine was busy
			if not req.admit(rules, 1) then break end
			admitted = admitted + 1
		end
		return table.concat({ ("%%.0f"):format(first), ("%%.0f"):format(clock.now()), admitted }, " ")
	`, rate, burst, fmt.Sprintf("race %d", time.Now().UnixNano())))
	first = math.Inf(1)
	for _, line := range out {
		var from, to, n float64
		if _, err := fmt.Sscan(line, &from, &to, &n); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		first, last, admitted = min(first, from), max(last, to), admitted+n
	}
	return first, last, admitted
}

// A worker that is killed while it has the lock does not block the others.
func TestWorkerKilledUnderLockStopsNoOther(t *testing.T) {
	variants(t, func(t *testing.T, f *variant) {
		server, stop := f.startLua(t, "1m")
		defer stop()
		for round := range 3 {
			_, err := server.try(`
				assert(require("sluice.accel").select("store", "sluice.limit.store").enter())
				local ffi = require "ffi"
				pcall(ffi.cdef, "int kill(int pid, int signal);")
				ffi.C.kill(ngx.worker.pid(), 9)
				while true do end
			`)
			if err == nil {
				t.Fatal("the worker still runs")
			}
			for range 4 { // both workers, also the new one
				got := server.run(t, fmt.Sprintf(`
					local rule = { count = 1, period = 1000000, tolerance = 1e9, failed = "error test" }
					local ok, i, err = require("take").take({ rule }, { "after death %d" })
					return tostring(ok) .. " " .. tostring(err)
				`, round))
				if got != "true nil" {
					t.Fatalf("after a worker was killed under the lock: %s", got)
				}
			}
			left := server.run(t, `
				local left = {}
				for _, name in ipairs(ngx.shared.sluice_buckets:get_keys(0)) do
					if name:find("sluice: lock after", 1, true) then left[#left + 1] = name end
				end
				return table.concat(left, ", ")
			`)
			if left != "" {
				t.Errorf("%d workers were killed under the lock, and the entries %s remain", round+1, left)
			}
		}
	})
}

// After an error under the lock, the same worker can take it again, and repair releases it for the others.
func TestErrorUnderLockStopsNoWorker(t *testing.T) {
	variants(t, func(t *testing.T, f *variant) {
		server, stop := f.startLua(t, "1m")
		defer stop()
		got := server.everywhere(t, `
			local rules, take, test = require "sluice.limit.rules", require("take").take, ngx.shared.test
			local store = require("sluice.accel").select("store", "sluice.limit.store")
			local function await(step) repeat until (test:get("step") or 0) >= step end
			local function fail() pcall(function() assert(store.enter()) error("in a turn") end) end
			if ngx.worker.id() == 0 then
				fail()
				test:set("step", 1)
				await(2)
				local rule = { count = 1, period = 1000000, tolerance = 1e9, failed = "error test" }
				local ok = take({ rule }, { "after an error" })
				fail()
				rules.repair()
				rules.repair()
				test:set("step", 3)
				return tostring(ok)
			end
			await(1)
			local held = store.enter()
			test:set("step", 2)
			await(3)
			local free = store.enter()
			if free then store.leave() end
			return tostring(held) .. " " .. tostring(free ~= nil)
		`)
		if want := [2]string{"true", "nil true"}; got != want {
			t.Errorf("after errors under the lock: %q, want %q", got, want)
		}
	})
}

// A worker that is paused while it has the lock keeps it. The others do not hang: after WAIT, on_error of the rule
// decides.
func TestWorkerPausedUnderLockIsNotWaitedForLong(t *testing.T) {
	variants(t, func(t *testing.T, f *variant) {
		key := fmt.Sprintf("paused %d", time.Now().UnixNano())
		got := f.lua(t).everywhere(t, fmt.Sprintf(`
			local take, clock, test = require("take").take, require "sluice.clock", ngx.shared.test
			local store = require("sluice.accel").select("store", "sluice.limit.store")
			local key = %q
			local from = clock.now()
			if ngx.worker.id() == 0 then
				assert(store.enter())
				test:set(key, "held")
				while test:get(key) ~= "done" and clock.now() - from < 5000000 do end
				store.leave()
				return "released"
			end
			while not test:get(key) do end
			local function rule(lenient)
				return { count = 1, period = 1000000, tolerance = 1e9, lenient = lenient, failed = "error test" }
			end
			from = clock.now()
			local deny = { take({ rule(true), rule(false) }, { key .. "a", key .. "b" }) }
			local took = (clock.now() - from) / 1000
			from = clock.now()
			local allow = { take({ rule(true) }, { key .. "a" }) }
			local again = (clock.now() - from) / 1000
			test:set(key, "done")
			from = clock.now()
			repeat until store.enter() or clock.now() - from > 5000000
			store.leave()
			return ("%%s %%s %%s %%s; %%s %%s"):format(tostring(deny[1]), tostring(deny[2]), tostring(deny[3]),
				took >= 450 and took < 4500 and "in time" or took, tostring(allow[1]), again < 400 and "immediately" or again)
		`, key))
		if want := "nil 2 another worker holds the lock in time; true immediately"; got[1] != want {
			t.Errorf("while a worker held the lock: %q, want %q", got[1], want)
		}
	})
}

// Workers that are killed again and again, also while they have the lock, never let two workers have it at the same
// time.
func TestKilledWorkersNeverShareLock(t *testing.T) {
	variants(t, func(t *testing.T, f *variant) {
		server, stop := f.startLua(t, "1m")
		defer stop()
		const turns = `
			local test, clock = ngx.shared.test, require "sluice.clock"
			local store = require("sluice.accel").select("store", "sluice.limit.store")
			local from = clock.now()
			repeat
				assert(store.enter())
				test:set("count", (test:get("count") or 0) + 1) -- not atomic: two at a time lose counts
				test:incr("total", 1, 0)
				store.leave()
			until clock.now() - from > 300000
			return "done"`
		const kills = 12
		var wait sync.WaitGroup
		for range 2 {
			wait.Go(func() {
				for range 8 {
					_, _ = server.try(turns)
				}
			})
		}
		for range kills {
			time.Sleep(150 * time.Millisecond) //nolint:forbidigo // the interval between kills, not a wait for a result
			_ = syscall.Kill(server.worker(t), syscall.SIGKILL)
		}
		wait.Wait()
		var counted, total int
		out := server.run(t, `return ("%d %d"):format(ngx.shared.test:get("count"), ngx.shared.test:get("total"))`)
		if _, err := fmt.Sscan(out, &counted, &total); err != nil || counted < total || counted > total+kills ||
			total < 1000 {
			t.Errorf("%d counts in %d turns, %v", counted, total, err)
		}
	})
}
