package fleetlimit

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	lua "github.com/yuin/gopher-lua"

	redisscript "sluice/lua/redis"
)

// simServer runs the scripts of the limit like Redis, with a simulated clock.
type simServer struct {
	now   func() float64 // us on the clock of Redis
	run   int
	hash  map[string]map[string]string
	until map[string]float64 // when a key expires
	calls map[string]*lua.LFunction
	state *lua.LState
}

func newSimServer(t testing.TB, now func() float64, mutate func(source string) string) *simServer {
	s := &simServer{now: now, state: lua.NewState(), calls: map[string]*lua.LFunction{}}
	t.Cleanup(s.state.Close)
	s.restart(nil)
	table := s.state.NewTable()
	s.state.SetField(table, "call", s.state.NewFunction(s.call))
	s.state.SetGlobal("redis", table)
	for _, name := range []string{"limit_lease", "limit_return"} {
		f, err := s.state.LoadString(mutate(redisscript.Source(name)))
		if err != nil {
			t.Fatal(err)
		}
		s.calls[name] = f
	}
	return s
}

// copied returns the data of the server.
func (s *simServer) copied() map[string]map[string]string {
	c := map[string]map[string]string{}
	for k, h := range s.hash {
		c[k] = map[string]string{}
		for f, v := range h {
			c[k][f] = v
		}
	}
	return c
}

// restart starts the server with this data.
func (s *simServer) restart(data map[string]map[string]string) {
	s.run++
	s.hash, s.until = data, map[string]float64{}
	if data == nil {
		s.hash = map[string]map[string]string{}
	}
}

// trust makes a new server usable, as if it had started long ago.
func (s *simServer) trust(r *Rule) {
	s.hash[keys(r, "k")[1]] = map[string]string{"run": fmt.Sprintf("%040x", s.run), "since": "1"}
}

func (s *simServer) call(l *lua.LState) int {
	key := l.ToString(2)
	if at, ok := s.until[key]; ok && s.now() >= at {
		delete(s.hash, key)
		delete(s.until, key)
	}
	h, table := s.hash[key], l.NewTable()
	value := func(f string) lua.LValue {
		if v, ok := h[f]; ok {
			return lua.LString(v)
		}
		return lua.LFalse
	}
	switch l.ToString(1) {
	case "TIME":
		us := int64(s.now())
		table.Append(lua.LString(strconv.FormatInt(us/1e6, 10)))
		table.Append(lua.LString(strconv.FormatInt(us%1e6, 10)))
		l.Push(table)
	case "INFO":
		l.Push(lua.LString(fmt.Sprintf("# Server\r\nrun_id:%040x\r\n", s.run)))
	case "HGET":
		l.Push(value(l.ToString(3)))
	case "HMGET":
		for i := 3; i <= l.GetTop(); i++ {
			table.Append(value(l.ToString(i)))
		}
		l.Push(table)
	case "HGETALL":
		for f, v := range h {
			table.Append(lua.LString(f))
			table.Append(lua.LString(v))
		}
		l.Push(table)
	case "HSET":
		if h == nil {
			h = map[string]string{}
			s.hash[key] = h
		}
		for i := 3; i < l.GetTop(); i += 2 {
			h[l.ToString(i)] = l.ToString(i + 1)
		}
		l.Push(lua.LNumber(0))
	case "PEXPIRE":
		s.until[key] = s.now() + float64(l.ToNumber(3))*1000
		l.Push(lua.LNumber(1))
	default:
		l.RaiseError("no such command in the simulation: %s", l.ToString(1))
	}
	return 1
}

func (s *simServer) eval(name string, keys []string, args []any) []any {
	list := func(values ...string) *lua.LTable {
		t := s.state.NewTable()
		for _, v := range values {
			t.Append(lua.LString(v))
		}
		return t
	}
	var texts []string
	for _, a := range args {
		if f, ok := a.(float64); ok {
			texts = append(texts, strconv.FormatFloat(f, 'f', -1, 64))
		} else {
			texts = append(texts, fmt.Sprint(a))
		}
	}
	s.state.SetGlobal("KEYS", list(keys...))
	s.state.SetGlobal("ARGV", list(texts...))
	if err := s.state.CallByParam(lua.P{Fn: s.calls[name], NRet: 1, Protect: true}); err != nil {
		panic(err)
	}
	result := s.state.Get(-1)
	s.state.Pop(1)
	t, ok := result.(*lua.LTable)
	if !ok {
		return nil
	}
	var reply []any
	t.ForEach(func(_, v lua.LValue) {
		if n, ok := v.(lua.LNumber); ok {
			reply = append(reply, int64(n))
		} else {
			reply = append(reply, v.String())
		}
	})
	return reply
}

// simEdge is one edge of the simulation.
type simEdge struct {
	bucket Bucket
	rule   *Rule
	offset float64 // of its clock
	drift  float64
	life   int // incremented when the edge crashes: replies to an earlier life are lost
	weight float64
	trip   float64 // expected us of a lease

	waiting []func() // requests that wait for the end of a lease

	down float64 // until then, on the clock of the edge, Redis is not called
}

type simEvent struct {
	at float64
	do func()
}

type simEvents []simEvent

func (e simEvents) Len() int           { return len(e) }
func (e simEvents) Less(i, j int) bool { return e[i].at < e[j].at }
func (e simEvents) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *simEvents) Push(x any)        { *e = append(*e, x.(simEvent)) }
func (e *simEvents) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// sim is one fleet with one key. Time is us of real time; the clock of Redis differs from it by clock.
type sim struct {
	t       testing.TB
	random  *rand.Rand
	now     float64
	clock   float64
	events  simEvents
	server  *simServer
	away    bool // Redis cannot be reached
	edges   []*simEdge
	rate    float64 // per us
	burst   int
	rtt     float64 // us, mean
	lossy   float64 // probability that a message is lost
	refused float64 // share of the requests with a slot that another rule rejects
	steady  bool    // each round trip takes rtt; else it varies

	tat                        float64 // of the bucket that checks the bound, see admit
	decisions, admitted, trips int
	unknown                    int    // requests that on_error decides
	fatal                      string // how the bound was exceeded
}

func newSim(
	t testing.TB, seed uint64, count, period int64, burst, edges int, mutate func(source string) string,
) *sim {
	s := &sim{t: t, random: rand.New(rand.NewPCG(seed, 1)), rate: float64(count) / float64(period), burst: burst,
		clock: 1.7e15, rtt: 500}
	s.server = newSimServer(t, func() float64 { return s.now + s.clock }, mutate)
	for range edges {
		s.edges = append(s.edges, &simEdge{rule: NewRule("r", count, period, burst), offset: s.random.Float64() * 1e9,
			drift: (s.random.Float64()*2 - 1) * drift * 0.9, weight: 1})
	}
	return s
}

func (s *sim) after(us float64, do func()) { heap.Push(&s.events, simEvent{s.now + us, do}) }

func (s *sim) run(until float64) {
	for len(s.events) > 0 && s.events[0].at <= until && s.fatal == "" {
		e := heap.Pop(&s.events).(simEvent)
		s.now = e.at
		e.do()
	}
	s.now = until
}

// local returns the time on the clock of an edge.
func (s *sim) local(e *simEdge) float64 { return e.offset + s.now*(1+e.drift) }

// admit counts an admission and checks the bound with a leaky bucket of burst + 1.
func (s *sim) admit() {
	s.admitted++
	s.tat = max(s.tat, s.now) + 1/s.rate
	if over := (s.tat-s.now)*s.rate - float64(s.burst+1); over > 1e-6 {
		s.fatal = fmt.Sprintf("at %.0f us: %.6f requests above the bound", s.now, over)
	}
}

// request sends one request to an edge and calls then after the decision.
func (s *sim) request(e *simEdge, then func()) {
	s.decisions++
	e.bucket.Count(s.local(e))
	s.decide(e, 3, then)
}

func (s *sim) decide(e *simEdge, tries int, then func()) {
	now := s.local(e)
	v := e.bucket.Take(e.rule, now)
	again := func() { s.decide(e, tries-1, then) }
	switch v.Outcome {
	case NeedsLease:
		if now >= e.down && tries > 0 {
			s.lease(e, v.Demand, again)
			return
		}
	case Wait:
		if tries > 0 {
			e.waiting = append(e.waiting, again)
			return
		}
	case Admitted:
		if s.refused > 0 && s.random.Float64() < s.refused {
			life := e.life
			s.after(s.delay(), func() {
				if life == e.life {
					e.bucket.Refund(v)
				}
			})
		} else {
			s.admit()
		}
	case Unavailable:
		s.unknown++
	case Refused:
		if v.Poll && now >= e.down {
			s.lease(e, v.Demand, func() {})
		}
	}
	then()
}

func (s *sim) delay() float64 {
	if s.steady {
		return s.rtt / 2
	}
	return s.random.ExpFloat64() * s.rtt / 2
}

func (s *sim) lease(e *simEdge, d Demand, then func()) {
	s.trips++
	sent, life := s.local(e), e.life
	e.bucket.Begin(sent)
	done := false
	finish := func(f func()) {
		if !done && life == e.life {
			done = true
			f()
			waiting := e.waiting
			e.waiting = nil
			then()
			for _, again := range waiting {
				again()
			}
		}
	}
	s.after(float64(timeout.Microseconds()), func() {
		finish(func() { e.bucket.Fail(); e.down = s.local(e) + 100_000 })
	})
	if s.random.Float64() < s.lossy {
		return
	}
	s.after(s.delay(), func() {
		if s.away {
			return
		}
		id := strconv.Itoa(s.trips) + "/" + strconv.FormatUint(s.random.Uint64(), 36)
		reply := s.server.eval("limit_lease", keys(e.rule, "k"), arguments(e.rule, d, e.trip, id))
		if s.random.Float64() < s.lossy {
			return
		}
		s.after(s.delay(), func() {
			finish(func() {
				e.trip = expected(e.trip, s.local(e)-sent)
				numbers, err := redis.NewCmdResult(reply, nil).Float64Slice()
				if err != nil {
					s.t.Fatal(err)
				}
				l, err := parse(e.rule, numbers, id, sent, s.local(e))
				if err != nil {
					s.t.Fatal(err)
				}
				e.bucket.Apply(e.rule, l, s.local(e))
			})
		})
	})
}

// returnSlots returns the slots of an edge, possibly twice or late.
func (s *sim) returnSlots(e *simEdge, before float64) {
	segments := e.bucket.Return(s.local(e), before)
	if len(segments) == 0 {
		return
	}
	s.trips++
	args := returns(segments)
	for range 1 + s.random.IntN(2) {
		if s.random.Float64() < s.lossy {
			continue
		}
		s.after(s.delay(), func() {
			if !s.away {
				s.server.eval("limit_return", keys(e.rule, "k")[:1], args)
			}
		})
	}
}

// sweep returns the unneeded slots of edges, as edges do each second.
func (s *sim) sweep() {
	for _, e := range s.edges {
		s.returnSlots(e, e.bucket.Unused(e.rule, s.local(e)))
	}
	s.after(1e6, s.sweep)
}

// clients sends requests at a rate per us, distributed over the edges by weight.
func (s *sim) clients(rate float64) {
	s.after(s.random.ExpFloat64()/rate, func() {
		total := 0.0
		for _, e := range s.edges {
			total += e.weight
		}
		at := s.random.Float64() * total
		for _, e := range s.edges {
			if at -= e.weight; at < 0 {
				s.request(e, func() {})
				break
			}
		}
		s.clients(rate)
	})
}

// patient is a client that sends its next request to an edge a millisecond after the previous one was decided.
func (s *sim) patient(e *simEdge) {
	s.request(e, func() { s.after(1000, func() { s.patient(e) }) })
}

// TestNoInterleavingExceedsTheBound runs fleets with delays, lost and repeated messages, refunds, crashes, stops, an
// unreachable Redis, a Redis that restarts empty or with old data, drifting clocks, and a clock of Redis that is set
// back.
func TestNoInterleavingExceedsTheBound(t *testing.T) {
	spent, refused := 0, 0
	for seed := range seeds() {
		s := faulty(t, seed, float64(seed%3)/4, unchanged)
		if s.fatal != "" {
			t.Fatalf("seed %d: %s", seed, s.fatal)
		}
		spent += s.admitted
		refused += s.decisions - s.admitted
	}
	if spent == 0 || refused == 0 {
		t.Fatalf("%d requests admitted, %d not: the simulation decides nothing", spent, refused)
	}
	t.Logf("%d admitted, %d not", spent, refused)
}

// A clock of Redis that is set back by any amount stops leases for as long as a restart of Redis. This applies to all
// limits of its tag, also to those that are used later.
func TestLeasesContinueAfterTheClockWasSetBack(t *testing.T) {
	for _, back := range []float64{10e3, 1e6, 60e6, 24 * 3600e6} {
		s := newSim(t, 1, 100, 1e6, 50, 2, unchanged)
		s.after(0, s.sweep)
		s.clients(2 * s.rate)
		s.run(30e6)
		s.clock -= back
		r := s.edges[0].rule
		s.run(s.now + r.window + r.ahead + 1e6)
		before := s.admitted
		s.run(s.now + 10e6)
		if s.fatal != "" {
			t.Errorf("set back by %.0f us: %s", back, s.fatal)
		}
		if got, most := s.admitted-before, 10e6*s.rate; float64(got) < 0.8*most {
			t.Errorf("set back by %.0f us: %d requests admitted, of %.0f at most", back, got, most)
		}
	}
}

func unchanged(source string) string { return source }

func seeds() uint64 {
	if testing.Short() {
		return 40
	}
	return 200
}

// TestSimulationFindsFaultsOfTheScripts removes one safeguard of the scripts at a time and requires a violation.
func TestSimulationFindsFaultsOfTheScripts(t *testing.T) {
	const most = 12_000 // seeds
	for _, m := range []struct {
		name, from, to string
		first          uint64 // a seed that detects it, or a slightly smaller one
	}{
		{"a lease of slots that are leased", "math.max(next, first)", "first", 0},
		{"a server that restarted is trusted", "math.max(now + skip, since + window + ahead)", "(now + skip)", 0},
		{"a clock that was set back is not detected", "tonumber(start[3] or '') or 0", "0", 475},
		{"a restart with old data is not detected", "start[1] == run and ", "", 775},
		{
			"a return that is repeated",
			"ARGV[i + 2] .. ' ' .. ARGV[i + 3] then", "ARGV[i + 2] .. ' ' .. ARGV[i + 3] or true then", 1030,
		},
		{"the key expires before its slots", "math.max(last, l.next)", "l.next", 3430},
		{"a lease opens before the window", "l.next * interval - window > now", "false", 555},
	} {
		t.Run(m.name, func(t *testing.T) {
			changed := false
			mutate := func(source string) string {
				after := strings.ReplaceAll(source, m.from, m.to)
				changed = changed || after != source
				return after
			}
			for i := range uint64(most) {
				seed := (m.first + i) % most
				if s := faulty(t, seed, 0, mutate); s.fatal != "" {
					t.Logf("found by seed %d", seed)
					return
				} else if !changed {
					t.Fatal("the script has no such line")
				}
			}
			t.Error("no seed detects the removal")
		})
	}
}

func faulty(t testing.TB, seed uint64, refused float64, mutate func(source string) string) *sim {
	random := rand.New(rand.NewPCG(seed, 2))
	rates := [][2]int64{{1, 100_000}, {1, 1000}, {1, 50}, {3, 1_000_000}, {999, 1_000_000}, {1, 1_000_000}}
	rate := rates[random.IntN(len(rates))]
	burst := max(1, int(10_000*rate[0]/rate[1]), random.IntN(300))
	s := newSim(t, seed, rate[0], rate[1], burst, 1+random.IntN(6), mutate)
	s.rtt = math.Pow(10, 2+random.Float64()*3.3)
	s.lossy = random.Float64() * 0.1
	s.refused = refused
	span := min(3000/s.rate, 120e6)
	faults := 1 + random.IntN(10)
	for range faults {
		at := random.Float64() * span
		e := s.edges[random.IntN(len(s.edges))]
		weight := math.Pow(10, -3*random.Float64())
		length := random.Float64() * 3e6
		var old float64
		switch kind := random.IntN(8); kind {
		case 0:
			s.after(at, func() { e.bucket = Bucket{}; e.life++ })
		case 1:
			s.after(at, func() { s.returnSlots(e, math.Inf(1)); e.bucket = Bucket{}; e.life++ })
		case 2:
			s.after(at, func() { s.away = true })
			s.after(at+length, func() { s.away = false })
		case 3:
			s.after(at, func() { s.server.restart(nil) })
		case 4:
			old = max(0, at-length)
			var data map[string]map[string]string
			s.after(old, func() { data = s.server.copied() })
			s.after(at, func() { s.server.restart(data) })
		case 5:
			length *= []float64{1, 1, 10, 1000}[seed%4]
			s.after(at, func() { s.clock -= length })
		default:
			s.after(at, func() { e.weight = weight })
		}
	}
	s.after(0, s.sweep)
	s.clients(s.rate * (0.2 + 4*random.Float64()))
	s.run(span)
	return s
}
