package api

import (
	"cmp"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/admission"
	"sluice/backend/sale"
)

// maxSaleSeries bounds the sales that have series of their own: a label that grew with the catalogue would fill
// Prometheus.
const maxSaleSeries = 50

// states are all that a sale can be in.
var states = []sale.State{sale.StateScheduled, sale.StateOpen, sale.StatePaused, sale.StateSoldOut, sale.StateClosed}

// SaleGauges exports the sales of the last call of See: sluice_sales by state, and for those that opened last, up to 50
// that are neither scheduled nor closed, sluice_sale_stock_units, sluice_sale_left_units and
// sluice_sale_accepted_orders. They are safe for concurrent use.
type SaleGauges struct {
	sales, stock, left, accepted *prometheus.Desc

	mu     sync.Mutex
	seen   bool
	counts map[sale.State]int
	shown  []admission.View
}

// NewSaleGauges makes the gauges. They are missing until See was called.
func NewSaleGauges() *SaleGauges {
	return &SaleGauges{
		sales: prometheus.NewDesc("sluice_sales", "Sales in Redis, by what buyers see of them.", []string{"state"}, nil),
		stock: prometheus.NewDesc("sluice_sale_stock_units", "Units that the sale has in all.", []string{"sale"}, nil),
		left:  prometheus.NewDesc("sluice_sale_left_units", "Units left in the sale.", []string{"sale"}, nil),
		accepted: prometheus.NewDesc("sluice_sale_accepted_orders",
			"Orders that the sale has ever accepted, as Redis counts them.", []string{"sale"}, nil),
	}
}

// See sets all sales. The views are not kept.
func (g *SaleGauges) See(views []admission.View) {
	counts := map[sale.State]int{}
	var shown []admission.View
	for _, v := range views {
		counts[v.State]++
		if v.State != sale.StateScheduled && v.State != sale.StateClosed {
			shown = append(shown, v)
		}
	}
	slices.SortFunc(shown, func(a, b admission.View) int {
		return cmp.Or(b.OpensAt.Compare(a.OpensAt), cmp.Compare(a.ID, b.ID))
	})
	shown = slices.Clone(shown[:min(len(shown), maxSaleSeries)])
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen, g.counts, g.shown = true, counts, shown
}

// Describe implements prometheus.Collector.
func (g *SaleGauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.sales, g.stock, g.left, g.accepted} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (g *SaleGauges) Collect(out chan<- prometheus.Metric) {
	g.mu.Lock()
	seen, counts, shown := g.seen, g.counts, g.shown
	g.mu.Unlock()
	if !seen {
		return
	}
	gauge := func(d *prometheus.Desc, v int64, label string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), label)
	}
	for _, s := range states {
		gauge(g.sales, int64(counts[s]), string(s))
	}
	for _, v := range shown {
		gauge(g.stock, v.Stock, v.ID)
		gauge(g.left, v.Left, v.ID)
		gauge(g.accepted, v.Accepted, v.ID)
	}
}
