package adminhttp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/backend/events/webhook"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver"
)

// fakeWebhooks has one endpoint and records its calls.
type fakeWebhooks struct {
	called string
	err    error
}

func (f *fakeWebhooks) did(format string, args ...any) error {
	f.called = fmt.Sprintf(format, args...)
	if !httpserver.IsStorable(f.called) { // as PostgreSQL does
		return errors.New("invalid byte sequence for encoding UTF8")
	}
	return f.err
}

func someEndpoint(id string) webhook.Endpoint {
	at := time.Unix(1700000000, 0).UTC()
	return webhook.Endpoint{
		ID: id, URL: "https://shop.example/?a=1&b=2", Title: "Shop", Secret: "whsec_hush",
		OldSecrets: []string{"whsec_older"}, State: webhook.EndpointActive, CreatedBy: "eve", CreatedAt: at, OldUntil: at,
		FailingSince: at, LastError: "HTTP 500", LastErrorAt: at, HoldUntil: at,
		Sales: []string{"drop"}, Waiting: 3, Failed: 2, Oldest: time.Second,
	}
}

func settingsText(s webhook.Settings) string {
	var parts []string
	if s.URL != nil {
		parts = append(parts, *s.URL)
	}
	if s.Title != nil {
		parts = append(parts, *s.Title)
	}
	if s.Types != nil {
		parts = append(parts, fmt.Sprint(*s.Types))
	}
	if s.Sales != nil {
		parts = append(parts, fmt.Sprint(*s.Sales))
	}
	return strings.Join(parts, " ")
}

func (f *fakeWebhooks) Add(ctx context.Context, s webhook.Settings, strict bool) (webhook.Endpoint, error) {
	err := f.did("%s adds %s %v because %s", store.Actor(ctx), settingsText(s), strict, store.Reason(ctx))
	return someEndpoint("ep_1"), err
}

func (f *fakeWebhooks) List(context.Context) ([]webhook.Endpoint, error) {
	return []webhook.Endpoint{someEndpoint("ep_1")}, f.did("list")
}

func (f *fakeWebhooks) Show(_ context.Context, id string) (webhook.Endpoint, error) {
	return someEndpoint(id), f.did("show %s", id)
}

func (f *fakeWebhooks) Change(ctx context.Context, id string, s webhook.Settings) (webhook.Endpoint, error) {
	err := f.did("%s changes %s to %s because %s", store.Actor(ctx), id, settingsText(s), store.Reason(ctx))
	return someEndpoint(id), err
}

func (f *fakeWebhooks) Remove(ctx context.Context, id string) error {
	return f.did("%s removes %s because %s", store.Actor(ctx), id, store.Reason(ctx))
}

func (f *fakeWebhooks) Pause(ctx context.Context, id string) (webhook.Endpoint, error) {
	return someEndpoint(id), f.did("%s pauses %s because %s", store.Actor(ctx), id, store.Reason(ctx))
}

func (f *fakeWebhooks) Resume(ctx context.Context, id string) (webhook.Endpoint, error) {
	return someEndpoint(id), f.did("%s resumes %s because %s", store.Actor(ctx), id, store.Reason(ctx))
}

func (f *fakeWebhooks) Rotate(ctx context.Context, id string, keep time.Duration) (string, error) {
	return "whsec_new", f.did("%s rotates %s, keeps %s because %s", store.Actor(ctx), id, keep, store.Reason(ctx))
}

func (f *fakeWebhooks) Ping(_ context.Context, id string) (string, error) {
	return "ping_1_" + id, f.did("ping %s", id)
}

func (f *fakeWebhooks) Deliveries(_ context.Context, q webhook.DeliveryQuery) ([]webhook.Delivery, error) {
	at := time.Unix(1700000000, 0).UTC()
	all := []webhook.Delivery{
		{
			Number: 9, ID: "7_paid_ep_1", Type: "order.paid", State: webhook.DeliveryWaiting, Attempts: 2, CreatedAt: at,
			DueAt: at, Leased: true,
		},
		{
			Number: 8, ID: "7_created_ep_1", Type: "order.created", State: webhook.DeliveryDelivered, Attempts: 1,
			CreatedAt: at, DueAt: at, EndedAt: at,
		},
	}
	return all[:min(q.Limit, 2)], f.did("deliveries %+v", q)
}

func (f *fakeWebhooks) Delivery(
	_ context.Context, endpointID, id string,
) (webhook.Delivery, []webhook.DeliveryAttempt, error) {
	at := time.Unix(1700000000, 0).UTC()
	d := webhook.Delivery{
		ID: id, Type: "ping", State: webhook.DeliveryFailed, Body: `{"type":"ping"}`, CreatedAt: at, EndedAt: at,
	}
	return d, []webhook.DeliveryAttempt{
		{Number: 1, At: at, Seconds: 1.5, Status: 500, Error: "the endpoint returned 500", Answer: "oh <no>"},
	}, f.did("delivery %s %s", endpointID, id)
}

func (f *fakeWebhooks) Redeliver(ctx context.Context, endpointID, id string) error {
	return f.did("%s redelivers %s %s because %s", store.Actor(ctx), endpointID, id, store.Reason(ctx))
}

func (f *fakeWebhooks) RedeliverSince(ctx context.Context, endpointID string, since time.Time) (int64, error) {
	at := since.Format(time.RFC3339)
	return 42, f.did("%s redelivers %s since %s because %s", store.Actor(ctx), endpointID, at, store.Reason(ctx))
}

func TestWebhooksAndTheirDeliveries(t *testing.T) {
	f := &fakeWebhooks{}
	cfg := newFakeService().config()
	cfg.Webhooks = f
	s := serve(t, cfg)
	const one = "/admin/v1/webhooks/ep_1"
	for _, c := range []exchange{
		{
			"POST", "/admin/v1/webhooks",
			`{"url":"https://x.example","title":"T","types":["order.paid"],"sales":[],"strict":true,"reason":"r"}`, 201,
			"admin adds https://x.example T [order.paid] [] true because r", `"secret":"whsec_hush"`,
		},
		{"POST", "/admin/v1/webhooks", `{"url":"x"}`, 201, "admin adds x false because ", `"types":[],"sales":["drop"]`},
		{
			"POST", "/admin/v1/webhooks", `{"url":7,"types":"order.paid","sales":[1],"strict":"yes","secret":"x"}`, 400, "",
			`"field":"secret"`,
		},
		{"POST", "/admin/v1/webhooks", `{"types":null}`, 400, "", `must be a list of strings`},
		{"GET", "/admin/v1/webhooks", "", 200, "list", `{"webhooks":[{"id":"ep_1","url":"https://shop.example/?a=1&b=2"`},
		{
			"GET", one, "", 200, "show ep_1",
			`"failing_since":"2023-11-14T22:13:20Z","held_until":"2023-11-14T22:13:20Z",` +
				`"last_error":"HTTP 500","last_error_at":"2023-11-14T22:13:20Z","waiting":3,"failed":2,"oldest_age_seconds":1}`,
		},
		{
			"POST", one + "/change", `{"url":"https://y.example","reason":"moved"}`, 200,
			"admin changes ep_1 to https://y.example because moved", `"id":"ep_1"`,
		},
		{"POST", one + "/change", `{"sales":[]}`, 200, "admin changes ep_1 to [] because ", ``},
		{"POST", one + "/change", `{"reason":"x"}`, 400, "", `at least one of url`},
		{"POST", one + "/change", `{"strict":true}`, 400, "", `strict`},
		{"POST", one + "/pause", `{"reason":"night"}`, 200, "admin pauses ep_1 because night", ``},
		{"POST", one + "/resume", "", 200, "admin resumes ep_1 because ", ``},
		{"POST", one + "/rotate", "", 200, "admin rotates ep_1, keeps 24h0m0s because ", `"secret":"whsec_new"`},
		{"POST", one + "/rotate", `{"keep":"0s"}`, 200, "admin rotates ep_1, keeps 0s because ", `"keep":"0s"`},
		{"POST", one + "/rotate", `{"keep":null}`, 200, "admin rotates ep_1, keeps 24h0m0s because ", `"keep":"24h"`},
		{"POST", one + "/rotate", `{"keep":"soon"}`, 400, "", `keep`},
		{"POST", one + "/remove", "", 200, "admin removes ep_1 because ", `"status":"removed"`},
		{"POST", one + "/ping", "", 202, "ping ep_1", `{"delivery":"ping_1_ep_1"}`},
		{
			"GET", one + "/deliveries?state=failed&limit=1&before=77", "", 200,
			"deliveries {EndpointID:ep_1 State:3 Before:77 Limit:1}",
			`"sending":true,"created_at":"2023-11-14T22:13:20Z","due_at":"2023-11-14T22:13:20Z"}],"next":9}`,
		},
		{
			"GET", one + "/deliveries", "", 200, "deliveries {EndpointID:ep_1 State:0 Before:0 Limit:100}",
			`"ended_at":"2023-11-14T22:13:20Z"}]}`,
		},
		{"GET", one + "/deliveries?state=odd&before=-1&limit=x", "", 400, "", `"field":"before"`},
		{
			"GET", one + "/deliveries/a%2Fb", "", 200, "delivery ep_1 a/b",
			`"log":[{"number":1,"at":"2023-11-14T22:13:20Z","seconds":1.5,"status":500,"error":"the endpoint returned 500","answer":"oh <no>"}]}`,
		},
		{
			"POST", one + "/deliveries/7_paid_ep_1/redeliver", `{"reason":"x"}`, 200,
			"admin redelivers ep_1 7_paid_ep_1 because x", `"status":"redelivering"`,
		},
		{
			"POST", one + "/redeliver", `{"since":"2026-11-27T10:00:00Z"}`, 200,
			"admin redelivers ep_1 since 2026-11-27T10:00:00Z because ", `{"redelivering":42}`,
		},
		{"POST", one + "/redeliver", "", 200, "admin redelivers ep_1 since 2020-01-01T00:00:00Z because ", ``},
		{"POST", one + "/redeliver", `{"since":"yesterday"}`, 400, "", `since`},
		{"GET", "/admin/v1/webhooks/%ff", "", 404, "", `There is no such webhook endpoint.`},
		{"GET", "/admin/v1/webhooks/a%00/deliveries", "", 404, "", `There is no such webhook endpoint.`},
		{"GET", one + "/deliveries/%ff", "", 404, "", `There is no such delivery.`},
		{"GET", "/admin/v1/webhooks/%ff/deliveries/x", "", 404, "", `There is no such webhook endpoint.`},
		{"POST", "/admin/v1/webhooks/" + strings.Repeat("x", maxParam+1) + "/pause", "", 404, "", `not-found`},
	} {
		got := s.check(c, &f.called)
		if strings.Contains(got.Body, "whsec_older") || strings.Contains(got.Body, "whsec_hush") && got.Status != 201 {
			t.Errorf("%s %s shows a secret: %s", c.method, c.path, got.Body)
		}
	}
	for err, status := range map[error]int{
		sale.ErrNotFound: 404, sale.ErrConflict: 409, sale.ErrUnavailable: 503,
		&sale.InvalidError{Fields: []sale.FieldError{{Field: "url", Detail: "no"}}}: 400,
	} {
		f.err = err
		for path, body := range map[string]string{
			"/admin/v1/webhooks": `{"url":"x"}`, one + "/pause": "", one + "/redeliver": "",
		} {
			if status == 404 && path == "/admin/v1/webhooks" {
				continue
			}
			if status == 400 && path != "/admin/v1/webhooks" {
				continue
			}
			if got := s.operate("POST", path, body); got.Status != status {
				t.Errorf("%s, %v: %d %s", path, err, got.Status, got.Body)
			}
		}
	}
	for err, detail := range map[error]string{
		webhook.ErrNoEndpoint: "There is no such webhook endpoint.", webhook.ErrNoDelivery: "There is no such delivery.",
	} {
		f.err = fmt.Errorf("of SQL: %w", err)
		got := s.operate("POST", one+"/deliveries/x/redeliver", "")
		if got.Status != 404 || !strings.Contains(got.Body, detail) {
			t.Errorf("%v: %d %s", err, got.Status, got.Body)
		}
	}
	if got := s.Do("POST", "/admin/v1/webhooks", ""); got.Status != 401 {
		t.Errorf("without a token: %d", got.Status)
	}
}
