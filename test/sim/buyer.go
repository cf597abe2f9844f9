package sim

import (
	"fmt"
	"time"

	"sluice/backend/admission"
	"sluice/backend/sale"
)

// runBuyer retries with the same key until a backend answers, and sometimes uses a new key.
func (w *world) runBuyer(name string, backends []*backend) func(*process) {
	return func(p *process) {
		p.sleep(p.ctx, p.within(w.Rush))
		for request := range 1 + p.rnd.IntN(3) {
			shop := w.Shops[p.rnd.IntN(len(w.Shops))]
			key := fmt.Sprintf("%s%d", shop.ID, request)
			// The request is stored with the order, or in a dedup key.
			ttl := []time.Duration{0, 24 * time.Hour}[request%2]
			for range 1 + p.rnd.IntN(3) { // an impatient buyer repeats the request even after an answer
				w.buy(p, shop, name, key, ttl, backends)
				if w.isCalm() {
					return
				}
				p.sleep(p.ctx, p.within(3*time.Second))
			}
		}
	}
}

func (w *world) buy(p *process, s shop, name, key string, ttl time.Duration, backends []*backend) {
	for range 8 {
		asked := w.steps()
		if admit := backends[p.rnd.IntN(len(backends))].admit.Load(); admit != nil {
			d, err := admit.Admit(
				p.ctx,
				admission.Request{
					SaleID: s.ID, Buyer: name, Key: key, KeyTTL: ttl, Fingerprint: "f", Spread: s.Spread,
				},
			)
			if err == nil {
				w.mu.Lock()
				w.answers = append(w.answers, answer{name, key, d, s, asked})
				w.notes = append(w.notes, fmt.Sprintf("%s  gets %s: %s %s", name, key, d.Outcome, short(d.OrderID)))
				w.mu.Unlock()
				if w.isCalm() || d.Outcome == sale.Accepted || d.Outcome == sale.Replayed || d.Outcome == sale.AlreadyBought {
					return
				}
			}
		}
		p.sleep(p.ctx, p.within(time.Second))
	}
}
