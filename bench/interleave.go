package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"text/tabwriter"
)

// measurement measures one side of a comparison once, in units per second.
type measurement func(context.Context) (perSecond float64, err error)

// contestant is one side of a comparison.
type contestant struct {
	name string
	run  measurement
}

// ratio compares two contestants by name. A ratio without a target is for orientation.
type ratio struct {
	name, ours, baseline string
	target, goal         float64
}

// contest measures contestants in rounds. Every round measures each of them once, in the reverse order of the round
// before, so that neither a machine that slows down nor the load of a neighbour favours one of them. A ratio is taken
// within a round, and the result is the median of the rounds.
type contest struct {
	name        string
	unit        string // of the rate of a contestant, such as "orders"
	contestants []contestant
	ratios      []ratio
	cost        func() float64 // of one unit in the last run, in microseconds of costOf; nil: not known
	costOf      string
	waits       func() []float64 // ms that each unit of the last run took; nil: not measured
}

// result is a ratio as measured. Its slices have a value for each round.
type result struct {
	ratio

	unit                   string
	oursEach, baselineEach []float64 // units per second
	ratios                 []float64
	costOf                 string
	oursCost, baselineCost float64 // median, of one unit, in microseconds of costOf
	oursWait, baselineWait string  // p50 and p99 of one unit; empty: not measured
}

// only returns the contest with only the ratios whose names match, and the contestants that they compare.
func (c contest) only(match *regexp.Regexp) contest {
	if match == nil {
		return c
	}
	c.ratios = slices.DeleteFunc(slices.Clone(c.ratios), func(r ratio) bool { return !match.MatchString(r.name) })
	c.contestants = slices.DeleteFunc(slices.Clone(c.contestants), func(who contestant) bool {
		return !slices.ContainsFunc(c.ratios, func(r ratio) bool { return who.name == r.ours || who.name == r.baseline })
	})
	return c
}

// untargeted returns the contest without targets: for orientation.
func (c contest) untargeted() contest {
	c.ratios = slices.Clone(c.ratios)
	for i := range c.ratios {
		c.ratios[i].target, c.ratios[i].goal = 0, 0
	}
	return c
}

// interleave calls measure for each of n sides in each round, in the reverse order of the round before. Round 0 warms
// up and does not count.
func interleave(ctx context.Context, rounds, n int, measure func(round, side int) error) error {
	for round := range rounds + 1 {
		for side := range n {
			if round%2 == 1 {
				side = n - 1 - side
			}
			if err := errors.Join(ctx.Err(), measure(round, side)); err != nil {
				return err
			}
		}
	}
	return nil
}

// hold runs one round to warm up and then the given number of rounds.
func (c contest) hold(ctx context.Context, rounds int) ([]result, error) {
	measured, costs, waits := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	err := interleave(ctx, rounds, len(c.contestants), func(round, side int) error {
		who := c.contestants[side]
		perSecond, err := who.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", who.name, err)
		}
		cost, spent := 0.0, ""
		if c.cost != nil {
			cost = c.cost()
			spent = fmt.Sprintf("  %.2f us of %s", cost, c.costOf)
		}
		if round > 0 {
			measured[who.name] = append(measured[who.name], perSecond)
			costs[who.name] = append(costs[who.name], cost)
			if c.waits != nil {
				waits[who.name] = append(waits[who.name], c.waits()...)
			}
		}
		fmt.Fprintf(os.Stderr, "%-9s round %d  %-36s %12s %s/s%s\n",
			c.name, round, who.name, number(perSecond), c.unit, spent)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var results []result
	for _, r := range c.ratios {
		results = append(results, result{
			ratio: r, unit: c.unit, oursEach: measured[r.ours], baselineEach: measured[r.baseline],
			ratios: divided(measured[r.ours], measured[r.baseline]),
			costOf: c.costOf, oursCost: median(costs[r.ours]), baselineCost: median(costs[r.baseline]),
			oursWait: quantiles(waits[r.ours]), baselineWait: quantiles(waits[r.baseline]),
		})
	}
	return results, nil
}

// report holds the contest, and prints and returns its results.
func (c contest) report(ctx context.Context, rounds int) ([]result, error) {
	results, err := c.hold(ctx, rounds)
	if err == nil {
		printTable(os.Stdout, results)
	}
	return results, err
}

// latency is the waiting time of orders on one way, at a fixed rate of arrivals.
type latency struct {
	name     string
	rate     float64   // orders per second
	p50, p99 []float64 // ms, of each round
}

// latencies measures the sides in interleaved rounds. waits returns, for one side, the wait of each order in ms.
func latencies(
	ctx context.Context, what string, rounds int, sides []latency, waits func(side int) ([]float64, error),
) error {
	return interleave(ctx, rounds, len(sides), func(round, i int) error {
		side := &sides[i]
		all, err := waits(i)
		if err != nil {
			return fmt.Errorf("%s: %w", side.name, err)
		}
		p50, p99 := percentiles(all)
		fmt.Fprintf(os.Stderr, "%-9s round %d  %-36s p50 %8.2f ms  p99 %8.2f ms  at %s/s\n",
			what, round, side.name, p50, p99, number(side.rate))
		if round > 0 {
			side.p50, side.p99 = append(side.p50, p50), append(side.p99, p99)
		}
		return nil
	})
}

// divided returns the quotients of two sides' measurements, round by round.
func divided(ours, baseline []float64) []float64 {
	each := make([]float64, len(ours))
	for i := range ours {
		each[i] = ours[i] / baseline[i]
	}
	return each
}

// verdict describes a result relative to its target.
func (r result) verdict() string {
	switch got := median(r.ratios); {
	case r.target == 0:
		return "for orientation"
	case got < r.target:
		return fmt.Sprintf("missed by %.0f%%", max(1, 100*(1-got/r.target)))
	case r.goal > 0 && got >= r.goal:
		return fmt.Sprintf("reached, and the goal of %g", r.goal)
	case r.goal > 0:
		return fmt.Sprintf("reached (goal %g)", r.goal)
	}
	return "reached"
}

// values returns a value of each sample.
func values[S any](samples []S, of func(S) float64) []float64 {
	all := make([]float64, len(samples))
	for i, s := range samples {
		all[i] = of(s)
	}
	return all
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func printTable(w io.Writer, results []result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "name\tours\tbaseline\tratio\tspread\ttarget\t\tcost of one\t")
	for _, r := range results {
		target, cost := "-", ""
		if r.target > 0 {
			target = fmt.Sprintf(">= %g", r.target)
		}
		if r.costOf != "" {
			cost = fmt.Sprintf("%s: %.2f us and %.2f us", r.costOf, r.oursCost, r.baselineCost)
		}
		if r.oursWait != "" {
			cost = fmt.Sprintf("p50, p99: %s; baseline %s", r.oursWait, cmp.Or(r.baselineWait, "not measured"))
		}
		fmt.Fprintf(t, "%s\t%s %s/s\t%s %s/s\t%.2f\t%.2f..%.2f\t%s\t%s\t%s\n", r.name,
			number(median(r.oursEach)), r.unit, number(median(r.baselineEach)), r.unit,
			median(r.ratios), slices.Min(r.ratios), slices.Max(r.ratios), target, r.verdict(), cost)
	}
	t.Flush()
}

// middle returns the median, and the lowest and highest value, as text.
func middle(of []float64) string {
	if len(of) == 0 {
		return ""
	}
	return fmt.Sprintf("%.3g (%.3g..%.3g)", median(of), slices.Min(of), slices.Max(of))
}

// quantiles returns p50 and p99 of values in ms, in any order, as text; of no values the empty text.
func quantiles(of []float64) string {
	if len(of) == 0 {
		return ""
	}
	p50, p99 := percentiles(of)
	return fmt.Sprintf("%.2f ms, %.2f ms", p50, p99)
}

// percentiles sorts values, at least one, and returns p50 and p99.
func percentiles(of []float64) (p50, p99 float64) {
	slices.Sort(of)
	return of[len(of)/2], of[len(of)*99/100]
}

// number writes n with commas between thousands.
func number(n float64) string {
	s := fmt.Sprintf("%.0f", n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
