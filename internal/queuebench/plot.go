package queuebench

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

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
