package points_test

import (
	"sync"
	"testing"

	"sluice/backend/events/points"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

func TestOrderIsCreditedOnce(t *testing.T) {
	storetest.Engines(t, func(t *testing.T, db *store.Store, _ string) {
		ledger := points.NewStore(db.DB)
		var credits []points.Credit
		for i := range 20 {
			buyer := []string{"ann", "bo\"b", "Zoë"}[i%3]
			credits = append(credits, points.Credit{OrderID: sale.OrderID(1<<60 + i), Kind: store.OutboxCreated, Buyer: buyer,
				Points: 19})
			if i%4 == 0 {
				credits = append(
					[]points.Credit{{OrderID: sale.OrderID(1<<60 + i), Kind: store.OutboxCancelled, Buyer: buyer}},
					credits...)
			}
		}
		var wg sync.WaitGroup
		for w := range 3 {
			wg.Go(func() {
				for i := 0; i < len(credits); i += 3 + w {
					if err := ledger.Record(t.Context(), credits[i:min(i+7, len(credits))]); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if err := ledger.Record(t.Context(), []points.Credit{{OrderID: 1 << 60, Kind: store.OutboxCreated, Buyer: "ann",
			Points: 1000}}); err != nil {
			t.Fatal(err)
		}
		for buyer, want := range map[string]int64{"ann": 5 * 19, "bo\"b": 5 * 19, "Zoë": 5 * 19, "unknown": 0} {
			if got, err := ledger.Balance(t.Context(), buyer); err != nil || got != want {
				t.Errorf("%s has %d points, %v; want %d", buyer, got, err, want)
			}
		}
	})
}
