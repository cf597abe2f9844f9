package nginx

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"sluice/internal/fleetlimit"
)

// fleetRecord drives a fleetlimit.Bucket as fleetlimit.Limiter does, and records the events for fleet_copy.lua.
type fleetRecord struct {
	random *rand.Rand
	rule   *fleetlimit.Rule
	bucket fleetlimit.Bucket
	line   string // the rule and the client, in lines to the socket

	interval, window float64 // us
	lanes            int
	now              float64   // us
	redis            float64   // the clock of Redis, less now
	next             []float64 // the first slot of each lane that is not leased
	leases           int
	polls            []fleetlimit.Demand // leases in the background that are in progress
	used             bool                // since the bucket was swept as an idle one
	spent            fleetlimit.Verdict

	events, results strings.Builder
	outcomes        map[string]int // by result of a lease, "return", or the outcome of a verdict and whether it polls
}

func newFleetRecord(seed uint64, count, period int64, burst int) *fleetRecord {
	interval := float64(period) / float64(count)
	lanes := min(max(burst/2, 1), 16)
	return &fleetRecord{random: rand.New(rand.NewPCG(seed, 1)), rule: fleetlimit.NewRule("twin", count, period, burst),
		line:     fmt.Sprintf("twin %d %d %d %x", count, period, burst, fmt.Sprintf("%x", "client")),
		interval: interval, window: float64(burst) * interval, lanes: lanes, next: make([]float64, lanes), now: 1e9,
		redis: 1.7e15, outcomes: map[string]int{}}
}

func (f *fleetRecord) event(what string) { fmt.Fprintf(&f.events, "%.0f %s\n", f.now, what) }

func (f *fleetRecord) result(format string, a ...any) { fmt.Fprintf(&f.results, format+"\n", a...) }

func (f *fleetRecord) begin(d fleetlimit.Demand) {
	f.result("lease %s %d %d", f.line, d.Lanes, d.Slots)
}

// lease ends a lease: it is granted, refused, late or failed. It returns whether Redis has answered.
func (f *fleetRecord) lease(d fleetlimit.Demand, what string) bool {
	f.leases++
	trip := math.Trunc(min(f.random.ExpFloat64()*0.2, 1.5) * f.window)
	if f.random.IntN(30) == 0 {
		f.bucket.Fail()
		f.outcomes[string(fleetlimit.Failed)]++
		f.event(what)
		return false
	}
	if f.random.IntN(500) == 0 {
		f.redis -= 60e6
		clear(f.next)
	}
	l := fleetlimit.Lease{Redis: f.now + f.redis, Starting: f.random.IntN(50) == 0}
	if f.random.IntN(3) > 0 {
		l.Further = math.Trunc(f.random.ExpFloat64() * f.window / 2)
	}
	answer := fmt.Sprintf("%.0f %.0f %t", l.Redis, l.Further, l.Starting)
	answer = strings.NewReplacer("true", "1", "false", "0").Replace(answer)
	until := math.Trunc(f.window * f.random.Float64())
	for _, lane := range f.random.Perm(f.lanes)[:f.random.IntN(min(d.Lanes, f.lanes)+1)] {
		round := math.Floor((f.now + f.redis + until) / f.interval / float64(f.lanes))
		f.next[lane] = max(f.next[lane], round*float64(f.lanes)+float64(lane))
		instant := math.Trunc(f.next[lane]*f.interval - f.redis)
		step := math.Trunc(f.interval * float64(f.lanes))
		s := fleetlimit.Segment{Opens: instant - math.Trunc(f.window), OpensStep: step + 1, Closes: instant - trip,
			ClosesStep: step - 1, N: 1 + f.random.IntN(d.Slots), Lane: lane, Next: f.next[lane], Stride: f.lanes,
			ID: fmt.Sprintf("id%d", f.leases)}
		f.next[lane] += float64(s.N * s.Stride)
		l.Segments = append(l.Segments, s)
		answer += fmt.Sprintf(" %.3f %.6f %.3f %.6f %d %d %.0f %d %s", s.Opens, s.OpensStep, s.Closes, s.ClosesStep, s.N,
			s.Lane, s.Next, s.Stride, s.ID)
	}
	f.outcomes[string(f.bucket.Apply(f.rule, l, f.now))]++
	f.event(what + " " + answer)
	return true
}

// poll ends the first lease in the background that is in progress.
func (f *fleetRecord) poll() {
	d := f.polls[0]
	f.polls = f.polls[1:]
	f.begin(d)
	f.lease(d, "poll")
}

// request is one request.
func (f *fleetRecord) request() {
	f.event("request")
	f.used = true
	f.bucket.Count(f.now)
	for range 10 {
		v := f.bucket.Take(f.rule, f.now)
		if v.Outcome == fleetlimit.NeedsLease || v.Poll {
			f.bucket.Begin(f.now)
		}
		f.outcomes[fmt.Sprintf("%d %t", v.Outcome, v.Poll)]++
		switch v.Outcome {
		case fleetlimit.NeedsLease:
			f.begin(v.Demand)
			f.now += float64(f.random.IntN(2000))
			if !f.lease(v.Demand, "lease") {
				f.result("unavailable")
				return
			}
		case fleetlimit.Wait:
			f.now += float64(f.random.IntN(2000))
			f.poll()
		case fleetlimit.Admitted:
			f.spent = v
			f.result("admit")
			return
		case fleetlimit.Unavailable:
			f.result("unavailable")
			return
		case fleetlimit.Refused:
			if v.Poll {
				f.polls = append(f.polls, v.Demand)
			}
			f.result("refuse %.40g", max(v.Wait, 1))
			return
		}
	}
	f.result("refuse 1000000")
}

// sweep returns the slots of the lanes in which a slot has opened before this time.
func (f *fleetRecord) sweep(what string, before float64) {
	f.event(what)
	if !f.used || reflect.ValueOf(f.bucket).FieldByName("leasingUntil").Float() > f.now || math.IsInf(before, -1) {
		return
	}
	f.used = !math.IsInf(before, 1)
	line := ""
	for _, s := range f.bucket.Return(f.now, before) {
		line += fmt.Sprintf(" %d %.0f %.0f %s", s.Lane, s.Next, s.Next+float64(s.N*s.Stride), s.ID)
	}
	if line != "" {
		f.result("return %s%s", f.line, line)
		f.outcomes["return"]++
	}
}

// state returns the fields of a value in their order, of a slice those of its elements.
func state(v reflect.Value) (fields []string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fields = append(fields, state(v.Field(i))...)
		}
	case reflect.Slice:
		for i := range v.Len() {
			fields = append(fields, state(v.Index(i))...)
		}
	case reflect.Float64:
		fields = append(fields, fmt.Sprintf("%.40g", v.Float()))
	case reflect.Bool:
		fields = append(fields, map[bool]string{true: "1", false: "0"}[v.Bool()])
	default:
		fields = append(fields, fmt.Sprint(v))
	}
	return fields
}

// run records events of a client that changes its rate, from a tenth to ten times that of the rule.
func (f *fleetRecord) run(events int) {
	rate, swept := 1/f.interval, 0.0
	for range events {
		if f.random.IntN(100) == 0 {
			rate = math.Pow(10, f.random.Float64()*2-1) / f.interval
		}
		f.now += math.Ceil(f.random.ExpFloat64() / rate)
		switch kind := f.random.IntN(200); {
		case kind == 0:
			f.now += math.Ceil(f.random.ExpFloat64() * 4e6)
			fallthrough
		case f.now-swept > 1e6:
			swept = f.now
			f.sweep("sweep", f.bucket.Unused(f.rule, f.now))
		case kind < 50 && len(f.polls) > 0:
			f.poll()
		case kind < 52 && !reflect.ValueOf(f.spent).IsZero():
			f.event("refund")
			f.bucket.Refund(f.spent)
			f.spent = fleetlimit.Verdict{}
		default:
			f.request()
		}
		f.result("%s", strings.Join(state(reflect.ValueOf(f.bucket)), " "))
	}
	f.sweep("exit", math.Inf(1))
	f.result("%s", strings.Join(state(reflect.ValueOf(f.bucket)), " "))
}

// The bucket of the Go edge and that of this edge make the same decisions, leases and returns, and have the same state
// after each event.
func TestFleetBucketDecidesAsThatOfTheGoEdge(t *testing.T) {
	server := requireLua(t)
	outcomes := map[string]int{}
	for seed := range uint64(60) {
		rule := [][3]int64{{1, 100_000, 50}, {1, 1000, 200}, {1, 50, 1000}, {3, 1_000_000, 1}, {1, 50, 200}}[seed%5]
		f := newFleetRecord(seed, rule[0], rule[1], int(rule[2]))
		f.run(2000)
		got := strings.Split(server.run(t, fmt.Sprintf(`return require("fleet_copy").replay(
			{ name = "twin", key = "ip", count = %d, period = %d, burst = %d }, %s)`,
			rule[0], rule[1], rule[2], "[[\n"+f.events.String()+"]]")), "\n")
		want := strings.Split(strings.TrimSpace(f.results.String()), "\n")
		for i := range want {
			if i >= len(got) || got[i] != want[i] {
				t.Fatalf("seed %d: result %d of %d differs:\n nginx %s\n    Go %s", seed, i, len(want),
					got[min(i, len(got)-1)], want[i])
			}
		}
		for outcome, n := range f.outcomes {
			outcomes[outcome] += n
		}
	}
	t.Log(outcomes)
	for _, outcome := range []string{"0 false", "1 false", "1 true", "2 false", "3 false", "4 false", "granted", "refused",
		"late", "error", "return"} {
		if outcomes[outcome] == 0 {
			t.Errorf("no event has the outcome %q", outcome)
		}
	}
}

// leaseTo defines a rule, and answer(n, first): a lease of n slots of one lane, of which the first is open.
const leaseTo = `
	local copy = require "fleet_copy"
	local rule = { name = "twin", key = "ip", count = 1, period = 1000, burst = 200 }
	local fleet, world
	local function answer(n, first)
		local now = world.now
		return ("%.0f %.0f 0 %.0f 1 %.0f 1 %d 0 %d 16 x"):format(1e15 + now, 1e6, now - 1000, now + 1e7, n, first)
	end
`

// An invalid answer counts as none: on_error decides. It leaves neither the lock nor an error.
func TestInvalidLeaseIsAnError(t *testing.T) {
	const valid = "1700000000000000 0 0 999990000 16016 1000100000 15984 2 0 100 16 x"
	answers := []string{"", " ", "ok", "1", "1 2", "1 2 x", "nan 2 0", "1 inf 0", "1 2 nan", valid + " 1",
		strings.Replace(valid, "999990000", "nan", 1), strings.Replace(valid, "1000100000", "nan", 1),
		strings.Replace(valid, "1000100000", "-inf", 1), strings.Replace(valid, "15984", "-1", 1),
		strings.Replace(valid, " 2 0", " 99999999999999999999 0", 1), strings.Replace(valid, " 2 0", " 1.5 0", 1),
		strings.Replace(valid, " 2 0", " nan 0", 1), strings.Replace(valid, " 2 0", " -2 0", 1),
		strings.Replace(valid, " 100 16", " nan 16", 1), strings.Replace(valid, " 16 x", " x 16", 1),
		strings.Replace(valid, " x", " "+strings.Repeat("x", 16), 1)}
	for i := range strings.Fields(valid) {
		if i != 3 {
			answers = append(answers, strings.Join(strings.Fields(valid)[:i], " "))
		}
	}
	var list strings.Builder
	for _, a := range append(answers, valid) {
		fmt.Fprintf(&list, "%q, ", a)
	}
	got := strings.Split(requireLua(t).run(t, leaseTo+`
		local out = {}
		for i, line in ipairs { `+list.String()+` } do
			fleet, world = copy.new { call = function() return line end }
			fleet.prepare(rule)
			world.now = 1e9
			local ok, decision = pcall(copy.decide, fleet, rule, "client")
			out[i] = (world.held and "locked, " or "") .. tostring(decision)
		end
		return table.concat(out, "\n")`), "\n")
	for i, answer := range answers {
		if got[i] != "unavailable" {
			t.Errorf("%q: %s", answer, got[i])
		}
	}
	if got[len(answers)] != "admit" {
		t.Errorf("a valid lease: %s", got[len(answers)])
	}
}

// A bucket is full when requests have returned their slots. A further lease keeps these.
func TestLeaseOfAFullFleetBucketKeepsItsSlots(t *testing.T) {
	got := requireLua(t).run(t, leaseTo+`
		local full, first = 48, 100
		fleet, world = copy.new { call = function() return answer(full, first) end }
		fleet.prepare(rule)
		world.now = 1e9
		local spent = {}
		for i = 1, full do
			local decision, slots = copy.decide(fleet, rule, "client")
			assert(decision == "admit", decision)
			spent[i] = slots
		end
		for _ = 1, 100 do
			copy.decide(fleet, rule, "client")
		end
		assert(#world.polls == 1, "no lease is in progress")
		for _, slots in ipairs(spent) do
			fleet.refund(slots)
		end
		first = 10000
		world.polls[1]()
		local numbers = {}
		for _ = 1, full do
			local decision, slots = copy.decide(fleet, rule, "client")
			numbers[#numbers + 1] = decision == "admit" and copy.slot(slots)
		end
		table.sort(numbers)
		return #numbers .. " from " .. numbers[1] .. " to " .. numbers[#numbers]`)
	if want := "48 from 100 to 852"; got != want {
		t.Errorf("slots %s, want %s", got, want)
	}
}

// Clients begin while slots of others are returned, and each return yields.
func TestSweepReturnsSlotsWhileClientsBegin(t *testing.T) {
	got := requireLua(t).run(t, leaseTo+`
		local returned, begun = 0, 0
		fleet, world = copy.new { call = function(line)
			if line:find("^lease") then
				return answer(2, 100)
			end
			returned = returned + 1
			for _ = 1, 20 do
				begun = begun + 1
				copy.decide(fleet, rule, "new" .. begun)
			end
			return "ok"
		end }
		fleet.prepare(rule)
		world.now = 1e9
		for i = 1, 50 do
			copy.decide(fleet, rule, "old" .. i)
		end
		world.now = world.now + 2e6
		world.sweep(false)
		return returned .. table.concat(world.log)`)
	if got != "50" {
		t.Errorf("returned the slots of %s clients, of 50", got)
	}
}

// A sweep of many clients pauses, so that requests do not wait for its end.
func TestSweepOfManyClientsPauses(t *testing.T) {
	got := requireLua(t).run(t, leaseTo+`
		local pauses, locked = 0, 0
		fleet, world = copy.new {
			call = function() return answer(1, 100) end,
			sleep = function(s)
				pauses, locked = pauses + (s == 0 and 1 or 0), locked + (world.held and 1 or 0)
			end,
		}
		fleet.prepare(rule)
		world.now = 1e9
		for i = 1, 1600 do
			copy.decide(fleet, rule, "client" .. i)
		end
		world.sweep(false)
		local running = pauses
		world.sweep(true)
		return running .. " " .. pauses - running .. " " .. locked`)
	if got != "3 0 0" {
		t.Errorf("pauses while it runs, while the worker exits, and with the lock: %s, want 3 0 0", got)
	}
}

// The memory of an idle client is soon free for others: after a flood of clients the dict would be full for minutes.
func TestIdleClientIsNotKept(t *testing.T) {
	got := requireLua(t).run(t, leaseTo+`
		fleet, world = copy.new { call = function(line) return line:find("^lease") and answer(1, 100) or "ok" end }
		fleet.prepare(rule)
		world.now = 1e9
		copy.decide(fleet, rule, "client")
		local key = next(world.values)
		world.now = world.now + 5e5
		world.sweep(false)
		local used = world.kept[key]
		world.now = world.now + 5e6
		world.sweep(false)
		return ("%.0f %.0f"):format(used / 1e6, world.kept[key] / 1e6)`)
	if want := "120 10"; got != want {
		t.Errorf("seconds that a client is kept while it is used, and after: %s, want %s", got, want)
	}
}

// If a request waits too long for a lease, on_error decides: the limit is not known to be reached.
func TestWaitForASlowLeaseIsNotARefusal(t *testing.T) {
	got := requireLua(t).run(t, leaseTo+`
		fleet, world = copy.new {
			call = function() return answer(1, 100) end,
			sleep = function(s) world.now = world.now + s * 1e6 end,
		}
		fleet.prepare(rule)
		world.now = 1e9
		copy.decide(fleet, rule, "client")
		world.now = world.now + 9e5
		for _ = 1, 80 do
			copy.decide(fleet, rule, "client")
		end
		assert(#world.polls == 1, "no lease is in progress")
		world.now = world.now + 1e5
		return (copy.decide(fleet, rule, "client"))`)
	if got != "unavailable" {
		t.Errorf("%s, want unavailable", got)
	}
}

// Leases are times of one clock in sluice and in nginx.
func TestClockOfLeasesIsThatOfSluice(t *testing.T) {
	before := fleetlimit.Now()
	text := plain.lua(t).run(t, `return ("%.0f"):format(require("sluice.clock").now())`)
	var lua float64
	if _, err := fmt.Sscan(text, &lua); err != nil {
		t.Fatal(err)
	}
	if after := fleetlimit.Now(); lua < math.Floor(before) || lua > after {
		t.Errorf("the time of nginx is %.0f, not between %.0f and %.0f", lua, before, after)
	}
}
