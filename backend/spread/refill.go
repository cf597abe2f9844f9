package spread

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Level is the stock and the demand of one segment.
type Level struct {
	Left    int64   // units that can be sold there
	Rate    float64 // purchases that got a unit per second, measured over about a second
	Waiting int64   // purchases that wait because the segment has no unit
	// Busy excludes the segment: it does not answer, is being rebuilt, or has an outgoing transfer.
	Busy bool
}

// Move is a decision to move units between two segments.
type Move struct {
	From, To int
	Units    int64 // at least 1
}

// Plan decides which units to move, so that no segment with demand is without units while others have some.
//
// A segment with units for less than horizon is refilled in pieces from the segments with the most units, until its
// units last for horizon. The segments that would run out first are refilled first. The size of a piece follows these
// rules:
//
//   - A piece makes the units of both segments last equally long, but has at most half of the units of the source
//     (rounded up).
//   - If more purchases wait at the segment than it has units, the piece has at least a unit for each purchase without
//     one, as far as that half suffices.
//   - Otherwise the piece leaves the source enough units for horizon. It is not moved if it lasts for less than half of
//     horizon.
//
// In one plan, a segment gives units in at most one move, and in none if it gets units. A segment without demand gets
// no units.
//
// Pieces follow guided self-scheduling (Polychronopoulos and Kuck, 1987): each is a share of what remains, so pieces
// are large while units abound and become single units at the end.
func Plan(levels []Level, horizon time.Duration) []Move {
	p := planner{levels: levels, horizon: horizon.Seconds(), used: make([]bool, len(levels))}
	var needy []int
	for i, l := range levels {
		if l.Busy {
			continue
		}
		if l.Left > 0 {
			p.sources = append(p.sources, i)
		}
		if p.demand(i) > 0 && float64(l.Left) < p.demand(i)*p.horizon {
			needy = append(needy, i)
		}
	}
	lasts := func(i int) float64 { return float64(levels[i].Left-levels[i].Waiting) / p.demand(i) }
	slices.SortStableFunc(needy, func(a, b int) int { return cmp.Compare(lasts(a), lasts(b)) })
	slices.SortStableFunc(p.sources, func(a, b int) int { return cmp.Compare(levels[b].Left, levels[a].Left) })
	for _, to := range needy {
		if !p.used[to] {
			p.refill(to)
		}
	}
	return p.moves
}

// planner is one run of Plan.
type planner struct {
	levels  []Level
	horizon float64 // seconds
	sources []int   // segments with units, richest first; those at the beginning may be used
	used    []bool  // takes part in a move
	moves   []Move
}

// demand returns the units per second that a segment needs.
func (p *planner) demand(i int) float64 {
	return p.levels[i].Rate + float64(p.levels[i].Waiting)/p.horizon
}

// refill plans the moves to one segment.
func (p *planner) refill(to int) {
	for len(p.sources) > 0 && p.used[p.sources[0]] {
		p.sources = p.sources[1:]
	}
	have := p.levels[to].Left
	for _, from := range p.sources {
		if float64(have) >= p.demand(to)*p.horizon {
			return
		}
		if from == to || p.used[from] {
			continue
		}
		units := p.piece(from, to, have)
		if units < 1 {
			return
		}
		p.used[from], p.used[to] = true, true
		p.moves = append(p.moves, Move{from, to, units})
		have += units
	}
}

// piece returns how many units to move to a segment that will have some already; 0 for none.
func (p *planner) piece(from, to int, have int64) int64 {
	source, half := float64(p.levels[from].Left), (p.levels[from].Left+1)/2
	equal := (source*p.demand(to) - float64(have)*p.demand(from)) / (p.demand(from) + p.demand(to))
	units := min(int64(math.Floor(equal)), half)
	if waiting := p.levels[to].Waiting - have; waiting > 0 {
		return max(units, min(waiting, half))
	}
	units = min(units, int64(math.Floor(source-p.demand(from)*p.horizon)))
	if float64(units) < p.demand(to)*p.horizon/2 {
		return 0
	}
	return units
}
