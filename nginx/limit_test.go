package nginx

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"
)

// The bucket of lua/edge/sluice/limit/gcra.lua against two others: nginx's limit_req written with exact fractions, and the limiter of the Go
// gateway. The same trace must get the same verdicts from all three, or the two edges are two policies.
func TestTheBucketAgreesWithLimitReqAndTheGatewaysLimiter(t *testing.T) {
	server := requireLua(t)
	rapid.Check(t, func(r *rapid.T) {
		count := rapid.Int64Range(1, 2000).Draw(r, "requests")
		unit := rapid.SampledFrom([]string{"s", "m", "h"}).Draw(r, "unit")
		burst := rapid.Int64Range(0, 30).Draw(r, "burst")
		period := map[string]int64{"s": 1e6, "m": 60e6, "h": 3600e6}[unit] // us
		// Gaps about as long as a request's share, so that every trace has both verdicts, and ties.
		share := max(period/count/1000, 1) // ms
		gaps := rapid.SliceOfN(rapid.OneOf(rapid.Just(int64(0)), rapid.Just(share), rapid.Int64Range(0, 3*share)), 1, 60).Draw(r, "gaps")

		limiter := rate.NewLimiter(rate.Limit(float64(count)/(float64(period)/1e6)), int(burst)+1)
		base := time.Unix(1_700_000_000, 0)
		var times, want strings.Builder
		now, excess, last, began := int64(0), int64(0), int64(0), false // us; excess in parts of 1/period of a request
		for _, gap := range gaps {
			now += gap * 1000
			e := int64(0)
			if began {
				e = max(0, excess-count*(now-last)+period)
			}
			allowed := e <= burst*period
			if allowed {
				excess, last, began = e, now, true
			}
			if theirs := limiter.AllowN(base.Add(time.Duration(now)*time.Microsecond), 1); theirs != allowed {
				r.Fatalf("at %d us of %v: limit_req says %v and x/time/rate %v", now, gaps, allowed, theirs)
			}
			fmt.Fprintf(&times, "%d,", now)
			want.WriteByte(map[bool]byte{true: '1', false: '0'}[allowed])
		}
		got, err := server.try(fmt.Sprintf(`
			local gcra = require "sluice.limit.gcra"
			local count, period = require("sluice.policy.rate").parse("%dr/%s")
			local rule = { count = count, period = period, tolerance = %d * period }
			local out, tat, frac = {}
			for _, us in ipairs { %s } do
				local now = 1e12 + us
				local allowed, backlog = gcra.decide(rule, now, tat, frac)
				if allowed then
					tat, frac = gcra.state(rule, now, backlog)
					assert(tat %% 1 == 0 and frac >= 0 and frac < count, "the state is not whole")
					local left, wait = gcra.remaining(rule, backlog)
					assert(left >= 0 and left <= %d and wait > 0, "remaining")
				else
					-- Whoever comes back when he was told is let through, and nobody is told to wait for longer than he must.
					local wait = math.ceil(gcra.wait(rule, backlog))
					assert(gcra.decide(rule, now + wait, tat, frac), "told to return too early")
					assert(not gcra.decide(rule, now + wait - 1, tat, frac), "told to return too late")
				end
				out[#out + 1] = allowed and 1 or 0
			end
			return table.concat(out)
		`, count, unit, burst, times.String(), burst))
		if err != nil {
			r.Fatal(err)
		}
		if got != want.String() {
			r.Fatalf("%dr/%s burst %d, gaps of %v ms:\n%s by the edge, want\n%s", count, unit, burst, gaps, got, want.String())
		}
	})
}

// What a request has taken from one bucket is given back when the next one has no room.
func TestAFullZoneLeavesNoHalfMadeDecision(t *testing.T) {
	server, stop := startLua(t, "32k")
	defer stop()
	got := server.run(t, `
		local req, zone = require "sluice.limit.rules", ngx.shared.sluice_buckets
		local function rule(lenient) return { count = 1, period = 1e6, tolerance = 1e9, lenient = lenient, failed = "error test" } end
		local function show(ok, i, err) return ("%s %s %s"):format(tostring(ok), tostring(i), tostring(err)) end
		local strict, out = rule(), {}
		assert(req.admit({ strict }, { "old" }, 1))
		local before, frac = zone:get("old")
		local n, ok = 0
		repeat
			n = n + 1
			ok = req.admit({ strict }, { "filler " .. n }, 1)
		until not ok
		out[1] = show(req.admit({ strict, strict }, { "old", "new" }, 2))
		local after, frac2 = zone:get("old")
		out[2] = before == after and frac == frac2 and "the old bucket is as it was" or "the old bucket has changed"
		zone:delete("filler 1") -- room for one
		out[3] = show(req.admit({ strict, strict }, { "first", "second" }, 2))
		out[4] = zone:get("first") == nil and "the first bucket is gone" or "the first bucket was kept"
		out[5] = show(req.admit({ rule(true), strict }, { "taken back", "no room" }, 2))
		assert(req.admit({ strict }, { "the last room" }, 1))
		out[6] = show(req.admit({ strict, rule(true) }, { "old", "new" }, 2)) .. " " .. tostring(req.backlog[2])
		return table.concat(out, "\n")
	`)
	want := `nil 2 no memory
the old bucket is as it was
nil 2 no memory
the first bucket is gone
nil 2 no memory
true nil nil false`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// One bucket that lives long must not keep the room of many that are over.
func TestExpiredBucketsMakeRoom(t *testing.T) {
	server, stop := startLua(t, "32k")
	defer stop()
	got := server.run(t, `
		local req, zone = require "sluice.limit.rules", ngx.shared.sluice_buckets
		local slow, fast = { count = 1, period = 3600e6, tolerance = 0, failed = "error test" }, { count = 1, period = 1, tolerance = 0, failed = "error test" }
		assert(req.admit({ slow }, { "long" }, 1))
		local n = 0
		while zone:safe_set("short " .. n, 1, 0.2) do n = n + 1 end
		ngx.sleep(0.3)
		return ("%s %s"):format(tostring(req.admit({ fast }, { "new" }, 1)), tostring(zone:get("long") ~= nil))
	`)
	if got != "true true" {
		t.Errorf("a new bucket was let in, and the long one kept: %s", got)
	}
}

func TestIdleBucketsExpire(t *testing.T) {
	got := requireLua(t).run(t, `
		local req = require "sluice.limit.rules"
		local rule = { count = 1, period = 60e6, tolerance = 60e6 * 9 }
		local key = "idle" .. ngx.now()
		for _ = 1, 3 do assert(req.admit({ rule }, { key }, 1)) end
		local ttl = ngx.shared.sluice_buckets:ttl(key)
		return ttl > 180 and ttl < 190 and "soon after it is empty" or ttl
	`)
	if got != "soon after it is empty" {
		t.Errorf("a bucket that needs 180 s to empty expires in: %s", got)
	}
}

// What the rewrite phase refuses by: nothing is lost where it overlooks a bucket, as the access phase asks again, but then a flood is dear.
func TestEachFullBucketRefusesEarly(t *testing.T) {
	server, stop := startLua(t, "1m")
	defer stop()
	got := server.run(t, `
		local ffi, rules, out = require "ffi", require "sluice.limit.rules", {}
		local list = {}
		for i = 1, 5 do
			list[i] = { count = 1, period = 3600e6, tolerance = 0, prefix = ("rule %d:"):format(i), failed = "error test", shadow = i == 5 }
			rules.prepare(list[i])
		end
		local function ask(from, to, key, n)
			local i, wait = rules.refuses(list, from, to, key, n)
			out[#out + 1] = i and wait > 3590e6 and wait <= 3600e6 and i or i and "too long" or "-"
		end
		local function fill(i, key) assert(rules.admit({ list[i] }, { list[i].prefix .. key }, 1)) end
		for i = 1, 5 do
			local key = ffi.new("unsigned char[6]", "k\0" .. i .. "zz")
			fill(i, ffi.string(key, 3))
			ask(1, 5, key, 3)                    -- whichever it is, but for the one that only watches
			ask(1, 5, ffi.string(key, 3), 3)
			ask(1, 5, key, 4)                    -- another key
			ask(i + 1, 5, key, 3)                -- those behind it
			ask(i, i, key, 3)
		end
		local longest, longer = ("x"):rep(255), ("x"):rep(256)
		fill(2, longest) fill(2, longer)
		ask(1, 5, longest, 255)
		ask(1, 5, longer, 256)                 -- is left to the access phase
		return table.concat(out, " ")
	`)
	if want := "1 1 - - 1 2 2 - - 2 3 3 - - 3 4 4 - - 4 - - - - - 2 -"; got != want {
		t.Errorf("the rules that refuse are\n%s, want\n%s", got, want)
	}
}
