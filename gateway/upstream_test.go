package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/test/testenv"
)

// dead is an address that nobody listens on.
func dead(t *testing.T) string { return fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)) }

// dying is a backend that takes a request and hangs up without an answer.
type dying struct {
	net.Listener
	seen atomic.Int32
	ids  chan string
}

func newDying(t *testing.T) *dying {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &dying{Listener: ln, ids: make(chan string, 100)}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if r, err := http.ReadRequest(newReader(c)); err == nil {
					d.seen.Add(1)
					d.ids <- r.Header.Get("X-Request-Id")
				}
			}()
		}
	}()
	return d
}

func (d *dying) address() string { return d.Addr().String() }

func TestBackendsAreAskedInTurn(t *testing.T) {
	a, b := newBackend(t, nil), newBackend(t, nil)
	e := serve(t, open, []string{a.address(), b.URL})
	for range 10 {
		e.ask(t, "GET", "/", "")
	}
	if na, nb := len(a.requests()), len(b.requests()); na != 5 || nb != 5 {
		t.Errorf("asked %d and %d times, want 5 and 5", na, nb)
	}
}

func TestBackendThatCannotBeReachedIsLeftAlone(t *testing.T) {
	b := newBackend(t, nil)
	gone := dead(t)
	e := serve(t, open, []string{gone, b.address()})
	for range 20 {
		mustHave(t, e.ask(t, "POST", "/anything", "{}"), 200)
	}
	if n := e.count(t, "sluice_edge_upstream_failures_total", "upstream", gone, "failure", "dial"); n != 1 {
		t.Errorf("it was tried %v times, want once", n)
	}
}

func TestPurchaseIsRepeatedUnderTheSameNumberWhenABackendDies(t *testing.T) {
	d, b := newDying(t), newBackend(t, nil)
	e := serve(t, open, []string{d.address(), b.address()})
	for range 2 { // so that the dying one is asked first once
		mustHave(t, e.ask(t, "POST", "/v1/sales/42/orders", `{"n":1}`), 200)
	}
	if d.seen.Load() != 1 {
		t.Fatalf("the dying backend was asked %d times, want once", d.seen.Load())
	}
	id := <-d.ids
	var found bool
	for _, r := range b.requests() {
		if r.header.Get("X-Request-Id") == id {
			found = true
			if r.body != `{"n":1}` || r.target != "/v1/sales/42/orders" {
				t.Errorf("the repetition is %+v", r)
			}
		}
	}
	if !found {
		t.Error("the purchase was not repeated under its number")
	}
}

// Only purchases are remembered by their number; any other POST may do its work twice.
func TestOtherPostsAreNotRepeated(t *testing.T) {
	d, b := newDying(t), newBackend(t, nil)
	e := serve(t, open, []string{d.address(), b.address()})
	statuses := map[int]int{}
	for range 2 {
		statuses[e.ask(t, "POST", "/v1/other", "{}").status]++
	}
	if statuses[200] != 1 || statuses[503] != 1 || d.seen.Load() != 1 {
		t.Errorf("statuses %v after %d tries at the dying one, want one 200 and one 503", statuses, d.seen.Load())
	}
}

func TestAllBackendsDownIs503AtOnce(t *testing.T) {
	e := serve(t, open, []string{dead(t), dead(t)})
	quickest := time.Hour // of all: a machine may stand still meanwhile
	for range 20 {
		start := time.Now()
		got := e.ask(t, "POST", "/v1/sales/42/orders", "{}")
		mustHave(t, got, 503, "Retry-After", "1", "Cache-Control", "no-store", "Content-Type", "application/problem+json")
		const want = `{"type":"about:blank","title":"Temporarily unavailable","status":503,"detail":"The service is busy. Please try again in a moment.","code":"temporarily-unavailable"}`
		if got.body != want {
			t.Fatalf("the body is %s", got.body)
		}
		quickest = min(quickest, time.Since(start))
	}
	if quickest > time.Second {
		t.Errorf("each took %v at least", quickest)
	}
}

func TestEveryBackendIsTriedOnce(t *testing.T) {
	a, b := newDying(t), newDying(t)
	e := serve(t, open, []string{a.address(), b.address()})
	mustHave(t, e.ask(t, "POST", "/v1/sales/42/orders", "{}"), 503)
	if a.seen.Load() != 1 || b.seen.Load() != 1 {
		t.Errorf("tried %d and %d times, want once each", a.seen.Load(), b.seen.Load())
	}
}

// A backend that says more than it was asked for is out of step: its next words must not become the answer to somebody else.
func TestConnectionWithWordsLeftInItIsNotUsedAgain(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for r := newReader(c); ; {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine"+"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nothers")
				}
			}()
		}
	}()
	e := serve(t, open, []string{ln.Addr().String()})
	for range 5 {
		if got := e.ask(t, "GET", "/", ""); got.body != "mine" {
			t.Fatalf("the answer is %q, want mine", got.body)
		}
	}
}

func TestBackendThatComesBackIsFound(t *testing.T) {
	port := testenv.FreePort(t)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	e := serve(t, open, []string{address})
	mustHave(t, e.ask(t, "GET", "/", ""), 503)
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
	// As the only backend, it is the last resort of every request, whenever it failed.
	mustHave(t, e.ask(t, "GET", "/", ""), 200)
	mustHave(t, e.ask(t, "GET", "/", ""), 200)
}

func TestSuspectIsTriedByOneRequestAtATime(t *testing.T) {
	u := &upstream{name: "x", clock: newClock(), failures: mustMetrics(t).upstream}
	if !u.enter(false) || !u.enter(false) {
		t.Fatal("a healthy backend takes one request only")
	}
	u.leave(errBroken)
	if !u.enter(false) {
		t.Fatal("one broken connection makes a backend suspect")
	}
	u.leave(errDial)
	if u.enter(false) {
		t.Fatal("a backend that cannot be reached is tried again at once")
	}
	if !u.enter(true) {
		t.Fatal("the last resort is not tried")
	}
	if u.enter(true) {
		t.Fatal("two requests try a suspect at a time")
	}
	u.leave(nil)
	if !u.enter(false) || !u.enter(false) {
		t.Fatal("a backend that has answered is still suspect")
	}
	for range maxStrikes {
		u.leave(errTimeout)
	}
	if u.enter(false) {
		t.Fatal("a backend that answers nobody is not suspect")
	}
	u.retryAt.Store(u.clock.now())
	if !u.enter(false) {
		t.Fatal("a suspect is not tried again after its time")
	}
}

func mustMetrics(t *testing.T) *metrics {
	t.Helper()
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A backend that was restarted has closed the pooled connections. That costs nobody an answer, and says nothing against the backend.
func TestStalePooledConnectionsAreReplaced(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	for _, target := range []string{"/v1/sales", "/v1/sales/42/orders"} {
		mustHave(t, e.ask(t, "GET", "/", ""), 200)
		b.CloseClientConnections()
		mustHave(t, e.ask(t, "POST", target, "{}"), map[bool]int{true: 200, false: 503}[strings.HasSuffix(target, "orders")])
	}
	if e.balancer.upstreams[0].suspect.Load() {
		t.Error("the backend is suspect")
	}
}

func TestConnectionsToTheBackendAreKept(t *testing.T) {
	var connections sync.Map
	b := newBackend(t, func(_ http.ResponseWriter, r *http.Request) { connections.Store(r.RemoteAddr, true) })
	e := serve(t, open, []string{b.address()})
	for range 10 {
		e.ask(t, "POST", "/x", "{}")
	}
	n := 0
	connections.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d connections for 10 requests, want 1", n)
	}
	u := e.balancer.upstreams[0]
	u.idle[0].since = -idleFor.Milliseconds() - 1
	u.prune()
	if len(u.idle) != 0 {
		t.Error("a connection that was idle for too long is kept")
	}
}

// A machine that is cut off takes requests and answers none. A purchase goes to the next backend, as the same request; what may not be sent twice, and who waits for an order, does not.
func TestBackendThatDoesNotAnswerInTimeIsPassedOver(t *testing.T) {
	release := make(chan struct{})
	silent := func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthy" {
			<-release
		}
	}
	b, other := newBackend(t, silent), newBackend(t, nil)
	t.Cleanup(func() { close(release) })
	times := func(c *Config) { c.AnswerTimeout = 500 * time.Millisecond } // long for one that answers
	short := func(c *Config) { c.AnswerTimeout, c.WaitTimeout = 50*time.Millisecond, 200*time.Millisecond }
	purchase := func(e *edge) int { return e.ask(t, "POST", "/v1/sales/42/orders", "{}").status }
	for _, backends := range [][]string{{b.address(), other.address()}, {other.address(), b.address()}} {
		if got := purchase(serve(t, open, backends, times)); got != 200 {
			t.Errorf("a purchase gets %d", got)
		}
	}
	asked, repeated := b.requests(), other.requests()
	if len(asked) != 1 || len(repeated) != 2 || asked[0].header.Get("X-Request-Id") == "" ||
		!slices.ContainsFunc(repeated, func(r request) bool { return r.header.Get("X-Request-Id") == asked[0].header.Get("X-Request-Id") }) {
		t.Errorf("asked %v, and then %v", asked, repeated)
	}
	statuses := map[int]int{}
	e := serve(t, open, []string{b.address(), other.address()}, times)
	for range 2 {
		statuses[e.ask(t, "POST", "/v1/payments/callback", "{}").status]++
	}
	if statuses[200] != 1 || statuses[503] != 1 {
		t.Errorf("statuses %v of what may not be sent twice, want one 503 and one 200", statuses)
	}
	e = serve(t, open, []string{b.address()}, short)
	start := time.Now()
	if got := purchase(e); got != 503 {
		t.Errorf("with nobody else there: %d", got)
	}
	if d := time.Since(start); d < 50*time.Millisecond || d > 10*time.Second {
		t.Errorf("that took %v", d)
	}
	start = time.Now()
	if got := e.ask(t, "GET", "/v1/orders/7?wait=1s", ""); got.status != 503 {
		t.Errorf("who waits for an order gets %d", got.status)
	}
	if d := time.Since(start); d < 200*time.Millisecond {
		t.Errorf("an order may be waited for, and was for %v", d)
	}
}

// What does not answer is passed over for a while only: an edge whose backends all are slow must not ask one after the other for ever.
func TestSilentBackendsArePassedOverOnce(t *testing.T) {
	for after, want := range map[time.Duration]bool{0: true, passOver - 1: true, passOver: false, time.Minute: false} {
		if got := again(errTimeout, true, after); got != want {
			t.Errorf("no answer after %v: again is %t", after, got)
		}
		if again(errTimeout, false, after) || !again(errDial, false, after) || !again(errBroken, true, after) || again(errBroken, false, after) {
			t.Errorf("after %v", after)
		}
	}
}

func TestUpstreamsAreReadStrictly(t *testing.T) {
	for raw, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", "http://backend:8080": "backend:8080", "http://backend": "backend:80", "http://[::1]:80/": "[::1]:80", "[::1]:8080": "[::1]:8080",
		"": "", "backend": "", ":80": "", "https://backend": "", "http://a/b": "", "http://u:p@a": "", "http://a?x": "", "ftp://a": "", "http://": "", "a:b:c": "",
	} {
		u, err := newUpstream(raw, time.Second, newClock(), nil)
		if (err == nil) != (want != "") || err == nil && u.name != want {
			t.Errorf("%q: %v, %v, want %q", raw, u, err, want)
		}
	}
}

func TestLongAnswersPassWhole(t *testing.T) {
	long := strings.Repeat("0123456789", 100_000)
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/known" {
			w.Header().Set("Content-Length", fmt.Sprint(len(long)))
		}
		_, _ = io.WriteString(w, long)
	})
	e := serve(t, open, []string{b.address()})
	for _, target := range []string{"/known", "/chunked", "/known"} {
		if got := e.ask(t, "GET", target, ""); got.body != long {
			t.Errorf("%s: %d bytes, want %d", target, len(got.body), len(long))
		}
	}
	// HTTP/1.0 knows no chunks.
	answers := e.raw(t, "GET /chunked HTTP/1.0\r\n\r\n")
	if len(answers) != 1 || answers[0].body != long || answers[0].header.Get("Content-Length") == "" {
		t.Errorf("HTTP/1.0: %d answers", len(answers))
	}
}
