package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/backend/payment"
	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver/servertest"
)

var paymentSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("p", 32)))

// fakePayments settles callbacks as the test specifies and records them.
type fakePayments struct {
	mu       sync.Mutex
	payments []store.Payment
	settled  store.Settlement
	replayed bool
	err      error
}

func (l *fakePayments) Pay(_ context.Context, p store.Payment) (store.Settlement, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.payments = append(l.payments, p)
	return l.settled, l.replayed, l.err
}

func (l *fakePayments) do(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// take returns the payments since the last call of take.
func (l *fakePayments) take() []store.Payment {
	l.mu.Lock()
	defer l.mu.Unlock()
	payments := l.payments
	l.payments = nil
	return payments
}

// payableOrders applies payments to fakePayments.
type payableOrders struct {
	*world
	to *fakePayments
}

func (o payableOrders) Pay(ctx context.Context, p store.Payment) (store.Settlement, bool, error) {
	return o.to.Pay(ctx, p)
}

func (w *world) servePayments(t testing.TB, l *fakePayments) *site {
	t.Helper()
	cfg := w.config(t)
	verifier, err := payment.NewVerifier(paymentSecret, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Callbacks, cfg.Orders = verifier, payableOrders{w, l}
	return serve(t, cfg)
}

// signed returns the headers of a signed callback.
func signed(t testing.TB, id string, at time.Time, body string) []string {
	t.Helper()
	hook, err := standardwebhooks.NewWebhook(paymentSecret)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := hook.Sign(id, at, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"Webhook-Id: " + id,
		"Webhook-Timestamp: " + strconv.FormatInt(at.Unix(), 10),
		"Webhook-Signature: " + signature,
		"Content-Type: application/json",
	}
}

func (s *site) callback(id, body string) servertest.Answer {
	s.T.Helper()
	return s.Do("POST", "/v1/payments", body, signed(s.T, id, time.Now(), body)...)
}

func paid(id sale.OrderID) string {
	return fmt.Sprintf(
		`{"type":"payment.succeeded","timestamp":"2026-11-27T10:01:00Z","data":{"order_id":"%s","amount":1999,"currency":"EUR","reference":"pi_1","customer":{"name":"Ann"}}}`,
		id,
	)
}

func TestPaymentIsSettledAndAnswered(t *testing.T) {
	l := &fakePayments{}
	s := newWorld().servePayments(t, l)
	for _, c := range []struct {
		settled store.Settlement
		status  int
		want    string // the result, or the code
	}{
		{store.SettledPaid, 200, "paid"},
		{store.SettledFailed, 200, "noted"},
		{store.SettledCancelled, 409, "order-cancelled"},
		{store.SettledMismatch, 409, "payment-mismatch"},
		{store.SettledTwice, 409, "already-paid"},
	} {
		var first servertest.Answer
		for _, replayed := range []bool{false, true} {
			l.do(func() { l.settled, l.replayed = c.settled, replayed })
			a := s.callback("msg_1", paid(servertest.OrderID(1)))
			if c.status == 200 {
				if a.Status != 200 || a.Field(t, "result") != c.want {
					t.Errorf("%s: %d %s", c.settled, a.Status, a.Body)
				}
			} else {
				servertest.WantProblem(t, a, c.status, c.want)
			}
			if a.Field(t, "order_id") != servertest.OrderID(1).String() {
				t.Errorf("%s: %s does not name the order", c.settled, a.Body)
			}
			if got := a.Header.Get("Idempotency-Replayed"); got != map[bool]string{true: "true"}[replayed] {
				t.Errorf("%s, replayed %v: Idempotency-Replayed %q", c.settled, replayed, got)
			}
			if !replayed {
				first = a
			} else if a.Body != first.Body || a.Status != first.Status {
				t.Errorf("%s: again %d %s, first %d %s", c.settled, a.Status, a.Body, first.Status, first.Body)
			}
		}
	}
	got := l.take()
	want := store.Payment{
		CallbackID: "msg_1",
		OrderID:    servertest.OrderID(1),
		Event:      store.EventSucceeded,
		Price:      sale.Price{Amount: 1999, Currency: "EUR"},
		Reference:  "pi_1",
	}
	want.Digest = got[0].Digest
	if got[0] != want || len(want.Digest) != 64 {
		t.Errorf("applied %+v, want %+v", got[0], want)
	}
	s.callback("msg_2", `{"type":"payment.failed","data":{"order_id":"7"}}`)
	if got := l.take()[0]; got.Event != store.EventFailed || got.OrderID != 7 || got.Digest == want.Digest {
		t.Errorf("applied %+v", got)
	}
	l.do(func() { l.err = fmt.Errorf("pay: %w", store.ErrCallbackReused) })
	servertest.WantProblem(t, s.callback("msg_1", paid(servertest.OrderID(1))), 422, "idempotency-key-reused")
	l.do(func() { l.err = servertest.ErrRedisDown })
	servertest.WantProblem(t, s.callback("msg_1", paid(servertest.OrderID(1))), 503, "temporarily-unavailable")
}

func TestPaymentNeedsAValidSignature(t *testing.T) {
	l := &fakePayments{settled: store.SettledPaid}
	s := newWorld().servePayments(t, l)
	body := paid(servertest.OrderID(1))
	good := signed(t, "msg_1", time.Now(), body)
	replace := func(i int, with ...string) []string {
		return append(append(append([]string{}, good[:i]...), with...), good[i+1:]...)
	}
	sent := func(id string, at time.Time) []string { return signed(t, id, at, body) }
	for name, c := range map[string]struct {
		headers []string
		body    string
		detail  string // a part of it
	}{
		"no headers":       {good[3:], body, "headers webhook-id, webhook-timestamp and webhook-signature"},
		"no id":            {replace(0), body, "headers webhook-id, webhook-timestamp and webhook-signature"},
		"two ids":          {replace(0, good[0], good[0]), body, "each once"},
		"two seconds":      {replace(1, good[1], good[1]), body, "each once"},
		"two signatures":   {replace(2, good[2], good[2]), body, "each once"},
		"a full stop":      {sent("msg.1", time.Now()), body, "webhook-id must"},
		"an ISO timestamp": {replace(1, "Webhook-Timestamp: 2026-11-27T10:00:00Z"), body, "webhook-timestamp must"},
		"another body":     {good, strings.Replace(body, "1999", "1", 1), "signature"},
		"a buyer's token": {[]string{"Authorization: " + bearerOf(t, "ann"), good[3]}, body,
			"headers webhook-id, webhook-timestamp and webhook-signature"},
		"signed long ago":   {sent("msg_1", time.Now().Add(-payment.Tolerance-time.Minute)), body, "five minutes"},
		"signed in advance": {sent("msg_1", time.Now().Add(payment.Tolerance+time.Minute)), body, "five minutes"},
		"no body":           {good, "", "signature"},
	} {
		a := s.Do("POST", "/v1/payments", c.body, c.headers...)
		servertest.WantProblem(t, a, 401, "unauthorized")
		if a.Header.Get("WWW-Authenticate") != "Webhook" {
			t.Errorf("%s: WWW-Authenticate %q", name, a.Header.Get("WWW-Authenticate"))
		}
		if detail := a.Field(t, "detail"); !strings.Contains(detail, c.detail) {
			t.Errorf("%s: detail %q, want it to contain %q", name, detail, c.detail)
		}
	}
	if got := l.take(); len(got) != 0 {
		t.Errorf("applied %+v", got)
	}
	if a := s.Do("GET", "/v1/payments", "", good...); a.Status != 405 {
		t.Errorf("GET: %d", a.Status)
	}
}

func TestPaymentWithoutASecretIs503(t *testing.T) {
	s := newWorld().serve(t)
	a := s.callback("msg_1", paid(servertest.OrderID(1)))
	servertest.WantProblem(t, a, 503, "temporarily-unavailable")
	if !strings.Contains(a.Body, "not configured") || a.Header.Get("Retry-After") != "300" {
		t.Errorf("%s, Retry-After %q", a.Body, a.Header.Get("Retry-After"))
	}
}

func TestPaymentNamesEveryInvalidField(t *testing.T) {
	l := &fakePayments{settled: store.SettledPaid}
	s := newWorld().servePayments(t, l)
	for body, want := range map[string]string{
		`{"type":"payment.succeeded","data":{}}`:                                                                             "data.order_id data.amount data.currency data.reference",
		`{"type":"payment.succeeded","data":{"order_id":7,"amount":"1","currency":"eur","reference":5}}`:                     "data.order_id data.amount data.currency data.reference",
		`{"type":"payment.succeeded","data":{"order_id":"07","amount":1.5,"currency":"EUR","reference":"a\u0000b"}}`:         "data.order_id data.amount data.reference",
		`{"type":"payment.succeeded","data":[]}`:                                                                             "data",
		`{"type":"payment.succeeded"}`:                                                                                       "data.order_id",
		`{"type":"payment.failed","data":{"order_id":"7","currency":"euro","reference":"` + strings.Repeat("x", 256) + `"}}`: "data.currency data.reference",
		`{"type":"payment.failed","data":{"order_id":"7","order_id":"8"}}`:                                                   "body",
		strings.Replace(paid(7), "1999", "-1999", 1):                                                                         "data.amount",
		`{"type":"payment.failed","data":{"order_id":"7","amount":-1}}`:                                                      "data.amount",
		`{"type":5,"data":{}}`:           "type",
		`{"data":{}}`:                    "type",
		`[]`:                             "body",
		`{"type":"payment.succeeded"} x`: "body",
	} {
		a := s.callback("msg_1", body)
		servertest.WantProblem(t, a, 400, "bad-request")
		for field := range strings.FieldsSeq(want) {
			if !strings.Contains(a.Body, `"field":"`+field+`"`) {
				t.Errorf("%s: %s is not named in %s", body, field, a.Body)
			}
		}
	}
	a := s.callback("msg_1", `{"type":"payment.succeeded"}`)
	for _, field := range []string{"order_id", "amount", "currency", "reference"} {
		if !strings.Contains(a.Body, `{"field":"data.`+field+`","detail":"must be set"}`) {
			t.Errorf("%s is not set: %s", field, a.Body)
		}
	}
	body := paid(servertest.OrderID(1))
	headers := signed(t, "msg_1", time.Now(), body)
	headers[3] = "Content-Type: text/plain"
	servertest.WantProblem(t, s.Do("POST", "/v1/payments", body, headers...), 400, "bad-request")
	if got := l.take(); len(got) != 0 {
		t.Errorf("applied %+v", got)
	}
	if a := s.callback("msg_1", `{"type":"customer.created","data":{"id":"c_1"}}`); a.Status != 200 ||
		a.Field(t, "result") != "ignored" {
		t.Errorf("another type: %d %s", a.Status, a.Body)
	}
}

// A callback can arrive before the worker has written the order. The response is 404 only if the queue holds no
// order and Redis has lost none.
func TestPaymentOfAnOrderThatIsNoRowYet(t *testing.T) {
	for name, c := range map[string]struct {
		set    func(w *world)
		status int
	}{
		"the queue is empty":  {func(*world) {}, 404},
		"an order is ready":   {func(w *world) { w.stats.Ready = 1 }, 503},
		"an order is delayed": {func(w *world) { w.stats.Delayed = 1 }, 503},
		"an order is leased":  {func(w *world) { w.stats.Leased = 1 }, 503},
		"it is dead": {func(w *world) {
			w.dead[servertest.OrderID(1)] = queue.DeadLetter{Message: servertest.Order(1, "ann", sale.StatusQueued)}
		}, 503},
		"another is dead": {func(w *world) {
			w.dead[servertest.OrderID(2)] = queue.DeadLetter{Message: servertest.Order(2, "ann", sale.StatusQueued)}
		}, 404},
		"it becomes a row during the request": {
			func(w *world) { w.rows[servertest.OrderID(1)] = servertest.Order(1, "ann", sale.StatusCreated) }, 503,
		},
		"Redis was emptied": {func(w *world) { w.lost = true }, 503},
		"Redis is down":     {func(w *world) { w.redisErr = servertest.ErrRedisDown }, 503},
		"SQL went down":     {func(w *world) { w.sqlErr = servertest.ErrRedisDown }, 503},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			c.set(w)
			l := &fakePayments{err: fmt.Errorf("pay: %w", sale.ErrNotFound)}
			a := w.servePayments(t, l).callback("msg_1", paid(servertest.OrderID(1)))
			if c.status == 404 {
				servertest.WantProblem(t, a, 404, "not-found")
				return
			}
			servertest.WantProblem(t, a, 503, "temporarily-unavailable")
			if a.Header.Get("Retry-After") == "" {
				t.Error("it has no Retry-After")
			}
		})
	}
}

func TestOrderShowsItsPaymentDeadline(t *testing.T) {
	w := newWorld()
	due := time.Date(2026, 11, 27, 10, 15, 7, 5e8, time.UTC)
	for n, status := range map[uint32]sale.Status{1: sale.StatusCreated, 2: sale.StatusPaid, 3: sale.StatusCancelled} {
		o := servertest.Order(n, "ann", status)
		o.DueAt = due
		w.rows[o.ID] = o
	}
	s := w.serve(t)
	for n, want := range map[uint32]string{1: "2026-11-27T10:15:07.5Z", 2: "", 3: ""} {
		if a := s.order("ann", servertest.OrderID(n), "?wait=1s"); a.Status != 200 || a.Field(t, "pay_by") != want {
			t.Errorf("order %d: %d %s, want pay_by %q", n, a.Status, a.Body, want)
		}
	}
}
