package audit_test

import (
	"context"
	"fmt"
	"testing"

	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
)

// slotRounds is a Stock with an empty queue. In each round, these orders have a slot.
type slotRounds struct {
	*admission.Stock
	rounds [][]sale.OrderID
}

func (p *slotRounds) Slots(
	_ context.Context,
	_ spread.Part,
	yield func(buyer string, slot int, id sale.OrderID),
) error {
	for _, id := range p.rounds[0] {
		yield("b"+id.String(), 1, id)
	}
	p.rounds = p.rounds[1:]
	return nil
}

func (p *slotRounds) CountUnits(context.Context, spread.Part) (admission.UnitCount, error) {
	return admission.UnitCount{Loaded: true}, nil
}

// statuses is a store in which OrdersOf finds no rows, and Statuses returns these.
type statuses struct {
	*store.Store
	of map[sale.OrderID]sale.Status
}

func (s statuses) Statuses(context.Context, []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	return s.of, nil
}

func (s statuses) OrdersOf(context.Context, spread.Part, func(sale.Order) error) error { return nil }

func TestExplainReturnsOrdersThatDifferTwice(t *testing.T) {
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
		name   string
		rounds [][]sale.OrderID
		of     map[sale.OrderID]sale.Status
		want   string
	}{
		{"one in transit, then another", [][]sale.OrderID{{1, 3}, {2, 3}}, nil, "3: it is neither a row nor in the queue; "},
		{"all in transit", [][]sale.OrderID{{1}, {2}}, nil, ""},
		{"a row since then", [][]sale.OrderID{{1}, {1}}, map[sale.OrderID]sale.Status{1: sale.StatusCreated}, ""},
		{
			"a cancelled order with a slot", [][]sale.OrderID{{1}, {1}},
			map[sale.OrderID]sale.Status{1: sale.StatusCancelled}, "1: its buyer still has a slot with it; ",
		},
		{"more than MaxExplained", [][]sale.OrderID{many, many}, nil, named},
		{"MaxExplained in the second round", [][]sale.OrderID{many, first}, nil, named},
	} {
		found, err := audit.New(&slotRounds{rounds: c.rounds}, statuses{of: c.of}).
			Explain(t.Context(), spread.Part{SaleID: "s"})
		got := ""
		for _, d := range found {
			got += fmt.Sprintf("%s: %s; ", d.OrderID, d.Missing)
			if d.Buyer != "b"+d.OrderID.String() {
				t.Errorf("%s: order %s of buyer %s", c.name, d.OrderID, d.Buyer)
			}
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", c.name, err, got, c.want)
		}
	}
}
