package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/gateway/policy"
	"sluice/gateway/proxy"
	"sluice/internal/edgeconfig"
	"sluice/test/testenv"
)

func TestNewReportsAllErrors(t *testing.T) {
	registry := prometheus.NewRegistry()
	_, err := New(
		Config{Shared: edgeconfig.Shared{Upstreams: []string{"https://a", "b"}, Secret: "short"},
			PolicySource: []byte("return {}"), Registry: registry},
	)
	if err == nil {
		t.Fatal("an invalid configuration is accepted")
	}
	want := []string{
		`--upstream "https://a": backends are reached by http, and not by https`,
		`--upstream "b": write host:port`,
		"the token secret must have at least 32 bytes, and has 5",
		"policy.lua:1: rules is missing: write rules = {} to limit nothing",
	}
	if got := strings.Split(err.Error(), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the errors are\n%s\nwant\n%s", err, strings.Join(want, "\n"))
	}
	var findings policy.Findings
	if !errors.As(err, &findings) {
		t.Error("the errors of the policy are not policy.Findings")
	}
	for _, c := range []Config{
		{}, {Shared: shared("a:1")}, {Shared: shared(), PolicySource: []byte(open)},
		{Shared: shared(strings.Fields(strings.Repeat("a:1 ", 65))...), PolicySource: []byte(open)},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

func TestDrainFinishesRequestsAndAcceptsNoConnections(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	b := newBackend(t, func(http.ResponseWriter, *http.Request) { close(arrived); <-release })
	e := serve(t, open, []string{b.address()})
	c := e.connect(t)
	defer c.Close()
	idle := e.connect(t)
	defer idle.Close()
	_, _ = io.WriteString(idle, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	r := bufio.NewReader(idle)
	readOne(t, r, "")
	_, _ = io.WriteString(c, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
	<-arrived
	stopped := make(chan error, 1)
	go func() { stopped <- e.stop() }()
	testenv.Eventually(t, time.Minute, "no new connection is accepted", func() bool {
		c, err := net.Dial("tcp", e.address)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("an idle connection is not closed: %v", err)
	}
	close(release)
	if answers := readAll(t, c, ""); len(answers) != 1 || answers[0].status != 200 {
		t.Errorf("the request in progress got %+v", answers)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Serve returned %v", err)
	}
}

func TestDrainClosesConnectionsAfterTheTimeout(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	b := newBackend(t, func(http.ResponseWriter, *http.Request) { close(arrived); <-release })
	defer close(release)
	g, err := New(
		Config{
			Shared:       shared(b.address()),
			PolicySource: []byte(open),
			Limits:       proxy.Limits{DrainTimeout: 200 * time.Millisecond},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	ln := testenv.Listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Serve(ctx, ln) }()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
	<-arrived
	cancel()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "cut off after 200ms: 1 connection") {
			t.Errorf("Serve returned %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Serve does not return")
	}
	if err := g.Serve(context.Background(), ln); err == nil {
		t.Error("Serve may be called twice")
	}
}

func TestConnectionsBeyondTheLimitAreRefused(t *testing.T) {
	release := make(chan struct{})
	b := newBackend(t, func(http.ResponseWriter, *http.Request) { <-release })
	e := serve(t, open, []string{b.address()}, func(c *Config) { c.MaxConns = 2 })
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free) // also if the test fails
	for range 2 {
		c := e.connect(t)
		defer c.Close()
		_, _ = io.WriteString(c, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	testenv.Eventually(t, time.Minute, "two requests are in progress", func() bool { return len(b.requests()) == 2 })
	c := e.connect(t)
	defer c.Close()
	answers := readAll(t, c, "")
	if len(answers) != 1 {
		t.Fatalf("%d answers", len(answers))
	}
	mustHave(t, answers[0], 503, "Retry-After", "1", "Content-Type", "application/problem+json")
	mustContain(t, "the body", answers[0].body, `"code":"temporarily-unavailable"`)
	if n := e.count(t, "sluice_edge_connections_refused_total"); n != 1 {
		t.Errorf("counted %v refused, want 1", n)
	}
	if n := e.count(t, "sluice_edge_connections"); n != 2 {
		t.Errorf("counted %v open, want 2", n)
	}
	free()
	testenv.Eventually(t, time.Minute, "a connection is accepted again", e.isHealthy)
}

// isHealthy reports whether a new connection is accepted.
func (e *edge) isHealthy() bool {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + e.address + "/healthz")
	if err != nil { // refused while it was sending
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == 200
}

// Clients that only keep connections, before or after a request, must not exclude others.
func TestIdleConnectionMakesRoom(t *testing.T) {
	for _, requests := range []int{0, 2} {
		release := make(chan struct{})
		b := newBackend(t, func(http.ResponseWriter, *http.Request) { <-release })
		e := serve(t, open, []string{b.address()}, func(c *Config) { c.MaxConns = 2 })
		free := sync.OnceFunc(func() { close(release) })
		t.Cleanup(free) // also if the test fails
		busy, idle := e.connect(t), e.connect(t)
		defer busy.Close()
		defer idle.Close()
		_, _ = io.WriteString(busy, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
		testenv.Eventually(t, time.Minute, "a request is in progress", func() bool { return len(b.requests()) == 1 })
		kept := bufio.NewReader(idle)
		for range requests { // the connection is kept while there is room
			_, _ = io.WriteString(idle, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
			mustHave(t, readOne(t, kept, ""), 200)
		}
		testenv.Eventually(t, time.Minute, "another connection is accepted", e.isHealthy)
		if rest, err := io.ReadAll(kept); err != nil || len(rest) > 0 {
			t.Errorf("after %d requests the idle connection ends with %q, %v, want a close", requests, rest, err)
		}
		free()
		mustHave(t, readOne(t, bufio.NewReader(busy), ""), 200)
	}
}

func TestPanicIsA500(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, shop, []string{b.address()}, func(c *Config) { c.Random = func(int) int { panic("dice") } })
	for range 6 {
		mustHave(t, e.send(t, "GET", "/", ""), 200)
	}
	got := e.send(t, "GET", "/", "")
	mustHave(t, got, 500, "Content-Type", "application/problem+json")
	mustContain(t, "the body", got.body, `"code":"internal-error"`)
	mustContain(t, "the log", e.log.String(), "dice")
	mustHave(t, e.send(t, "GET", "/healthz", ""), 200)
}

// The documented bound, rate*L + burst + 1 for any interval L, with sockets and the real clock.
func TestBoundHolds(t *testing.T) {
	const perSecond, burst, workers = 200, 10, 8
	b := newBackend(t, nil)
	e := serve(t,
		fmt.Sprintf(`return { rules = { { name = "ip", key = "ip", rate = "%dr/s", burst = %d } } }`, perSecond, burst),
		[]string{b.address()}, func(c *Config) { c.Now = nil })
	var admitted, refused atomic.Int64
	start := time.Now()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			c := e.connect(t)
			defer c.Close()
			r := bufio.NewReader(c)
			for { // for a second, or longer on a busy machine
				passed := time.Since(start)
				if passed > time.Second && admitted.Load() >= perSecond/2 && refused.Load() > 0 || passed > 8*time.Second {
					return
				}
				_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				switch got := readOne(t, r, ""); got.status {
				case 200:
					admitted.Add(1)
				case 429:
					refused.Add(1)
				default:
					t.Errorf("%+v", got)
					return
				}
			}
		})
	}
	wg.Wait()
	span := time.Since(start)
	bound := perSecond*(span.Seconds()+0.001) + burst + 1
	if n := float64(admitted.Load()); n > bound || n < perSecond/2 {
		t.Errorf("admitted %v in %v, want at most %v and at least %v", n, span, bound, perSecond/2)
	}
	if refused.Load() == 0 {
		t.Error("no request was refused: the load was too low")
	}
}
