package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"sluice/backend/sale"
)

// Write stores accepted orders as rows with the status created, in one transaction, and counts them in their sales. An order that is a row already, cancelled
// or not, is left alone and not counted again: the same batch may be written any number of times, by several workers at once.
//
// With ErrStale (see AtGeneration) nothing was written. With ErrRejected some order of the batch is at fault, and nothing was written; to find which, write the halves. There is one exception: when an order's
// id belongs to a row of other content, the rest of the batch may have been written.
func (s *Store) Write(ctx context.Context, orders []sale.Order) error {
	batch, err := prepare(orders)
	if err != nil {
		return fmt.Errorf("order: write: %w", err)
	}
	if len(batch) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	inserted, err := s.engine.insert(ctx, generationOf(ctx), batch)
	if inserted > 0 {
		s.tell()
	}
	if err == nil && inserted < len(batch) {
		err = s.compare(ctx, batch)
	}
	if err != nil {
		return fmt.Errorf("order: write: %w", err)
	}
	return nil
}

// prepare returns the orders sorted by id, each once, or ErrRejected when one could never be a row. Sorting gives all batches one order of locks.
func prepare(orders []sale.Order) ([]sale.Order, error) {
	batch := slices.Clone(orders)
	slices.SortFunc(batch, func(a, b sale.Order) int { return cmp.Compare(a.ID, b.ID) })
	kept := batch[:0]
	for _, o := range batch {
		if err := valid(o); err != nil {
			return nil, err
		}
		if n := len(kept); n > 0 && kept[n-1].ID == o.ID {
			if !same(kept[n-1], o) {
				return nil, rejected("", fmt.Sprintf("order id %s belongs to two orders", o.ID))
			}
			continue
		}
		kept = append(kept, o)
	}
	return kept, nil
}

func valid(o sale.Order) error {
	if err := sale.ValidateID(o.SaleID); err != nil {
		return rejected("", "sale id "+err.Error())
	}
	if err := sale.ValidateBuyer(o.Buyer); err != nil {
		return rejected("", err.Error())
	}
	if o.ID <= 0 || o.Nth < 1 || o.Nth > sale.MaxPerBuyer || o.Serial < 1 {
		return rejected("", fmt.Sprintf("order %s: id, nth or serial out of range", o.ID))
	}
	return nil
}

// same compares what makes an order: the serial is not part of it, since a rebuild of Redis may number a sale's orders anew.
func same(a, b sale.Order) bool { return a.SaleID == b.SaleID && a.Buyer == b.Buyer && a.Nth == b.Nth }

// compare checks that every order of a batch that was not wholly new is the row that bears its id. Order ids are unique by construction; should Redis lose its
// sequence all the same, this keeps an accepted order from vanishing behind another one's row.
func (s *Store) compare(ctx context.Context, batch []sale.Order) error {
	ids := make([]sale.OrderID, len(batch))
	for i, o := range batch {
		ids[i] = o.ID
	}
	rows, err := s.orders(ctx, ids)
	if err != nil {
		return err
	}
	for _, o := range batch {
		found, ok := rows[o.ID]
		if !ok {
			return unavailable(fmt.Errorf("order %s was neither inserted nor found", o.ID))
		}
		if !same(found, o) {
			return rejected("", fmt.Sprintf("order id %s belongs to another order", o.ID))
		}
	}
	return nil
}

// rejected explains ErrRejected to the person who reads it on a dead letter.
func rejected(constraint, detail string) error {
	switch {
	case strings.Contains(constraint+detail, "sales_not_oversold"):
		detail = "the sale has fewer units left than the batch has orders"
	case constraint == "orders_place", strings.Contains(detail, "orders.sale_id, orders.buyer, orders.nth"):
		detail = "another order holds this place of the buyer"
	}
	return fmt.Errorf("%w: %s", ErrRejected, detail)
}
