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

type figure struct {
	Title  string
	Legend []plot.Series
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
	var when, left, queued []float64
	for _, p := range r.Points {
		when, left, queued = append(when, p.At), append(left, float64(p.Left)), append(queued, float64(p.Queued))
	}
	line := func(name string, x, y []float64) plot.Series { return plot.Series{Name: name, Class: name, X: x, Y: y} }
	draw := func(title, label, unit string, series ...plot.Series) figure {
		p := plot.Plot{Label: label, Unit: unit, Stacked: len(series) > 2, Marks: marks, Series: series} // groups of outcomes
		return figure{title, series, htmltemplate.HTML(p.SVG())}
	}
	var requests []plot.Series
	for g, n := range layers {
		requests = append(requests, line(Group(g).String(), at, n))
	}
	return []figure{
		draw("Purchase requests per second", "Purchase requests per second, by outcome", "", requests...),
		draw("Response times of shoppers", "Response times of shoppers, per second", " ms",
			line("p50", answered, p50), line("p99", answered, p99)),
		draw("Units left, and queued orders", "Units left, and orders not yet stored", "",
			line("left", when, left), line("queued", when, queued)),
	}
}
