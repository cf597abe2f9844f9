package api

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/admin"
	"sluice/backend/audit"
	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/store"
)

const adminToken = "the operator's token"

// deskWorld is a desk that answers as told and remembers what it was asked.
type deskWorld struct {
	mu     sync.Mutex
	asked  []string
	err    error
	view   admin.View
	wasRow bool
	dead   []queue.DeadLetter
	next   string
	stats  queue.Stats
	second queue.Stats // of another shard

	settled []admin.Settled

	rows      []store.Row
	callbacks []store.Callback
}

func newDeskWorld() *deskWorld {
	v := newWorld().sales["drop"]
	return &deskWorld{view: admin.View{Sale: v.Sale, Sold: 57, State: v.State, Live: &v}}
}

func (d *deskWorld) ask(format string, args ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, fmt.Sprintf(format, args...))
	return d.err
}

func (d *deskWorld) was() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := strings.Join(d.asked, ", ")
	d.asked = nil
	return s
}

func (d *deskWorld) Create(_ context.Context, actor string, s sale.Sale) (admin.View, error) {
	err := d.ask("%s creates %+v", actor, s)
	v := d.view
	v.Sale = s
	if s.ID == "" {
		v.ID = "chosen"
	}
	return v, err
}
func (d *deskWorld) Show(_ context.Context, id string) (admin.View, error) {
	return d.view, d.ask("show %s", id)
}
func (d *deskWorld) List(context.Context) ([]admin.View, error) {
	return []admin.View{d.view}, d.ask("list")
}
func (d *deskWorld) Restock(_ context.Context, actor, id string, add int64, key string) (admin.View, error) {
	return d.view, d.ask("%s adds %d to %s, key %q", actor, add, id, key)
}
func (d *deskWorld) Pause(_ context.Context, actor, id string) (admin.View, error) {
	return d.view, d.ask("%s pauses %s", actor, id)
}
func (d *deskWorld) Resume(_ context.Context, actor, id string) (admin.View, error) {
	return d.view, d.ask("%s resumes %s", actor, id)
}
func (d *deskWorld) Open(_ context.Context, actor, id string) (admin.View, error) {
	return d.view, d.ask("%s opens %s", actor, id)
}
func (d *deskWorld) Close(_ context.Context, actor, id string) (admin.View, error) {
	return d.view, d.ask("%s closes %s", actor, id)
}
func (d *deskWorld) Page(_ context.Context, q store.SalesQuery) ([]admin.View, error) {
	return []admin.View{d.view}, d.ask("page %+v", q)
}
func (d *deskWorld) Log(_ context.Context, q store.LogQuery) ([]store.LogEntry, error) {
	return []store.LogEntry{{Number: 7, At: orderID(1).Time(), Actor: "ann", Action: "sale.pause", Target: "drop", Detail: "version 2"}}, d.ask("log %+v", q)
}
func (d *deskWorld) Note(_ context.Context, actor, action, target, detail string) error {
	return d.ask("%s notes %s of %s: %s", actor, action, target, detail)
}
func (d *deskWorld) DeadLetter(_ context.Context, id sale.OrderID) (queue.DeadLetter, error) {
	return queue.DeadLetter{Key: id.String(), Message: bought(id.Sequence(), "ann", ""), Reason: "no such table", DiedAt: id.Time()}, d.ask("dead letter %s", id)
}
func (d *deskWorld) Dead(_ context.Context, q queue.DeadQuery) ([]queue.DeadLetter, string, error) {
	return d.dead, d.next, d.ask("dead %+v", q)
}
func (d *deskWorld) Retry(_ context.Context, actor string, id sale.OrderID) error {
	return d.ask("%s retries %s", actor, id)
}
func (d *deskWorld) Cancel(_ context.Context, actor string, id sale.OrderID, reason string) (admin.Cancelled, error) {
	o := bought(id.Sequence(), "ann", sale.StatusCancelled)
	if d.wasRow {
		o.Status = sale.StatusCreated
	}
	return admin.Cancelled{Order: o, WasRow: d.wasRow, GivenBack: !d.wasRow}, d.ask("%s cancels %s because %q", actor, id, reason)
}
func (d *deskWorld) Settle(_ context.Context, actor string, s admin.Settlement) ([]admin.Settled, string, error) {
	return d.settled, d.next, d.ask("%s settles %+v", actor, s)
}
func (d *deskWorld) Order(_ context.Context, id sale.OrderID) (admin.OrderView, error) {
	return d.order(id), d.ask("order %s", id)
}
func (d *deskWorld) Orders(_ context.Context, q store.RowQuery) ([]store.Row, error) {
	return d.rows, d.ask("orders %+v", q)
}
func (d *deskWorld) CancelOrder(_ context.Context, actor string, id sale.OrderID, reason string) (admin.OrderView, error) {
	return d.order(id), d.ask("%s cancels row %s because %q", actor, id, reason)
}
func (d *deskWorld) Callbacks(_ context.Context, q store.CallbackQuery) ([]store.Callback, error) {
	return d.callbacks, d.ask("callbacks %+v", q)
}
func (d *deskWorld) SettleRefund(_ context.Context, actor string, number int64, note string) (store.Callback, error) {
	c := store.Callback{Number: number, SaleID: "drop", At: orderID(1).Time(), Settlement: store.SettledTwice, Refund: true, SettledBy: actor, SettledAt: orderID(2).Time()}
	c.OrderID, c.Event = orderID(1), store.EventSucceeded
	return c, d.ask("%s settles %d: %s", actor, number, note)
}

// order is a cancelled row with the callbacks that the desk knows.
func (d *deskWorld) order(id sale.OrderID) admin.OrderView {
	row := store.Row{Order: bought(id.Sequence(), "ann", sale.StatusCancelled), UpdatedAt: id.Time().Add(time.Minute), CancelledBy: "hold", Note: "not paid in time", Returning: true}
	return admin.OrderView{Row: row, Callbacks: d.callbacks}
}
func (d *deskWorld) Drop(_ context.Context, actor, key string) error {
	return d.ask("%s drops %s", actor, key)
}
func (d *deskWorld) Rehearse(_ context.Context, actor string, r admin.Rehearsal) (admin.View, error) {
	return d.view, d.ask("%s rehearses %+v", actor, r)
}
func (d *deskWorld) Rehearsals(context.Context) ([]admin.View, error) {
	return []admin.View{d.view}, d.ask("rehearsals")
}
func (d *deskWorld) RemoveRehearsal(_ context.Context, actor, id string) (int64, error) {
	return 7, d.ask("%s removes %s", actor, id)
}
func (d *deskWorld) PauseRedis(_ context.Context, actor, id string, span time.Duration, beside bool) error {
	return d.ask("%s pauses redis for %s in %s, beside %v", actor, span, id, beside)
}
func (d *deskWorld) AbandonBatch(_ context.Context, actor, id string, limit int, beside bool) (int, error) {
	err := d.ask("%s abandons %d of %s, beside %v", actor, limit, id, beside)
	if limit < 1 {
		err = &sale.InvalidError{Fields: []sale.FieldError{{Field: "orders", Detail: "must be at least 1"}}}
	}
	return 3, err
}
func (d *deskWorld) Audit(_ context.Context, id string) (audit.Report, error) {
	return audit.Report{SaleID: id, Stock: 100, Left: 42, Ready: 1, Ordered: 57, Balanced: true}, d.ask("audit %s", id)
}
func (d *deskWorld) ByShard(context.Context) ([]queue.Stats, error) {
	return []queue.Stats{d.stats, d.second}, d.ask("stats")
}

func (d *deskWorld) config() OperatorConfig {
	return OperatorConfig{
		Desk: d, Ledger: d, Queue: d, Rebuild: &fakeRebuild{}, Pace: fakePace{}, Events: &fakeEvents{}, Webhooks: &fakeWebhooks{}, Board: newFakeBoard(), Pages: deskPages(), Token: adminToken, Gatherer: prometheus.NewRegistry(), Log: quiet(), Jitter: func() float64 { return 0 }, Drain: 5 * time.Second,
	}
}

func (d *deskWorld) serve(t testing.TB) *site {
	t.Helper()
	a, err := NewOperator(d.config())
	return serve(t, a, err)
}

func (s *site) operate(method, path, body string, headers ...string) answer {
	s.t.Helper()
	return s.ask(method, path, body, append(headers, "Authorization: Bearer "+adminToken, "Content-Type: application/json")...)
}

const deskJSONWanted = `{"id":"drop","title":"Tea & <cups>","price":{"amount":1999,"currency":"EUR"},"stock":100,"left":42,"per_buyer":1,"state":"open","opens_at":"2026-11-27T10:00:00Z","closes_at":null,"hold":"0s","switch":"on","sold":57,"accepted":58,"version":3,"applied":true}`
