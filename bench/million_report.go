package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"sluice/internal/plot"
)

// tenth is the cost of one tenth of the orders of a sale.
type tenth struct {
	perSecond float64
	cpu       []float64 // µs per order, by costParts
}

func (t tenth) sum() float64 {
	total := 0.0
	for _, part := range t.cpu {
		total += part
	}
	return total
}

// tenthsOf divides a sale by its accepted orders. Values between two samples are interpolated. What the parts do after
// the last order was accepted, until all are rows, belongs to the last tenth.
func tenthsOf(samples []saleSample, settled saleSample) []tenth {
	first, last := samples[0], samples[len(samples)-1]
	each := (last.accepted - first.accepted) / tenthCount
	from := first
	tenths := make([]tenth, tenthCount)
	for i := range tenths {
		to := between(samples, sold, first.accepted+each*float64(i+1))
		tenths[i].perSecond = each / (to.at - from.at)
		end := to
		if i == tenthCount-1 {
			end = settled
		}
		for part := range first.cpu {
			tenths[i].cpu = append(tenths[i].cpu, (end.cpu[part]-from.cpu[part])/each)
		}
		from = to
	}
	return tenths
}

// between returns the state of a sale at the instant at which a value that never falls was reached, interpolated
// between two samples; or the last sample.
func between(samples []saleSample, value func(saleSample) float64, reached float64) saleSample {
	for i, s := range samples {
		if value(s) < reached || i == 0 {
			continue
		}
		before := samples[i-1]
		part := (reached - value(before)) / (value(s) - value(before))
		at := func(a, b float64) float64 { return a + part*(b-a) }
		r := saleSample{at: at(before.at, s.at), accepted: at(before.accepted, s.accepted)}
		for k := range s.cpu {
			r.cpu = append(r.cpu, at(before.cpu[k], s.cpu[k]))
		}
		return r
	}
	return samples[len(samples)-1]
}

// by is the time of a sample, and sold its accepted orders, for between.
func by(s saleSample) float64 { return s.at }

func sold(s saleSample) float64 { return s.accepted }

// growth returns the relative growth of values from the first to the last, on a straight line through all of them. The
// line is the one of Theil and Sen: its slope is the median of the slopes between all pairs, so that a few values far
// from the others hardly change it.
func growth(values []float64) float64 {
	var slopes, heights []float64
	for i, a := range values {
		for k := i + 1; k < len(values); k++ {
			slopes = append(slopes, (values[k]-a)/float64(k-i))
		}
	}
	slope := median(slopes)
	for i, v := range values {
		heights = append(heights, v-slope*float64(i))
	}
	start := median(heights)
	if start == 0 {
		return 0
	}
	return slope * float64(len(values)-1) / start
}

// print writes the report as Markdown.
func (m *bigSale) print(w io.Writer) {
	n := float64(m.units)
	last := m.samples[len(m.samples)-1]
	fmt.Fprintf(w, "%s units sold to as many buyers in %.1f s: %s orders/s; answers p50 %.1f ms, p99 %.1f ms; "+
		"%d connections; all orders were rows %.1f s after the last was accepted.\n\n", number(n), last.at,
		number(n/last.at), m.load.p50.Seconds()*1e3, m.load.p99.Seconds()*1e3, m.wrk.connections, m.settled.at-last.at)
	tenths := tenthsOf(m.samples, m.settled)
	fmt.Fprintf(w, "| tenth | accepted/s | %s | sum |\n|%s\n", strings.Join(costParts, " | "),
		strings.Repeat(" --- |", len(costParts)+3))
	row := func(name, rate string, cells []string) {
		fmt.Fprintf(w, "| %s | %s | %s |\n", name, rate, strings.Join(cells, " | "))
	}
	for i, t := range tenths {
		var cells []string
		for _, part := range append(t.cpu[:len(t.cpu):len(t.cpu)], t.sum()) {
			cells = append(cells, fmt.Sprintf("%.1f", part))
		}
		row(strconv.Itoa(i+1), number(t.perSecond), cells)
	}
	grows := func(of func(tenth) float64) float64 { return growth(values(tenths, of)) }
	var cells []string
	for part := range costParts {
		cells = append(cells, fmt.Sprintf("%+.0f%%", 100*grows(func(t tenth) float64 { return t.cpu[part] })))
	}
	total := grows(tenth.sum)
	row("growth", fmt.Sprintf("%+.0f%%", 100*grows(func(t tenth) float64 { return t.perSecond })),
		append(cells, fmt.Sprintf("**%+.1f%%**", 100*total)))
	verdict := "reached"
	if total > growthGoal {
		verdict = "missed"
	}
	fmt.Fprintf(w, "\nProcessor time is in µs per order. Goal: it grows by at most %.0f%% from the first tenth to the "+
		"last, on a straight line through the tenths: %s.\n\n", 100*growthGoal, verdict)

	row3 := func(name string, bytes float64) { fmt.Fprintf(w, "| %s | %.0f |\n", name, bytes) }
	stored := (m.settled.memory - m.samples[0].memory) / n
	grown := func(name string, of func(tableSize) float64) float64 {
		return (of(m.after[name]) - of(m.before[name])) / n
	}
	table, indexes := func(t tableSize) float64 { return t.table }, func(t tableSize) float64 { return t.indexes }
	fmt.Fprint(w, "| per order | bytes |\n| --- | --- |\n")
	row3("Redis, while it waits", stored+m.entry)
	row3("Redis, when it is a row", stored)
	row3("PostgreSQL, table `orders`", grown("orders", table))
	row3("PostgreSQL, indexes of `orders`", grown("orders", indexes))
	row3("PostgreSQL, `outbox` with indexes", grown("outbox", table)+grown("outbox", indexes))
	row3("PostgreSQL, log (WAL)", m.wal/n)
	fmt.Fprintf(w, "\nRedis rewrote its log %.0f times.\n\n", m.rewrites)

	fmt.Fprint(w, "| table | rows | dead rows | autovacuum runs | autoanalyze runs |\n| --- | --- | --- | --- | --- |\n")
	for _, name := range saleTables {
		t := m.after[name]
		fmt.Fprintf(w, "| `%s` | %s | %s | %d | %d |\n", name, number(float64(t.live)), number(float64(t.dead)),
			t.vacuums, t.analyzings)
	}
}

// style are the colors of a file. They have enough contrast on white and on black.
const style = `<style>text{font:11px 'Liberation Sans',Arial,sans-serif;fill:#57606a}` +
	`.grid{stroke:#8b949e;stroke-width:.3}` +
	`.line{fill:none;stroke:#3b82f6;stroke-width:1.5;stroke-linejoin:round}` +
	`@media (prefers-color-scheme:dark){text{fill:#c9d1d9}}</style>`

// drawSale draws accepted orders per second over the time of a sale as an SVG file.
func drawSale(samples []saleSample) string {
	last := samples[len(samples)-1]
	line := plot.Series{Name: "accepted", Class: "accepted"}
	step := min(1, last.at/20) // seconds
	for from := samples[0]; ; {
		to := between(samples, by, from.at+step)
		if to.at <= from.at {
			break
		}
		line.X = append(line.X, (from.at+to.at)/2)
		line.Y = append(line.Y, (to.accepted-from.accepted)/(to.at-from.at))
		from = to
	}
	drawn := plot.Plot{
		Label:  fmt.Sprintf("Accepted orders per second in a sale of %s units", number(last.accepted)),
		Series: []plot.Series{line},
	}.SVG()
	head, body, _ := strings.Cut(drawn, ">")
	return strings.Replace(head, "<svg", `<svg xmlns="http://www.w3.org/2000/svg" width="860" height="240"`, 1) + ">" +
		style + body + "\n"
}
