package api

import (
	"context"

	"golang.org/x/sync/singleflight"

	"sluice/backend/admission"
)

// sharedLooks lets everybody who looks at a sale while somebody's look is under way share it. However many watch the countdown, a sale
// costs Redis one look at a time, and nobody sees anything older than a round trip. Purchases go their own way.
//
// The first caller's deadline is everybody's; they are all the same.
type sharedLooks struct {
	Stock
	looks singleflight.Group
}

const everySale = "" // no sale has this id

// View is Stock.View.
func (s *sharedLooks) View(ctx context.Context, saleID string) (admission.View, error) {
	v, err, _ := s.looks.Do(saleID, func() (any, error) { return s.Stock.View(ctx, saleID) })
	return v.(admission.View), err
}

// List is Stock.List. Nobody may change the views.
func (s *sharedLooks) List(ctx context.Context) ([]admission.View, error) {
	v, err, _ := s.looks.Do(everySale, func() (any, error) { return s.Stock.List(ctx) })
	return v.([]admission.View), err
}
