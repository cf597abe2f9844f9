package queuebench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// figure is a line of the table and, with a value, a panel of the chart.
type figure struct {
	name  string
	text  func(Row) string
	value func(Row) float64 // nil: not in the chart
}

var figures = []figure{
	{"accepted/s", func(r Row) string { return count(r.Accepted) }, func(r Row) float64 { return r.Accepted }},
	{
		fmt.Sprintf("drained/s, %d takers", Takers),
		func(r Row) string { return count(r.Drained) }, func(r Row) float64 { return r.Drained },
	},
	{"drained/s, one taker", func(r Row) string { return count(r.Alone) }, nil},
	{"request to take, p50", func(r Row) string { return span(r.P50) }, nil},
	{"request to take, p99", func(r Row) string { return span(r.P99) }, func(r Row) float64 { return float64(r.P99) }},
	{"memory per waiting message", func(r Row) string { return size(r.Memory) }, func(r Row) float64 { return r.Memory }},
	{
		"Redis CPU per message",
		func(r Row) string { return either(r.CPU == 0, "none", span(r.CPU)) }, func(r Row) float64 { return float64(r.CPU) },
	},
	{
		"append-only file per message",
		func(r Row) string { return either(r.AOF < 0, "none", size(r.AOF)) }, func(r Row) float64 { return r.AOF },
	},
	{"worker killed: lost, delivered twice", func(r Row) string {
		return fmt.Sprintf("%d, %d of %d", r.Worker.Lost, r.Worker.Twice, r.Worker.Messages)
	}, nil},
	{"server killed (kill -9): lost", func(r Row) string {
		if r.Server == nil {
			return "not measured"
		}
		return fmt.Sprintf("%d of %d", r.Server.Lost, r.Server.Messages)
	}, nil},
	{"order, one taker", func(r Row) string { return either(r.InOrder, "FIFO", "not kept") }, nil},
	{
		fmt.Sprintf("overtaken, %d takers", Takers),
		func(r Row) string { return fmt.Sprintf("%.1f%%", 100*r.Overtaken) }, nil,
	},
	{"repeated take returns", func(r Row) string { return either(r.Replayed, "the same batch", "another batch") }, nil},
	{"entries left after acknowledgement", func(r Row) string { return fmt.Sprint(r.Kept) }, nil},
}

// Write prints rows as a table with one column per driver.
func Write(w io.Writer, rows []Row) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	defer t.Flush()
	head := figure{text: func(r Row) string { return r.Driver }}
	for _, f := range append([]figure{head}, figures...) {
		fmt.Fprint(t, f.name)
		for _, r := range rows {
			fmt.Fprint(t, "\t", f.text(r))
		}
		fmt.Fprintln(t)
	}
}

func either(yes bool, is, isNot string) string {
	if yes {
		return is
	}
	return isNot
}

func size(n float64) string { return fmt.Sprintf("%.0f bytes", n) }

func count(perSecond float64) string {
	if perSecond >= 10_000 {
		return fmt.Sprintf("%.0fk", perSecond/1000)
	}
	return fmt.Sprintf("%.0f", perSecond)
}

func span(d time.Duration) string {
	if d < time.Millisecond {
		return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond))
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// colours have enough contrast on white and on black.
var colours = []string{"#3b82f6", "#ea7617", "#22a05b"}

const (
	plotWidth, panelHeight, barHeight = 720, 92, 18
	barLeft, barWidth                 = 90, 500
)

// Draw writes the rows as an SVG bar chart. Each panel has its own scale.
func Draw(w io.Writer, rows []Row) error {
	panels := slices.DeleteFunc(slices.Clone(figures), func(f figure) bool { return f.value == nil })
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" `+
		`aria-label="The drivers of the order queue side by side">`+"\n", plotWidth, len(panels)*panelHeight)
	b.WriteString("<style>text { font: 12px 'Liberation Sans', Arial, sans-serif; fill: #57606a } .name { font-weight: " +
		"bold } @media (prefers-color-scheme: dark) { text { fill: #c9d1d9 } }</style>\n")
	for i, p := range panels {
		y, most := i*panelHeight+18, 0.0
		for _, r := range rows {
			most = max(most, p.value(r))
		}
		fmt.Fprintf(&b, `<text class="name" x="%d" y="%d">%s</text>`+"\n", barLeft, y, p.name)
		for j, r := range rows {
			top, long := y+8+j*(barHeight+3), 0.0
			if most > 0 {
				long = max(p.value(r), 0) / most * barWidth
			}
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, barLeft-8, top+13, r.Driver)
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, barLeft, top, long, barHeight,
				colours[j%len(colours)])
			fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", barLeft+long+6, top+13, p.text(r))
		}
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}
