package chaos

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours with contrast on white and on black. Text is lighter on a dark screen: see style.
var (
	ink    = color.RGBA{0x57, 0x60, 0x6a, 0xff}
	axis   = color.RGBA{0x8b, 0x94, 0x9e, 0xff}
	blue   = color.RGBA{0x3b, 0x82, 0xf6, 0xff}
	orange = color.RGBA{0xea, 0x76, 0x17, 0xff}
	green  = color.RGBA{0x22, 0xa0, 0x5b, 0xff}
	red    = color.RGBA{0xe5, 0x48, 0x4d, 0xff}
)

const style = `<style>text { font-family: 'Liberation Sans', Arial, sans-serif !important } @media (prefers-color-scheme: dark) { text { fill: #c9d1d9 !important } }</style>`

// Draw draws a run to an SVG file: waiting, leased and dead orders, accepted orders and rows, and the duration of each
// fault.
func (r *Result) Draw(path string) error {
	waiting := r.panel("orders waiting")
	r.line(waiting, "", blue, false, func(s Sample) float64 { return s.Waiting })
	leases := r.panel("leases, dead letters")
	r.line(leases, "dead letters", red, false, func(s Sample) float64 { return s.Dead })
	r.line(leases, "leases", green, false, func(s Sample) float64 { return s.Leases })
	orders := r.panel("orders")
	r.line(orders, "accepted", orange, false, func(s Sample) float64 { return s.Accepted })
	r.line(orders, "rows", blue, true, func(s Sample) float64 { return s.Rows })

	faults := r.panel(fmt.Sprintf("%d faults", len(r.Struck)))
	all := make([]Fault, len(r.Struck))
	for i, s := range r.Struck {
		all[i] = s.Fault
	}
	kinds, _ := ByKind(all)
	lanes := swimlanes{struck: r.Struck, y: map[Kind]float64{}}
	var names plot.ConstantTicks
	for i, k := range kinds {
		lanes.y[k] = float64(len(kinds) - i)
		names = append(names, plot.Tick{Value: lanes.y[k], Label: string(k)})
	}
	faults.Add(lanes)
	faults.Y.Min, faults.Y.Max, faults.Y.Tick.Marker = 0.5, float64(len(kinds))+0.5, names
	faults.Y.Tick.Label.Font.Size, faults.Y.LineStyle.Width, faults.Y.Tick.LineStyle.Width = 7, 0, 0
	faults.X.Label.Text = fmt.Sprintf("seconds (seed %d)", r.Plan.Seed)

	canvas := vgsvg.New(760, 800)
	plots := [][]*plot.Plot{{waiting}, {leases}, {orders}, {faults}}
	places := plot.Align(plots, draw.Tiles{Rows: len(plots), Cols: 1, PadY: 10, PadRight: 10}, draw.New(canvas))
	for i := range plots {
		plots[i][0].Draw(places[i][0])
	}
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return fmt.Errorf("chaos: draw: %w", err)
	}
	head := bytes.Index(svg.Bytes(), []byte("<g "))
	if head < 0 {
		return fmt.Errorf("chaos: draw: the library's SVG holds no group")
	}
	out := bytes.Join([][]byte{svg.Bytes()[:head], svg.Bytes()[head:]}, []byte(style+"\n"))
	return os.WriteFile(path, out, 0o644)
}

// panel is one plot over the time of the run.
func (r *Result) panel(name string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.Y.Label.Text = name
	end := 0.0
	for _, s := range r.Samples {
		end = max(end, s.At.Seconds())
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, end, 0, 1
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle.Color, a.Tick.LineStyle.Color = axis, axis
		a.Label.TextStyle.Color, a.Tick.Label.Color = ink, ink
		a.Label.TextStyle.Font, a.Tick.Label.Font = sans(10), sans(8)
	}
	p.Legend.TextStyle.Color, p.Legend.TextStyle.Font = ink, sans(9)
	p.Legend.Left, p.Legend.Top = true, true
	return p
}

func sans(size font.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// line adds the values of a function of Sample over time. A store that did not answer leaves a gap.
func (r *Result) line(p *plot.Plot, name string, c color.Color, dashed bool, of func(Sample) float64) {
	var piece plotter.XYs
	end := func() {
		if l, err := plotter.NewLine(piece); err == nil { // it returns an error without points
			l.Color, l.Width = c, 1.2
			if dashed {
				l.Dashes = []vg.Length{3, 3}
			}
			p.Add(l)
			if name != "" {
				p.Legend.Add(name, l)
				name = ""
			}
		}
		piece = nil
	}
	for i, s := range r.Samples {
		if v := of(s); math.IsNaN(v) {
			end()
		} else if i%4 == 0 { // a reader does not see four samples a second
			piece = append(piece, plotter.XY{X: math.Round(s.At.Seconds()*10) / 10, Y: v})
			p.Y.Max = max(p.Y.Max, v)
		}
	}
	end()
}

// swimlanes draws each fault as a bar, one lane for each kind.
type swimlanes struct {
	struck []Struck
	y      map[Kind]float64
}

// Plot implements plot.Plotter.
func (s swimlanes) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, f := range s.struck {
		from, to := x(f.Began.Seconds()), x(f.Ended.Seconds())
		bar := draw.LineStyle{Color: laneColour(f.Kind), Width: 5}
		c.StrokeLine2(bar, from, y(s.y[f.Kind]), max(to, from+1), y(s.y[f.Kind]))
	}
}

func laneColour(k Kind) color.Color {
	switch k {
	case RedisKilled, RedisFrozen, PostgresKilled, DiskFull,
		MasterReplaced, OldPromoted, EmptyPromoted, MasterHandedOver, SlotMoved, MoveEndedHalfway:
		return red
	case LinkCut, RepliesLost, RequestsLost, LinkSlow, LinkTorn:
		return orange
	}
	return blue
}
