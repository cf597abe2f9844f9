package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/api/userlimit"
	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/web/buyer"
	"sluice/backend/web/httpserver/servertest"
	"sluice/internal/token/tokentest"
)

const secret = "a secret for tests, of more than thirty-two bytes"

// world implements the services behind the API in memory, with the faults that a test sets. mu guards all fields.
type world struct {
	mu          sync.Mutex
	admit       func(admission.Request) (admission.Decision, error)
	requests    []admission.Request
	sales       map[string]admission.View
	rows        map[sale.OrderID]sale.Order
	queued      map[sale.OrderID]sale.Order
	remembered  map[sale.OrderID]string // its sale
	dead        map[sale.OrderID]queue.DeadLetter
	stats       queue.Stats
	redisErr    error
	lost        bool // Redis may have lost data
	sqlErr      error
	accepted    int64
	spread      int
	acceptedErr error
	holders     []uint32
	lists       int // calls of BypassList
	views       int // calls of View
	statuses    int // calls of Statuses
	largest     int // most ids in one of them, or the limit of OrdersInSale
	limit       func(buyerID string) userlimit.Result
}

func newWorld() *world {
	return &world{
		admit: func(admission.Request) (admission.Decision, error) {
			return admission.Decision{Outcome: sale.Accepted, OrderID: servertest.OrderID(1)}, nil
		},
		sales: map[string]admission.View{
			"drop": {Sale: servertest.Sale(), Left: 42, Accepted: 58, State: sale.StateOpen},
		},
		rows:       map[sale.OrderID]sale.Order{},
		queued:     map[sale.OrderID]sale.Order{},
		remembered: map[sale.OrderID]string{},
		dead:       map[sale.OrderID]queue.DeadLetter{},
	}
}

func (w *world) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) Admit(_ context.Context, r admission.Request) (admission.Decision, error) {
	w.mu.Lock()
	admit := w.admit
	w.requests = append(w.requests, r)
	w.mu.Unlock()
	return admit(r)
}

func (w *world) View(_ context.Context, id string) (admission.View, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.views++
	if w.redisErr != nil {
		return admission.View{}, w.redisErr
	}
	v, ok := w.sales[id]
	if !ok {
		return v, fmt.Errorf("sale %s: %w", id, sale.ErrNotFound)
	}
	return v, nil
}

func (w *world) List(context.Context) ([]admission.View, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []admission.View
	for _, v := range w.sales {
		all = append(all, v)
	}
	return all, w.redisErr
}

func (w *world) Remember(id sale.OrderID, saleID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remembered[id] = saleID
}

func (w *world) FindOrder(_ context.Context, buyerID string, id sale.OrderID) (sale.Order, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.redisErr != nil {
		return sale.Order{}, w.redisErr
	}
	if o, ok := w.queued[id]; ok && o.Buyer == buyerID {
		return o, nil
	}
	return sale.Order{}, fmt.Errorf("order: %w", sale.ErrNotFound)
}

func (w *world) OrdersHeld(_ context.Context, buyerID, saleID string) ([]sale.Order, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var held []sale.Order
	for _, o := range w.queued {
		if o.Buyer == buyerID && o.SaleID == saleID {
			held = append(held, o)
		}
	}
	return held, w.redisErr
}

func (w *world) OrdersInSale(_ context.Context, buyerID, saleID string, limit int) ([]sale.Order, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.largest = limit
	var rows []sale.Order
	for _, o := range w.rows {
		if o.Buyer == buyerID && o.SaleID == saleID {
			rows = append(rows, o)
		}
	}
	return rows, w.sqlErr
}

func (w *world) Accepted(_ context.Context, id string) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.sales[id]; !ok && w.redisErr == nil {
		return 0, fmt.Errorf("sale %s: %w", id, sale.ErrNotFound)
	}
	return w.accepted, cmp.Or(w.redisErr, w.acceptedErr)
}

func (w *world) Spread(context.Context, string) (int, error) { return w.spread, w.redisErr }

func (w *world) BypassList(_ context.Context, id string, most int) (admission.BypassList, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists++
	if len(w.holders) > most {
		return admission.BypassList{}, fmt.Errorf("%w: sale %s", admission.ErrBypassListTooLong, id)
	}
	return admission.BypassList{Accepted: w.accepted, Sums: w.holders}, w.redisErr
}

func (w *world) Order(_ context.Context, id sale.OrderID) (sale.Order, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sqlErr != nil {
		return sale.Order{}, w.sqlErr
	}
	if o, ok := w.rows[id]; ok {
		return o, nil
	}
	return sale.Order{}, fmt.Errorf("order: %w", sale.ErrNotFound)
}

func (w *world) OrdersByID(_ context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Order, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := map[sale.OrderID]sale.Order{}
	for _, id := range ids {
		if o, ok := w.rows[id]; ok {
			found[id] = o
		}
	}
	return found, w.sqlErr
}

func (w *world) Statuses(_ context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.statuses++
	w.largest = max(w.largest, len(ids))
	found := map[sale.OrderID]sale.Status{}
	for _, id := range ids {
		if o, ok := w.rows[id]; ok {
			found[id] = o.Status
		}
	}
	return found, w.sqlErr
}

func (w *world) DeadLetter(_ context.Context, id sale.OrderID) (queue.DeadLetter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.redisErr != nil {
		return queue.DeadLetter{}, w.redisErr
	}
	if d, ok := w.dead[id]; ok {
		return d, nil
	}
	return queue.DeadLetter{}, fmt.Errorf("dead: %w", sale.ErrNotFound)
}

func (w *world) Dead(_ context.Context, ids []sale.OrderID, yield func(sale.OrderID)) {
	for _, id := range ids {
		w.mu.Lock()
		_, dead := w.dead[id]
		dead = dead && w.redisErr == nil
		w.mu.Unlock()
		if dead {
			yield(id)
		}
	}
}

func (w *world) Empty(context.Context, sale.OrderID) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats.Ready+w.stats.Delayed+w.stats.Leased == 0, w.redisErr
}

func (w *world) Allow(_ context.Context, buyerID string) userlimit.Result {
	w.mu.Lock()
	limit := w.limit
	w.mu.Unlock()
	if limit == nil {
		return userlimit.Result{Allowed: true}
	}
	return limit(buyerID)
}

// bearerOf is an Authorization header for the buyer.
func bearerOf(t testing.TB, buyerID string) string {
	t.Helper()
	return "Bearer " + tokentest.Sign(t, secret, buyerID, time.Hour)
}

func (w *world) Pay(context.Context, store.Payment) (store.Settlement, bool, error) {
	return "", false, errors.New("no payment is expected")
}

func (w *world) config(t testing.TB) Config {
	return Config{
		Admitter: w,
		Stock:    w,
		Finder:   w,
		Orders:   w,
		Dead:     w,
		Tokens:   tokentest.Key(t, secret),
		Points:   fakePoints{},
		Limiter:  w,
		Archived: func(string) bool { return false }, Known: func(string) bool { return false },
		QueueFull: func(spread.Part) time.Duration { return 5 * time.Second },
		Intact: func(sale.OrderID) func(context.Context) bool {
			return func(context.Context) bool { return !w.lost }
		},
		Pages:  buyerPages(t),
		Server: servertest.Config(),
	}
}

func buyerPages(t testing.TB) *buyer.Pages {
	t.Helper()
	p, err := buyer.New(buyer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// site is a running server with access to its handlers.
type site struct {
	*servertest.Site
	handlers *handlers
}

func serve(t testing.TB, cfg Config, change ...func(*handlers)) *site {
	t.Helper()
	h, err := newHandlers(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range change {
		change(h)
	}
	return &site{servertest.Serve(t, h.Server), h}
}

func (w *world) serve(t testing.TB) *site {
	t.Helper()
	return serve(t, w.config(t))
}

func (s *site) buy(t testing.TB, buyerID string, headers ...string) servertest.Answer {
	t.Helper()
	return s.Do("POST", "/v1/sales/drop/orders", "", append(headers, "Authorization: "+bearerOf(t, buyerID))...)
}
