package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"sluice/backend/sale"
)

// Write inserts accepted orders as rows with the status created, in one transaction, and adds them to the sold units of
// their sales. It is idempotent: an order that is a row already, cancelled or not, is skipped and not counted again, so
// several workers may write the same batch at the same time.
//
// Errors: ErrStale (see WithGeneration): nothing was written. ErrRejected: at least one order of the batch can never be
// stored, and nothing was written; to find it, write the halves. Exception: if the id of an order belongs to a row of
// another order, the rest of the batch may have been written.
func (s *Store) Write(ctx context.Context, orders []sale.Order) error {
	batch, err := prepare(orders)
	if err != nil {
		return fmt.Errorf("store: write: %w", err)
	}
	if len(batch) == 0 {
		return nil
	}
	return s.run(ctx, "store: write", func(ctx context.Context) error {
		inserted, err := s.engine.insert(ctx, batch)
		if err == nil && inserted < len(batch) {
			err = s.compare(ctx, batch)
		}
		return err
	})
}

// prepare returns the orders sorted by id and without duplicates, or ErrRejected if one can never be a row. All batches
// are sorted, so that transactions lock rows in the same order.
func prepare(orders []sale.Order) ([]sale.Order, error) {
	batch := slices.Clone(orders)
	slices.SortFunc(batch, byID)
	kept := batch[:0]
	for _, o := range batch {
		if err := validate(o); err != nil {
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

func byID(a, b sale.Order) int { return cmp.Compare(a.ID, b.ID) }

func validate(o sale.Order) error {
	if err := sale.ValidateID(o.SaleID); err != nil {
		return rejected("", "sale id "+err.Error())
	}
	if err := sale.ValidateBuyer(o.Buyer); err != nil {
		return rejected("", err.Error())
	}
	if o.ID <= 0 || o.Slot < 1 || o.Slot > sale.MaxPerBuyer || o.Serial < 1 {
		return rejected("", fmt.Sprintf("order %s: id, slot or serial out of range", o.ID))
	}
	return nil
}

// same reports whether a and b are the same order. It ignores the serial, because a rebuild of Redis may renumber a
// sale's orders.
func same(a, b sale.Order) bool {
	return a.SaleID == b.SaleID && a.Buyer == b.Buyer && a.Slot == b.Slot
}

// compare verifies that the row of each order is that order. Order ids are unique unless Redis loses its counter. Even
// then, an accepted order must not be confused with the row of another one.
func (s *Store) compare(ctx context.Context, batch []sale.Order) error {
	rows, err := readOrders(ctx, s.engine.conn(), idsOf(batch))
	if err != nil {
		return err
	}
	for _, o := range batch {
		row, ok := rows[o.ID]
		if !ok {
			return unavailable(fmt.Errorf("order %s was neither inserted nor found", o.ID))
		}
		if !same(row, o) {
			return rejected("", fmt.Sprintf("order id %s belongs to another order", o.ID))
		}
	}
	return nil
}
