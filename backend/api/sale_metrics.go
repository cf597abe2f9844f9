package api

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/admission"
	"sluice/backend/sale"
	"sluice/internal/metric"
)

// maxSaleSeries bounds the number of sales that have their own series, because the number of sales is not bounded.
const maxSaleSeries = 50

// states lists the states of a sale.
var states = []sale.State{sale.StateScheduled, sale.StateOpen, sale.StatePaused, sale.StateSoldOut, sale.StateClosed}

// SaleGauges exports gauges of the sales that were passed to the last call of Set. sluice_sales counts them by state.
// sluice_sale_stock_units, sluice_sale_left_units and sluice_sale_accepted_orders have a series for each of the 50
// sales that opened last and are neither scheduled nor closed. SaleGauges is safe for concurrent use.
type SaleGauges struct {
	sales, stock, left, accepted *prometheus.Desc

	exported atomic.Pointer[[]prometheus.Metric] // nil: Set was not called
}

// NewSaleGauges returns gauges without a value: they are exported after the first call of Set.
func NewSaleGauges() *SaleGauges {
	return &SaleGauges{
		sales: prometheus.NewDesc("sluice_sales", "Sales in Redis, by state.", []string{"state"}, nil),
		stock: prometheus.NewDesc("sluice_sale_stock_units", "Stock of the sale.", []string{"sale"}, nil),
		left:  prometheus.NewDesc("sluice_sale_left_units", "Units left in the sale.", []string{"sale"}, nil),
		accepted: prometheus.NewDesc("sluice_sale_accepted_orders",
			"Orders ever accepted, as counted in Redis.", []string{"sale"}, nil),
	}
}

// Set replaces all sales. It does not keep views.
func (g *SaleGauges) Set(views []admission.View) {
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
	var exported []prometheus.Metric
	gauge := func(d *prometheus.Desc, v int64, label string) {
		exported = append(exported, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), metric.Label(label)))
	}
	for _, s := range states {
		gauge(g.sales, int64(counts[s]), string(s))
	}
	for _, v := range shown[:min(len(shown), maxSaleSeries)] {
		gauge(g.stock, v.Stock, v.ID)
		gauge(g.left, v.Left, v.ID)
		gauge(g.accepted, v.Accepted, v.ID)
	}
	g.exported.Store(&exported)
}

// Describe implements prometheus.Collector.
func (g *SaleGauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.sales, g.stock, g.left, g.accepted} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (g *SaleGauges) Collect(out chan<- prometheus.Metric) {
	if exported := g.exported.Load(); exported != nil {
		for _, m := range *exported {
			out <- m
		}
	}
}
