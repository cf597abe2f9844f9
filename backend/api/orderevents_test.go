package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"sluice/backend/events"
	"sluice/backend/events/notify"
	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
	"sluice/backend/web/httpserver/servertest"
	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

func (w *world) OrdersOfBuyer(_ context.Context, buyer string, limit int) ([]sale.Order, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []sale.Order
	for n := range uint32(100) {
		if o, ok := w.rows[servertest.OrderID(n)]; ok && o.Buyer == buyer && len(list) < limit {
			list = append(list, o)
		}
	}
	return list, w.sqlErr
}

// livePages is a site with pages that receive events.
type livePages struct {
	*site
	w        *world
	raw      redisconn.Client
	position int
}

func serveLive(t *testing.T, limits notify.LiveConfig) *livePages {
	t.Helper()
	mini := miniredis.RunT(t)
	client := testenv.OpenPatient(t, "redis://"+mini.Addr())
	limits.Log = servertest.Quiet()
	live := notify.NewLive(client, keyspace.Space{}, limits)
	w := newWorld()
	cfg := w.config(t)
	cfg.Live = live
	s := serve(t, cfg, func(h *handlers) { h.reads.timeout = 10 * time.Second })
	testenv.Run(t, live.Run)
	return &livePages{s, w, client, 0}
}

// publish adds the event of a status to the stream.
func (l *livePages) publish(id sale.OrderID, buyer string, status sale.Status) {
	l.T.Helper()
	l.position++
	e := events.Event{
		ID: events.ID(id, status), Type: events.Type("order." + string(status)), OrderID: id, SaleID: "drop", Buyer: buyer,
	}
	entry := &redis.XAddArgs{
		Stream: keyspace.Space{}.Events(), ID: fmt.Sprintf("%d-0", l.position), Values: []string{"event", e.Encode()},
	}
	if err := l.raw.XAdd(context.Background(), entry).Err(); err != nil {
		l.T.Fatal(err)
	}
}

func (l *livePages) row(id sale.OrderID, buyer string, status sale.Status) {
	l.w.do(func() { l.w.rows[id] = sale.Order{ID: id, SaleID: "drop", Buyer: buyer, Status: status} })
}

// open requests a stream. The response is closed with the test.
func (l *livePages) open(path, authorization, after string) *http.Response {
	l.T.Helper()
	req, err := http.NewRequest("GET", "http://"+l.Addr+path, nil)
	if err != nil {
		l.T.Fatal(err)
	}
	req.Header.Set("Authorization", authorization)
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		l.T.Fatal(err)
	}
	l.T.Cleanup(func() { resp.Body.Close() })
	return resp
}

// read returns the function next. Each call of next returns the id of the next event of the stream, or "end".
func (l *livePages) read(stream io.Reader) (next func() string) {
	lines := bufio.NewScanner(stream)
	return func() string {
		id := ""
		for lines.Scan() {
			if v, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				id = v
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := servertest.Contract(l.T).Valid("OrderUpdate", []byte(data)); err != nil {
					l.T.Errorf("%s: %v", data, err)
				}
				return id
			}
		}
		return "end"
	}
}

// page opens a stream, and returns the function next that read returns for it.
func (l *livePages) page(path, authorization, after string) (next func() string, disconnect func()) {
	l.T.Helper()
	resp := l.open(path, authorization, after)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" ||
		resp.Header.Get("X-Accel-Buffering") != "no" ||
		resp.Header.Get("Cache-Control") != "no-store" {
		l.T.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	return l.read(resp.Body), func() { resp.Body.Close() }
}

func (l *livePages) want(next func() string, ids ...string) {
	l.T.Helper()
	for _, id := range ids {
		if got := next(); got != id {
			l.T.Fatalf("got %s, want %s", got, id)
		}
	}
}

func TestPageGetsTheStatusOfItsOrdersAndThenChanges(t *testing.T) {
	l := serveLive(t, notify.LiveConfig{})
	l.row(servertest.OrderID(1), "ann", sale.StatusPaid)
	l.row(servertest.OrderID(2), "bob", sale.StatusCreated)
	l.row(servertest.OrderID(3), "ann", sale.StatusCreated)
	next, _ := l.page("/v1/me/events", bearerOf(t, "ann"), "")
	id := func(n uint32) string { return servertest.OrderID(n).String() }
	one, two, three, four := id(1), id(2), id(3), id(4)
	l.want(next, one+".paid", three+".created")
	l.publish(servertest.OrderID(1), "ann", sale.StatusCreated) // outdated: the page has a newer status
	l.publish(servertest.OrderID(1), "ann", sale.StatusPaid)
	l.publish(servertest.OrderID(2), "bob", sale.StatusPaid)
	l.publish(servertest.OrderID(3), "ann", sale.StatusPaid)
	l.publish(servertest.OrderID(3), "ann", sale.StatusPaid) // twice
	l.publish(servertest.OrderID(4), "ann", sale.StatusCreated)
	l.want(next, three+".paid", four+".created")

	back, _ := l.page("/v1/me/events", bearerOf(t, "ann"), three+".paid")
	l.want(back, four+".created")
	lost, _ := l.page("/v1/me/events", bearerOf(t, "ann"), "77.created")
	l.want(lost, one+".paid", three+".created")
	long, _ := l.page("/v1/me/events", bearerOf(t, "ann"), strings.Repeat("9", 5000))
	l.want(long, one+".paid")
	bob, _ := l.page("/v1/me/events", bearerOf(t, "bob"), three+".paid") // another buyer's event is not a valid position
	l.want(bob, two+".created")
}

func TestPageOfOneOrderGetsEachStatus(t *testing.T) {
	l := serveLive(t, notify.LiveConfig{})
	id, other := servertest.OrderID(1), servertest.OrderID(2)
	l.w.do(func() { l.w.queued[id] = sale.Order{ID: id, SaleID: "drop", Buyer: "ann"} })
	path := "/v1/orders/" + id.String() + "/events"
	next, _ := l.page(path, bearerOf(t, "ann"), "")
	l.want(next, id.String()+".queued")
	l.publish(other, "ann", sale.StatusCreated)
	l.row(id, "ann", sale.StatusCreated) // the stream finds the row by polling, whether or not its event has arrived
	l.want(next, id.String()+".created")
	l.publish(id, "ann", sale.StatusCreated)
	l.publish(id, "ann", sale.StatusPaid)
	l.want(next, id.String()+".paid")

	dead := servertest.OrderID(3)
	l.w.do(func() { l.w.queued[dead] = sale.Order{ID: dead, SaleID: "drop", Buyer: "ann"} })
	next, _ = l.page("/v1/orders/"+dead.String()+"/events", bearerOf(t, "ann"), "")
	l.want(next, dead.String()+".queued")
	l.w.do(func() {
		l.w.dead[dead] = queue.DeadLetter{Message: sale.Order{ID: dead, SaleID: "drop", Buyer: "ann"}}
	})
	l.want(next, dead.String()+".dead") // a dead letter causes no event

	servertest.WantProblem(t, l.Do("GET", path, "", "Authorization: "+bearerOf(t, "bob")), 404, "not-found")
	servertest.WantProblem(t, l.Do("GET", "/v1/orders/0x1/events", "", "Authorization: "+bearerOf(t, "bob")), 400,
		"bad-request")
	if a := l.Do("HEAD", path, "", "Authorization: "+bearerOf(t, "bob")); a.Status != 404 {
		t.Errorf("HEAD of another buyer's order: %d", a.Status)
	}
	if a := l.Do("HEAD", path, "", "Authorization: "+bearerOf(t, "ann")); a.Status != 200 ||
		a.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: %d %v", a.Status, a.Header)
	}
	for _, p := range []string{path, "/v1/me/events"} {
		servertest.WantProblem(t, l.Do("GET", p, ""), 401, "unauthorized")
	}
}

func TestPageEndsWhenItsTokenExpires(t *testing.T) {
	l := serveLive(t, notify.LiveConfig{})
	next, _ := l.page("/v1/me/events", "Bearer "+tokentest.Sign(t, secret, "ann", 6*time.Second), "")
	long, _ := l.page("/v1/me/events", bearerOf(t, "ann"), "")
	if got := next(); got != "end" {
		t.Errorf("got %s, want the end", got)
	}
	l.publish(servertest.OrderID(1), "ann", sale.StatusCreated)
	l.want(long, servertest.OrderID(1).String()+".created")
}

func TestPagesAboveTheMaximumGetRetryAfter(t *testing.T) {
	l := serveLive(t, notify.LiveConfig{Pages: 3, BuyerPages: 2})
	ann := bearerOf(t, "ann")
	l.page("/v1/me/events", ann, "")
	_, disconnect := l.page("/v1/me/events", ann, "")
	a := l.Do("GET", "/v1/me/events", "", "Authorization: "+ann)
	servertest.WantProblem(t, a, 429, "quota-exceeded")
	if a.Header.Get("Retry-After") != "30" || !strings.Contains(a.Body, `"violated-policies":["pages"]`) ||
		!strings.Contains(a.Body, "GET /v1/orders/{order}") {
		t.Errorf("%v %s", a.Header, a.Body)
	}
	l.page("/v1/me/events", bearerOf(t, "bob"), "")
	a = l.Do("GET", "/v1/me/events", "", "Authorization: "+bearerOf(t, "eve"))
	servertest.WantProblem(t, a, 503, "temporarily-unavailable")
	if a.Header.Get("Retry-After") != "30" || !strings.Contains(a.Body, "GET /v1/orders/{order}") {
		t.Errorf("%v %s", a.Header, a.Body)
	}
	disconnect()
	testenv.Eventually(t, httpserver.Heartbeat/2, "a page can be opened again",
		func() bool {
			resp := l.open("/v1/me/events", bearerOf(t, "eve"), "")
			resp.Body.Close()
			return resp.StatusCode == 200
		})
}

// Many concurrent pages: each receives the events of its own order only, the rest is rejected, and nothing is left when
// they have disconnected.
func TestManyPagesAreBoundedAndReleaseTheirResources(t *testing.T) {
	const most, all = 100, 130
	registry := prometheus.NewRegistry()
	l := serveLive(t, notify.LiveConfig{Pages: most, Registerer: registry})
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	var mu sync.Mutex
	pages := map[int]func() string{}
	var closers []func()
	refused := 0
	for n := range all {
		wg.Go(func() {
			resp := l.open("/v1/me/events", bearerOf(t, fmt.Sprintf("b%d", n)), "")
			mu.Lock()
			defer mu.Unlock()
			closers = append(closers, func() { resp.Body.Close() })
			if resp.StatusCode == 503 {
				refused++
				return
			}
			pages[n] = l.read(resp.Body)
		})
	}
	wg.Wait()
	if len(pages) != most || refused != all-most {
		t.Fatalf("%d pages, %d refused; want %d and %d", len(pages), refused, most, all-most)
	}
	for n := range all {
		l.publish(servertest.OrderID(uint32(n)), fmt.Sprintf("b%d", n), sale.StatusCreated)
	}
	for n, next := range pages {
		if got, want := next(), servertest.OrderID(uint32(n)).String()+".created"; got != want {
			t.Fatalf("b%d got %s, want %s", n, got, want)
		}
	}
	for _, disconnect := range closers {
		disconnect()
	}
	n := 0
	testenv.Eventually(t, 60*time.Second, "no page is open", func() bool { // writes detect closed connections
		n++
		for b := range all {
			l.publish(servertest.OrderID(uint32(b+n*all)), fmt.Sprintf("b%d", b), sale.StatusCreated)
		}
		return open(registry) == 0
	})
	// After the stop, only goroutines of the connections to Redis may be left.
	l.Stop()
	testenv.Eventually(t, 60*time.Second, "no goroutine of a page is left",
		func() bool { return runtime.NumGoroutine() < before+most/4 })
}

// open returns the number of open pages.
func open(r *prometheus.Registry) float64 {
	families, _ := r.Gather()
	for _, f := range families {
		if f.GetName() == "sluice_notify_pages" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

func TestPagesEndWithTheDrain(t *testing.T) {
	l := serveLive(t, notify.LiveConfig{})
	next, _ := l.page("/v1/me/events", bearerOf(t, "ann"), "")
	l.Stop()
	if got := next(); got != "end" {
		t.Errorf("got %s, want the end", got)
	}
}

func TestPagesWhileStoresAreDown(t *testing.T) {
	l := serveLive(t, notify.LiveConfig{Pages: 1})
	l.w.do(func() { l.w.sqlErr = servertest.ErrRedisDown })
	for range 3 { // a refused page is not counted as open
		servertest.WantProblem(t, l.Do("GET", "/v1/me/events", "", "Authorization: "+bearerOf(t, "ann")), 503,
			"temporarily-unavailable")
	}
	l.w.do(func() { l.w.sqlErr = nil })
	l.row(servertest.OrderID(1), "ann", sale.StatusPaid)
	next, _ := l.page("/v1/me/events", bearerOf(t, "ann"), "")
	l.want(next, servertest.OrderID(1).String()+".paid")

	w := newWorld()
	s := w.serve(t)
	servertest.WantProblem(t, s.Do("GET", "/v1/me/events", "", "Authorization: "+bearerOf(t, "ann")), 503,
		"temporarily-unavailable")
}

// fakeSubscriptions stores subscriptions in memory.
type fakeSubscriptions struct {
	mu   sync.Mutex
	last int64
	all  []notify.Subscription
}

func (f *fakeSubscriptions) Subscribe(_ context.Context, p notify.Subscription, most int) (notify.Subscription, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	p.ID, p.CreatedAt = f.last, time.Now()
	f.all = append(f.all, p)
	return p, nil
}

func (f *fakeSubscriptions) Subscriptions(_ context.Context, buyer string) (list []notify.Subscription, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.all {
		if p.Buyer == buyer {
			list = append(list, p)
		}
	}
	return list, nil
}

func (f *fakeSubscriptions) Unsubscribe(_ context.Context, buyer string, id int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, p := range f.all {
		if p.Buyer == buyer && p.ID == id {
			f.all = append(f.all[:i], f.all[i+1:]...)
			return nil
		}
	}
	return fmt.Errorf("order: %w", sale.ErrNotFound)
}
