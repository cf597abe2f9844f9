package sim

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"sluice/backend/admission"
	"sluice/backend/desk"
	"sluice/backend/keyspace"
	"sluice/backend/ledger"
	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/worker"
)

var space = keyspace.Space{}

// backend is one API server: it admits purchases and keeps Redis up to date with SQL.
// Its admitter is nil while it cannot be reached.
type backend struct {
	admit atomic.Pointer[admission.Admitter]
}

func (w *world) desk(p *process) *desk.Desk {
	return desk.New(faultyStore{w.store, p}, admission.NewStock(p.client, space),
		[]desk.Lane{queue.NewList(p.client, w.lane, w.queueConfig(p))}, w.log)
}

func (w *world) runBackend(b *backend) func(*process) {
	return func(p *process) {
		b.admit.Store(nil)
		ids := admission.NewSequencer(p.client, space, time.Now)
		// The first block of numbers is leased before anybody asks, or those who wait for it would get them in no order.
		for p.alive() {
			if _, err := ids.Next(p.ctx); err == nil {
				break
			}
			p.sleep(p.ctx, 100*time.Millisecond)
		}
		b.admit.Store(admission.NewAdmitter(p.client, space, ids))
		d := w.desk(p)
		returner := desk.NewReturner(faultyStore{w.store, p}, admission.NewStock(p.client, space), nil, w.log)
		for p.alive() {
			_ = d.RunOnce(p.ctx) // what fails is for the next turn
			p.sleep(p.ctx, 500*time.Millisecond)
			_ = returner.RunOnce(p.ctx)
			p.sleep(p.ctx, 500*time.Millisecond)
		}
	}
}

// runBuyer asks again with the same key while it gets no answer, from either backend; and with a new key now and then.
func (w *world) runBuyer(name string, backends []*backend) func(*process) {
	return func(p *process) {
		p.sleep(p.ctx, p.within(5*time.Second))
		for request := range 1 + p.rnd.IntN(3) {
			key := fmt.Sprintf("k%d", request)
			for range 1 + p.rnd.IntN(3) { // an impatient one asks again even after an answer
				w.buy(p, name, key, backends)
				if w.isCalm() {
					return
				}
				p.sleep(p.ctx, p.within(3*time.Second))
			}
		}
	}
}

func (w *world) buy(p *process, name, key string, backends []*backend) {
	for range 8 {
		if admit := backends[p.rnd.IntN(len(backends))].admit.Load(); admit != nil {
			d, err := admit.Admit(p.ctx, admission.Request{SaleID: saleID, Buyer: name, Key: key, KeyTTL: 24 * time.Hour, Fingerprint: "f"})
			if err == nil {
				w.mu.Lock()
				w.answers = append(w.answers, answer{name, key, d})
				w.notes = append(w.notes, fmt.Sprintf("%s  is told %s: %s %s", name, key, d.Outcome, short(d.OrderID)))
				w.mu.Unlock()
				if w.isCalm() || d.Outcome == sale.Accepted || d.Outcome == sale.Replayed || d.Outcome == sale.AlreadyBought {
					return
				}
			}
		}
		p.sleep(p.ctx, p.within(time.Second))
	}
}

func (w *world) isCalm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calm
}

func (w *world) runWorker(p *process) {
	work := worker.New(queue.NewList(p.client, w.lane, w.queueConfig(p)), faultyStore{w.store, p}, worker.Config{
		Concurrency: 1, Batch: w.Batch, Idle: 300 * time.Millisecond, WriteTimeout: 2 * time.Second, MaxBackoff: time.Second,
		DrainTimeout: time.Second, Jitter: p.rnd.Float64, BatchID: p.batchID, Log: w.log,
	})
	_ = work.Run(p.ctx) // always nil
}

func (w *world) runWatcher(p *process) {
	watch := queue.NewWatcher(queue.NewList(p.client, w.lane, w.queueConfig(p)), queue.WatcherConfig{Log: w.log})
	for p.alive() {
		_, _ = watch.RunOnce(p.ctx) // what fails is for the next turn
		p.sleep(p.ctx, 500*time.Millisecond)
	}
}

// runOperator creates the sale, and then does what operators do, each thing until it is done.
func (w *world) runOperator(p *process) {
	d := w.desk(p)
	until := func(do func() error) {
		for range 6 {
			if err := do(); err == nil || !errors.Is(err, sale.ErrUnavailable) {
				return
			}
			p.sleep(p.ctx, p.within(time.Second))
		}
	}
	until(func() error {
		_, err := d.Create(p.ctx, "op", sale.Sale{
			ID: saleID, Title: "t", Price: sale.Price{Currency: "EUR"}, Stock: int64(w.Stock), PerBuyer: w.PerBuyer, OpensAt: w.clocks,
		})
		return err
	})
	for turn := 0; p.alive(); turn++ {
		p.sleep(p.ctx, 500*time.Millisecond+p.within(2*time.Second))
		switch p.rnd.IntN(8) {
		case 0:
			until(func() error { _, err := d.Pause(p.ctx, "op", saleID); return err })
		case 1, 2:
			until(func() error { _, err := d.Resume(p.ctx, "op", saleID); return err })
		case 3:
			add, key := int64(1+p.rnd.IntN(2)), fmt.Sprintf("%s-%d", p.name, turn)
			if turn < 10 {
				until(func() error { _, err := d.Restock(p.ctx, "op", saleID, add, key); return err })
			}
		case 4:
			w.operateRow(p, d, until)
		default:
			w.operateDead(p, d, until)
		}
	}
}

// operateRow cancels an order that is a row.
func (w *world) operateRow(p *process, d *desk.Desk, until func(func() error)) {
	w.mu.Lock()
	var all []sale.OrderID
	for id, r := range w.rows {
		if !r.cancelled {
			all = append(all, id)
		}
	}
	w.mu.Unlock()
	if len(all) == 0 {
		return
	}
	var id sale.OrderID
	for _, o := range all { // the newest: whichever order a map has
		id = max(id, o)
	}
	until(func() error { _, err := d.CancelOrder(p.ctx, "op", id, "asked for"); return err })
}

// operateDead looks at the dead letters, and retries or cancels one of them; half of what is retried was mended before.
func (w *world) operateDead(p *process, d *desk.Desk, until func(func() error)) {
	page, _, err := d.Dead(p.ctx, queue.DeadQuery{})
	if err != nil || len(page) == 0 {
		return
	}
	letter := page[p.rnd.IntN(len(page))]
	if p.rnd.IntN(3) == 0 {
		until(func() error { _, err := d.Cancel(p.ctx, "op", letter.Message.ID, "no use"); return err })
		return
	}
	if p.rnd.IntN(2) == 0 {
		w.mu.Lock()
		delete(w.troubles, letter.Message.Buyer)
		w.mu.Unlock()
	}
	until(func() error { return d.Retry(p.ctx, "op", letter.Message.ID) })
}

// runAuditor asks for the audit again and again: it must balance at every instant.
func (w *world) runAuditor(p *process) {
	l := ledger.New(admission.NewStock(p.client, space), faultyStore{w.store, p})
	for p.alive() {
		p.sleep(p.ctx, 2*time.Second+p.within(2*time.Second))
		loaded := w.loaded() // asked before: a sale may be loaded while the audit finds that it is not
		report, err := l.Audit(p.ctx, saleID)
		if err != nil || !loaded {
			continue
		}
		w.checkAudit(report)
	}
}

func (w *world) loaded() bool { return w.mini.Exists(w.lane.Stock(saleID)) }

func (w *world) cast() {
	backends := []*backend{{}, {}}
	add := func(name string, once bool, main func(*process)) {
		w.roles = append(w.roles, &role{name: name, main: main, once: once})
	}
	add("operator", false, w.runOperator)
	for i, b := range backends {
		add(fmt.Sprintf("backend%d", i+1), false, w.runBackend(b))
	}
	for i := range w.Workers {
		add(fmt.Sprintf("worker%d", i+1), false, w.runWorker)
	}
	add("watcher", false, w.runWatcher)
	add("auditor", false, w.runAuditor)
	for i := range w.Buyers {
		name := fmt.Sprintf("buyer%d", i+1)
		add(name, true, w.runBuyer(name, backends))
		if w.rnd.IntN(4) == 0 {
			kind := []string{"refused", "failing", "deadly"}[w.rnd.IntN(3)]
			w.troubles[name] = &troublemaker{kind, 1 + w.rnd.IntN(12)}
		}
	}
}
