package spread

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"sluice/backend/spread"
)

const (
	step     = 10 * time.Millisecond
	span     = 10 * time.Second       // in which the buyers arrive
	horizon  = 500 * time.Millisecond // of the policy
	interval = 50 * time.Millisecond  // between two plans while no purchase waits
	latency  = 30 * time.Millisecond  // from the step that sets units apart until they are on sale in the other segment
	maxWait  = 500 * time.Millisecond // the wait of a purchase after which a backend returns 503
	retry    = time.Second            // Retry-After of that 503
)

// crowd selects the home of each request.
type crowd struct {
	name string
	home func(rnd *rand.Rand, k int) func(buyer int) int
}

var crowds = []crowd{
	{"even", func(_ *rand.Rand, k int) func(int) int {
		return func(buyer int) int { return spread.Home(fmt.Sprintf("buyer-%d", buyer), k) }
	}},
	{"Zipf", func(rnd *rand.Rand, k int) func(int) int {
		sums := make([]float64, k) // of 1/rank, the weight of each segment
		sum := 0.0
		for i := range sums {
			sum += 1 / float64(i+1)
			sums[i] = sum
		}
		return func(int) int {
			x := rnd.Float64() * sum
			for i, upTo := range sums {
				if x < upTo {
					return i
				}
			}
			return k - 1
		}
	}},
	{"one segment", func(*rand.Rand, int) func(int) int { return func(int) int { return 0 } }},
}

// outcome is the result of a simulated sale.
type outcome struct {
	Unsold   int64 // at the end, although requests were refused
	Moves    int
	Moved    int64         // units, each counted once per move
	Waited   int           // purchases that waited because their segment was empty and units were left
	Longest  time.Duration // wait until a unit, or until sold out
	Refused  int           // 503 after maxWait
	Requests int
}

// pending is a purchase that waits in its segment. since is its first arrival.
type pending struct{ since, until int }

// rush is the state of one simulated sale.
type rush struct {
	left     []int64
	rate     []float64
	sold     []int64 // since the last plan
	waiting  [][]pending
	outgoing []int // step at which the transfer of a segment is settled
	arriving map[int][]spread.Move
	later    map[int][]arrival
	free     int64
	result   outcome
}

type arrival struct{ home, since int }

// run simulates a sale of stock units in k segments, with demand requests per unit. Without refill nothing moves, and
// an empty segment answers sold out.
func run(c crowd, k int, stock int64, demand float64, refill bool, seed uint64) outcome {
	rnd := rand.New(rand.NewPCG(seed, uint64(k)))
	home := c.home(rnd, k)
	s := &rush{
		left: spread.Divide(stock, k, 0), rate: make([]float64, k), sold: make([]int64, k), waiting: make([][]pending, k),
		outgoing: make([]int, k), arriving: map[int][]spread.Move{}, later: map[int][]arrival{}, free: stock,
	}
	steps := int(span / step)
	for i := range int(math.Round(float64(stock) * demand)) {
		at := rnd.IntN(steps)
		s.later[at] = append(s.later[at], arrival{home(i), at})
		s.result.Requests++
	}
	lastPlan := 0
	for now := 0; now < steps || s.pending(); now++ {
		for _, m := range s.arriving[now] {
			s.left[m.To] += m.Units
		}
		delete(s.arriving, now)
		waiting := s.serve(now)
		for _, a := range s.later[now] {
			s.arrive(a, now, refill)
		}
		delete(s.later, now)
		if every := int(interval / step); refill && (now-lastPlan >= every || waiting) {
			s.plan(now, now-lastPlan)
			lastPlan = now
		}
	}
	s.result.Unsold = s.free
	return s.result
}

func (s *rush) pending() bool {
	if len(s.later) > 0 {
		return true
	}
	for _, w := range s.waiting {
		if len(w) > 0 {
			return true
		}
	}
	return false
}

func (s *rush) sell(segment int) {
	s.left[segment]--
	s.sold[segment]++
	s.free--
}

// arrive decides a request in its home segment.
func (s *rush) arrive(a arrival, now int, refill bool) {
	switch {
	case s.left[a.home] > 0:
		s.sell(a.home)
		s.waitedFor(a.since, now)
	case s.free == 0:
		s.waitedFor(a.since, now)
	case refill:
		if a.since == now {
			s.result.Waited++
		}
		s.waiting[a.home] = append(s.waiting[a.home], pending{a.since, now + int(maxWait/step)})
	}
}

func (s *rush) waitedFor(since, now int) {
	s.result.Longest = max(s.result.Longest, time.Duration(now-since)*step)
}

// serve sells units to waiting purchases, oldest first, and refuses those that have waited too long. It reports whether
// purchases still wait.
func (s *rush) serve(now int) (waiting bool) {
	for segment, queue := range s.waiting {
		for len(queue) > 0 {
			first := queue[0]
			if s.left[segment] > 0 {
				s.sell(segment)
				s.waitedFor(first.since, now)
			} else if s.free == 0 {
				s.waitedFor(first.since, now)
			} else if now >= first.until {
				s.result.Refused++
				at := now + int(retry/step)
				s.later[at] = append(s.later[at], arrival{segment, first.since})
			} else {
				waiting = true
				break
			}
			queue = queue[1:]
		}
		s.waiting[segment] = queue
	}
	return waiting
}

// plan measures the rates over about a second, and starts the moves of the policy.
func (s *rush) plan(now, steps int) {
	elapsed := (time.Duration(max(steps, 1)) * step).Seconds()
	levels := make([]spread.Level, len(s.left))
	for i := range levels {
		weight := min(elapsed, 1)
		s.rate[i] += weight * (float64(s.sold[i])/elapsed - s.rate[i])
		s.sold[i] = 0
		levels[i] = spread.Level{
			Left: s.left[i], Rate: s.rate[i], Waiting: int64(len(s.waiting[i])), Busy: now < s.outgoing[i],
		}
	}
	at := now + int(latency/step)
	for _, m := range spread.Plan(levels, horizon) {
		s.left[m.From] -= m.Units
		s.outgoing[m.From] = at
		s.arriving[at] = append(s.arriving[at], m)
		s.result.Moves++
		s.result.Moved += m.Units
	}
}
