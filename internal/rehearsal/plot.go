package rehearsal

import (
	"fmt"
	"html"
	"math"
	"strings"

	"sluice/internal/htmltemplate"
)

// The size of a plot in SVG units.
const (
	plotWidth, plotHeight         = 860.0, 240.0
	plotLeft, plotTop, plotBottom = 56.0, 12.0, 28.0
	plotDigit                     = 7.0 // width of a digit in the widest font

	gridLines = 20 // at most, on each axis
)

// mark is a vertical line in a plot.
type mark struct {
	at   float64
	name string
}

// series is a line of a plot, or a layer of a stacked plot. Its class selects the color.
type series struct {
	name, class string
	x, y        []float64
}

// plot is a diagram over time in seconds.
type plot struct {
	label   string // for screen readers
	unit    string // of the vertical axis
	stacked bool
	series  []series
	marks   []mark
}

func (p plot) bounds() (from, to, top float64) {
	from, to = math.Inf(1), math.Inf(-1)
	sums := map[float64]float64{}
	for _, s := range p.series {
		for i, x := range s.x {
			from, to = min(from, x), max(to, x)
			if p.stacked {
				sums[x] += s.y[i]
				top = max(top, sums[x])
			} else {
				top = max(top, s.y[i])
			}
		}
	}
	if to <= from {
		if math.IsInf(from, 0) {
			from = 0
		}
		to = from + 1
	}
	return from, to, max(top, 1e-9)
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

// svg returns the plot as SVG.
func (p plot) svg() htmltemplate.HTML {
	from, to, top := p.bounds()
	grid := step(top, 4)
	top = math.Ceil(top/grid) * grid
	x := func(v float64) float64 { return plotLeft + (v-from)/(to-from)*(plotWidth-plotLeft-8) }
	y := func(v float64) float64 {
		return plotHeight - plotBottom - v/top*(plotHeight-plotTop-plotBottom)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, plotWidth, plotHeight,
		html.EscapeString(p.label))
	for i := range gridLines { // counted, because a step may be too small to change a large number
		v := float64(i) * grid
		if v > top*1.0001 {
			break
		}
		fmt.Fprintf(&b,
			`<path class="grid" d="M%.1f %.1fH%.1f"/><text x="%.1f" y="%.1f" text-anchor="end">%s</text>`,
			plotLeft, y(v), plotWidth-8, plotLeft-6, y(v)+4, number(v)+p.unit)
	}
	every := step(to-from, 8)
	for i := range gridLines {
		v := (math.Ceil(from/every) + float64(i)) * every
		if v > to {
			break
		}
		label := number(v) + " s"
		anchor, at := "middle", x(v)
		if at+float64(len(label))*plotDigit/2 > plotWidth {
			anchor, at = "end", plotWidth
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, at, plotHeight-8, anchor, label)
	}
	below := map[float64]float64{}
	for _, s := range p.series {
		if p.stacked {
			b.WriteString(s.layer(below, x, y))
		} else {
			b.WriteString(s.line(x, y))
		}
	}
	for i, m := range p.marks {
		if m.at < from || m.at > to {
			continue
		}
		anchor, at := "start", x(m.at)+4
		if x(m.at) > plotWidth*3/4 {
			anchor, at = "end", x(m.at)-4
		}
		fmt.Fprintf(&b, `<path class="mark" d="M%.1f %.1fV%.1f"/><text class="marked" x="%.1f" y="%.1f" `+
			`text-anchor="%s">%s</text>`,
			x(m.at), plotTop, plotHeight-plotBottom, at, plotTop+12+14*float64(i%4), anchor, html.EscapeString(m.name))
	}
	b.WriteString("</svg>")
	return htmltemplate.HTML(b.String()) // all texts are escaped above
}

func (s series) line(x, y func(float64) float64) string {
	if len(s.x) == 0 {
		return ""
	}
	var d strings.Builder
	for i := range s.x {
		fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(i, 1)], x(s.x[i]), y(s.y[i]))
	}
	return fmt.Sprintf(`<path class="line %s" d="%s"/>`, s.class, d.String())
}

// layer returns an area on top of those below.
func (s series) layer(below map[float64]float64, x, y func(float64) float64) string {
	if len(s.x) == 0 {
		return ""
	}
	var up, down strings.Builder
	for i, at := range s.x {
		fmt.Fprintf(&up, "%c%.1f %.1f", "ML"[min(i, 1)], x(at), y(below[at]+s.y[i]))
	}
	for i := len(s.x) - 1; i >= 0; i-- {
		fmt.Fprintf(&down, "L%.1f %.1f", x(s.x[i]), y(below[s.x[i]]))
	}
	for i, at := range s.x {
		below[at] += s.y[i]
	}
	return fmt.Sprintf(`<path class="layer %s" d="%s%sZ"/>`, s.class, up.String(), down.String())
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
