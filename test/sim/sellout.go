package sim

import (
	"context"
	"fmt"
	"time"

	"sluice/backend/admission"
	"sluice/backend/sale"
	"sluice/backend/spread"
)

// sellOut sells what is left of each sale with several segments, to new buyers of one segment alone and without faults.
// Each unit must reach them, and then the sale must be sold out: no unit is stranded in another segment.
func (w *world) sellOut() {
	ctx := context.Background()
	mover := spread.NewMover(admission.NewSegments(w.redis, w.space, nil), w.store)
	refillers := spread.NewRefillers(mover)
	ids := admission.NewSequencer(w.redis, w.space, time.Now)
	admit, err := admission.NewAdmitter(admission.Config{
		Client: w.redis, Space: w.space, IDs: ids, Stream: w.stream,
		Refillers: refillers,
	})
	if err != nil { // the configuration is valid
		panic(err)
	}
	stock := admission.NewStock(admission.StockConfig{Client: w.redis, Space: w.space})
	for _, s := range w.Shops {
		v, err := stock.View(ctx, s.ID)
		if s.Spread < 2 || err != nil || v.State != sale.StateOpen {
			continue
		}
		left := v.Left
		for i := 0; left >= 0; i++ {
			buyer := fmt.Sprintf("last%d", i)
			if spread.Home(buyer, s.Spread) != 0 {
				continue
			}
			d, err := admit.Admit(ctx, admission.Request{
				SaleID: s.ID, Buyer: buyer, Key: s.ID + buyer, KeyTTL: time.Hour, Fingerprint: "f", Spread: s.Spread,
			})
			want := sale.Accepted
			if left == 0 {
				want = sale.SoldOut
			}
			if err != nil || d.Outcome != want {
				w.violate("%d units of %s are left, and a buyer of its first segment gets %s, %v", left, s.ID, d.Outcome, err)
				return
			}
			left--
		}
		w.result.SoldOut++
	}
}
