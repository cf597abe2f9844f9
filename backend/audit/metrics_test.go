package audit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetricsBoundTheSeriesOfSales(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	for i := range 5000 {
		m.audited(Report{SaleID: fmt.Sprint("s", i), Balanced: i != 7 && i != 4000})
	}
	if n := testutil.CollectAndCount(m.sales); n != maxSaleSeries {
		t.Errorf("%d series, want %d", n, maxSaleSeries)
	}
	for _, id := range []string{"s7", "s4000"} {
		if a, there := m.sales.sales[id]; !there || a.balanced {
			t.Errorf("%s does not balance and has no series: %+v", id, m.sales.sales)
		}
	}
	m.audited(Report{SaleID: "s7", Balanced: true})
	if !m.sales.sales["s7"].balanced {
		t.Error("the series of s7 does not show that it balances again")
	}
	const want = `
		# HELP sluice_audits_total Audits of sales by this process: balanced, unbalanced, or failed (store unavailable).
		# TYPE sluice_audits_total counter
		sluice_audits_total{result="balanced"} 4999
		sluice_audits_total{result="failed"} 0
		sluice_audits_total{result="unbalanced"} 2
	`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "sluice_audits_total"); err != nil {
		t.Error(err)
	}
}
