package edges

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice/gateway"
	"sluice/gateway/proxy"
	"sluice/internal/edgetrace"
	"sluice/internal/fleetlimit"
	"sluice/internal/token/tokentest"
	"sluice/internal/tracing"
	"sluice/internal/unixsocket"
	"sluice/nginx"
	"sluice/test/testenv"
)

const secret = "a secret of both edges, 32 bytes or more"

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// seen is a request as a backend got it.
type seen struct {
	method, target, host, body string
	header                     http.Header
}

// String returns the parts of the request that must be the same through both edges. The request's id must be valid, and
// may differ.
func (s seen) String() string {
	var lines []string
	for name, values := range s.header {
		for _, v := range values {
			if name == "X-Request-Id" && hex32.MatchString(v) {
				v = "(an id)"
			}
			if name != "Content-Length" || v != "0" { // the same as no header
				lines = append(lines, name+": "+v)
			}
		}
	}
	slices.Sort(lines)
	return fmt.Sprintf("%s %s for %s\n%s\n%q", s.method, s.target, s.host, strings.Join(lines, "\n"), s.body)
}

var hex32 = regexp.MustCompile(`^[0-9a-f]{32}$`)

// backend records the requests it gets and answers as the test specifies.
type backend struct {
	*httptest.Server
	address string // as edges name it
	mu      sync.Mutex
	got     []seen
}

func startBackend(t *testing.T, o options, answer http.HandlerFunc) *backend {
	t.Helper()
	b := &backend{address: o.upstream}
	if o.upstream != "" {
		return b
	}
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.got = append(b.got, seen{r.Method, r.RequestURI, r.Host, string(body), r.Header.Clone()})
		b.mu.Unlock()
		answer(w, r)
	}))
	b.address = b.Listener.Addr().String()
	if o.socket {
		b.Listener.Close()
		path := testenv.SocketPath(t)
		var err error
		if b.Listener, err = unixsocket.Claim(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		b.address = "unix:" + path
	}
	b.Start()
	t.Cleanup(b.Close)
	return b
}

// take returns the requests since its last call.
func (b *backend) take() []seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	got := b.got
	b.got = nil
	return got
}

// edge is one of the two edges, running, with its own backend.
type edge struct {
	name, address string
	backend       *backend
	log           func() string // the access log so far
	metrics       func() string // as Prometheus gets them
	stop          func()        // starts a graceful shutdown
	kill          func()        // ends all processes of an nginx edge with SIGKILL
}

// options are the same for both edges.
type options struct {
	policy        string
	socket        bool // the backend listens on a Unix socket
	proxyProtocol bool
	perClient     int
	cors          []string
	redis         *testenv.Redis // for rules of the fleet
	upstream      string         // address of the backend; "": one that records its requests
	spans         *tracing.Provider
	sampling      tracing.Sampling // of the spans
}

// fleet returns a client for rules of the fleet, or nil.
func (o options) fleet() *fleetlimit.Client {
	if o.redis == nil {
		return nil
	}
	return fleetlimit.NewClient(o.redis.Client(), fleetlimit.Now)
}

// overBoth runs a test with the backend behind TCP, and behind a Unix socket.
func overBoth(t *testing.T, test func(t *testing.T, socket bool)) {
	t.Run("tcp", func(t *testing.T) { t.Parallel(); test(t, false) })
	t.Run("socket", func(t *testing.T) { t.Parallel(); test(t, true) })
}

// starts has the function that starts an edge, which runs until the test ends.
var starts = map[string]func(*testing.T, options, http.HandlerFunc) *edge{
	"nginx": startNginx, "gateway": startGateway,
}

// startBoth runs nginx and the gateway until the test ends.
func startBoth(t *testing.T, o options, answer http.HandlerFunc) []*edge {
	t.Helper()
	return []*edge{startNginx(t, o, answer), startGateway(t, o, answer)}
}

func startNginx(t *testing.T, o options, answer http.HandlerFunc) *edge {
	t.Helper()
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.lua")
	if err := os.WriteFile(policy, []byte(o.policy), 0o644); err != nil {
		t.Fatal(err)
	}
	b := startBackend(t, o, answer)
	e := &edge{name: "nginx", address: testenv.FreeAddress(t), backend: b}
	said := &bytes.Buffer{}
	status := testenv.FreeAddress(t)
	e.metrics = func() string { return page(t, "http://"+status+"/metrics") }
	cfg := nginx.Config{
		Listen:        e.address,
		Status:        status,
		Upstreams:     []string{b.address},
		Secret:        secret,
		Policy:        policy,
		Workers:       2,
		Root:          "../..",
		Prefix:        filepath.Join(dir, "edge"),
		Log:           said,
		Grace:         2 * time.Second,
		ProxyProtocol: o.proxyProtocol,
		PerClient:     o.perClient,
		CORSOrigins:   o.cors,
	}
	e.log = func() string {
		text, _ := os.ReadFile(filepath.Join(cfg.Prefix, "logs/access.log"))
		return string(text)
	}
	if o.redis != nil {
		leases, err := fleetlimit.Serve(o.fleet(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		cfg.LeaseSocket = leases.Socket()
		t.Cleanup(func() { leases.Close() })
		testenv.Run(t, func(ctx context.Context) error { leases.Run(ctx); return nil })
	}
	if o.spans != nil {
		r, err := edgetrace.Listen(edgetrace.New(o.spans), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		cfg.Spans = &nginx.Spans{
			Address:      r.Address(),
			Tag:          r.Tag(),
			Metrics:      r.Metrics(),
			FollowParent: o.sampling.FollowParent,
			Ratio:        o.sampling.Ratio,
		}
		t.Cleanup(func() { r.Close() })
		testenv.Run(t, func(ctx context.Context) error { r.Run(ctx); return nil })
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cfg.Run(ctx) }()
	e.stop = cancel
	killed := false
	e.kill = func() {
		killed = true
		killNginx(t, filepath.Join(cfg.Prefix, "logs/nginx.pid"))
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !killed {
			t.Errorf("nginx ended with: %v", err)
		}
		if t.Failed() {
			t.Logf("nginx said:\n%s", said)
		}
	})
	e.wait(t, done, o)
	return e
}

// killNginx kills the master first, so that it does not replace the workers.
func killNginx(t *testing.T, pidFile string) {
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	master, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	children, err := testenv.Children(master)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range append([]int{master}, children...) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("kill %d: %v", pid, err)
		}
	}
}

func startGateway(t *testing.T, o options, answer http.HandlerFunc) *edge {
	t.Helper()
	b := startBackend(t, o, answer)
	path := filepath.Join(t.TempDir(), "access.log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	var spans *edgetrace.Recorder
	if o.spans != nil {
		spans = edgetrace.New(o.spans)
	}
	g, err := gateway.New(
		gateway.Config{
			Registry:      registry,
			Upstreams:     []string{b.address},
			Secret:        secret,
			PolicySource:  []byte(o.policy),
			AccessLog:     file,
			ProxyProtocol: o.proxyProtocol,
			PerClient:     o.perClient,
			CORSOrigins:   o.cors,
			Fleet:         o.fleet(),
			Spans:         spans,
			Limits:        proxy.Limits{DrainTimeout: 5 * time.Second},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the gateway ended with: %v", err)
		}
		_ = file.Close()
	})
	e := &edge{name: "gateway", address: ln.Addr().String(), backend: b, stop: cancel}
	status := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(status.Close)
	e.metrics = func() string { return page(t, status.URL) }
	e.log = func() string {
		text, _ := os.ReadFile(path)
		return string(text)
	}
	e.wait(t, done, o)
	return e
}

func page(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
	return string(text)
}

// wait returns when the edge answers. An accepted connection is not sufficient: nginx also accepts them while it tests
// its configuration.
func (e *edge) wait(t *testing.T, ended chan error, o options) {
	t.Helper()
	testenv.Eventually(t, time.Minute, e.name+" listens", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s did not start: %v", e.name, err)
		default:
		}
		c, err := net.Dial("tcp", e.address)
		if err != nil {
			return false
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(timeout))
		hello := "GET /healthz HTTP/1.0\r\n\r\n"
		if o.proxyProtocol {
			hello = "PROXY UNKNOWN\r\n" + hello
		}
		_, _ = io.WriteString(c, hello)
		got, _ := io.ReadAll(c)
		return bytes.HasPrefix(got, []byte("HTTP/1.1 200"))
	})
}

// received is the output of an edge on one connection.
type received struct {
	answers []string // in a form that must be the same from both edges
	codes   []int
	headers []http.Header
	closed  bool // the edge closed the connection
	interim int  // answers "100 Continue", which an edge may leave out
}

// The headers of a connection, or of the program at its other end, which may differ.
var ofConnection = []string{"Server", "Date", "Connection", "Keep-Alive", "Transfer-Encoding"}

// send sends bytes unchanged and reads until the edge closes the connection or a timeout. methods are those of the
// requests if they are not GET, because responses to HEAD have no body.
func (e *edge) send(t *testing.T, raw string, methods ...string) received {
	t.Helper()
	c, err := net.Dial("tcp", e.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * timeout)) // the machine may be slow
	_, _ = io.WriteString(c, raw)                   // the edge may close before it has read all
	var h received
	r := bufio.NewReader(c)
	for {
		if _, err := r.Peek(1); err != nil {
			var timeout net.Error
			h.closed = !errors.As(err, &timeout) || !timeout.Timeout()
			return h
		}
		method := http.MethodGet
		if i := len(h.answers); i < len(methods) {
			method = methods[i]
		}
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			rest, _ := io.ReadAll(r)
			h.answers = append(h.answers, fmt.Sprintf("not HTTP: %v %q", err, rest))
			return h
		}
		if resp.StatusCode == http.StatusContinue {
			h.interim++
			continue
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			body = append(body, " (broken off)"...)
		}
		h.headers, h.codes = append(h.headers, resp.Header), append(h.codes, resp.StatusCode)
		h.answers = append(h.answers, spelled(t, resp, body))
	}
}

const timeout = 2 * time.Second

// spelled returns a response without the parts that may differ: the id, which must be valid, the jitter of Retry-After
// of up to a tenth, or a second, and the seconds of a long wait that have passed.
func spelled(t *testing.T, resp *http.Response, body []byte) string {
	t.Helper()
	var lines []string
	for name, values := range resp.Header {
		if slices.Contains(ofConnection, name) {
			continue
		}
		for _, v := range values {
			switch {
			case name == "X-Request-Id" && hex32.MatchString(v):
				v = "(an id)"
			case name == "Retry-After" && resp.StatusCode == http.StatusTooManyRequests:
				v = soon(t, v, resp.Header.Get("RateLimit"))
			case name == "Ratelimit":
				v = inMinutes(v)
			}
			lines = append(lines, name+": "+v)
		}
	}
	slices.Sort(lines)
	status := resp.Status
	if resp.StatusCode == http.StatusRequestHeaderFieldsTooLarge {
		status = "431" // nginx sends no reason phrase, and fasthttp always sends one
	}
	return fmt.Sprintf("%s\n%s\n%s", status, strings.Join(lines, "\n"), body)
}

var longWait = regexp.MustCompile(`;t=\d{3,}`)

// inMinutes rounds each wait of 100 s or more in a RateLimit header up to whole minutes.
func inMinutes(quota string) string {
	return longWait.ReplaceAllStringFunc(quota, func(t string) string {
		seconds, _ := strconv.Atoi(t[len(";t="):])
		return fmt.Sprintf(";t=%dmin", (seconds+59)/60)
	})
}

var nextToken = regexp.MustCompile(`;t=(\d+)$`)

// soon verifies that Retry-After is the time of the next token, or up to a tenth more.
func soon(t *testing.T, after, quota string) string {
	t.Helper()
	var wait, least int
	if _, err := fmt.Sscanf(after, "%d", &wait); err != nil {
		return after
	}
	if m := nextToken.FindStringSubmatch(quota); m != nil {
		_, _ = fmt.Sscanf(m[1], "%d", &least)
	}
	if least = max(least, 1); wait < least || wait > least+max(1, least/10) {
		t.Errorf("Retry-After %s with RateLimit %q: want %d, or up to a tenth more", after, quota, least)
	}
	return "(soon)"
}

func bearer(t *testing.T, sub string) string {
	t.Helper()
	return "Authorization: Bearer " + tokentest.Sign(t, secret, sub, time.Hour)
}
