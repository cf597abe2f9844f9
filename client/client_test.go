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

// shop answers request after request with the steps, and the last of them for ever.
type shop struct {
	*httptest.Server
	mu    sync.Mutex
	steps []http.HandlerFunc
	asked []*http.Request
	waits []time.Duration
}

func newShop(t *testing.T, steps ...http.HandlerFunc) *shop {
	t.Helper()
	s := &shop{steps: steps}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		step := s.steps[min(len(s.asked), len(s.steps)-1)]
		s.asked = append(s.asked, r)
		s.mu.Unlock()
		step(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// client's pauses take no time and are noted.
func (s *shop) client(t *testing.T, options ...Option) *Client {
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

func (s *shop) requests() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func refuse(status int, code Code, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"type":"about:blank","title":"No","status":%d,"detail":"Not now.","code":%q}`, status, code)
	}
}

func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// A purchase whose answer was lost, and that was turned away twice, is asked for again with its key, never earlier than the server said.
func TestBuyIsRepeatedWithItsKey(t *testing.T) {
	s := newShop(t, hangUp, refuse(503, Unavailable, "2"), refuse(429, QuotaExceeded, "3"), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Idempotency-Replayed", "true")
		answer(202, `{"order_id":"932718348271616001","sale_id":"drop","status":"queued"}`)(w, r)
	})
	got, err := s.client(t).Buy(t.Context(), "drop", `my "key"`)
	if err != nil || got.OrderID != "932718348271616001" || !got.Replayed || got.Status != Queued || got.Key != `my "key"` {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, r := range s.requests() {
		if r.Header.Get("Idempotency-Key") != `"my \"key\""` || r.Header.Get("Authorization") != "Bearer ann's" || r.URL.Path != "/v1/sales/drop/orders" {
			t.Errorf("attempt %d: %s %v", i+1, r.URL, r.Header)
		}
	}
	if len(s.waits) != 3 || s.waits[0] <= 0 || s.waits[1] < 2*time.Second || s.waits[1] > 3*time.Second || s.waits[2] < 3*time.Second {
		t.Errorf("waits %v", s.waits)
	}
}

// What is refused for good is not asked again, and neither is what may be done once only, nor anything beyond the number of attempts.
func TestWhatIsNotRepeated(t *testing.T) {
	for _, c := range []struct {
		name     string
		step     http.HandlerFunc
		ask      func(*Client) error
		requests int
		want     error
	}{
		{"sold out", refuse(409, SoldOut, ""), func(c *Client) error { _, err := c.Buy(t.Context(), "drop", ""); return err }, 1, SoldOut},
		{"not open, although it says when", refuse(409, SaleNotOpen, "1"), func(c *Client) error { _, err := c.Buy(t.Context(), "drop", ""); return err }, 1, SaleNotOpen},
		{"a bad request", refuse(400, BadRequest, ""), func(c *Client) error { _, err := c.Sale(t.Context(), "drop"); return err }, 1, BadRequest},
		{"an error of the server", refuse(500, "internal-error", ""), func(c *Client) error { _, err := c.Sale(t.Context(), "drop"); return err }, 1, Code("internal-error")},
		{"once", hangUp, func(c *Client) error { return c.Do(t.Context(), Request{Method: "POST", Path: "/x", Once: true}, nil) }, 1, ErrNoAnswer},
		{"for ever", refuse(503, Unavailable, "1"), func(c *Client) error { _, err := c.Sale(t.Context(), "drop"); return err }, 8, Unavailable},
		{"a key that no header holds", hangUp, func(c *Client) error { _, err := c.Buy(t.Context(), "drop", "a\nb"); return err }, 0, nil},
		{"an answer that is not ours", answer(200, "<html>"), func(c *Client) error { _, err := c.Sale(t.Context(), "drop"); return err }, 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShop(t, c.step)
			err := c.ask(s.client(t))
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("the error is %v, want %v", err, c.want)
			}
			if n := len(s.requests()); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
		})
	}
}

// A wait that ends after the context is not begun: the caller has the refusal at once.
func TestNoWaitBeyondTheContext(t *testing.T) {
	s := newShop(t, refuse(503, Unavailable, "3600"))
	c := s.client(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := c.Sale(ctx, "drop")
	p, ok := errors.AsType[*Problem](err)
	if !ok || p.RetryAfter != time.Hour || p.Detail != "Not now." || len(s.waits) != 0 {
		t.Errorf("%v after waits of %v", err, s.waits)
	}
	ended, end := context.WithCancel(t.Context())
	c.sleep = func(context.Context, time.Duration) error { end(); return ended.Err() }
	s.steps = []http.HandlerFunc{refuse(503, Unavailable, "1")}
	if _, err := c.Sale(ended, "drop"); !errors.Is(err, context.Canceled) || !errors.Is(err, Unavailable) {
		t.Errorf("after the context has ended: %v", err)
	}
}

// A token goes to nobody but the server it was given for.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other := newShop(t, answer(200, "{}"))
	s := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	if _, err := s.client(t).Sale(t.Context(), "drop"); err == nil {
		t.Error("a redirect passes for an answer")
	}
	if n := len(other.requests()); n != 0 {
		t.Errorf("the other server was asked %d times", n)
	}
}

func TestWaitOrderAsksUntilItIsWritten(t *testing.T) {
	order := func(status string) http.HandlerFunc {
		return answer(200, `{"order_id":"1","sale_id":"drop","status":"`+status+`","created_at":"2026-11-27T10:00:07Z"}`)
	}
	s := newShop(t, order("queued"), refuse(503, Unavailable, "1"), order("queued"), order("created"))
	o, err := s.client(t).WaitOrder(t.Context(), "1")
	if err != nil || o.Status != Created {
		t.Errorf("%+v, %v", o, err)
	}
	if asked := s.requests(); len(asked) != 4 || asked[0].URL.RawQuery != "wait=25s" {
		t.Errorf("%d requests, the first for %s", len(asked), asked[0].URL)
	}
}

func TestListsAreReadPageByPage(t *testing.T) {
	s := newShop(t, answer(200, `{"orders":[{"order_id":"1"},{"order_id":"2"}],"next":"2"}`), answer(200, `{"orders":[]  ,"next":"7"}`), answer(200, `{"orders":[{"order_id":"9"}]}`))
	o, err := NewOperator(s.URL, "secret", WithActor("eve"))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for row, err := range o.Orders(t.Context(), OrderFilter{SaleID: "drop"}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, row.OrderID)
	}
	asked := s.requests()
	if !slices.Equal(ids, []string{"1", "2", "9"}) || len(asked) != 3 || asked[2].URL.Query().Get("after") != "7" || asked[0].URL.Query().Get("sale") != "drop" || asked[0].Header.Get("X-Actor") != "eve" {
		t.Errorf("%v, by %d requests", ids, len(asked))
	}
}

func TestNewSaleIsWrittenAsTheAPIReadsIt(t *testing.T) {
	b, err := json.Marshal(NewSale{ID: "drop", Title: "Tea", Stock: 5, Price: Price{1999, "EUR"}, OpensAt: time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC), Hold: 15 * time.Minute})
	want := `{"id":"drop","title":"Tea","stock":5,"price":{"amount":1999,"currency":"EUR"},"opens_at":"2026-11-27T10:00:00Z","hold":"15m0s"}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v\nwant %s", b, err, want)
	}
}

func TestAddressesAreChecked(t *testing.T) {
	for _, base := range []string{"", "shop.example", "ftp://shop.example", "http://", "http://a b", "http://a?x=1"} {
		if _, err := New(base); err == nil {
			t.Errorf("%q is taken for an address", base)
		}
	}
	for text, want := range map[string]time.Duration{"": 0, "x": 0, "-5": 0, "7": 7 * time.Second, "99999999999": 0, "999999999": 24 * time.Hour, "Mon, 02 Jan 2006 15:04:05 GMT": 0} {
		if got := retryAfter(text); got != want {
			t.Errorf("Retry-After %q: %v, want %v", text, got, want)
		}
	}
	p := problemOf(&http.Response{StatusCode: 502, Header: http.Header{"Content-Type": {"text/html"}}}, []byte(strings.Repeat("<", 10)))
	if p.Status != 502 || p.Error() != "the server answered 502" {
		t.Errorf("a proxy's page: %v", p)
	}
}
