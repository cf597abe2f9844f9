package nginx

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"
)

// The same trace gets the same verdicts from gcra.lua, from nginx's limit_req written with exact fractions, and from
// golang.org/x/time/rate.
func TestGCRAAgreesWithLimitReqAndTimeRate(t *testing.T) {
	server := requireLua(t)
	rapid.Check(t, func(r *rapid.T) {
		count := rapid.Int64Range(1, 2000).Draw(r, "requests")
		unit := rapid.SampledFrom([]string{"s", "m", "h"}).Draw(r, "unit")
		burst := rapid.Int64Range(0, 30).Draw(r, "burst")
		period := map[string]int64{"s": 1e6, "m": 60e6, "h": 3600e6}[unit] // us
		// Gaps about as long as a request's share, so that every trace has both verdicts, and ties.
		share := max(period/count/1000, 1) // ms
		gaps := rapid.SliceOfN(rapid.OneOf(rapid.Just(int64(0)), rapid.Just(share), rapid.Int64Range(0, 3*share)), 1, 60).
			Draw(r, "gaps")

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
				r.Fatalf("at %d us of %v: limit_req returns %v and x/time/rate %v", now, gaps, allowed, theirs)
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
					-- A request after the wait is admitted, and one a microsecond earlier is not.
					local wait = math.ceil(gcra.wait(rule, backlog))
					assert(gcra.decide(rule, now + wait, tat, frac), "the wait is too short")
					assert(not gcra.decide(rule, now + wait - 1, tat, frac), "the wait is too long")
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

// When there is no room for the bucket of one rule, the buckets of the other rules of the request do not change.
func TestFullZoneLeavesNoPartialDecision(t *testing.T) {
	variants(t, func(t *testing.T, f *variant) {
		server, stop := f.startLua(t, "32k")
		defer stop()
		got := server.run(t, `
			local take, out = require("take").take, {}
			local function rule(prefix, lenient)
				return { count = 1, period = 3600e6, tolerance = 9 * 3600e6, prefix = prefix, lenient = lenient, failed = "error test" }
			end
			local strict, other, lenient = rule("strict:"), rule("other:"), rule("lenient:", true)
			local function left(key) -- how many requests the bucket of the strict rule still takes
				local n = 0
				while take({ strict }, { key }) do n = n + 1 end
				return n
			end
			assert(take({ strict }, { "old" }))
			assert(take({ strict }, { "older" }))
			local failures, n = 0, 0
			repeat
				n = n + 1
				failures = take({ strict }, { "filler " .. n }) and 0 or failures + 1
			until failures > 400
			for i = 1, 50 do
				local ok, at, err = take({ strict, other }, { "old", "new " .. i })
				out[1] = ("%s %s %s"):format(tostring(ok), tostring(at), tostring(err))
			end
			out[2] = left("old")
			local ok = take({ strict, lenient }, { "older", "new" })
			out[3] = tostring(ok) .. " " .. tostring(require("sluice.limit.rules").backlog[2])
			out[4] = left("older")
			return table.concat(out, "; ")
		`)
		if want := "nil 2 no memory; 9; true false; 8"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// The buckets of several rules and clients do not influence each other.
func TestBucketsOfOneRequestAreIndependent(t *testing.T) {
	variants(t, func(t *testing.T, f *variant) {
		// There is room for all 180 buckets, wherever the random seed of the table places them.
		server, stop := f.startLua(t, "128k")
		defer stop()
		got := server.run(t, `
			local rules, test, clock = require "sluice.limit.rules", require "take", require "sluice.clock"
			local function rule(i) return { count = 1, period = 1000 * i, tolerance = 0, failed = "error test", prefix = i .. ":" } end
			local list, wrong, admitted, refused, full = { rule(1), rule(2), rule(3) }, 0, 0, 0, 0
			math.randomseed(1)
			local least, most = {}, {} -- by rule and key, between which instants its bucket has become empty, or will
			local from = clock.now()
			local function enough() -- half a second, or longer on a slow machine
				local past = clock.now() - from
				return past > 30e6 or past > 500000 and admitted > 1000 and refused > 1000
			end
			while not enough() do
				local keys = {}
				for i = 1, 3 do
					keys[i] = "k" .. math.random(1, 60)
				end
				local before = clock.now()
				local ok, at = test.take(list, keys)
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
	})
}

// The rewrite phase refuses with this function. When it overlooks a full bucket, the access phase refuses, which is
// expensive in a flood.
func TestEachFullBucketRefusesEarly(t *testing.T) {
	variants(t, func(t *testing.T, f *variant) {
		got := f.lua(t).run(t, `
			local rules, out = require "sluice.limit.rules", {}
			local list, begun = {}, require("sluice.clock").now() -- an earlier run has filled buckets of other keys
			for i = 1, 5 do
				list[i] = { count = 1, period = 3600e6, tolerance = 0, prefix = ("rule %d:"):format(i), failed = "error test", shadow = i == 5 }
				rules.prepare(list[i])
			end
			local function ask(from, to, key)
				local i, wait = rules.refuses(list, from, to, key)
				out[#out + 1] = i and wait > 3590e6 and wait <= 3600e6 and i or i and "too long" or "-"
			end
			local function fill(i, key)
				rules.aim({ list[i] }, 1, 1, key)
				assert(rules.admit({ list[i] }, 1))
			end
			for i = 1, 5 do
				local key = ("k %d\0%d"):format(begun, i)
				fill(i, key)
				ask(1, 5, key)            -- a shadow rule does not refuse
				ask(1, 5, key .. "\0")    -- another key
				ask(i + 1, 5, key)        -- the rules behind it
				ask(i, i, key)
			end
			return table.concat(out, " ")
		`)
		if want := "1 - - 1 2 - - 2 3 - - 3 4 - - 4 - - - -"; got != want {
			t.Errorf("the rules that refuse are\n%s, want\n%s", got, want)
		}
	})
}
