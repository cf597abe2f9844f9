package gateway

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/gateway/limit"
	"sluice/gateway/proxy"
	"sluice/test/testenv"
)

const trustingLoopback = `return { trusted_proxies = { "127.0.0.1" }, rules = {} }`

func TestConcurrentRequestsOfOneClientAreLimited(t *testing.T) {
	release := make(chan struct{})
	b := newBackend(t, func(http.ResponseWriter, *http.Request) { <-release })
	log := &testenv.Buffer{}
	e := serve(t, trustingLoopback, []string{b.address()}, func(c *Config) { c.PerClient, c.AccessLog = 2, log })
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free) // also if the test fails
	var held sync.WaitGroup
	for _, client := range []string{"2001:db8::1", "2001:db8::2", "192.0.2.1"} {
		held.Go(func() {
			if got := e.send(t, "GET", "/v1/orders/1", "", "X-Forwarded-For: "+client); got.status != 200 {
				t.Errorf("a request in progress got %d", got.status)
			}
		})
	}
	testenv.Eventually(t, time.Minute, "three requests reach the backend", func() bool { return len(b.requests()) == 3 })
	got := e.send(t, "GET", "/x", "", "X-Forwarded-For: 2001:db8::3")
	mustHave(t, got, 429, "Retry-After", "1", "Cache-Control", "no-store", "Content-Type", "application/problem+json")
	mustContain(t, "the refusal", got.body, `"violated-policies":["concurrency"]`)
	if got := e.send(t, "GET", "/healthz", "", "X-Forwarded-For: 2001:db8::3"); got.status != 200 {
		t.Errorf("/healthz: %d", got.status)
	}
	free()
	held.Wait()
	if got := e.send(t, "GET", "/x", "", "X-Forwarded-For: 2001:db8::3"); got.status != 200 {
		t.Errorf("after the others ended: %d", got.status)
	}
	if n := e.count(t, "sluice_edge_requests_total", "rule", "concurrency", "verdict", "deny"); n != 1 {
		t.Errorf("counted %v refusals, want 1", n)
	}
	e.access.flush()
	mustContain(t, "the log", log.String(), `"status":429,"verdict":"deny","rule":"concurrency","remaining":"0"`)
}

// A client over the concurrency limit is refused by a rate limit if one is exceeded. The log contains the buyer only
// if that is a limit by buyer.
func TestBuyerIsLoggedOnlyForLimitsByBuyer(t *testing.T) {
	release := make(chan struct{})
	b := newBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			<-release
		}
	})
	log := &testenv.Buffer{}
	e := serve(t, `return { rules = {
		{ name = "address", key = "ip", rate = "1r/h", burst = 0, match = { path = "/a" } },
		{ name = "plenty", key = "token", rate = "1r/h", burst = 9, match = { path = "/a" } },
		{ name = "buyer", key = "token", rate = "1r/h", burst = 0, match = { path = "/b" } },
	} }`, []string{b.address()}, func(c *Config) { c.PerClient, c.AccessLog = 1, log })
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free) // also if the test fails
	ann := bearerOf(t, "ann")
	for _, path := range []string{"/a", "/b"} {
		if got := e.send(t, "GET", path, "", ann); got.status != 200 {
			t.Fatalf("%s: %d, want 200", path, got.status)
		}
	}
	var held sync.WaitGroup
	held.Go(func() { e.send(t, "GET", "/held", "") })
	testenv.Eventually(t, time.Minute, "a request reaches the backend", func() bool { return len(b.requests()) == 3 })
	for _, c := range []struct{ path, rule, buyer string }{
		{"/a", "address", ""}, {"/b", "buyer", "ann"}, {"/c", "concurrency", ""},
	} {
		got := e.send(t, "GET", c.path, "", ann)
		mustHave(t, got, 429)
		mustContain(t, c.path, got.body, `"violated-policies":["`+c.rule+`"]`)
		e.access.flush()
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		last := lines[len(lines)-1]
		mustContain(t, "the log", last, `"buyer":"`+c.buyer+`"`)
		mustContain(t, "the log", last, `"rule":"`+c.rule+`"`)
	}
	free()
	held.Wait()
}

// A stream is logged when it ends.
func TestStreamIsInProgressUntilItEnds(t *testing.T) {
	release := make(chan struct{})
	b := newBackend(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 5\n\n")
		w.(http.Flusher).Flush()
		<-release
	})
	log := &testenv.Buffer{}
	e := serve(t, open, []string{b.address()}, func(c *Config) { c.PerClient, c.AccessLog = 1, log })
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free) // also if the test fails
	c := e.connect(t)
	defer c.Close()
	_, _ = io.WriteString(c, "GET /v1/sales/1/events HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := e.send(t, "GET", "/x", ""); got.status != 429 {
		t.Errorf("during a stream: %d, want 429", got.status)
	}
	e.access.flush()
	if strings.Contains(log.String(), "/events") {
		t.Errorf("the stream is logged before its end: %s", log)
	}
	free()
	_, _ = io.Copy(io.Discard, resp.Body)
	testenv.Eventually(t, time.Minute, "another request is admitted",
		func() bool { return e.concurrency.enter(limit.Address(proxy.AddrOf(c.LocalAddr()))) })
	testenv.Eventually(t, time.Minute, "the stream is logged", func() bool {
		e.access.flush()
		return strings.Contains(log.String(), "/events")
	})
}

func TestConcurrencyLimiterReleasesMemory(t *testing.T) {
	c := newConcurrencyLimiter(2)
	key := limit.Address(proxy.AddrOf(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}))
	if !c.enter(key) || !c.enter(key) || c.enter(key) {
		t.Fatal("want exactly two requests in progress")
	}
	c.leave(key)
	if !c.enter(key) {
		t.Fatal("no request is admitted after another has left")
	}
	c.leave(key)
	c.leave(key)
	for i := range c.shards {
		if n := len(c.shards[i].inProgress); n > 0 {
			t.Errorf("%d clients in memory, want none", n)
		}
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	roots := testenv.Certificate(t, cert, key, 1)
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()}, func(c *Config) { c.TLSCert, c.TLSKey = cert, key })
	get := func(roots *x509.CertPool) (*http.Response, error) {
		client := &http.Client{
			Transport: &http.Transport{
				TLSClientConfig:   &tls.Config{RootCAs: roots},
				ForceAttemptHTTP2: true,
				DisableKeepAlives: true,
			},
		}
		resp, err := client.Get("https://" + e.address + "/x")
		if err == nil {
			resp.Body.Close()
		}
		return resp, err
	}
	resp, err := get(roots)
	if err != nil || resp.StatusCode != 200 || resp.Proto != "HTTP/1.1" {
		t.Fatalf("%+v, %v", resp, err)
	}
	if got := b.last(t).header.Get("X-Forwarded-Proto"); got != "https" {
		t.Errorf("X-Forwarded-Proto is %q, want https", got)
	}
	// A client receives the response to a malformed request over TLS, too. An old client offers HTTP/1.0 only.
	c, err := tls.Dial("tcp", e.address, &tls.Config{RootCAs: roots, NextProtos: []string{"http/1.0"}})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, "GET / HTTP/1.1\nHost: x\n\n")
	if got := readOne(t, bufio.NewReader(c), ""); got.status != 400 {
		t.Errorf("bare line feeds: %d", got.status)
	}
	c.Close()
	// A client without TLS gets no response.
	plain := e.connect(t)
	defer plain.Close()
	_, _ = io.WriteString(plain, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if got, _ := io.ReadAll(plain); strings.HasPrefix(string(got), "HTTP/1.1 200") {
		t.Errorf("plain HTTP got %q", got)
	}

	// An invalid renewal changes nothing, a valid one does.
	if err := os.WriteFile(key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	e.runOnce()
	if _, err := get(roots); err != nil {
		t.Errorf("after an invalid renewal: %v", err)
	}
	mustContain(t, "the log", e.log.String(), "keeping the previous one")
	renewed := testenv.Certificate(t, cert, key, 2)
	e.runOnce()
	if _, err := get(renewed); err != nil {
		t.Errorf("after a renewal: %v", err)
	}
}

func TestIncompleteCertificateIsRejected(t *testing.T) {
	for files, want := range map[[2]string]string{
		{"/nowhere/cert.pem", "/nowhere/key.pem"}: "certificate",
		{"x", ""}: "--tls-cert and --tls-key",
		{"", "x"}: "--tls-cert and --tls-key",
	} {
		c := Config{Shared: shared("127.0.0.1:1"), PolicySource: []byte(open)}
		c.TLSCert, c.TLSKey = files[0], files[1]
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", files, err)
		}
	}
}

// Connections without a PROXY header, or with nothing after it, are closed without a response.
func TestMissingProxyHeaderClosesTheConnection(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, trustingLoopback, []string{b.address()},
		func(c *Config) { c.ProxyProtocol, c.RequestTimeout = true, 200*time.Millisecond })
	for _, raw := range []string{
		"", "GET /x HTTP/1.1\r\nHost: x\r\n\r\n", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "PROXY TCP4 192.0.2.1",
		"PROXY NONSENSE\r\nGET /x HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		if answers := e.raw(t, raw); len(answers) != 0 {
			t.Errorf("%q: %+v", raw, answers)
		}
	}
	if n := len(b.requests()); n > 0 {
		t.Fatalf("%d requests reached the backend", n)
	}
	e = serve(t, trustingLoopback, []string{b.address()}, func(c *Config) { c.ProxyProtocol = true })
	for i, raw := range []string{"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "PROXY UNKNOWN\r\n"} {
		answers := e.raw(t, raw+"GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if want := []string{"192.0.2.1", "127.0.0.1"}[i]; len(answers) != 1 || b.last(t).header.Get("X-Real-Ip") != want {
			t.Errorf("%q: %+v, the backend received %v, want %s", raw, answers, b.last(t).header, want)
		}
	}
}

func TestLoggedBytesAreThoseSent(t *testing.T) {
	b := newBackend(t, nil)
	log := &testenv.Buffer{}
	e := serve(t, shop, []string{b.address()}, func(c *Config) { c.AccessLog = log })
	for _, raw := range []string{
		"GET /x HTTP/1.1", "HEAD /x HTTP/1.1", "GET /admin HTTP/1.1", "GET /x HTTP/1.0", "nonsense",
	} {
		c := e.connect(t)
		_, _ = io.WriteString(c, raw+"\r\nHost: x\r\nConnection: close\r\n\r\n")
		wire, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		var last string
		testenv.Eventually(t, time.Minute, "the request is logged", func() bool {
			e.access.flush()
			last = log.String()
			return strings.Count(last, "\n") > 0
		})
		lines := strings.Split(strings.TrimSpace(last), "\n")
		if want := fmt.Sprintf(`"bytes":%d,`, len(wire)); !strings.Contains(lines[len(lines)-1], want) {
			t.Errorf("%s: want %s in %s\n%s", raw, want, lines[len(lines)-1], wire)
		}
	}
}
