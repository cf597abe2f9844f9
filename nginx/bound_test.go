package nginx

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hot floods an edge by its one rule, 500r/s with a burst of 250, and checks that it admitted what it had to, and no more. Below the bound, what counts is
// which requests arrived: a busy machine holds up many.
func hot(t *testing.T, e *edge, mayBreak bool, meanwhile func()) (allowed, denied int) {
	t.Helper()
	tries, length := flood(t, e.url("/"), http.StatusTooManyRequests, 16, 2*time.Second, mayBreak, meanwhile)
	allowed, denied = count(tries, admitted), count(tries, refused)
	bound := 500*length.Seconds() + 250 + 1
	t.Logf("%d admitted and %d refused in %v; the bound is %.0f", allowed, denied, length, bound)
	if float64(allowed) > bound {
		t.Errorf("admitted %d, want at most %.0f", allowed, bound)
	}
	if bad, found := unjust(tries, 500, 250); found {
		t.Errorf("%d were admitted, and refused was one, after %v, for which there was room", allowed, bad.from)
	}
	return allowed, denied
}

const hotPolicy = `return { rules = { { name = "hot", key = "ip", rate = "500r/s", burst = 250 } } }`

// The promise of the edge: any interval of length L admits at most rate*L + burst + 1, with any number of workers. Here the whole way through HTTP.
func TestTwoWorkersTogetherKeepTheBoundOfAHotKey(t *testing.T) {
	e := startEdge(t, hotPolicy, nil)
	allowed, denied := hot(t, e, false, func() {})
	if denied == 0 {
		t.Error("nothing was refused: the load was too low to show anything")
	}
	workers := map[any]bool{}
	for _, entry := range e.logged(allowed, 200) {
		if entry["verdict"] == "allow" {
			workers[entry["worker"]] = true
		}
	}
	if len(workers) != 2 {
		t.Errorf("%d workers admitted requests, want 2: this run shows nothing about sharing", len(workers))
	}
}

// Workers of two generations share the buckets while a reload is under way, and a worker that dies takes nothing with it.
func TestTheBoundHoldsWhileWorkersComeAndGo(t *testing.T) {
	e := startEdge(t, hotPolicy, nil)
	hot(t, e, true, func() {
		for range 3 {
			if err := e.cfg.Reload(t.Context()); err != nil {
				t.Error(err)
			}
			killAWorker(t, e)
		}
	})
}

// killAWorker kills one of the workers that the edge has at this moment.
func killAWorker(t *testing.T, e *edge) {
	t.Helper()
	master, err := running(e.cfg.Prefix)
	if err != nil {
		t.Error(err)
		return
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", master.Pid, master.Pid))
	var worker int
	if n, _ := fmt.Sscan(string(children), &worker); err != nil || n != 1 {
		t.Errorf("the master's workers: %q, %v", children, err)
		return
	}
	_ = syscall.Kill(worker, syscall.SIGKILL)
}

// The same without HTTP between: two workers ask for one key as fast as they can, millions of times a second. A limiter that reads and then
// writes without a lock fails here, by a factor where the burst is large.
func TestTwoWorkersRacingForOneBucketKeepTheBound(t *testing.T) {
	for _, c := range []struct {
		rate  string
		burst int
	}{{"1r/m", 50000}, {"1000r/s", 300}, {"1000r/s", 10}, {"20000r/s", 0}, {"1000000r/s", 5}, {"1r/m", 0}, {"1r/m", 3}, {"90r/m", 0}, {"333333.33r/s", 2}} {
		t.Run(fmt.Sprintf("%s burst %d", strings.ReplaceAll(c.rate, "/", " per "), c.burst), func(t *testing.T) {
			perSecond := map[string]float64{"1r/m": 1. / 60, "90r/m": 1.5}[c.rate]
			if perSecond == 0 {
				perSecond, _ = strconv.ParseFloat(strings.TrimSuffix(c.rate, "r/s"), 64)
			}
			first, last, admitted := race(t, c.rate, c.burst) // us, us, requests
			length := (last - first) / 1e6
			bound := math.Floor(perSecond*length) + float64(c.burst) + 1
			t.Logf("%.0f admitted in %.3f s, the bound is %.0f", admitted, length, bound)
			if admitted > bound {
				t.Errorf("admitted %.0f, above the bound of %.0f", admitted, bound)
			}
			// Where the bucket keeps what a stalled machine does not ask for.
			if float64(c.burst) >= 0.3*perSecond && admitted < 0.9*bound {
				t.Errorf("admitted %.0f, below nine tenths of the bound of %.0f", admitted, bound)
			}
		})
	}
}

// race lets two workers admit on a bucket of their own for 0.3 s, and returns the microseconds of the first and the last turn and how many were
// admitted.
func race(t *testing.T, rate string, burst int) (first, last, admitted float64) {
	t.Helper()
	out := requireLua(t).everywhere(t, fmt.Sprintf(`
		local req, clock, aim = require "sluice.limit.rules", require "sluice.clock", require("take").aim
		local count, period = require("sluice.policy.rate").parse(%q)
		local rules = { { count = count, period = period, tolerance = %d * period, failed = "error test" } } -- on a busy machine a worker may not get the lock
		local keys = { %q }
		-- Each waits for the other one, or there is no race.
		ngx.shared.test:incr(keys[1], 1, 0)
		local admitted, first = 0, clock.now()
		while ngx.shared.test:get(keys[1]) < 2 do
			assert(clock.now() - first < 5000000, "the other worker never came")
		end
		aim(rules, keys)
		first = clock.now()
		repeat
			for _ = 1, 100 do
				if req.admit(rules, 1) then admitted = admitted + 1 end
			end
		until clock.now() - first > 300000
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

// A worker that dies in its turn must not stop the others, nor leave a half-made decision.
func TestAWorkerKilledUnderTheLockStopsNobody(t *testing.T) {
	server, stop := startLua(t, "1m")
	defer stop()
	_, err := server.try(`
		require("sluice.limit.lock").acquire(require("take").lock())
		local ffi = require "ffi"
		ffi.cdef "int kill(int pid, int signal);"
		ffi.C.kill(ngx.worker.pid(), 9)
		while true do end
	`)
	if err == nil {
		t.Fatal("the worker is still alive")
	}
	for range 4 { // both workers, the new one too
		got := server.run(t, `
			local rule = { count = 1, period = 1000000, tolerance = 1e9 }
			local ok, i, err = require("take").take({ rule }, { "after a death" })
			return tostring(ok) .. " " .. tostring(err)
		`)
		if got != "true nil" {
			t.Fatalf("after a worker died under the lock: %s", got)
		}
	}
}

// No turn of the edge is a protected call. A worker goes on with a lock that an error has left it with, and mend gives it back for others.
func TestAnErrorUnderTheLockStopsNobody(t *testing.T) {
	server, stop := startLua(t, "1m")
	defer stop()
	got := server.run(t, `
		local lock, rules, take = require "sluice.limit.lock", require "sluice.limit.rules", require "take"
		local rule = { count = 1, period = 1000000, tolerance = 1e9, failed = "error test" }
		local other = lock.of(ngx.shared.sluice_buckets) -- as another worker has it
		other.resting_until = 1e15                        -- and it does not wait for long
		local out = {}
		local function fail() pcall(function() assert(lock.acquire(take.lock())) error("in a turn") end) end
		local function try() out[#out + 1] = lock.acquire(other) and "free" or "held" if out[#out] == "free" then lock.release(other) end end
		fail() try()
		out[#out + 1] = tostring((take.take({ rule }, { "after an error" }))) try()
		fail() try()
		rules.mend() try()
		rules.mend() try()
		return table.concat(out, " ")
	`)
	if want := "held true free held free free"; got != want {
		t.Errorf("after errors under the lock: %s, want %s", got, want)
	}
}

// A worker that is stopped in its turn keeps the lock. The others must not hang with it: after a while the rule's on_error decides.
// With their next turn they are patient again.
func TestAWorkerStuckUnderTheLockIsNotWaitedFor(t *testing.T) {
	key := fmt.Sprintf("stuck %d", time.Now().UnixNano())
	got := requireLua(t).everywhere(t, fmt.Sprintf(`
		local lock, take, clock, test = require "sluice.limit.lock", require("take").take, require "sluice.clock", ngx.shared.test
		local held = require("take").lock()
		local key = %q
		local from = clock.now()
		if ngx.worker.id() == 0 then
			lock.acquire(held)
			test:set(key, "held")
			while test:get(key) ~= "done" and clock.now() - from < 5000000 do end
			lock.release(held)
			return "released"
		end
		while not test:get(key) do end
		local function rule(lenient) return { count = 1, period = 1000000, tolerance = 1e9, lenient = lenient, failed = "error test" } end
		from = clock.now()
		local deny = { take({ rule(true), rule(false) }, { key .. "a", key .. "b" }) }
		local took = (clock.now() - from) / 1000
		from = clock.now()
		local allow = { take({ rule(true) }, { key .. "a" }) }
		local again = (clock.now() - from) / 1000
		test:set(key, "done")
		held.resting_until = clock.now() + 1e9
		repeat until lock.acquire(held)
		lock.release(held)
		local rested = held.resting_until == 0
		return ("%%s %%s %%s %%s; %%s %%s; %%s"):format(tostring(deny[1]), tostring(deny[2]), tostring(deny[3]), took >= 450 and took < 4500 and "in time" or took,
			tostring(allow[1]), again < 400 and "at once" or again, tostring(rested))
	`, key))
	if want := "nil 2 another worker holds the lock in time; true at once; true"; got[1] != want {
		t.Errorf("while a worker held the lock: %q, want %q", got[1], want)
	}
}
