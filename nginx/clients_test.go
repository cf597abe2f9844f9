package nginx

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/edgeconfig"
	"sluice/test/testenv"
)

const trustingLoopback = `return { trusted_proxies = { "127.0.0.1" }, rules = {} }`

const buying = `return { rules = { { name = "token", key = "token", rate = "1000r/s", burst = 100, match = { method = "POST", path = "/v1/sales/*/orders" } } } }`

// A client may have this many requests in progress. A client behind a trusted proxy counts separately.
func TestConcurrentRequestsOfOneClientAreBounded(t *testing.T) {
	release := make(chan struct{})
	backend := startBackend(t, func(http.ResponseWriter, *http.Request) { <-release })
	e := startEdge(t, trustingLoopback, func(c *Config) { c.PerClient = 2; c.Workers = 2 }, backend.addr)
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free) // also if the test fails
	held := make(chan answer, 3)
	hold := func(client string) { go func() { held <- e.do("GET", "/v1/orders/1", "X-Forwarded-For", client) }() }
	hold("2001:db8::1")
	hold("2001:db8::2")
	hold("192.0.2.1")
	testenv.Eventually(t, time.Minute, "three requests wait at the backend",
		func() bool { return len(backend.requests()) == 3 })

	got := e.do("POST", "/v1/sales/1/orders", "X-Forwarded-For", "2001:db8::3")
	want := strings.Replace(problemBody(429, "concurrency"), "more right now", "more concurrent requests", 1)
	if got.status != 429 || got.body != want || got.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("the third of one /64: %d %s, want 429 %s", got.status, got.body, want)
	}
	if after := got.header.Get("Retry-After"); after != "1" && after != "2" {
		t.Errorf("Retry-After is %q", after)
	}
	if got := e.do("GET", "/healthz", "X-Forwarded-For", "2001:db8::3"); got.status != 200 {
		t.Errorf("/healthz: %d", got.status)
	}
	free()
	for range 3 {
		if got := <-held; got.status != 200 {
			t.Errorf("a request in progress got %d", got.status)
		}
	}
	if got := e.do("GET", "/", "X-Forwarded-For", "2001:db8::3"); got.status != 200 {
		t.Errorf("afterwards: %d", got.status)
	}
	if entry := e.logged(1, 429)[0]; entry["verdict"] != "deny" || entry["rule"] != "concurrency" ||
		entry["remaining"] != "0" ||
		entry["client"] != "2001:db8::3" {
		t.Errorf("the log has %v", entry)
	}
}

// The file for containers has the default of sluice edge.
func TestTheContainersBoundIsTheDefault(t *testing.T) {
	text, err := os.ReadFile("runtime/http.conf")
	if want := fmt.Sprintf("\nlimit_conn sluice_clients %d;", edgeconfig.DefaultPerClient); err != nil ||
		!strings.Contains(string(text), want) {
		t.Errorf("runtime/http.conf does not have %q, %v", want, err)
	}
}

// certificate writes a self-signed certificate for 127.0.0.1.
func certificate(t *testing.T) (cert, key string, roots *x509.CertPool) {
	t.Helper()
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	return cert, key, testenv.Certificate(t, cert, key, 1)
}

func TestTLSServesHTTP2AndBackendSeesHTTPS(t *testing.T) {
	cert, key, roots := certificate(t)
	backend := echo(t)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	e := startEdgeThat(t, buying, func(c *Config) { c.TLSCert, c.TLSKey = cert, key }, func(address string) bool {
		response, err := client.Get("https://" + address + "/healthz")
		if err == nil {
			response.Body.Close()
		}
		return err == nil && response.StatusCode == 200
	}, backend.addr)
	for _, c := range []struct {
		name   string
		header http.Header
		path   string
		status int
	}{
		{
			"a purchase", http.Header{"Authorization": {signed(t, "bo")}, "Idempotency-Key": {`"a"`}}, "/v1/sales/1/orders", 200,
		},
		{"no token", nil, "/v1/sales/1/orders", 401},
		{
			"two keys", http.Header{"Authorization": {signed(t, "bo")}, "Idempotency-Key": {"a", "b"}}, "/v1/sales/1/orders",
			400,
		},
		{"an odd path", nil, "/v1//sales", 400},
		{"a line of 8 KiB", http.Header{"Accept": {strings.Repeat("a", 8<<10-len("accept: \r\n"))}}, "/", 200},
		{"a longer line", http.Header{"Accept": {strings.Repeat("a", 8<<10-len("accept: \r\n")+1)}}, "/", 431},
		{"a request line of 9 KiB", nil, "/" + strings.Repeat("a", 9<<10), 431},
		{
			"a head of 15 KiB", http.Header{"Accept": {strings.Repeat("a", 7500)}, "Origin": {strings.Repeat("b", 7500)}}, "/",
			200,
		},
		{
			"a head of 17 KiB",
			http.Header{
				"Accept": {strings.Repeat("a", 6000)}, "Origin": {strings.Repeat("b", 6000)}, "Range": {strings.Repeat("c", 6000)},
			},
			"/", 431,
		},
	} {
		request, err := http.NewRequest("POST", "https://"+e.cfg.Listen+c.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = c.header
		response, err := client.Do(request)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.ProtoMajor != 2 || response.StatusCode != c.status ||
			c.status >= 400 && string(body) != problemBody(c.status, "") {
			t.Errorf("%s: %s %d %s, want %d over HTTP/2", c.name, response.Proto, response.StatusCode, body, c.status)
		}
	}
	if got := backend.requests(); len(got) != 3 || got[0].header.Get("X-Forwarded-Proto") != "https" ||
		got[0].header.Get("Idempotency-Key") != `"a"` {
		t.Errorf("the backend got %d requests, the first with %q", len(got), got[0].header)
	}
	if n := connections(t, client, "https://"+e.cfg.Listen+"/healthz", 1100); n != 2 {
		t.Errorf("1100 requests took %d connections, want 2: one serves 1000", n)
	}
	if got := e.raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400 ") ||
		!strings.HasSuffix(got, problemBody(400, "")) {
		t.Errorf("plain HTTP got %q", got)
	}
	old := &tls.Dialer{Config: &tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS11}}
	if conn, err := old.DialContext(context.Background(), "tcp", e.cfg.Listen); err == nil {
		conn.Close()
		t.Error("TLS 1.1 is accepted")
	}
	if log := e.log.String(); strings.Contains(log, "deprecated") {
		t.Errorf("nginx warns about the HTTP/2 directive:\n%s", log)
	}
}

// connections returns how many connections n sequential requests need.
func connections(t *testing.T, client *http.Client, url string, n int) int {
	t.Helper()
	used := map[net.Conn]bool{}
	ctx := httptrace.WithClientTrace(t.Context(),
		&httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { used[got.Conn] = true }})
	for range n {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
	return len(used)
}

func TestHTTP2DirectiveFitsTheRelease(t *testing.T) {
	for build, want := range map[string]bool{
		"nginx version: nginx/1.22.1\nbuilt with OpenSSL 3.0.8": false,
		"nginx version: nginx/1.25.0":                           false,
		"nginx version: nginx/1.25.1 (Ubuntu)":                  true,
		"nginx version: nginx/1.30.0":                           true,
		"nginx version: nginx/2.0.0":                            true,
		"nginx version: openresty/1.21.4.4":                     false,
		"nginx version: openresty/1.25.3.1":                     true,
		"nginx version: freenginx/1.27.0":                       true,
		"nginx version: Tengine/3.1.0 (nginx/1.24.0)":           false,
		"Tengine version: Tengine/3.1.0":                        false,
		"":                                                      false,
	} {
		if got := hasHTTP2Directive(build); got != want {
			t.Errorf("%q: %v, want %v", build, got, want)
		}
	}
}
