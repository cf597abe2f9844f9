package sim

import (
	"fmt"

	"sluice/backend/sale"
	"sluice/backend/store"
)

// troublemaker is a buyer with orders that cannot be written, for a while or until the cause is removed.
type troublemaker struct {
	kind string // refused, failing or deadly
	left int
}

// trouble reports whether a write fails because of the orders in it.
func (w *world) trouble(p *process, batch []sale.Order) (bool, error) {
	w.mu.Lock()
	var worst *troublemaker
	for _, o := range batch {
		if t := w.troubles[o.Buyer]; t != nil && t.left > 0 {
			worst = t
			break
		}
	}
	if worst == nil {
		w.mu.Unlock()
		return false, nil
	}
	worst.left--
	w.mu.Unlock()
	switch worst.kind {
	case "refused":
		return true, fmt.Errorf("%w: a bad order", store.ErrRejected)
	case "deadly":
		w.note("%s  the order crashes its worker", p.name)
		w.kill(p)
		return true, errGone
	}
	return true, fmt.Errorf("an odd order")
}
