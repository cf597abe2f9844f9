package audit_test

import (
	"context"
	"fmt"
	"testing"

	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/sale"
	"sluice/backend/store/storetest"
)

// places are what Redis says of a sale, which nothing is queued of: at each look those orders have a place.
type places struct {
	*admission.Stock
	looks [][]sale.OrderID
}

func (p *places) Slots(_ context.Context, _ string, yield func(buyer string, nth int, id sale.OrderID)) error {
	for _, id := range p.looks[0] {
		yield("b"+id.String(), 1, id)
	}
	p.looks = p.looks[1:]
	return nil
}

func (p *places) CountUnits(context.Context, string) (admission.UnitCount, error) {
	return admission.UnitCount{Loaded: true}, nil
}

// statuses are what SQL says of single orders, of which none is a row as long as rows are read.
type statuses struct {
	*storetest.Store
	of map[sale.OrderID]sale.Status
}

func (s statuses) Statuses(context.Context, []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	return s.of, nil
}

func (s statuses) OrdersOf(context.Context, string, func(sale.Order) error) error { return nil }

func TestExplainNamesWhatIsWrongAtBothLooks(t *testing.T) {
	var many, first []sale.OrderID
	var named string
	for id := sale.OrderID(3 * audit.MaxExplained); id > 0; id-- {
		many = append(many, id)
	}
	for id := sale.OrderID(1); id <= audit.MaxExplained; id++ {
		first = append(first, id)
		named += fmt.Sprintf("%d: it is neither a row nor in the queue; ", id)
	}
	for _, c := range []struct {
		name  string
		looks [][]sale.OrderID
		of    map[sale.OrderID]sale.Status
		want  string
	}{
		{"one is on its way, then another", [][]sale.OrderID{{1, 3}, {2, 3}}, nil, "3: it is neither a row nor in the queue; "},
		{"all are on their way", [][]sale.OrderID{{1}, {2}}, nil, ""},
		{"a row by now", [][]sale.OrderID{{1}, {1}}, map[sale.OrderID]sale.Status{1: sale.StatusCreated}, ""},
		{"a cancelled one that nobody frees", [][]sale.OrderID{{1}, {1}}, map[sale.OrderID]sale.Status{1: sale.StatusCancelled}, "1: its buyer still has a slot with it; "},
		{"more than are named", [][]sale.OrderID{many, many}, nil, named},
		{"as many as are named", [][]sale.OrderID{many, first}, nil, named},
	} {
		found, err := audit.New(&places{looks: c.looks}, statuses{of: c.of}).Explain(t.Context(), "s")
		got := ""
		for _, d := range found {
			got += fmt.Sprintf("%s: %s; ", d.OrderID, d.Missing)
			if d.Buyer != "b"+d.OrderID.String() {
				t.Errorf("%s: order %s is said to be of %s", c.name, d.OrderID, d.Buyer)
			}
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", c.name, err, got, c.want)
		}
	}
}
