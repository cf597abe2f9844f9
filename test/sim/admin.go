package sim

import (
	"errors"
	"fmt"
	"time"

	"sluice/backend/admin"
	"sluice/backend/queue"
	"sluice/backend/sale"
)

// runAdmin creates the sales, and then repeats each admin action until it is done.
func (w *world) runAdmin(p *process) {
	w.watchRedis(p, nil)
	cfg := w.adminConfig(p)
	d, dead := admin.New(cfg), admin.NewDeadLetters(cfg)
	until := func(do func() error) {
		for range 6 {
			if err := do(); err == nil || !errors.Is(err, sale.ErrUnavailable) {
				return
			}
			p.sleep(p.ctx, p.within(time.Second))
		}
	}
	for _, s := range w.Shops {
		until(func() error {
			_, err := d.Create(p.ctx, sale.Sale{
				ID: s.ID, Title: "t", Price: price, Stock: int64(s.Stock), PerBuyer: s.PerBuyer, OpensAt: w.began, Hold: s.Hold,
				Spread: s.Spread,
			})
			return err
		})
	}
	for turn := 0; p.alive(); turn++ {
		p.sleep(p.ctx, 500*time.Millisecond+p.within(2*time.Second))
		saleID := w.Shops[p.rnd.IntN(len(w.Shops))].ID
		switch p.rnd.IntN(8) {
		case 0:
			until(func() error { _, err := d.SetSwitch(p.ctx, saleID, sale.Paused); return err })
		case 1, 2:
			until(func() error { _, err := d.SetSwitch(p.ctx, saleID, sale.On); return err })
		case 3:
			add, key := int64(1+p.rnd.IntN(2)), fmt.Sprintf("%s-%d", p.name, turn)
			if turn < 10 {
				until(func() error { _, err := d.Restock(p.ctx, saleID, add, key); return err })
			}
		case 4:
			w.operateRow(p, d, until)
		default:
			w.operateDead(p, dead, until)
		}
	}
}

// operateRow cancels an order that is a row.
func (w *world) operateRow(p *process, d *admin.Service, until func(func() error)) {
	w.mu.Lock()
	var all []sale.OrderID
	for id, r := range w.rows {
		if !r.cancelled() {
			all = append(all, id)
		}
	}
	w.mu.Unlock()
	if len(all) == 0 {
		return
	}
	var id sale.OrderID
	for _, o := range all { // the newest order, because the iteration order of a map is random
		id = max(id, o)
	}
	until(func() error { _, err := d.CancelOrder(p.ctx, id); return err })
}

// operateDead retries or cancels one of the dead letters; before half of the retries it removes the cause.
func (w *world) operateDead(p *process, d *admin.DeadLetters, until func(func() error)) {
	page, err := d.List(p.ctx, queue.DeadQuery{})
	if err != nil || len(page.Letters) == 0 {
		return
	}
	letter := page.Letters[p.rnd.IntN(len(page.Letters))]
	if p.rnd.IntN(3) == 0 {
		until(func() error { _, err := d.Cancel(p.ctx, letter.Message.ID); return err })
		return
	}
	if p.rnd.IntN(2) == 0 {
		w.mu.Lock()
		delete(w.troubles, letter.Message.Buyer)
		w.mu.Unlock()
	}
	until(func() error {
		_, err := d.Retry(p.ctx, letter.Message.ID)
		return err
	})
}
