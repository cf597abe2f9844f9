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
		local rules, test = require "sluice.limit.rules", require "take"
		local take, state = test.take, test.state
		local function rule(lenient) return { count = 1, period = 3600e6, tolerance = 1e13, lenient = lenient, failed = "error test" } end
		local function show(ok, i, err) return ("%s %s %s"):format(tostring(ok), tostring(i), tostring(err)) end
		local strict, other, out = rule(), rule(), {} -- of one prefix: they have the same buckets
		assert(take({ strict }, { "old" }))
		local places = test.places()
		for n = 1, 20 * places do -- until no set has room
			take({ strict }, { "filler " .. n })
		end
		out[1] = rules.live() == places and "full" or rules.live()
		local before, frac = state(strict, "old")
		out[2] = show(take({ strict, other }, { "old", "new" }))
		local after, frac2 = state(strict, "old")
		out[3] = before == after and frac == frac2 and "the old bucket is as it was" or "the old bucket has changed"
		test.empty(strict, "old") -- room for one, of a name that belongs there
		local function fits(key)
			local fitted = take({ strict }, { key })
			if fitted then test.empty(strict, key) end
			return fitted
		end
		local n, homeless = 0, 0
		repeat n = n + 1 until fits("first " .. n)
		repeat homeless = homeless + 1 until not fits("homeless " .. homeless)
		homeless = "homeless " .. homeless
		local ok, i, err = take({ strict, other }, { "first " .. n, homeless })
		out[4] = show(ok, i, err)
		local now = require("sluice.clock").now()
		out[5] = state(strict, "first " .. n) <= now and rules.live() == places - 1 and "the first bucket is empty" or "the first bucket was kept"
		out[6] = show(take({ rule(true), strict }, { "first " .. n, homeless }))
		assert(take({ strict }, { "first " .. n }))
		out[7] = show(take({ strict, rule(true) }, { "first " .. n, homeless })) .. " " .. tostring(rules.backlog[2])
		return table.concat(out, "\n")
	`)
	want := `full
nil 2 no memory
the old bucket is as it was
nil 2 no memory
the first bucket is empty
nil 2 no memory
true nil nil false`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Two new buckets of one request, whose names belong into the same sets, must not be made in one place, and a bucket that is over must not be taken for
// the one that has just been made there.
func TestEveryBucketHasAPlaceOfItsOwn(t *testing.T) {
	server, stop := startLua(t, "32k")
	defer stop()
	got := server.run(t, `
		local rules, test, clock = require "sluice.limit.rules", require "take", require "sluice.clock"
		local function rule(i) return { count = 1, period = 1000 * i, tolerance = 0, failed = "error test", prefix = i .. ":" } end
		local list, wrong, admitted, refused, full = { rule(1), rule(2), rule(3) }, 0, 0, 0, 0
		math.randomseed(1)
		local least, most = {}, {} -- by rule and key, between which instants its bucket has become empty, or will
		for n = 1, 60000 do
			local keys, free = {}, true
			for i = 1, 3 do
				keys[i] = "k" .. math.random(1, 60)
			end
			local before = clock.now()
			local ok, at, why = test.take(list, keys)
			local after = clock.now()
			if ok then
				admitted = admitted + 1
				for i = 1, 3 do
					local id = i .. keys[i]
					if (least[id] or 0) > after then wrong = wrong + 1 end
					least[id], most[id] = before + 1000 * i, after + 1000 * i
				end
			elseif ok == nil then
				full = full + 1
			else
				refused = refused + 1
				if (most[at .. keys[at]] or 0) < before then wrong = wrong + 1 end
			end
		end
		return ("%d wrong %s %s %d"):format(wrong, tostring(admitted > 1000), tostring(refused > 1000), full)
	`)
	if got != "0 wrong true true 0" {
		t.Errorf("%s, want 0 wrong, both verdicts, and room for all", got)
	}
}

// One bucket that lives long must not keep the room of many that are over, and must stay.
func TestBucketsThatAreOverMakeRoom(t *testing.T) {
	server, stop := startLua(t, "32k")
	defer stop()
	got := server.run(t, `
		local rules, test = require "sluice.limit.rules", require "take"
		local slow, fast = { count = 1, period = 3600e6, tolerance = 0, failed = "error test", prefix = "slow:" }, { count = 1, period = 1, tolerance = 0, failed = "error test" }
		assert(test.take({ slow }, { "long" }))
		local full = 0
		for n = 1, 50 * test.places() do
			if test.take({ fast }, { "short " .. n }) == nil then full = full + 1 end
		end
		return ("%d without room, %d live, %s"):format(full, rules.live(), tostring(test.take({ slow }, { "long" })))
	`)
	if got != "0 without room, 1 live, false" && got != "0 without room, 2 live, false" { // the last of the short ones lives for a microsecond
		t.Errorf("new buckets where others are over: %s", got)
	}
}

// What the rewrite phase refuses by: nothing is lost where it overlooks a bucket, as the access phase asks again, but then a flood is dear.
func TestEachFullBucketRefusesEarly(t *testing.T) {
	server, stop := startLua(t, "1m")
	defer stop()
	got := server.run(t, `
		local names, rules, out = require "sluice.limit.name", require "sluice.limit.rules", {}
		local list, whose = {}, names.new()
		for i = 1, 5 do
			list[i] = { count = 1, period = 3600e6, tolerance = 0, prefix = ("rule %d:"):format(i), failed = "error test", shadow = i == 5 }
			rules.prepare(list[i])
		end
		local function ask(from, to, key, n)
			names.address(whose, key, n)
			local i, wait = rules.refuses(list, from, to, whose)
			out[#out + 1] = i and wait > 3590e6 and wait <= 3600e6 and i or i and "too long" or "-"
		end
		local function fill(i, key, n)
			names.address(whose, key, n)
			rules.aim({ list[i] }, 1, 1, whose)
			assert(rules.admit({ list[i] }, 1))
		end
		for i = 1, 5 do
			local key = require("ffi").new("unsigned char[6]", "k\0" .. i .. "\0\0")
			fill(i, key, 3)
			ask(1, 5, key, 3)                    -- whichever it is, but for the one that only watches
			ask(1, 5, "k\0" .. i, 3)
			ask(1, 5, key, 4)                    -- another key, which differs by a zero byte
			ask(i + 1, 5, key, 3)                -- those behind it
			ask(i, i, key, 3)
		end
		return table.concat(out, " ")
	`)
	if want := "1 1 - - 1 2 2 - - 2 3 3 - - 3 4 4 - - 4 - - - - -"; got != want {
		t.Errorf("the rules that refuse are\n%s, want\n%s", got, want)
	}
}

// Full buckets that look alike to a worker's memory are remembered both; of three, the one that came first is not. A free place is nobody's bucket that
// refuses.
func TestFullBucketsOfOnePlace(t *testing.T) {
	got := requireLua(t).run(t, `
		local refused, out = require "sluice.limit.refused", {}
		local function name(n) return { [0] = n, -n, n, 7 } end
		local function look(h)
			for n = 1, 3 do
				local tat, frac = refused.recall(h, name(n))
				out[#out + 1] = ("%s/%s"):format(tat or "-", frac or "-")
			end
		end
		refused.forget()
		out[1] = refused.recall(5, { [0] = 0, 0, 0, 0 }) or "-"
		refused.remember(5, name(1), 1e15, 3)
		look(5)
		refused.remember(5 + 4096, name(2), 20, 0)
		refused.remember(5, name(2), 21, 1)
		look(5)
		refused.remember(-4096 + 5, name(3), 30, 0)
		look(5)
		look(6)
		refused.forget()
		look(5)
		return table.concat(out, " ")
	`)
	if want := "0 1e+15/3 -/- -/- 1e+15/3 21/1 -/- -/- 21/1 30/0 -/- -/- -/- -/- -/- -/-"; got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

// A bucket that has just been made holds nothing, whoever looks and whatever its maker still does: a worker would remember that it refuses. What it is
// made of may have had a part of a microsecond left, in another rule's parts.
func TestANewBucketHoldsNothingOfTheOldOne(t *testing.T) {
	got := requireLua(t).run(t, `
		local buckets, ffi, gcra, names = require "sluice.limit.buckets", require "ffi", require "sluice.limit.gcra", require "sluice.limit.name"
		local memory = ffi.new("char[?]", buckets.size(1))
		buckets.make(memory, 1, ("seed"):rep(4))
		local t, now, whose = buckets.open(memory), 1e12, names.new()
		local fine = { name = names.new(), tag = names.new() }   -- of a rule of 999,983 requests in a second
		local coarse = { name = names.new(), tag = names.new() } -- and of one in an hour
		names.buyer(fine.tag, "fine")
		names.buyer(coarse.tag, "coarse")
		local function place(bucket, key)
			names.buyer(whose, key)
			local h, g = buckets.hash(t, whose.words)
			buckets.aim(t, bucket, whose.words, h, g)
			return buckets.claim(t, bucket, now)
		end
		for n = 1, 1000 do -- until all have been used
			local at = place(fine, "fine " .. n)
			if at then buckets.write(t, at, now, 999982) end
		end
		now = now + 1
		local made, wrong = 0, 0
		for n = 1, 50 do
			local at = place(coarse, "coarse " .. n)
			local allowed, backlog = gcra.decide({ count = 1, period = 3600e6, tolerance = 0 }, now, buckets.read(t, at))
			made = made + 1
			if not allowed or backlog ~= 3600e6 then wrong = wrong + 1 end
		end
		return ("%d made, %d wrong"):format(made, wrong)
	`)
	if want := "50 made, 0 wrong"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
