package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"text/tabwriter"
)

// contestant is one side of a comparison: run measures it once, in things per second.
type contestant struct {
	name string
	run  func(ctx context.Context) (perSecond float64, err error)
}

// ratio compares two contestants by name. A ratio without a target is for orientation.
type ratio struct {
	name, ours, baseline string
	target, goal         float64
}

// contest measures contestants in rounds: in every round each of them once, the order turned round from one to the
// next, so that neither a machine that slows down nor the place after a heavy neighbour favours one of them. A ratio
// is taken within a round; the median of the rounds is what counts.
type contest struct {
	name        string
	unit        string // of what a contestant does in a second
	contestants []contestant
	ratios      []ratio
	cost        func() float64 // of one thing in the last run, in microseconds of costOf; nil: not known
	costOf      string
}

// result is a ratio as measured.
type result struct {
	Name         string  `json:"name"`
	Unit         string  `json:"unit"`
	OursName     string  `json:"ours"`
	BaselineName string  `json:"baseline"`
	Ours         float64 `json:"ours_per_second"`     // median
	Baseline     float64 `json:"baseline_per_second"` // median
	Ratio        float64 `json:"ratio"`               // median of the rounds' ratios
	Lowest       float64 `json:"ratio_min"`
	Highest      float64 `json:"ratio_max"`
	Target       float64 `json:"target,omitempty"`
	Goal         float64 `json:"goal,omitempty"`
	Rounds       int     `json:"rounds"`
	MissedBy     float64 `json:"missed_by_percent,omitempty"`
	CostOf       string  `json:"cost_of,omitempty"`
	OursCost     float64 `json:"ours_cost_us,omitempty"`     // median, of one thing
	BaselineCost float64 `json:"baseline_cost_us,omitempty"` // median, of one thing
}

// only returns the contest reduced to the ratios with a matching name and the contestants that they compare.
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

// hold runs one round that does not count and then the given number that do.
func (c contest) hold(ctx context.Context, rounds int) ([]result, error) {
	measured, costs := map[string][]float64{}, map[string][]float64{}
	for round := range rounds + 1 {
		turn := slices.Clone(c.contestants)
		if round%2 == 1 {
			slices.Reverse(turn)
		}
		for _, who := range turn {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			perSecond, err := who.run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", who.name, err)
			}
			label, cost, spent := fmt.Sprintf("round %d", round), 0.0, ""
			if c.cost != nil {
				cost = c.cost()
				spent = fmt.Sprintf("  %.2f us of %s", cost, c.costOf)
			}
			if round == 0 {
				label = "warm-up"
			} else {
				measured[who.name] = append(measured[who.name], perSecond)
				costs[who.name] = append(costs[who.name], cost)
			}
			fmt.Fprintf(os.Stderr, "%-9s %-8s %-36s %12s %s/s%s\n", c.name, label, who.name, number(perSecond), c.unit, spent)
		}
	}
	var results []result
	for _, r := range c.ratios {
		res := r.of(c.unit, measured[r.ours], measured[r.baseline])
		res.CostOf, res.OursCost, res.BaselineCost = c.costOf, median(costs[r.ours]), median(costs[r.baseline])
		results = append(results, res)
	}
	return results, nil
}

// of computes the result; both sides have one measurement a round.
func (r ratio) of(unit string, ours, baseline []float64) result {
	each := make([]float64, len(ours))
	for i := range ours {
		each[i] = ours[i] / baseline[i]
	}
	res := result{
		Name:         r.name,
		Unit:         unit,
		OursName:     r.ours,
		BaselineName: r.baseline,
		Target:       r.target,
		Goal:         r.goal,
		Rounds:       len(each),
		Ours: median(
			ours,
		),
		Baseline: median(baseline),
		Ratio:    median(each),
		Lowest:   slices.Min(each),
		Highest:  slices.Max(each),
	}
	if res.Target > 0 && res.Ratio < res.Target {
		res.MissedBy = 100 * (1 - res.Ratio/res.Target)
	}
	return res
}

// verdict describes a result relative to its target.
func (r result) verdict() string {
	switch {
	case r.Target == 0:
		return "for orientation"
	case r.Ratio < r.Target:
		return fmt.Sprintf("missed by %.0f%%", max(1, 100*(1-r.Ratio/r.Target)))
	case r.Goal > 0 && r.Ratio >= r.Goal:
		return fmt.Sprintf("reached, and the goal of %g", r.Goal)
	case r.Goal > 0:
		return fmt.Sprintf("reached (goal %g)", r.Goal)
	}
	return "reached"
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
		target := "-"
		if r.Target > 0 {
			target = fmt.Sprintf(">= %g", r.Target)
		}
		cost := ""
		if r.CostOf != "" {
			cost = fmt.Sprintf("%s: %.2f us and %.2f us", r.CostOf, r.OursCost, r.BaselineCost)
		}
		fmt.Fprintf(t, "%s\t%s %s/s\t%s %s/s\t%.2f\t%.2f..%.2f\t%s\t%s\t%s\n",
			r.Name, number(r.Ours), r.Unit, number(r.Baseline), r.Unit, r.Ratio, r.Lowest, r.Highest, target, r.verdict(), cost)
	}
	t.Flush()
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// number writes n with commas between thousands.
func number(n float64) string {
	s := fmt.Sprintf("%.0f", n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
