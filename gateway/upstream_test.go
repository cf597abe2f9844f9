package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/unixsocket"
	"sluice/test/testenv"
)

// dead returns an address without a listener.
func dead(t *testing.T) string { return testenv.FreeAddress(t) }

// dying is a backend that closes the connection instead of responding.
type dying struct {
	address string
	seen    atomic.Int32
	ids     chan string
}

func newDying(t *testing.T) *dying {
	d := &dying{ids: make(chan string, 100)}
	d.address = accepting(t, func(r *bufio.Reader, _ io.Writer) {
		if req, err := http.ReadRequest(r); err == nil {
			d.seen.Add(1)
			d.ids <- req.Header.Get("X-Request-Id")
		}
	})
	return d
}

func TestBackendsAreUsedRoundRobin(t *testing.T) {
	a, b := newBackend(t, nil), newBackend(t, nil)
	e := serve(t, open, []string{a.address(), b.URL})
	for range 10 {
		e.send(t, "GET", "/", "")
	}
	if na, nb := len(a.requests()), len(b.requests()); na != 5 || nb != 5 {
		t.Errorf("%d and %d requests, want 5 and 5", na, nb)
	}
}

func TestUnreachableBackendIsNotTriedAgain(t *testing.T) {
	b := newBackend(t, nil)
	gone := dead(t)
	e := serve(t, open, []string{gone, b.address()})
	for range 20 {
		mustHave(t, e.send(t, "POST", "/anything", "{}"), 200)
	}
	if n := e.count(t, "sluice_edge_upstream_failures_total", "upstream", gone, "failure", "dial"); n != 1 {
		t.Errorf("tried %v times, want once", n)
	}
}

func TestPurchaseIsRetriedWithTheSameRequestID(t *testing.T) {
	d, b := newDying(t), newBackend(t, nil)
	e := serve(t, open, []string{d.address, b.address()})
	for range 2 { // so that the dying backend is first once
		mustHave(t, e.send(t, "POST", "/v1/sales/42/orders", `{"n":1}`), 200)
	}
	if d.seen.Load() != 1 {
		t.Fatalf("the dying backend received %d requests, want 1", d.seen.Load())
	}
	id := <-d.ids
	var found bool
	for _, r := range b.requests() {
		if r.header.Get("X-Request-Id") == id {
			found = true
			if r.body != `{"n":1}` || r.target != "/v1/sales/42/orders" {
				t.Errorf("the retry is %+v", r)
			}
		}
	}
	if !found {
		t.Error("no retry with the same X-Request-Id")
	}
}

// A backend may crash while it responds.
func TestPurchaseIsRetriedAfterHalfAResponse(t *testing.T) {
	for _, half := range []string{
		"HTTP/1.1 2", "HTTP/1.1 200 OK\r\nConte", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
	} {
		address := accepting(t, func(r *bufio.Reader, w io.Writer) {
			if _, err := http.ReadRequest(r); err == nil {
				_, _ = io.WriteString(w, half)
			}
		})
		b := newBackend(t, nil)
		e := serve(t, open, []string{address, b.address()})
		for range 2 { // so that each backend is first once
			if got := e.send(t, "POST", "/v1/sales/42/orders", "{}"); got.status != 200 {
				t.Errorf("after %q: %d", half, got.status)
			}
		}
	}
}

// Backends deduplicate only purchases.
func TestOtherPostsAreNotRetried(t *testing.T) {
	d, b := newDying(t), newBackend(t, nil)
	e := serve(t, open, []string{d.address, b.address()})
	statuses := map[int]int{}
	for range 2 {
		statuses[e.send(t, "POST", "/v1/other", "{}").status]++
	}
	if statuses[200] != 1 || statuses[503] != 1 || d.seen.Load() != 1 {
		t.Errorf("statuses %v after %d requests to the dying backend, want one 200 and one 503", statuses, d.seen.Load())
	}
}

func TestAllBackendsDownIs503(t *testing.T) {
	e := serve(t, open, []string{dead(t), dead(t)})
	quickest := time.Hour // of all requests, because the machine may be busy
	for range 20 {
		start := time.Now()
		got := e.send(t, "POST", "/v1/sales/42/orders", "{}")
		mustHave(t, got, 503, "Retry-After", "1", "Cache-Control", "no-store", "Content-Type", "application/problem+json")
		const want = `{"type":"about:blank","title":"Temporarily unavailable","status":503,"detail":"The service is ` +
			`busy. Please try again in a moment.","code":"temporarily-unavailable"}`
		if got.body != want {
			t.Fatalf("the body is %s", got.body)
		}
		quickest = min(quickest, time.Since(start))
	}
	if quickest > time.Second {
		t.Errorf("each request took at least %v", quickest)
	}
}

func TestEveryBackendIsTriedOnce(t *testing.T) {
	a, b := newDying(t), newDying(t)
	e := serve(t, open, []string{a.address, b.address})
	mustHave(t, e.send(t, "POST", "/v1/sales/42/orders", "{}"), 503)
	if a.seen.Load() != 1 || b.seen.Load() != 1 {
		t.Errorf("%d and %d requests, want 1 each", a.seen.Load(), b.seen.Load())
	}
}

// An unsolicited response must not be delivered to another request.
func TestConnectionWithUnreadInputIsNotReused(t *testing.T) {
	address := accepting(t, func(r *bufio.Reader, w io.Writer) {
		for {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine"+
				"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nothers")
		}
	})
	e := serve(t, open, []string{address})
	for range 5 {
		if got := e.send(t, "GET", "/", ""); got.body != "mine" {
			t.Fatalf("the response is %q, want mine", got.body)
		}
	}
}

func TestRecoveredBackendIsUsed(t *testing.T) {
	port := testenv.FreePort(t)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	e := serve(t, open, []string{address})
	mustHave(t, e.send(t, "GET", "/", ""), 503)
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		ReadHeaderTimeout: time.Second,
	}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
	// The only backend is the last resort of every request, even if it has just failed.
	mustHave(t, e.send(t, "GET", "/", ""), 200)
	mustHave(t, e.send(t, "GET", "/", ""), 200)
}

// A restarted backend has closed the pooled connections. It must not be considered down, and no request may fail
// because of it.
func TestStalePooledConnectionsAreReplaced(t *testing.T) {
	ln, err := unixsocket.Claim(t.Context(), testenv.SocketPath(t)) // the edge sees immediately what happens there
	if err != nil {
		t.Fatal(err)
	}
	b := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	b.Listener.Close()
	b.Listener = ln
	b.Start()
	t.Cleanup(b.Close)
	address := "unix:" + ln.Addr().String()
	e := serve(t, open, []string{address})
	for _, target := range []string{"/v1/sales", "/v1/sales/42/orders"} {
		mustHave(t, e.send(t, "GET", "/", ""), 200)
		b.CloseClientConnections()
		mustHave(t, e.send(t, "POST", target, "{}"), 200)
	}
	if n := e.upstreamFailures(t, address); n != 0 {
		t.Errorf("%v failures of the backend, want none", n)
	}
}

// If a backend closes several pooled connections when it gets a request that must not be retried, only that one fails.
func TestOneRequestFailsBecauseOfStaleConnections(t *testing.T) {
	const pooled = 3
	var arrived sync.WaitGroup
	arrived.Add(pooled)
	var b *backend
	var closing sync.Once
	b = newBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			arrived.Done()
			arrived.Wait()
			return
		}
		closing.Do(b.CloseClientConnections)
	})
	e := serve(t, open, []string{b.address()})
	var done sync.WaitGroup
	for range pooled {
		done.Go(func() { e.send(t, "GET", "/", "") })
	}
	done.Wait()
	mustHave(t, e.send(t, "POST", "/v1/payments", "{}"), 503)
	mustHave(t, e.send(t, "POST", "/v1/payments", "{}"), 200)
	if n := e.upstreamFailures(t, b.address()); n != 1 {
		t.Errorf("%v failures of the backend, want 1", n)
	}
}

func TestBackendConnectionsAreReused(t *testing.T) {
	var connections sync.Map
	b := newBackend(t, func(_ http.ResponseWriter, r *http.Request) { connections.Store(r.RemoteAddr, true) })
	e := serve(t, open, []string{b.address()})
	for range 10 {
		e.send(t, "POST", "/x", "{}")
	}
	n := 0
	connections.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d connections for 10 requests, want 1", n)
	}
}

// If a backend does not respond, a purchase is retried on the next one with the same request id. Other POSTs are not.
func TestTimeoutIsRetriedForPurchases(t *testing.T) {
	release := make(chan struct{})
	silent := func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthy" {
			<-release
		}
	}
	b, other := newBackend(t, silent), newBackend(t, nil)
	t.Cleanup(func() { close(release) })
	times := func(c *Config) { c.AnswerTimeout = 5 * time.Second } // long for a backend that responds
	short := func(c *Config) { c.AnswerTimeout, c.WaitTimeout = 50*time.Millisecond, 200*time.Millisecond }
	purchase := func(e *edge) int { return e.send(t, "POST", "/v1/sales/42/orders", "{}").status }
	for _, backends := range [][]string{{b.address(), other.address()}, {other.address(), b.address()}} {
		if got := purchase(serve(t, open, backends, times)); got != 200 {
			t.Errorf("purchase: %d", got)
		}
	}
	attempted, retried := b.requests(), other.requests()
	if len(attempted) != 1 || len(retried) != 2 || attempted[0].header.Get("X-Request-Id") == "" ||
		!slices.ContainsFunc(retried,
			func(r request) bool { return r.header.Get("X-Request-Id") == attempted[0].header.Get("X-Request-Id") }) {
		t.Errorf("first attempts %v, retries %v", attempted, retried)
	}
	statuses := map[int]int{}
	e := serve(t, open, []string{b.address(), other.address()}, times)
	for range 2 {
		statuses[e.send(t, "POST", "/v1/payments/callback", "{}").status]++
	}
	if statuses[200] != 1 || statuses[503] != 1 {
		t.Errorf("statuses %v of requests that must not be retried, want one 503 and one 200", statuses)
	}
	e = serve(t, open, []string{b.address()}, short)
	start := time.Now()
	if got := purchase(e); got != 503 {
		t.Errorf("with a single backend: %d", got)
	}
	if d := time.Since(start); d < 50*time.Millisecond || d > 10*time.Second {
		t.Errorf("after %v", d)
	}
	start = time.Now()
	if got := e.send(t, "GET", "/v1/orders/7?wait=1s", ""); got.status != 503 {
		t.Errorf("waiting for an order: %d", got.status)
	}
	if d := time.Since(start); d < 200*time.Millisecond {
		t.Errorf("waiting for an order ended after %v, want at least 200ms", d)
	}
}

func TestLongResponsesAreComplete(t *testing.T) {
	long := strings.Repeat("0123456789", 100_000)
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/known" {
			w.Header().Set("Content-Length", fmt.Sprint(len(long)))
		}
		_, _ = io.WriteString(w, long)
	})
	e := serve(t, open, []string{b.address()})
	for _, target := range []string{"/known", "/chunked", "/known"} {
		if got := e.send(t, "GET", target, ""); got.body != long {
			t.Errorf("%s: %d bytes, want %d", target, len(got.body), len(long))
		}
	}
	// HTTP/1.0 has no chunks.
	answers := e.raw(t, "GET /chunked HTTP/1.0\r\n\r\n")
	if len(answers) != 1 || answers[0].body != long || answers[0].header.Get("Content-Length") == "" {
		t.Errorf("HTTP/1.0: %d answers", len(answers))
	}
}
