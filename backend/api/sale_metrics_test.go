package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"sluice/backend/admission"
	"sluice/backend/sale"
)

func TestSaleGaugesShowTheSalesThatOpenedLast(t *testing.T) {
	g := NewSaleGauges()
	if n := testutil.CollectAndCount(g); n != 0 {
		t.Errorf("%d series before the first Set", n)
	}
	var views []admission.View
	for i := range 10_000 {
		v := admission.View{
			Sale:     sale.Sale{ID: fmt.Sprintf("s%05d", i), Stock: 10, OpensAt: time.Unix(int64(i), 0)},
			Left:     4,
			Accepted: 7,
			State:    sale.StateOpen,
		}
		switch i % 5 {
		case 1:
			v.State = sale.StateClosed
		case 2:
			v.State = sale.StateSoldOut
		}
		views = append(views, v)
	}
	g.Set(views)
	if n, want := testutil.CollectAndCount(g), len(states)+3*maxSaleSeries; n != want {
		t.Errorf("%d series of 10,000 sales, want %d", n, want)
	}
	var last strings.Builder
	last.WriteString("# HELP sluice_sale_stock_units Stock of the sale.\n# TYPE sluice_sale_stock_units gauge\n")
	for i, n := len(views)-1, 0; n < maxSaleSeries; i-- {
		if views[i].State != sale.StateClosed {
			fmt.Fprintf(&last, "sluice_sale_stock_units{sale=%q} 10\n", views[i].ID)
			n++
		}
	}
	if err := testutil.CollectAndCompare(g, strings.NewReader(last.String()), "sluice_sale_stock_units"); err != nil {
		t.Error(err)
	}
	const want = `
		# HELP sluice_sales Sales in Redis, by state.
		# TYPE sluice_sales gauge
		sluice_sales{state="closed"} 2000
		sluice_sales{state="open"} 6000
		sluice_sales{state="paused"} 0
		sluice_sales{state="scheduled"} 0
		sluice_sales{state="sold_out"} 2000
	`
	if err := testutil.CollectAndCompare(g, strings.NewReader(want), "sluice_sales"); err != nil {
		t.Error(err)
	}
	g.Set(views[9997:9998])
	const one = `
		# HELP sluice_sale_accepted_orders Orders ever accepted, as counted in Redis.
		# TYPE sluice_sale_accepted_orders gauge
		sluice_sale_accepted_orders{sale="s09997"} 7
		# HELP sluice_sale_left_units Units left in the sale.
		# TYPE sluice_sale_left_units gauge
		sluice_sale_left_units{sale="s09997"} 4
		# HELP sluice_sale_stock_units Stock of the sale.
		# TYPE sluice_sale_stock_units gauge
		sluice_sale_stock_units{sale="s09997"} 10
	`
	if err := testutil.CollectAndCompare(g, strings.NewReader(one), "sluice_sale_accepted_orders",
		"sluice_sale_left_units", "sluice_sale_stock_units"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(g); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// The set of sales in Redis may hold any text.
func TestSaleGaugesExportAnInvalidID(t *testing.T) {
	g := NewSaleGauges()
	g.Set([]admission.View{{Sale: sale.Sale{ID: "\xff"}, State: sale.StateOpen}})
	if n, want := testutil.CollectAndCount(g), len(states)+3; n != want {
		t.Errorf("%d series, want %d", n, want)
	}
}
