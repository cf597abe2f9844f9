package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeServer responds to each request with the next handler of steps, and repeats the last one.
type fakeServer struct {
	*httptest.Server
	mu       sync.Mutex
	steps    []http.HandlerFunc
	received []*http.Request
	waits    []time.Duration // delays of the client between attempts
}

func newServer(t *testing.T, steps ...http.HandlerFunc) *fakeServer {
	t.Helper()
	s := &fakeServer{steps: steps}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		step := s.steps[min(len(s.received), len(s.steps)-1)]
		s.received = append(s.received, r)
		s.mu.Unlock()
		step(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// client returns a client that records its delays in s.waits instead of sleeping.
func (s *fakeServer) client(t *testing.T, options ...Option) *Client {
	t.Helper()
	c, err := New(s.URL, append([]Option{WithToken("ann's")}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	c.sleep = func(ctx context.Context, d time.Duration) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waits = append(s.waits, d)
		return ctx.Err()
	}
	return c
}

func (s *fakeServer) requests() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.received)
}

func problem(status int, code Code, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"type":"about:blank","title":"No","status":%d,"detail":"Not now.","code":%q}`, status, code)
	}
}

func closeConnection(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func respond(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

func TestBuyRetriesWithSameKeyAfterRetryAfter(t *testing.T) {
	accepted := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Idempotency-Replayed", "true")
		respond(202, `{"order_id":"932718348271616001","sale_id":"drop","status":"queued"}`)(w, r)
	}
	s := newServer(t, closeConnection, problem(503, Unavailable, "2"), problem(429, QuotaExceeded, "3"), accepted)
	got, err := s.client(t).Buy(t.Context(), "drop", `my "key"`)
	want := Accepted{OrderID: "932718348271616001", SaleID: "drop", Status: Queued, Replayed: true, Key: `my "key"`}
	if err != nil || got != want {
		t.Fatalf("got %+v, %v, want %+v", got, err, want)
	}
	for i, r := range s.requests() {
		key, token := r.Header.Get("Idempotency-Key"), r.Header.Get("Authorization")
		if key != `"my \"key\""` || token != "Bearer ann's" || r.URL.Path != "/v1/sales/drop/orders" {
			t.Errorf("attempt %d: got %s with key %s and token %s", i+1, r.URL, key, token)
		}
	}
	if len(s.waits) != 3 || s.waits[0] <= 0 || s.waits[1] < 2*time.Second || s.waits[1] > 3*time.Second ||
		s.waits[2] < 3*time.Second {
		t.Errorf("got delays %v, want three, at least those of Retry-After", s.waits)
	}
}

// A proxy that stops can cut off its response. The header is complete.
func TestRetryAfterOfAnIncompleteResponse(t *testing.T) {
	cut := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			problem(status, SaleClosed, "2")(w, r)
		}
	}
	s := newServer(t, cut(503), cut(409), respond(202, `{"order_id":"1","sale_id":"drop","status":"queued"}`))
	if _, err := s.client(t).Buy(t.Context(), "drop", ""); err != nil {
		t.Fatal(err)
	}
	if len(s.waits) != 2 || s.waits[0] < 2*time.Second || s.waits[1] >= 2*time.Second {
		t.Errorf("got delays %v, want that of Retry-After, and another one", s.waits)
	}
}

func TestClientLimitsRetries(t *testing.T) {
	buy := func(key string) func(*Client) error {
		return func(c *Client) error { _, err := c.Buy(t.Context(), "drop", key); return err }
	}
	getSale := func(c *Client) error { _, err := c.Sale(t.Context(), "drop"); return err }
	noRetry := func(c *Client) error {
		return c.Do(t.Context(), Request{Method: "POST", Path: "/x", NoRetry: true}, nil)
	}
	for _, c := range []struct {
		name     string
		step     http.HandlerFunc
		call     func(*Client) error
		requests int
		want     error
	}{
		{"sold out", problem(409, SoldOut, ""), buy(""), 1, SoldOut},
		{"not open with Retry-After", problem(409, SaleNotOpen, "1"), buy(""), 1, SaleNotOpen},
		{"bad request", problem(400, BadRequest, ""), getSale, 1, BadRequest},
		{"internal error", problem(500, InternalError, ""), getSale, 1, InternalError},
		{"NoRetry", closeConnection, noRetry, 1, ErrNoResponse},
		{"attempts exhausted", problem(503, Unavailable, "1"), getSale, 8, Unavailable},
		{"invalid key", closeConnection, buy("a\nb"), 0, nil},
		{"response is not JSON", respond(200, "<html>"), getSale, 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, c.step)
			err := c.call(s.client(t))
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("got error %v, want %v", err, c.want)
			}
			if n := len(s.requests()); n != c.requests {
				t.Errorf("got %d requests, want %d", n, c.requests)
			}
		})
	}
}

func TestDoReturnsProblemIfDelayExceedsDeadline(t *testing.T) {
	s := newServer(t, problem(503, Unavailable, "3600"))
	c := s.client(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := c.Sale(ctx, "drop")
	p, ok := errors.AsType[*Problem](err)
	if !ok || p.RetryAfter != time.Hour || p.Detail != "Not now." || len(s.waits) != 0 {
		t.Errorf("got %v after delays of %v, want the problem without a delay", err, s.waits)
	}
	ended, end := context.WithCancel(t.Context())
	c.sleep = func(context.Context, time.Duration) error { end(); return ended.Err() }
	s.steps = []http.HandlerFunc{problem(503, Unavailable, "1")}
	if _, err := c.Sale(ended, "drop"); !errors.Is(err, context.Canceled) || !errors.Is(err, Unavailable) {
		t.Errorf("got %v after the context ended, want its error and the problem", err)
	}
}

func TestClientSendsNoTokenToRedirectTarget(t *testing.T) {
	other := newServer(t, respond(200, "{}"))
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	if _, err := s.client(t).Sale(t.Context(), "drop"); err == nil {
		t.Error("got no error for a redirect")
	}
	if n := len(other.requests()); n != 0 {
		t.Errorf("the redirect target received %d requests, want 0", n)
	}
}

func TestInvalidHeaderValuesAreNotSentOrRetried(t *testing.T) {
	s := newServer(t, respond(200, "{}"))
	for name, option := range map[string]Option{
		"token": WithToken("secret\n"), "User-Agent": WithUserAgent("shop\x7f"),
		"actor": WithActor("eve\r\nX-Other: 1"),
	} {
		_, err := s.client(t, option).Sale(t.Context(), "drop")
		if err == nil || errors.Is(err, ErrNoResponse) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want an error about the header that does not quote its value", name, err)
		}
	}
	if len(s.requests()) != 0 || len(s.waits) != 0 {
		t.Errorf("got %d requests and delays %v, want none", len(s.requests()), s.waits)
	}
}

func TestWaitOrderPollsUntilCreated(t *testing.T) {
	order := func(status string) http.HandlerFunc {
		return respond(200, `{"order_id":"1","sale_id":"drop","status":"`+status+`","created_at":"2026-11-27T10:00:07Z"}`)
	}
	s := newServer(t, order("queued"), problem(503, Unavailable, "1"), order("queued"), order("created"))
	o, err := s.client(t).WaitOrder(t.Context(), "1")
	if err != nil || o.Status != Created {
		t.Errorf("%+v, %v", o, err)
	}
	if received := s.requests(); len(received) != 4 || received[0].URL.RawQuery != "wait=25s" {
		t.Errorf("got %d requests, the first for %s, want 4 with wait=25s", len(received), received[0].URL)
	}
}

func TestOrdersReadsAllPages(t *testing.T) {
	s := newServer(t,
		respond(200, `{"orders":[{"order_id":"1"},{"order_id":"2"}],"next":"2"}`),
		respond(200, `{"orders":[]  ,"next":"7"}`),
		respond(200, `{"orders":[{"order_id":"9"}]}`),
	)
	a, err := NewAdmin(s.URL, "secret", WithActor("eve"))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for order, err := range a.Orders(t.Context(), OrderFilter{SaleID: "drop"}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, order.OrderID)
	}
	received := s.requests()
	if !slices.Equal(ids, []string{"1", "2", "9"}) || len(received) != 3 {
		t.Fatalf("got orders %v with %d requests, want 1, 2, 9 with 3", ids, len(received))
	}
	first, last := received[0], received[2]
	if first.URL.Query().Get("sale") != "drop" || first.Header.Get("X-Actor") != "eve" ||
		last.URL.Query().Get("after") != "7" {
		t.Errorf("got requests %s by %s and %s", first.URL, first.Header.Get("X-Actor"), last.URL)
	}
}

// Another server than that of sluice may respond 200. Its response is not an empty list.
func TestPageWithoutAListIsAnError(t *testing.T) {
	for _, body := range []string{`{}`, `{"status":"ok"}`, `null`} {
		a, err := NewAdmin(newServer(t, respond(200, body), respond(200, body)).URL, "secret")
		if err != nil {
			t.Fatal(err)
		}
		for _, err = range a.Orders(t.Context(), OrderFilter{}) {
		}
		if err == nil {
			t.Errorf("%s is a list of orders", body)
		}
		err = nil
		for _, err = range a.DeadLetters(t.Context(), "drop") {
		}
		if err == nil {
			t.Errorf("%s is a list of dead letters", body)
		}
	}
}

func TestResponseWithoutAListIsAnError(t *testing.T) {
	for _, body := range []string{`{}`, `{"status":"ok"}`, `null`} {
		url := newServer(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }).URL
		c, err := New(url)
		if err != nil {
			t.Fatal(err)
		}
		a, err := NewAdmin(url, "secret")
		if err != nil {
			t.Fatal(err)
		}
		for name, call := range map[string]func() (int, error){
			"Client.Sales":    func() (int, error) { list, err := c.Sales(t.Context()); return len(list), err },
			"Client.Orders":   func() (int, error) { list, err := c.Orders(t.Context(), "drop"); return len(list), err },
			"Admin.Sales":     func() (int, error) { list, err := a.Sales(t.Context()); return len(list), err },
			"Admin.Endpoints": func() (int, error) { list, err := a.Endpoints(t.Context()); return len(list), err },
			"Admin.Shards":    func() (int, error) { list, err := a.Shards(t.Context()); return len(list), err },
		} {
			if n, err := call(); err == nil || !strings.Contains(err.Error(), "it has no list") {
				t.Errorf("%s of %s returned %d items, %v", name, body, n, err)
			}
		}
	}
}

func TestNewSaleMarshalsHoldAsText(t *testing.T) {
	b, err := json.Marshal(NewSale{
		ID: "drop", Title: "Tea", Stock: 5, Price: Price{1999, "EUR"},
		OpensAt: time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC), Hold: 15 * time.Minute,
	})
	want := `{"id":"drop","title":"Tea","stock":5,"price":{"amount":1999,"currency":"EUR"},` +
		`"opens_at":"2026-11-27T10:00:00Z","hold":"15m0s"}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v\nwant %s", b, err, want)
	}
}

func TestNewRejectsInvalidAddresses(t *testing.T) {
	for _, base := range []string{
		"", "shop.example", "ftp://shop.example", "http://", "http://a b", "http://a?x=1", "http://a?", "http://a#",
	} {
		if _, err := New(base); err == nil {
			t.Errorf("New(%q) returned no error", base)
		}
	}
}

func TestLargeResponseIsAnError(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		for range maxResponse >> 20 {
			fmt.Fprint(w, strings.Repeat(" ", 1<<20))
		}
		fmt.Fprint(w, `{"id":"drop"}`)
	})
	const want = "client: GET /v1/sales/drop: the response has more than 64 MiB"
	if _, err := s.client(t).Sale(t.Context(), "drop"); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestRetryAfterAcceptsSecondsAndDates(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "x": 0, "-5": 0, "7": 7 * time.Second, "99999999999": 0, "999999999": 24 * time.Hour,
		"Mon, 02 Jan 2006 15:04:05 GMT": 0,
	} {
		if got := retryAfter(text); got != want {
			t.Errorf("retryAfter(%q): got %v, want %v", text, got, want)
		}
	}
}

func TestProblemOfKeepsStatusOfOtherBodies(t *testing.T) {
	resp := &http.Response{StatusCode: 502, Header: http.Header{"Content-Type": {"text/html"}}}
	p := problemOf(resp, []byte(strings.Repeat("<", 10)))
	if p.Status != 502 || p.Error() != "the server returned status 502" {
		t.Errorf("got %v, want a problem with status 502", p)
	}
}

func TestOrdersNamesTheSale(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"orders":[{"order_id":"7","status":"cancelled","expired":true},{"order_id":"8","status":"paid"}]}`)
	})
	list, err := s.client(t).Orders(context.Background(), "a&b")
	if err != nil || len(list) != 2 || !list[0].Expired || list[1].Status != Paid {
		t.Errorf("%+v, %v", list, err)
	}
	if got := s.received[0].URL.String(); got != "/v1/me/orders?sale=a%26b" {
		t.Errorf("the client requested %s", got)
	}
}

// The dead letters of available shards come first, then an error that names the others.
func TestDeadLettersWithoutAnUnavailableShard(t *testing.T) {
	answer := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
	}
	one, two := `{"dead":[{"key":"1"}],"next":"0~","unavailable_shards":[3]}`, `{"dead":[{"key":"2"}]}`
	s := newServer(t, answer(one), answer(two))
	a, err := NewAdmin(s.URL, "hush")
	if err != nil {
		t.Fatal(err)
	}
	var keys string
	var last error
	for letter, err := range a.DeadLetters(t.Context(), "") {
		keys, last = keys+letter.Key, err
	}
	if keys != "12" || !errors.Is(last, Unavailable) || !strings.Contains(last.Error(), "3") {
		t.Errorf("dead letters %s, then %v; want 1, 2, and an error that names shard 3", keys, last)
	}
}
