package queuebench

import (
	"fmt"
	"io"
	"strings"
)

// panel is one group of bars.
type panel struct {
	name  string
	value func(Row) float64
	text  func(Row) string
}

var panels = []panel{
	{"accepted per second", func(r Row) float64 { return r.Accepted }, func(r Row) string { return count(r.Accepted) }},
	{
		"drained per second, 4 takers",
		func(r Row) float64 { return r.Drained },
		func(r Row) string { return count(r.Drained) },
	},
	{"request to take, p99", func(r Row) float64 { return float64(r.P99) }, func(r Row) string { return span(r.P99) }},
	{
		"bytes per waiting message",
		func(r Row) float64 { return r.Memory },
		func(r Row) string { return fmt.Sprintf("%.0f", r.Memory) },
	},
	{"Redis CPU per message", func(r Row) float64 { return float64(r.CPU) }, func(r Row) string { return span(r.CPU) }},
	{
		"append-only file, bytes per message",
		func(r Row) float64 { return max(r.AOF, 0) },
		func(r Row) string { return fmt.Sprintf("%.0f", max(r.AOF, 0)) },
	},
}

// colours have enough contrast on white and on black.
var colours = []string{"#3b82f6", "#ea7617", "#22a05b"}

const (
	plotWidth, panelHeight, barHeight = 720, 92, 18
	barLeft, barWidth                 = 90, 500
)

// Draw writes the rows as an SVG bar chart. Each panel has its own scale.
func Draw(w io.Writer, rows []Row) error {
	var b strings.Builder
	fmt.Fprintf(
		&b,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="The drivers of the order queue side by side">`+"\n",
		plotWidth,
		len(panels)*panelHeight,
	)
	b.WriteString(
		"<style>text { font: 12px 'Liberation Sans', Arial, sans-serif; fill: #57606a } .name { font-weight: bold } " +
			"@media (prefers-color-scheme: dark) { text { fill: #c9d1d9 } }</style>\n",
	)
	for i, p := range panels {
		y, most := i*panelHeight+18, 0.0
		for _, r := range rows {
			most = max(most, p.value(r))
		}
		fmt.Fprintf(&b, `<text class="name" x="%d" y="%d">%s</text>`+"\n", barLeft, y, p.name)
		for j, r := range rows {
			top, long := y+8+j*(barHeight+3), 0.0
			if most > 0 {
				long = p.value(r) / most * barWidth
			}
			text := p.text(r)
			if p.value(r) == 0 {
				text = "none"
			}
			fmt.Fprintf(
				&b,
				`<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/><text x="%.1f" y="%d">%s</text>`+"\n",
				barLeft-8,
				top+13,
				r.Driver,
				barLeft,
				top,
				long,
				barHeight,
				colours[j%len(colours)],
				barLeft+long+6,
				top+13,
				text,
			)
		}
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}
