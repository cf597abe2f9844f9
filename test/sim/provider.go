package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/backend/payment"
	"sluice/backend/sale"
	"sluice/backend/store"
)

var price = sale.Price{Amount: 10, Currency: "EUR"}

// secret is shared with the payment provider.
const secret = "whsec_c2ltdWxhdGlvbnNpbXVsYXRpb25zaW11bGF0aW9u"

// runProvider is the payment provider. It reports payments that succeed or fail, sometimes with a wrong price, and some
// for orders that are paid or cancelled already. It repeats each callback until it is answered, and some once more.
func (w *world) runProvider(p *process) {
	hook, err := standardwebhooks.NewWebhook(secret)
	verifier, verr := payment.NewVerifier(secret, time.Now)
	if err = errors.Join(err, verr); err != nil {
		w.violate("no callback can be signed: %v", err)
		return
	}
	for turn := 0; p.alive(); turn++ {
		p.sleep(p.ctx, 500*time.Millisecond+p.within(2*time.Second))
		id := w.anyRow(p)
		if id == 0 {
			continue
		}
		pay := store.Payment{
			CallbackID: fmt.Sprintf("%s-%d", strings.ReplaceAll(p.name, ".", "-"), turn),
			Digest:     "d",
			OrderID:    id,
			Event:      store.EventSucceeded,
			Price:      price,
			Reference:  fmt.Sprintf("%s-%d", short(id), max(p.rnd.IntN(6), 4)),
		}
		switch p.rnd.IntN(8) {
		case 0:
			pay.Event = store.EventFailed
		case 1:
			pay.Price.Amount++
		}
		sent := time.Now()
		signature, err := hook.Sign(pay.CallbackID, sent, []byte(id.String()))
		for range 1 + p.rnd.IntN(2) {
			if err == nil {
				err = verifier.Verify(pay.CallbackID, strconv.FormatInt(sent.Unix(), 10), signature, []byte(id.String()))
			}
			if err != nil {
				w.violate("callback %s is refused: %v", pay.CallbackID, err)
				return
			}
			w.deliver(p, pay)
		}
	}
}

// deliver sends a callback until it is answered, or gives up.
func (w *world) deliver(p *process, pay store.Payment) {
	for range 6 {
		settled, err := (faultyStore{w.store, p}).Pay(p.ctx, pay)
		if err == nil {
			w.mu.Lock()
			was, again := w.settled[pay.CallbackID]
			w.settled[pay.CallbackID] = settled
			w.mu.Unlock()
			if again && was != settled {
				w.violate("callback %s was answered %s, and then %s", pay.CallbackID, was, settled)
			}
			return
		}
		if !errors.Is(err, sale.ErrUnavailable) {
			return
		}
		p.sleep(p.ctx, p.within(time.Second))
	}
}

func (w *world) anyRow(p *process) sale.OrderID {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]sale.OrderID, 0, len(w.rows))
	for id := range w.rows {
		all = append(all, id)
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[p.rnd.IntN(len(all))]
}
