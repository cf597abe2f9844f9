package replay

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"sluice/internal/plural"
)

// WriteText writes the report as text.
func (r *Report) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s, %s", plural.Count(r.Lines, "line"), plural.Count(r.Requests, "request"))
	if r.From != nil {
		fmt.Fprintf(w, " from %s to %s (%v)", stamp(*r.From), stamp(*r.To), r.To.Sub(*r.From).Round(time.Second))
	}
	fmt.Fprintln(w)
	if r.Lines > 0 {
		r.writeResults(w)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "\nnote: %s\n", n)
	}
}

func (r *Report) writeResults(w io.Writer) {
	if r.NotEvaluated+r.Cached > 0 {
		fmt.Fprintf(w, "not evaluated: %d answered by the edge itself, %d refused from the cache\n", r.NotEvaluated, r.Cached)
	}
	fmt.Fprintf(w, "%s out of order, %d of them by more than the window\n", plural.Count(r.OutOfOrder, "line"), r.Late)
	fmt.Fprintf(w, "in the log: %d rejected, %d with an invalid token", r.RefusedBefore, r.Unauthorized)
	if r.Unavailable > 0 {
		fmt.Fprintf(w, ", %d answered 503 because a bucket could not be used", r.Unavailable)
	}
	fmt.Fprintln(w)
	if r.BadLines > 0 {
		fmt.Fprintf(w, "%s:\n", plural.Count(r.BadLines, "invalid line"))
		for _, b := range r.Bad {
			fmt.Fprintf(w, "  %s:%d: %s: %s\n", b.File, b.Line, b.Why, b.Text)
		}
	}
	r.writePolicy(w, &r.Policy)
	if r.Against != nil {
		r.writePolicy(w, r.Against)
		r.Difference.write(w, r.Policy.File, r.Against.File)
	}
}

func (r *Report) writePolicy(w io.Writer, s *PolicyReport) {
	fmt.Fprintf(w, "\n%s rejects %d of %s (%s)",
		s.File, s.Refused, plural.Count(r.Requests, "request"), percent(s.RefusedShare))
	if s.NoBucket > 0 {
		fmt.Fprintf(w, ", and has no bucket for %d", s.NoBucket)
	}
	fmt.Fprintln(w)
	table(w, func(row func(...any)) {
		row("  rule", "key", "mode", "covers", "passes", "rejects", "would reject", "delays", "longest", "no buyer",
			"no bucket")
		for _, c := range s.Rules {
			row("  "+c.Name, c.Key, c.Mode, c.Covered, c.Passed, c.Refused, c.ShadowRefused, c.Delayed,
				fmt.Sprintf("%.3gs", c.LongestDelay), c.NoBuyer, c.NoBucket)
		}
	})
	table(w, func(row func(...any)) {
		row("", "p50", "p90", "p99", "max")
		row("  requests/s", r.PerSecond.P50, r.PerSecond.P90, r.PerSecond.P99, r.PerSecond.Max)
		row("  rejected/s", s.RefusedPerSecond.P50, s.RefusedPerSecond.P90, s.RefusedPerSecond.P99, s.RefusedPerSecond.Max)
		for _, k := range []struct {
			name string
			KeyShares
		}{{"addresses", s.Addresses}, {"buyers", s.Buyers}} {
			if k.Keys > 0 {
				row(fmt.Sprintf("  rejected share of %d %s (%d affected)", k.Keys, k.name, k.Refused), percent(k.P50),
					percent(k.P90), percent(k.P99), percent(k.Max))
			}
		}
	})
	writeTop(w, "most rejected", s.Top)
}

func (d *Difference) write(w io.Writer, newName, oldName string) {
	fmt.Fprintf(w, "\n%s against %s\n", newName, oldName)
	table(w, func(row func(...any)) {
		row("  both pass", d.BothPass, "")
		row("  both reject", d.BothRefuse, "")
		row("  rejected only by "+newName, d.OnlyNew, byRule(d.OnlyNewRule))
		row("  rejected only by "+oldName, d.OnlyOld, byRule(d.OnlyOldRule))
	})
	writeTop(w, "rejected only by "+newName, d.OnlyNewTop)
	writeTop(w, "rejected only by "+oldName, d.OnlyOldTop)
}

func writeTop(w io.Writer, title string, top []TopKey) {
	if len(top) == 0 {
		return
	}
	table(w, func(row func(...any)) {
		row("  "+title, "rejected", "requests", "share", "rule")
		for _, k := range top {
			row("  "+k.Kind+" "+excerpt([]byte(k.Key)), k.Refused, k.Requests, percent(k.Share), k.Rule)
		}
	})
}

func table(w io.Writer, fill func(row func(...any))) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fill(func(cells ...any) {
		texts := make([]string, len(cells))
		for i, c := range cells {
			texts[i] = fmt.Sprint(c)
		}
		fmt.Fprintln(t, strings.Join(texts, "\t"))
	})
	t.Flush()
}

func byRule(counts map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}

func percent(share float64) string { return fmt.Sprintf("%.3g%%", share*100) }

func stamp(t time.Time) string { return t.Format("2006-01-02 15:04:05Z") }
