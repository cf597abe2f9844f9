package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/gateway/proxy"
	"sluice/internal/edgeconfig"
	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

const secret = "0123456789abcdef0123456789abcdef"

// open is a policy without limits.
const open = `return { rules = {} }`

// shop is the default policy with lower rates.
const shop = `return { rules = {
	{ name = "ip", key = "ip", rate = "1r/s", burst = 5 },
	{ name = "token", key = "token", rate = "1r/s", burst = 1, match = { method = "POST", path = "/v1/sales/*/orders" } },
} }`

// edge is a gateway under test, with a manual clock.
type edge struct {
	*Gateway
	address  string
	registry *prometheus.Registry
	log      *testenv.Buffer
	ms       atomic.Int64
	stop     func() error // drains; returns what Serve returned
}

// shared returns the settings of an edge with these backends.
func shared(backends ...string) edgeconfig.Shared {
	return edgeconfig.Shared{Upstreams: backends, Secret: secret}
}

// serve starts a gateway in front of the backends.
func serve(t testing.TB, source string, backends []string, change ...func(*Config)) *edge {
	t.Helper()
	e := &edge{registry: prometheus.NewRegistry(), log: &testenv.Buffer{}}
	e.ms.Store(1_000_000)
	config := Config{
		Shared:       shared(backends...),
		PolicySource: []byte(source),
		Registry:     e.registry,
		Logger:       slog.New(slog.NewTextHandler(e.log, nil)),
		Now:          func() time.Duration { return time.Duration(e.ms.Load()) * time.Millisecond },
		Random:       func(int) int { return 0 },
		Limits:       proxy.Limits{DrainTimeout: time.Minute},
	}
	for _, c := range change {
		c(&config)
	}
	var err error
	if e.Gateway, err = New(config); err != nil {
		t.Fatal(err)
	}
	ln := testenv.Listen(t)
	e.address = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx, ln) }()
	var once sync.Once
	var result error
	e.stop = func() error {
		once.Do(func() { cancel(); result = <-done })
		return result
	}
	t.Cleanup(func() {
		if err := e.stop(); err != nil {
			t.Errorf("Serve returned %v", err)
		}
	})
	return e
}

func (e *edge) count(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	families, err := e.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			match := true
			for i := 0; i < len(labels); i += 2 {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				match = match && found
			}
			if match {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// request is a request that a backend received.
type request struct {
	method, target, host, body string
	header                     http.Header
}

// backend is an HTTP server that records its requests.
type backend struct {
	*httptest.Server
	mu   sync.Mutex
	seen []request
}

func newBackend(t testing.TB, answer http.HandlerFunc) *backend {
	b := &backend{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.seen = append(b.seen, request{r.Method, r.RequestURI, r.Host, string(body), r.Header.Clone()})
		b.mu.Unlock()
		if answer != nil {
			answer(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"hello":"world"}`)
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *backend) address() string { return b.Listener.Addr().String() }

func (b *backend) requests() []request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]request(nil), b.seen...)
}

func (b *backend) last(t testing.TB) request {
	t.Helper()
	seen := b.requests()
	if len(seen) == 0 {
		t.Fatal("the backend received no request")
	}
	return seen[len(seen)-1]
}

// response is a complete response.
type response struct {
	status int
	header http.Header
	body   string
}

// send sends a request over a new connection. Lines are headers.
func (e *edge) send(t testing.TB, method, target, body string, lines ...string) response {
	t.Helper()
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: shop.example\r\n", method, target)
	for _, l := range lines {
		head += l + "\r\n"
	}
	if body != "" || method == http.MethodPost {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	answers := e.raw(t, head+"Connection: close\r\n\r\n"+body)
	if len(answers) != 1 {
		t.Fatalf("%s %s: %d responses, want 1", method, target, len(answers))
	}
	return answers[0]
}

// raw sends text and reads all responses until the edge closes the connection.
func (e *edge) raw(t testing.TB, text string) []response {
	t.Helper()
	c := e.connect(t)
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		t.Logf("the edge has stopped reading: %v", err)
	}
	return readAll(t, c, "")
}

func (e *edge) connect(t testing.TB) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", e.address)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

func readAll(t testing.TB, c net.Conn, method string) []response {
	t.Helper()
	var answers []response
	r := bufio.NewReader(c)
	for {
		if _, err := r.Peek(1); errors.Is(err, io.EOF) {
			return answers
		} else if err != nil {
			t.Fatalf("after %d responses the connection is open or broken: %v", len(answers), err)
		}
		answers = append(answers, readOne(t, r, method))
	}
}

func readOne(t testing.TB, r *bufio.Reader, method string) response {
	t.Helper()
	if method == "" {
		method = http.MethodGet
	}
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("reading a response: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("reading the body of a %d: %v", resp.StatusCode, err)
	}
	return response{resp.StatusCode, resp.Header, string(body)}
}

func sign(t testing.TB, subject string, ttl time.Duration) string {
	t.Helper()
	return tokentest.Sign(t, secret, subject, ttl)
}

func bearerOf(t testing.TB, subject string) string {
	return "Authorization: Bearer " + sign(t, subject, time.Hour)
}

// upstreamFailures returns the failed attempts to reach a backend.
func (e *edge) upstreamFailures(t testing.TB, address string) (n float64) {
	t.Helper()
	for _, failure := range []string{"dial", "timeout", "broken", "invalid"} {
		n += e.count(t, "sluice_edge_upstream_failures_total", "upstream", address, "failure", failure)
	}
	return n
}

func mustContain(t testing.TB, what, in, want string) {
	t.Helper()
	if !strings.Contains(in, want) {
		t.Errorf("%s is %q, want it to contain %q", what, in, want)
	}
}
