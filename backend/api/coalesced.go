package api

import (
	"context"

	"golang.org/x/sync/singleflight"

	"sluice/backend/admission"
)

// coalescedReads merges concurrent reads of a sale into one query of Redis. Redis receives one query per sale at a time
// for any number of buyers, and a result is never older than one round trip. Purchases do not use it.
//
// The first caller's deadline applies to all; all callers use the same timeout.
type coalescedReads struct {
	Stock
	reads singleflight.Group
}

const allSales = "" // not a valid sale id

// View is Stock.View.
func (s *coalescedReads) View(ctx context.Context, saleID string) (admission.View, error) {
	v, err, _ := s.reads.Do(saleID, func() (any, error) { return s.Stock.View(ctx, saleID) })
	return v.(admission.View), err
}

// List is Stock.List. Callers must not change the views.
func (s *coalescedReads) List(ctx context.Context) ([]admission.View, error) {
	v, err, _ := s.reads.Do(allSales, func() (any, error) { return s.Stock.List(ctx) })
	return v.([]admission.View), err
}
