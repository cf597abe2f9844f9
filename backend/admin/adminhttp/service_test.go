package adminhttp

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/admin"
	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver/servertest"
)

const adminToken = "a secret of the tests"

// fakeService is a service that answers as the test specifies and records its calls.
type fakeService struct {
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

	rows      []store.OrderRow
	callbacks []store.Callback
}

func newFakeService() *fakeService {
	v := admission.View{Sale: servertest.Sale(), Left: 42, Accepted: 58, State: sale.StateOpen}
	return &fakeService{view: admin.View{Sale: v.Sale, Sold: 57, State: v.State, Live: &v}}
}

func (d *fakeService) ask(format string, args ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, fmt.Sprintf(format, args...))
	return d.err
}

func (d *fakeService) was() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := strings.Join(d.asked, ", ")
	d.asked = nil
	return s
}

func (d *fakeService) Create(_ context.Context, actor string, s sale.Sale) (admin.View, error) {
	err := d.ask("%s creates %+v", actor, s)
	v := d.view
	v.Sale = s
	if s.ID == "" {
		v.ID = "chosen"
	}
	return v, err
}
func (d *fakeService) Show(_ context.Context, id string) (admin.View, error) {
	return d.view, d.ask("show %s", id)
}
func (d *fakeService) List(context.Context) ([]admin.View, error) {
	return []admin.View{d.view}, d.ask("list")
}
func (d *fakeService) Restock(_ context.Context, actor, id string, add int64, key string) (admin.View, error) {
	return d.view, d.ask("%s adds %d to %s, key %q", actor, add, id, key)
}
func (d *fakeService) Pause(_ context.Context, actor, id string) (admin.View, error) {
	return d.view, d.ask("%s pauses %s", actor, id)
}
func (d *fakeService) Resume(_ context.Context, actor, id string) (admin.View, error) {
	return d.view, d.ask("%s resumes %s", actor, id)
}
func (d *fakeService) Open(_ context.Context, actor, id string) (admin.View, error) {
	return d.view, d.ask("%s opens %s", actor, id)
}
func (d *fakeService) Close(_ context.Context, actor, id string) (admin.View, error) {
	return d.view, d.ask("%s closes %s", actor, id)
}
func (d *fakeService) Page(_ context.Context, q store.SalesQuery) ([]admin.View, error) {
	return []admin.View{d.view}, d.ask("page %+v", q)
}
func (d *fakeService) Log(_ context.Context, q store.LogQuery) ([]store.LogEntry, error) {
	return []store.LogEntry{
			{
				Number: 7,
				At:     servertest.OrderID(1).Time(),
				Actor:  "ann",
				Action: "sale.pause",
				Target: "drop",
				Detail: "version 2",
			},
		}, d.ask(
			"log %+v",
			q,
		)
}
func (d *fakeService) Note(_ context.Context, actor, action, target, detail string) error {
	return d.ask("%s notes %s of %s: %s", actor, action, target, detail)
}
func (d *fakeService) DeadLetter(_ context.Context, id sale.OrderID) (queue.DeadLetter, error) {
	return queue.DeadLetter{
			Key:     id.String(),
			Message: servertest.Order(id.Sequence(), "ann", ""),
			Reason:  "no such table",
			DiedAt:  id.Time(),
		}, d.ask(
			"dead letter %s",
			id,
		)
}
func (d *fakeService) Dead(_ context.Context, q queue.DeadQuery) ([]queue.DeadLetter, string, error) {
	return d.dead, d.next, d.ask("dead %+v", q)
}
func (d *fakeService) Retry(_ context.Context, actor string, id sale.OrderID) error {
	return d.ask("%s retries %s", actor, id)
}
func (d *fakeService) Cancel(_ context.Context, actor string, id sale.OrderID, reason string) (admin.Cancelled, error) {
	o := servertest.Order(id.Sequence(), "ann", sale.StatusCancelled)
	if d.wasRow {
		o.Status = sale.StatusCreated
	}
	return admin.Cancelled{
			Order:        o,
			WasRow:       d.wasRow,
			UnitReturned: !d.wasRow,
		}, d.ask(
			"%s cancels %s because %q",
			actor,
			id,
			reason,
		)
}
func (d *fakeService) Settle(_ context.Context, actor string, s admin.Settlement) ([]admin.Settled, string, error) {
	return d.settled, d.next, d.ask("%s settles %+v", actor, s)
}
func (d *fakeService) Order(_ context.Context, id sale.OrderID) (admin.OrderDetails, error) {
	return d.order(id), d.ask("order %s", id)
}
func (d *fakeService) Orders(_ context.Context, q store.OrderQuery) ([]store.OrderRow, error) {
	return d.rows, d.ask("orders %+v", q)
}

func (d *fakeService) CancelOrder(
	_ context.Context,
	actor string,
	id sale.OrderID,
	reason string,
) (admin.OrderDetails, error) {
	return d.order(id), d.ask("%s cancels row %s because %q", actor, id, reason)
}
func (d *fakeService) Callbacks(_ context.Context, q store.CallbackQuery) ([]store.Callback, error) {
	return d.callbacks, d.ask("callbacks %+v", q)
}
func (d *fakeService) SettleRefund(_ context.Context, actor string, number int64, note string) (store.Callback, error) {
	c := store.Callback{
		Number:     number,
		SaleID:     "drop",
		At:         servertest.OrderID(1).Time(),
		Settlement: store.SettledTwice,
		Refund:     true,
		SettledBy:  actor,
		SettledAt:  servertest.OrderID(2).Time(),
	}
	c.OrderID, c.Event = servertest.OrderID(1), store.EventSucceeded
	return c, d.ask("%s settles %d: %s", actor, number, note)
}

// order is a cancelled row with the callbacks that the desk knows.
func (d *fakeService) order(id sale.OrderID) admin.OrderDetails {
	row := store.OrderRow{
		Order:       servertest.Order(id.Sequence(), "ann", sale.StatusCancelled),
		UpdatedAt:   id.Time().Add(time.Minute),
		CancelledBy: "hold",
		Note:        "not paid in time",
		Returning:   true,
	}
	return admin.OrderDetails{OrderRow: row, Callbacks: d.callbacks}
}
func (d *fakeService) Drop(_ context.Context, actor, key string) error {
	return d.ask("%s drops %s", actor, key)
}
func (d *fakeService) Rehearse(_ context.Context, actor string, r admin.Rehearsal) (admin.View, error) {
	return d.view, d.ask("%s rehearses %+v", actor, r)
}
func (d *fakeService) Rehearsals(context.Context) ([]admin.View, error) {
	return []admin.View{d.view}, d.ask("rehearsals")
}
func (d *fakeService) RemoveRehearsal(_ context.Context, actor, id string) (int64, error) {
	return 7, d.ask("%s removes %s", actor, id)
}
func (d *fakeService) Audit(_ context.Context, id string) (audit.Report, error) {
	return audit.Report{SaleID: id, Stock: 100, Left: 42, Ready: 1, Ordered: 57, Balanced: true}, d.ask("audit %s", id)
}
func (d *fakeService) ByShard(context.Context) ([]queue.Stats, error) {
	return []queue.Stats{d.stats, d.second}, d.ask("stats")
}

func (d *fakeService) config() Config {
	return Config{
		Admin:     d,
		Auditor:   d,
		Queue:     d,
		Rebuilder: &fakeRebuild{},
		Pace:      fakePace{},
		Events:    &fakeEvents{},
		Webhooks:  &fakeWebhooks{},
		LiveStats: newFakeLiveStats(),
		Pages:     consolePages(),
		Token:     adminToken,
		Gatherer:  prometheus.NewRegistry(),
		Server:    servertest.Config(),
	}
}

// site is a running server.
type site struct{ *servertest.Site }

func serve(t testing.TB, cfg Config) *site {
	t.Helper()
	server, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &site{servertest.Serve(t, server)}
}

func (d *fakeService) serve(t testing.TB) *site {
	t.Helper()
	return serve(t, d.config())
}

// operate sends a request with the admin token.
func (s *site) operate(method, path, body string, headers ...string) servertest.Answer {
	s.T.Helper()
	return s.Do(
		method,
		path,
		body,
		append(headers, "Authorization: Bearer "+adminToken, "Content-Type: application/json")...)
}

const saleJSONWanted = `{"id":"drop","title":"Tea & <cups>","price":{"amount":1999,"currency":"EUR"},"stock":100,"left":42,"per_buyer":1,"state":"open","opens_at":"2026-11-27T10:00:00Z","closes_at":null,"hold":"0s","switch":"on","sold":57,"accepted":58,"version":3,"applied":true}`
