package rehearsal

import (
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/internal/htmltemplate"
	"sluice/internal/plot"
	"sluice/internal/plural"
)

//go:embed report.html
var files embed.FS

var report = sync.OnceValues(func() (*htmltemplate.Template, error) {
	return htmltemplate.Parse(files, "report.html", functions)
})

var functions = htmltemplate.Funcs{
	"span":  span,
	"upper": func(v Verdict) string { return strings.ToUpper(string(v)) },
	"deref": func(v *float64) string {
		if v == nil {
			return "never"
		}
		return span(*v)
	},
	"count": func(n any, noun string) string {
		if n, ok := n.(int); ok {
			return plural.Count(n, noun)
		}
		return plural.Count(n.(int64), noun)
	},
	"width": func(n, of int64) string { return fmt.Sprintf("%.2f%%", 100*share(n, of)) },
	"clock": func(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") },
}

// legend explains a color.
type legend struct{ Name, Class string }

// figure is a plot on the page.
type figure struct {
	Title  string
	Legend []legend
	SVG    htmltemplate.HTML
}

// WriteHTML writes the report as a self-contained page with a light and a dark scheme.
func (r *Report) WriteHTML(w io.Writer) error {
	t, err := report()
	if err != nil {
		return err
	}
	text, err := t.Execute("report.html", struct {
		*Report
		Figures []figure
		Most    int64 // count of the most frequent outcome
	}{r, r.figures(), r.most()})
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

func (r *Report) most() int64 {
	most := int64(1)
	for _, o := range slices.Concat(r.Outcomes, r.Bots) {
		most = max(most, o.Count)
	}
	return most
}

func (r *Report) figures() []figure {
	marks := []plot.Mark{{At: 0, Name: "opening"}}
	if r.SellOut != nil {
		marks = append(marks, plot.Mark{At: *r.SellOut, Name: "sold out"})
	}
	var at, p50, p99, answered []float64
	layers := [groups][]float64{}
	for _, s := range r.Seconds {
		at = append(at, float64(s.At))
		for g, n := range [groups]int64{s.Accepted, s.Refused, s.Limited, s.Failed} {
			layers[g] = append(layers[g], float64(n))
		}
		if s.P99 > 0 {
			answered = append(answered, float64(s.At))
			p50, p99 = append(p50, 1000*s.P50), append(p99, 1000*s.P99)
		}
	}
	requests := plot.Plot{Label: "Purchase requests per second, by outcome", Stacked: true, Marks: marks}
	for g := range groups {
		requests.Series = append(requests.Series, plot.Series{Name: g.String(), Class: g.String(), X: at, Y: layers[g]})
	}
	latency := plot.Plot{
		Label: "Response times of shoppers, per second", Unit: " ms", Marks: marks,
		Series: []plot.Series{
			{Name: "p50", Class: "p50", X: answered, Y: p50},
			{Name: "p99", Class: "p99", X: answered, Y: p99},
		},
	}
	var when, left, queued []float64
	for _, p := range r.Points {
		when, left, queued = append(when, p.At), append(left, float64(p.Left)), append(queued, float64(p.Queued))
	}
	count := plot.Plot{
		Label: "Units left, and orders not yet stored", Marks: marks,
		Series: []plot.Series{
			{Name: "left", Class: "left", X: when, Y: left},
			{Name: "queued", Class: "queued", X: when, Y: queued},
		},
	}
	return []figure{
		{"Purchase requests per second", legends(requests), htmltemplate.HTML(requests.SVG())},
		{"Response times of shoppers", legends(latency), htmltemplate.HTML(latency.SVG())},
		{"Units left, and queued orders", legends(count), htmltemplate.HTML(count.SVG())},
	}
}

func legends(p plot.Plot) []legend {
	list := make([]legend, len(p.Series))
	for i, s := range p.Series {
		list[i] = legend{s.Name, s.Class}
	}
	return list
}
