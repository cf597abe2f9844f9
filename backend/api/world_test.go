package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/web/buyer"
	"sluice/internal/token"
)

const secret = "a secret for tests, of more than thirty-two bytes"

// world is what the API stands on, in memory, with faults to order. All fields are guarded by mu.
type world struct {
	mu         sync.Mutex
	admit      func(admission.Request) (admission.Decision, error)
	requests   []admission.Request
	sales      map[string]admission.View
	rows       map[sale.OrderID]sale.Order
	queued     map[sale.OrderID]sale.Order
	remembered map[sale.OrderID]string // its sale
	dead       map[sale.OrderID]queue.DeadLetter
	stats      queue.Stats
	redisErr   error
	sqlErr     error
	accepted   int64
	holders    []uint32
	lists      int // calls of Holders
	views      int // calls of View
	statuses   int // calls of Statuses
	asked      int // most ids in one of them
	limit      func(buyerID string) (admission.LimitResult, error)
}

func newWorld() *world {
	opens := time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	return &world{
		admit: func(admission.Request) (admission.Decision, error) {
			return admission.Decision{Outcome: sale.Accepted, OrderID: orderID(1)}, nil
		},
		sales: map[string]admission.View{"drop": {
			Sale: sale.Sale{ID: "drop", Title: "Tea & <cups>", Price: sale.Price{Amount: 1999, Currency: "EUR"}, Stock: 100, PerBuyer: 1, OpensAt: opens, Switch: sale.On, Version: 3},
			Left: 42, Accepted: 58, State: sale.StateOpen,
		}},
		rows: map[sale.OrderID]sale.Order{}, queued: map[sale.OrderID]sale.Order{}, remembered: map[sale.OrderID]string{}, dead: map[sale.OrderID]queue.DeadLetter{},
	}
}

// orderID is the n-th order of one known second.
func orderID(n uint32) sale.OrderID {
	return sale.NewOrderID(time.Date(2026, 11, 27, 10, 0, 7, 0, time.UTC), n)
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

func (w *world) Accepted(_ context.Context, id string) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.sales[id]; !ok && w.redisErr == nil {
		return 0, fmt.Errorf("sale %s: %w", id, sale.ErrNotFound)
	}
	return w.accepted, w.redisErr
}

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

func (w *world) Statuses(_ context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.statuses++
	w.asked = max(w.asked, len(ids))
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

func (w *world) Stats(context.Context) (queue.Stats, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	stats := w.stats
	stats.Dead += int64(len(w.dead))
	return stats, w.redisErr
}

func (w *world) Allow(_ context.Context, buyerID string) (admission.LimitResult, error) {
	w.mu.Lock()
	limit := w.limit
	w.mu.Unlock()
	if limit == nil {
		return admission.LimitResult{Allowed: true}, nil
	}
	return limit(buyerID)
}

var errRedisDown = fmt.Errorf("redis at 10.0.0.7:6379: connection refused: %w", sale.ErrUnavailable)

func key(t testing.TB) *token.Key {
	t.Helper()
	k, err := token.NewKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// bearerOf is an Authorization header for the buyer.
func bearerOf(t testing.TB, buyerID string) string {
	t.Helper()
	raw, err := key(t).Sign(buyerID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return "Bearer " + raw
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (w *world) config(t testing.TB) PublicConfig {
	return PublicConfig{
		Admitter: w, Stock: w, Orders: w, Dead: w, Tokens: key(t), Points: fakePoints{}, Limiter: w, Pages: buyerPages(t),
		Log: quiet(), Jitter: func() float64 { return 0 }, Drain: 5 * time.Second,
	}
}

func buyerPages(t testing.TB) Pages {
	t.Helper()
	p, err := buyer.New(buyer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// site is an application that serves on a free port until the test ends.
type site struct {
	t    testing.TB
	app  *App
	addr string
	stop func()
	done chan error
}

func serve(t testing.TB, a *App, err error) *site {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &site{t: t, app: a, addr: ln.Addr().String(), stop: cancel, done: make(chan error, 1)}
	go func() { s.done <- Serve(ctx, a, ln) }()
	t.Cleanup(func() {
		cancel()
		http.DefaultClient.CloseIdleConnections()
		<-s.done
		s.done <- nil
	})
	return s
}

func (w *world) serve(t testing.TB) *site {
	t.Helper()
	a, err := NewPublic(w.config(t))
	return serve(t, a, err)
}

// answer is a whole response.
type answer struct {
	status int
	header http.Header
	body   string
}

// field is a member of a JSON body, as text.
func (a answer) field(t testing.TB, name string) string {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(a.body), &m); err != nil {
		t.Fatalf("the body is no JSON object: %v\n%s", err, a.body)
	}
	if v, ok := m[name]; ok {
		return fmt.Sprint(v)
	}
	return ""
}

func decode(t testing.TB, a answer, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
}

// asking shows redirections as they are, and gives an answer up that never ends: it is a stream that should have been refused.
var asking = &http.Client{Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// ask sends a request and checks the answer against the documentation.
func (s *site) ask(method, path, body string, headers ...string) answer {
	s.t.Helper()
	req, err := http.NewRequest(method, "http://"+s.addr+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	resp, err := asking.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	a := readAnswer(s.t, resp)
	documented(s.t, method, path, body, req.Header, a)
	return a
}

func readAnswer(t testing.TB, resp *http.Response) answer {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

func (s *site) buy(t testing.TB, buyerID string, headers ...string) answer {
	t.Helper()
	return s.ask("POST", "/v1/sales/drop/orders", "", append(headers, "Authorization: "+bearerOf(t, buyerID))...)
}

// raw sends bytes as they are and reads one response.
func (s *site) raw(request string) answer {
	s.t.Helper()
	a, c, _ := s.dial(request)
	c.Close()
	return a
}

// rawClosed is raw for requests after which the server must hang up.
func (s *site) rawClosed(request string) answer {
	s.t.Helper()
	a, c, r := s.dial(request)
	defer c.Close()
	_, err := r.ReadByte()
	var late net.Error
	if err == nil || errors.As(err, &late) && late.Timeout() {
		s.t.Errorf("the connection stayed open after %.100q: what follows could be taken for a request", request)
	}
	return a
}

func (s *site) dial(request string) (answer, net.Conn, *bufio.Reader) {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		s.t.Fatal(err)
	}
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		s.t.Fatalf("no response to %.200q: %v", request, err)
	}
	return readAnswer(s.t, resp), c, r
}

// wantProblem checks what every refusal must be.
func wantProblem(t testing.TB, a answer, status int, code string) {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q, want a problem", got)
	}
	if got := a.field(t, "code"); got != code {
		t.Errorf("code %q, want %q", got, code)
	}
	if got := a.field(t, "status"); got != fmt.Sprint(status) {
		t.Errorf("status %s in the body, want %d", got, status)
	}
	for _, member := range []string{"type", "title", "detail"} {
		if a.field(t, member) == "" {
			t.Errorf("no %s in %s", member, a.body)
		}
	}
	if a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("a refusal may be cached: Cache-Control %q", a.header.Get("Cache-Control"))
	}
}
