package adminhttp

import (
	"cmp"
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

// fakeService is the Service, Store, audit and Queue of a test. It answers as the test specifies and records its
// calls.
type fakeService struct {
	mu     sync.Mutex
	calls  []string
	err    error
	view   admin.View
	wasRow bool

	dead []queue.DeadLetter
	next string

	unavailable []int // shards

	stats  queue.Stats
	second queue.Stats // of another shard

	settled []admin.Settled

	rows      []store.OrderRow
	callbacks []store.Callback
	report    []byte
	policies  fakePolicies
}

// fakeDead is a fakeService as DeadLetters.
type fakeDead fakeService

func (d *fakeDead) record(format string, args ...any) error {
	return (*fakeService)(d).record(format, args...)
}

func newFakeService() *fakeService {
	v := admission.View{Sale: servertest.Sale(), Left: 42, Accepted: 58, State: sale.StateOpen}
	return &fakeService{view: admin.View{Sale: v.Sale, Sold: 57, State: v.State, Live: &v}}
}

func (d *fakeService) record(format string, args ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, fmt.Sprintf(format, args...))
	return d.err
}

func (d *fakeService) called() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := strings.Join(d.calls, ", ")
	d.calls = nil
	return s
}

func (d *fakeService) Create(ctx context.Context, s sale.Sale) (admin.View, error) {
	err := d.record("%s creates %+v", store.Actor(ctx), s)
	v := d.view
	v.Sale = s
	if s.ID == "" {
		v.ID = "chosen"
	}
	return v, err
}
func (d *fakeService) Show(_ context.Context, id string) (admin.View, error) {
	return d.view, d.record("show %s", id)
}
func (d *fakeService) List(context.Context) ([]admin.View, error) {
	return []admin.View{d.view}, d.record("list")
}
func (d *fakeService) Restock(ctx context.Context, id string, add int64, key string) (admin.View, error) {
	return d.view, d.record("%s adds %d to %s, key %q", store.Actor(ctx), add, id, key)
}
func (d *fakeService) Describe(ctx context.Context, id string, to sale.Details) (admin.View, error) {
	return d.view, d.record("%s describes %s: %+v", store.Actor(ctx), id, to)
}
func (d *fakeService) SetSwitch(ctx context.Context, id string, to sale.Switch) (admin.View, error) {
	return d.view, d.record("%s sets %s to %s", store.Actor(ctx), id, to)
}
func (d *fakeService) Open(ctx context.Context, id string) (admin.View, error) {
	return d.view, d.record("%s opens %s", store.Actor(ctx), id)
}
func (d *fakeService) Page(_ context.Context, q store.SalesQuery) ([]admin.View, error) {
	return []admin.View{d.view}, d.record("page %+v", q)
}
func (d *fakeService) Log(_ context.Context, q store.LogQuery) ([]store.LogEntry, error) {
	entry := store.LogEntry{
		Number: 7, At: servertest.OrderID(1).Time(), Actor: "ann", Action: "sale.pause", Target: "drop", Detail: "version 2",
	}
	return []store.LogEntry{entry}, d.record("log %+v", q)
}
func (d *fakeService) Record(ctx context.Context, action, target, detail string) error {
	return d.record("%s records %s of %s: %s", store.Actor(ctx), action, target, detail+store.Reason(ctx))
}
func (d *fakeService) SaveReport(ctx context.Context, r store.RehearsalReport) error {
	return d.record("%s saves %s of %s: %s %s", store.Actor(ctx), r.ID, r.SaleID, r.Verdict, r.Report)
}
func (d *fakeService) Reports(context.Context) ([]store.RehearsalReport, error) {
	return []store.RehearsalReport{{
		ID: rehearsed, SaleID: "drop", Verdict: "go", StoredAt: servertest.OrderID(1).Time(), StoredBy: "ann",
	}}, d.record("reports")
}
func (d *fakeService) Report(_ context.Context, id string) (store.RehearsalReport, error) {
	return store.RehearsalReport{
		ID: id, SaleID: "drop", Verdict: "go", StoredAt: servertest.OrderID(1).Time(), StoredBy: "ann", Report: d.report,
	}, d.record("report %s", id)
}
func (d *fakeDead) Find(_ context.Context, id sale.OrderID) (queue.DeadLetter, error) {
	letter := queue.DeadLetter{
		Key: id.String(), Message: servertest.Order(id.Sequence(), "ann", ""), Reason: "no such table", DiedAt: id.Time(),
	}
	return letter, d.record("dead letter %s", id)
}
func (d *fakeDead) List(_ context.Context, q queue.DeadQuery) (admin.DeadPage, error) {
	return admin.DeadPage{Letters: d.dead, Next: d.next, Unavailable: d.unavailable}, d.record("dead %+v", q)
}
func (d *fakeDead) Retry(ctx context.Context, id sale.OrderID) (sale.Status, error) {
	if d.wasRow {
		return sale.StatusCreated, nil
	}
	return sale.StatusQueued, d.record("%s retries %s because %q", store.Actor(ctx), id, store.Reason(ctx))
}
func (d *fakeDead) Cancel(ctx context.Context, id sale.OrderID) (admin.Cancelled, error) {
	o := servertest.Order(id.Sequence(), "ann", sale.StatusCancelled)
	if d.wasRow {
		o.Status = sale.StatusCreated
	}
	err := d.record("%s cancels %s because %q", store.Actor(ctx), id, store.Reason(ctx))
	return admin.Cancelled{Order: o, UnitReturned: !d.wasRow}, err
}
func (d *fakeDead) Settle(ctx context.Context, s admin.Settlement) (admin.SettledPage, error) {
	before := cmp.Or(s.DiedBefore, time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC))
	return admin.SettledPage{Orders: d.settled, DiedBefore: before, Next: d.next, Unavailable: d.unavailable},
		d.record("%s settles %+v because %q", store.Actor(ctx), s, store.Reason(ctx))
}
func (d *fakeService) Order(_ context.Context, id sale.OrderID) (admin.OrderDetails, error) {
	return d.order(id), d.record("order %s", id)
}
func (d *fakeService) OrderPage(_ context.Context, q store.OrderQuery) (
	rows []store.OrderRow, next sale.OrderID, err error,
) {
	if len(d.rows) == q.Limit {
		next = d.rows[q.Limit-1].ID
	}
	return d.rows, next, d.record("orders %+v", q)
}

func (d *fakeService) CancelOrder(ctx context.Context, id sale.OrderID) (admin.OrderDetails, error) {
	return d.order(id), d.record("%s cancels row %s because %q", store.Actor(ctx), id, store.Reason(ctx))
}
func (d *fakeService) Callbacks(_ context.Context, q store.CallbackQuery) ([]store.Callback, error) {
	return d.callbacks, d.record("callbacks %+v", q)
}
func (d *fakeService) SettleRefund(ctx context.Context, number int64, note string) (store.Callback, error) {
	c := store.Callback{
		Number: number, SaleID: "drop", At: servertest.OrderID(1).Time(), Settlement: store.SettledTwice, Refund: true,
		SettledBy: store.Actor(ctx), SettledAt: servertest.OrderID(2).Time(),
	}
	c.OrderID, c.Event = servertest.OrderID(1), store.EventSucceeded
	return c, d.record("%s settles %d: %s", store.Actor(ctx), number, note)
}

// order is a cancelled row with the callbacks of the fake.
func (d *fakeService) order(id sale.OrderID) admin.OrderDetails {
	row := store.OrderRow{
		Order:     servertest.Order(id.Sequence(), "ann", sale.StatusCancelled),
		UpdatedAt: id.Time().Add(time.Minute), CancelledBy: "hold", Note: "not paid in time", Returning: true,
	}
	return admin.OrderDetails{OrderRow: row, Callbacks: d.callbacks}
}
func (d *fakeDead) Drop(ctx context.Context, key string) error {
	return d.record("%s drops %s because %q", store.Actor(ctx), key, store.Reason(ctx))
}
func (d *fakeService) Rehearse(ctx context.Context, r admin.Rehearsal) (admin.View, error) {
	return d.view, d.record("%s rehearses %+v", store.Actor(ctx), r)
}
func (d *fakeService) Rehearsals(context.Context) ([]admin.View, error) {
	return []admin.View{d.view}, d.record("rehearsals")
}
func (d *fakeService) RemoveRehearsal(ctx context.Context, id string) (int64, error) {
	return 7, d.record("%s removes %s", store.Actor(ctx), id)
}
func (d *fakeService) Audit(_ context.Context, id string) (audit.Report, error) {
	return audit.Report{SaleID: id, Stock: 100, Left: 42, Ready: 1, Ordered: 57, Balanced: true}, d.record("audit %s", id)
}
func (d *fakeService) ByShard(context.Context) ([]*queue.Stats, error) {
	return []*queue.Stats{&d.stats, &d.second}, d.record("stats")
}

func (d *fakeService) config() Config {
	return Config{
		Admin:     d,
		Dead:      (*fakeDead)(d),
		Store:     d,
		Audit:     d.Audit,
		Queue:     d,
		Rebuilder: &fakeRebuild{},
		Shards:    fakeShards,
		Pace:      fakePace{},
		Events:    &fakeEvents{},
		Webhooks:  &fakeWebhooks{},
		Policies:  &d.policies,
		LiveStats: newFakeLiveStats(),
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
	headers = append(headers, "Authorization: Bearer "+adminToken, "Content-Type: application/json")
	return s.Do(method, path, body, headers...)
}

// exchange is a request with the admin token and its expected results: the status, the call of a fake, and the body or
// a part of it.
type exchange struct {
	method, path, body string
	status             int
	called, part       string
}

// check sends a request of c. called holds the last call of the fake.
func (s *site) check(c exchange, called *string) (got servertest.Answer) {
	s.T.Helper()
	*called = ""
	got = s.operate(c.method, c.path, c.body)
	if got.Status != c.status || *called != c.called || !strings.Contains(got.Body, c.part) {
		s.T.Errorf("%s %s %s: %d %s; called %q, want %d, %q, %s",
			c.method, c.path, c.body, got.Status, got.Body, *called, c.status, c.called, c.part)
	}
	return got
}

// exact sends requests. It compares the whole responses and the calls of d with those expected.
func (s *site) exact(d *fakeService, requests []exchange) {
	s.T.Helper()
	for _, c := range requests {
		got, called := s.operate(c.method, c.path, c.body), d.called()
		if got.Status != c.status || got.Body != c.part+"\n" || called != c.called {
			s.T.Errorf("%s %s: %d %s\nwant %d %s\ncalled %s\nwant   %s",
				c.method, c.path, got.Status, got.Body, c.status, c.part, called, c.called)
		}
	}
}

const saleJSONWanted = `{"id":"drop","title":"Tea & <cups>","price":{"amount":1999,"currency":"EUR"},"stock":100,"left":42,"per_buyer":1,"state":"open","opens_at":"2026-11-27T10:00:00Z","closes_at":null,"hold":"0s","switch":"on","sold":57,"accepted":58,"version":3,"applied":true,"spread":1}`
