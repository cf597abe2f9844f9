// Package plot draws lines and stacked areas over time as SVG.
package plot

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The size of a plot in SVG units.
const (
	width, height     = 860.0, 240.0
	left, top, bottom = 56.0, 12.0, 28.0
	digit             = 7.0 // width of a digit in the widest font

	gridLines = 20 // at most, on each axis
)

// Mark is a vertical line in a plot.
type Mark struct {
	At   float64 // seconds
	Name string
}

// Series is a line of a plot, or a layer of a stacked plot. X, in seconds, and Y have the same length.
type Series struct {
	Name, Class string // the class selects the color
	X, Y        []float64
}

// Plot is a diagram over time in seconds. The zero value has no lines.
type Plot struct {
	Label   string // for screen readers
	Unit    string // of the vertical axis
	Stacked bool
	Series  []Series
	Marks   []Mark
}

func (p Plot) bounds() (from, to, most float64) {
	from, to = math.Inf(1), math.Inf(-1)
	sums := map[float64]float64{}
	for _, s := range p.Series {
		for i, x := range s.X {
			from, to = min(from, x), max(to, x)
			if p.Stacked {
				sums[x] += s.Y[i]
				most = max(most, sums[x])
			} else {
				most = max(most, s.Y[i])
			}
		}
	}
	if to <= from {
		if math.IsInf(from, 0) {
			from = 0
		}
		to = from + 1
	}
	return from, to, max(most, 1e-9)
}

// step returns a round distance between about n grid lines.
func step(span float64, n int) float64 {
	raw := span / float64(n)
	unit := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if raw <= m*unit {
			return m * unit
		}
	}
	return 10 * unit
}

// SVG returns the plot as SVG for an HTML page. The page's style sheet has colors for the classes grid, mark and
// marked, and for line or layer with the class of each series. All texts are escaped.
func (p Plot) SVG() string {
	from, to, most := p.bounds()
	grid := step(most, 4)
	most = math.Ceil(most/grid) * grid
	x := func(v float64) float64 { return left + (v-from)/(to-from)*(width-left-8) }
	y := func(v float64) float64 { return height - bottom - v/most*(height-top-bottom) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, width, height, html.EscapeString(p.Label))
	for i := range gridLines { // bounded, because adding a small step to a large number may have no effect
		v := float64(i) * grid
		if v > most*1.0001 {
			break
		}
		fmt.Fprintf(&b,
			`<path class="grid" d="M%.1f %.1fH%.1f"/><text x="%.1f" y="%.1f" text-anchor="end">%s</text>`,
			left, y(v), width-8, left-6, y(v)+4, number(v)+p.Unit)
	}
	every := step(to-from, 8)
	for i := range gridLines {
		v := (math.Ceil(from/every) + float64(i)) * every
		if v > to {
			break
		}
		label := number(v) + " s"
		anchor, at := "middle", x(v)
		if at+float64(len(label))*digit/2 > width {
			anchor, at = "end", width
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, at, height-8, anchor, label)
	}
	below := map[float64]float64{}
	for _, s := range p.Series {
		if p.Stacked {
			b.WriteString(s.layer(below, x, y))
		} else {
			b.WriteString(s.line(x, y))
		}
	}
	for i, m := range p.Marks {
		if m.At < from || m.At > to {
			continue
		}
		anchor, at := "start", x(m.At)+4
		if x(m.At) > width*3/4 {
			anchor, at = "end", x(m.At)-4
		}
		fmt.Fprintf(&b, `<path class="mark" d="M%.1f %.1fV%.1f"/><text class="marked" x="%.1f" y="%.1f" `+
			`text-anchor="%s">%s</text>`,
			x(m.At), top, height-bottom, at, top+12+14*float64(i%4), anchor, html.EscapeString(m.Name))
	}
	b.WriteString("</svg>")
	return b.String()
}

func (s Series) line(x, y func(float64) float64) string {
	if len(s.X) == 0 {
		return ""
	}
	var d strings.Builder
	for i := range s.X {
		fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(i, 1)], x(s.X[i]), y(s.Y[i]))
	}
	return fmt.Sprintf(`<path class="line %s" d="%s"/>`, s.Class, d.String())
}

// layer returns an area on top of the lower layers.
func (s Series) layer(below map[float64]float64, x, y func(float64) float64) string {
	if len(s.X) == 0 {
		return ""
	}
	var up, down strings.Builder
	for i, at := range s.X {
		fmt.Fprintf(&up, "%c%.1f %.1f", "ML"[min(i, 1)], x(at), y(below[at]+s.Y[i]))
	}
	for i, at := range slices.Backward(s.X) {
		fmt.Fprintf(&down, "L%.1f %.1f", x(at), y(below[at]))
		below[at] += s.Y[i]
	}
	return fmt.Sprintf(`<path class="layer %s" d="%s%sZ"/>`, s.Class, up.String(), down.String())
}

// number formats a number, for example 12k for 12000.
func number(v float64) string {
	switch {
	case v == 0: // including -0
		return "0"
	case math.Abs(v) >= 1e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	case math.Abs(v) >= 1e4:
		return fmt.Sprintf("%.3gk", v/1e3)
	case v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
