package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/api/userlimit"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/web/httpserver/servertest"
)

func TestPurchaseAcceptedGives202AndLocation(t *testing.T) {
	w := newWorld()
	a := w.serve(t).buy(t, "ann")
	id := servertest.OrderID(1).String()
	if a.Status != 202 || a.Body != `{"order_id":"`+id+`","sale_id":"drop","status":"queued"}` {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if got := a.Header.Get("Location"); got != "/v1/orders/"+id {
		t.Errorf("Location %q", got)
	}
	if got := a.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	if a.Header.Get("Idempotency-Replayed") != "" {
		t.Error("a first purchase has Idempotency-Replayed")
	}
	if w.remembered[servertest.OrderID(1)] != "drop" {
		t.Error("the sale of the order is not remembered")
	}
}

// Each outcome has its documented response. Only rejections of the whole sale have a hint for the edge.
func TestOutcomesAreAnsweredAsDocumented(t *testing.T) {
	opens := time.Date(2026, 11, 27, 10, 0, 0, 500e6, time.UTC)
	opensMillis := strconv.FormatInt(opens.UnixMilli(), 10)
	rows := []struct {
		name     string
		decision admission.Decision
		status   int
		code     string
		headers  map[string]string
		fields   map[string]string
	}{
		{
			"replayed",
			admission.Decision{Outcome: sale.Replayed, OrderID: servertest.OrderID(1)},
			202,
			"",
			map[string]string{"Idempotency-Replayed": "true", "Sluice-Sale": ""},
			nil,
		},
		{
			"key reused",
			admission.Decision{Outcome: sale.KeyReused},
			422,
			"idempotency-key-reused",
			map[string]string{"Sluice-Sale": ""},
			nil,
		},
		{
			"already bought",
			admission.Decision{Outcome: sale.AlreadyBought, OrderID: servertest.OrderID(9)},
			409,
			"already-bought",
			map[string]string{"Sluice-Sale": ""},
			map[string]string{"order_id": servertest.OrderID(9).String()},
		},
		{
			"sold out",
			admission.Decision{Outcome: sale.SoldOut, Version: 7, Accepted: 1000},
			409,
			"sold-out",
			map[string]string{"Sluice-Sale": "drop;state=sold_out;version=7;ttl=1000;holders=1000"},
			nil,
		},
		{
			"not open",
			admission.Decision{Outcome: sale.NotOpen, OpensAt: opens, RetryAfter: 89500 * time.Millisecond, Version: 2},
			409,
			"sale-not-open",
			map[string]string{
				"Sluice-Sale": "drop;state=scheduled;version=2;ttl=1000;holders=0;opens=" + opensMillis,
				"Retry-After": "90",
			},
			map[string]string{"opens_at": "2026-11-27T10:00:00.5Z"},
		},
		{
			"opens in 120 ms",
			admission.Decision{Outcome: sale.NotOpen, OpensAt: opens, RetryAfter: 120 * time.Millisecond, Version: 2},
			409,
			"sale-not-open",
			map[string]string{
				"Sluice-Sale": "drop;state=scheduled;version=2;ttl=120;holders=0;opens=" + opensMillis,
				"Retry-After": "1",
			},
			nil,
		},
		{
			"paused",
			admission.Decision{Outcome: sale.SalePaused, Version: 4},
			409,
			"sale-paused",
			map[string]string{"Sluice-Sale": "drop;state=paused;version=4;ttl=1000;holders=0"},
			nil,
		},
		{
			"closed",
			admission.Decision{Outcome: sale.SaleClosed, Version: 5},
			409,
			"sale-closed",
			map[string]string{"Sluice-Sale": "drop;state=closed;version=5;ttl=1000;holders=0"},
			nil,
		},
		{
			"unknown sale",
			admission.Decision{Outcome: sale.UnknownSale},
			404,
			"not-found",
			map[string]string{"Sluice-Sale": ""},
			nil,
		},
		{"no outcome", admission.Decision{}, 500, "internal-error", nil, nil},
	}
	w := newWorld()
	s := w.serve(t)
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			w.do(func() { w.admit = func(admission.Request) (admission.Decision, error) { return row.decision, nil } })
			a := s.buy(t, "ann")
			if row.code == "" {
				if a.Status != row.status {
					t.Fatalf("status %d, want %d", a.Status, row.status)
				}
			} else {
				servertest.WantProblem(t, a, row.status, row.code)
			}
			for name, want := range row.headers {
				if got := a.Header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			for name, want := range row.fields {
				if got := a.Field(t, name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

// The decision of a segment counts the orders of that segment only. Edges get the count of the whole sale. Without this
// count, they must not cache a refusal.
func TestRefusalOfASpreadSaleCountsAllHolders(t *testing.T) {
	w := newWorld()
	w.spread, w.accepted = 4, 58
	var got admission.Request
	w.admit = func(r admission.Request) (admission.Decision, error) {
		got = r
		return admission.Decision{Outcome: sale.SoldOut, Version: 7, Accepted: 12}, nil
	}
	s := w.serve(t)
	a := s.buy(t, "ann")
	servertest.WantProblem(t, a, 409, "sold-out")
	hint := a.Header.Get("Sluice-Sale")
	if hint != "drop;state=sold_out;version=7;ttl=1000;holders=58" || got.Spread != 4 {
		t.Errorf("hint %q, spread %d", hint, got.Spread)
	}
	w.do(func() { w.acceptedErr = sale.ErrUnavailable })
	a = s.buy(t, "bob")
	servertest.WantProblem(t, a, 409, "sold-out")
	if hint := a.Header.Get("Sluice-Sale"); hint != "" {
		t.Errorf("a segment cannot be read: hint %q", hint)
	}
}

func TestSaleThatOnlySQLHasIs503(t *testing.T) {
	w := newWorld()
	w.admit = func(admission.Request) (admission.Decision, error) {
		return admission.Decision{Outcome: sale.UnknownSale}, nil
	}
	cfg := w.config(t)
	cfg.Known = func(id string) bool { return id == "drop" }
	var log bytes.Buffer
	cfg.Server.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := serve(t, cfg)
	a := s.buy(t, "ann")
	servertest.WantProblem(t, a, 503, "temporarily-unavailable")
	if a.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q, want 1", a.Header.Get("Retry-After"))
	}
	a = s.Do("POST", "/v1/sales/other/orders", "", "Authorization: "+bearerOf(t, "ann"))
	servertest.WantProblem(t, a, 404, "not-found")
	delete(w.sales, "drop")
	servertest.WantProblem(t, s.Do("GET", "/v1/sales/drop", ""), 503, "temporarily-unavailable")
	s.Stop()
	<-s.Done
	s.Done <- nil
	const want = "sale drop: temporarily unavailable: Redis does not have it, and SQL does"
	if !strings.Contains(log.String(), want) {
		t.Errorf("the log does not have the cause %q:\n%s", want, log.String())
	}
}

func TestRedisDownIs503WithRetryAfterAndNoInternals(t *testing.T) {
	w := newWorld()
	w.admit = func(admission.Request) (admission.Decision, error) {
		return admission.Decision{}, servertest.ErrRedisDown
	}
	s := w.serve(t)
	answers := []servertest.Answer{s.buy(t, "ann")} // only the decision fails
	w.do(func() { w.redisErr = servertest.ErrRedisDown })
	for _, a := range append(answers,
		s.buy(t, "ann"), s.Do("GET", "/v1/sales", ""), s.Do("GET", "/v1/sales/drop", ""),
		s.Do("GET", "/v1/sales/drop/events", ""),
	) {
		servertest.WantProblem(t, a, 503, "temporarily-unavailable")
		if a.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		if strings.Contains(a.Body, "10.0.0.7") {
			t.Errorf("the answer exposes the address of Redis: %s", a.Body)
		}
	}
}

func TestUnexpectedErrorAndPanicAre500(t *testing.T) {
	w := newWorld()
	s := w.serve(t)
	for name, admit := range map[string]func(admission.Request) (admission.Decision, error){
		"error": func(admission.Request) (admission.Decision, error) {
			return admission.Decision{}, errors.New("internal detail")
		},
		"panic": func(admission.Request) (admission.Decision, error) { panic("internal detail") },
	} {
		w.do(func() { w.admit = admit })
		a := s.buy(t, "ann")
		servertest.WantProblem(t, a, 500, "internal-error")
		if strings.Contains(a.Body, "internal detail") {
			t.Errorf("%s: the answer exposes internals: %s", name, a.Body)
		}
	}
}

func TestUserLimitRefusesWith429(t *testing.T) {
	w := newWorld()
	now := time.Date(2026, 11, 27, 10, 0, 0, 300e6, time.UTC)
	w.limit = func(buyer string) userlimit.Result {
		if buyer != "fast" {
			return userlimit.Result{Allowed: true}
		}
		return userlimit.Result{Limit: 10, Period: time.Minute, Reset: now.Add(2500 * time.Millisecond)}
	}
	cfg := w.config(t)
	cfg.Server.Now = func() time.Time { return now }
	cfg.Server.Jitter = func() float64 { return 0.999 }
	s := serve(t, cfg)
	a := s.buy(t, "fast", "Idempotency-Key: k")
	servertest.WantProblem(t, a, 429, "quota-exceeded")
	if got := a.Field(t, "type"); got != "https://iana.org/assignments/http-problem-types#quota-exceeded" {
		t.Errorf("type %q", got)
	}
	if got := a.Field(t, "violated-policies"); got != "[user]" {
		t.Errorf("violated-policies %s", got)
	}
	for name, want := range map[string]string{
		"RateLimit-Policy": `"user";q=10;w=60`, "RateLimit": `"user";r=0;t=3`,
		"Retry-After": "4", // 2.5 s, and nearly 0.5 s and 1 s of jitter
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if len(w.requests) != 0 {
		t.Error("a rejected request reached the stock")
	}
	if a := s.buy(t, "slow"); a.Status != 202 {
		t.Errorf("another buyer got %d", a.Status)
	}
}

func TestRequestKeyIsThatOfTheClientOrTheEdgeOrRandom(t *testing.T) {
	w := newWorld()
	s := w.serve(t)
	s.buy(t, "ann", `Idempotency-Key: "a \"b\" c"`, "X-Request-Id: 0123")
	s.buy(t, "ann", "Idempotency-Key: bare-key")
	s.buy(t, "ann", "X-Request-Id: 0123456789abcdef")
	s.buy(t, "ann")
	s.buy(t, "ann", "X-Request-Id: "+strings.Repeat("x", 129))
	got := w.requests
	if got[0].Key != `k:a "b" c` || got[0].KeyTTL != 24*time.Hour {
		t.Errorf("quoted: %+v", got[0])
	}
	if got[1].Key != "k:bare-key" {
		t.Errorf("bare: %+v", got[1])
	}
	if got[2].Key != "r:0123456789abcdef" || got[2].KeyTTL != 0 {
		t.Errorf("from the edge: %+v", got[2])
	}
	if !strings.HasPrefix(got[3].Key, "x:") || len(got[3].Key) != 28 || !strings.HasPrefix(got[4].Key, "x:") ||
		got[3].Key == got[4].Key {
		t.Errorf("random: %q, %q", got[3].Key, got[4].Key)
	}
	for i, r := range got {
		fingerprint := len(r.Fingerprint) == 16 && r.Fingerprint == got[0].Fingerprint
		if r.SaleID != "drop" || r.Buyer != "ann" || fingerprint != (i < 2) {
			t.Errorf("%+v", r)
		}
	}
}

func TestFingerprintDependsOnTheSaleAndTheContentOfTheBody(t *testing.T) {
	w := newWorld()
	s := w.serve(t)
	auth, key := "Authorization: "+bearerOf(t, "ann"), "Idempotency-Key: k"
	s.Do("POST", "/v1/sales/drop/orders", "", auth, key)
	s.Do("POST", "/v1/sales/drop/orders", " {\n} ", auth, key, "Content-Type: application/json; charset=utf-8")
	s.Do("POST", "/v1/sales/drop2/orders", "", auth, key)
	if len(w.requests) != 3 || w.requests[0].Fingerprint != w.requests[1].Fingerprint ||
		w.requests[0].Fingerprint == w.requests[2].Fingerprint {
		t.Errorf("%+v", w.requests)
	}
}

// Strings passed to the stock are copies: the next request on the connection overwrites those of the server.
func TestRequestStringsOutliveTheRequest(t *testing.T) {
	w := newWorld()
	s := w.serve(t)
	s.buy(t, "ann", "Idempotency-Key: aaaaaaaa")
	s.buy(t, "bob", "X-Request-Id: bbbbbbbb")
	for range 5 {
		s.Do("POST", "/v1/sales/zzzz/orders", "", "Authorization: "+bearerOf(t, "zoe"), "X-Request-Id: zzzzzzzz")
	}
	for i, want := range []admission.Request{
		{SaleID: "drop", Buyer: "ann", Key: "k:aaaaaaaa"}, {SaleID: "drop", Buyer: "bob", Key: "r:bbbbbbbb"},
	} {
		if got := w.requests[i]; got.SaleID != want.SaleID || got.Buyer != want.Buyer || got.Key != want.Key {
			t.Errorf("request %d is %+v, want %+v", i, got, want)
		}
	}
}

func TestDisconnectDoesNotStopTheDecision(t *testing.T) {
	w := newWorld()
	entered, release, finished := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w.admit = func(admission.Request) (admission.Decision, error) {
		close(entered)
		<-release
		close(finished)
		return admission.Decision{Outcome: sale.Accepted, OrderID: servertest.OrderID(1)}, nil
	}
	s := w.serve(t)
	c, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	request := "POST /v1/sales/drop/orders HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nAuthorization: " +
		bearerOf(t, "ann") + "\r\n\r\n"
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	<-entered
	c.Close()
	close(release)
	<-finished
	w.do(func() {
		w.admit = func(admission.Request) (admission.Decision, error) {
			return admission.Decision{Outcome: sale.Replayed, OrderID: servertest.OrderID(1)}, nil
		}
	})
	if a := s.buy(t, "ann"); a.Status != 202 {
		t.Errorf("the next purchase: %d", a.Status)
	}
}

func TestDecisionHasItsOwnDeadline(t *testing.T) {
	w := newWorld()
	cfg := w.config(t)
	type span struct{ deadline, entered time.Time }
	decision := make(chan span, 1)
	cfg.Admitter = admitFunc(func(ctx context.Context, _ admission.Request) (admission.Decision, error) {
		at, _ := ctx.Deadline()
		decision <- span{at, time.Now()}
		<-ctx.Done()
		return admission.Decision{}, fmt.Errorf("admit: %w", ctx.Err())
	})
	const timeout = 50 * time.Millisecond
	s := serve(t, cfg, func(h *handlers) { h.admit.timeout = timeout })
	called := time.Now()
	a := s.buy(t, "ann")
	servertest.WantProblem(t, a, 503, "temporarily-unavailable")
	if got := <-decision; got.deadline.Before(called.Add(timeout)) ||
		got.deadline.After(got.entered.Add(timeout)) {
		t.Errorf("called at %v, entered at %v, deadline at %v; want %v for the decision",
			called, got.entered, got.deadline, timeout)
	}
}

// admitFunc is an Admitter.
type admitFunc func(context.Context, admission.Request) (admission.Decision, error)

func (f admitFunc) Admit(ctx context.Context, r admission.Request) (admission.Decision, error) {
	return f(ctx, r)
}

// fixed returns the same decision for every purchase.
func fixed(d admission.Decision) admitFunc {
	return func(context.Context, admission.Request) (admission.Decision, error) { return d, nil }
}

// A purchase of a spread sale waits for the queue in the shard of the buyer's home segment. Retry-After depends on that
// queue, and not on those of other shards.
func TestFullQueueHasRetryAfter(t *testing.T) {
	for _, segments := range []int{0, 4} {
		w := newWorld()
		w.spread = segments
		home := spread.HomePart("drop", "ann", segments)
		cfg := w.config(t)
		cfg.Admitter = fixed(admission.Decision{Outcome: sale.QueueFull})
		cfg.QueueFull = func(of spread.Part) time.Duration {
			if of != home {
				t.Errorf("called for %+v, want %+v", of, home)
			}
			return 40 * time.Second
		}
		cfg.Server.Jitter = func() float64 { return 0 }
		a := serve(t, cfg).buy(t, "ann")
		servertest.WantProblem(t, a, 503, "temporarily-unavailable")
		if got := a.Header.Get("Retry-After"); got != "40" {
			t.Errorf("Retry-After: %q", got)
		}
	}
}
