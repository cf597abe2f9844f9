package edges

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice/gateway"
	"sluice/gateway/proxy"
	"sluice/internal/edgeconfig"
	"sluice/internal/edgetrace"
	"sluice/internal/fleetlimit"
	"sluice/internal/tracing"
	"sluice/nginx"
	"sluice/test/testenv"
)

const secret = "a secret of both edges, 32 bytes or more"

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// edge is one of the two edges, running, with its own backend.
type edge struct {
	name, address string
	tls           *tls.Config // of clients; nil: plain HTTP
	backend       *backend
	log           func() string // the access log so far
	metrics       func() string // as Prometheus gets them
	policy        string        // the file
	reload        func() error  // applies the policy; at the gateway nil, which does so on its own
	stop          func()        // starts a graceful shutdown
	kill          func()        // ends all processes of an nginx edge with SIGKILL
}

// options are the same for both edges.
type options struct {
	policy        string
	socket        bool // the backend listens on a Unix socket
	proxyProtocol bool
	tls           bool
	perClient     int
	cors          []string
	redis         *testenv.Redis // for rules of the fleet
	upstream      string         // address of the backend; "": one that records its requests
	spans         *tracing.Provider
	sampling      tracing.Sampling // of the spans
}

// shared returns the settings that both edges have. With TLS, it sets e.tls.
func (o options) shared(t *testing.T, e *edge) edgeconfig.Shared {
	t.Helper()
	s := edgeconfig.Shared{
		Upstreams:     []string{e.backend.address},
		Secret:        secret,
		ProxyProtocol: o.proxyProtocol,
		PerClient:     o.perClient,
		CORSOrigins:   o.cors,
	}
	if o.tls {
		dir := t.TempDir()
		s.TLSCert, s.TLSKey = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
		e.tls = &tls.Config{RootCAs: testenv.Certificate(t, s.TLSCert, s.TLSKey, 1), ServerName: "127.0.0.1"}
	}
	return s
}

// dial connects to the edge. protocol is that of TLS (ALPN).
func (e *edge) dial(protocol string) (net.Conn, error) {
	if e.tls == nil {
		return net.Dial("tcp", e.address)
	}
	config := e.tls.Clone()
	config.NextProtos = []string{protocol}
	return tls.Dial("tcp", e.address, config)
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
	e := &edge{name: "nginx", address: testenv.FreeAddress(t), backend: b, policy: policy}
	log := &bytes.Buffer{}
	status := testenv.FreeAddress(t)
	e.metrics = func() string { return page(t, "http://"+status+"/metrics") }
	cfg := nginx.Config{
		Shared:  o.shared(t, e),
		Listen:  e.address,
		Status:  status,
		Policy:  policy,
		Workers: 2,
		Root:    "../..",
		Prefix:  filepath.Join(dir, "edge"),
		Log:     log,
		Grace:   2 * time.Second,
	}
	e.log = func() string {
		text, _ := os.ReadFile(filepath.Join(cfg.Prefix, "logs/access.log"))
		return string(text)
	}
	if o.redis != nil {
		cfg.LeaseSocket = serveLeases(t, o.fleet())
	}
	if o.spans != nil {
		cfg.Spans = recordSpans(t, o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cfg.Run(ctx) }()
	e.stop = cancel
	e.reload = func() error { return cfg.Reload(ctx) }
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
			t.Logf("the log of nginx:\n%s", log)
		}
	})
	e.wait(t, done, o)
	return e
}

// serveLeases serves limits of the fleet to nginx until the test ends, and returns the path of the socket.
func serveLeases(t *testing.T, fleet *fleetlimit.Client) (socket string) {
	t.Helper()
	leases, err := fleetlimit.Serve(fleet, slog.New(slog.DiscardHandler), 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { leases.Close() })
	testenv.Run(t, func(ctx context.Context) error { leases.Run(ctx); return nil })
	return leases.Socket()
}

// recordSpans receives the spans of nginx until the test ends.
func recordSpans(t *testing.T, o options) *nginx.Spans {
	t.Helper()
	r, err := edgetrace.Listen(edgetrace.New(o.spans), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	testenv.Run(t, func(ctx context.Context) error { r.Run(ctx); return nil })
	return &nginx.Spans{
		Address:      r.Address(),
		Tag:          r.Tag(),
		Metrics:      r.Metrics(),
		FollowParent: o.sampling.FollowParent,
		Ratio:        o.sampling.Ratio,
	}
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
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.lua")
	if err := os.WriteFile(policy, []byte(o.policy), 0o644); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "access.log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	var spans *edgetrace.Recorder
	if o.spans != nil {
		spans = edgetrace.New(o.spans)
	}
	e := &edge{name: "gateway", backend: b, policy: policy}
	g, err := gateway.New(
		gateway.Config{
			Shared:     o.shared(t, e),
			Registry:   registry,
			PolicyPath: policy,
			AccessLog:  file,
			Fleet:      o.fleet(),
			Spans:      spans,
			Limits:     proxy.Limits{DrainTimeout: 5 * time.Second},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	ln := testenv.Listen(t)
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
	e.address, e.stop = ln.Addr().String(), cancel
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
		c, err := e.dial("http/1.1")
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
