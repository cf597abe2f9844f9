package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/gateway/policy"
	"sluice/test/testenv"
)

func TestNewReportsAllMistakesTogether(t *testing.T) {
	registry := prometheus.NewRegistry()
	_, err := New(Config{Upstreams: []string{"https://a", "b"}, PolicySource: []byte("return {}"), Secret: "short", Registry: registry})
	if err == nil {
		t.Fatal("a bad configuration is taken")
	}
	want := []string{
		"the token secret must have at least 32 bytes, and has 5",
		`upstream "https://a": only http:// is spoken to backends`,
		`upstream "b" must be host:port or http://host:port`,
		"policy.lua:1: rules is missing: write rules = {} to limit nothing",
	}
	if got := strings.Split(err.Error(), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the mistakes are\n%s\nwant\n%s", err, strings.Join(want, "\n"))
	}
	var mistakes policy.Mistakes
	if !errors.As(err, &mistakes) {
		t.Error("the policy's mistakes cannot be told from the others")
	}
	for _, c := range []Config{{}, {Secret: secret, Upstreams: []string{"a:1"}}, {Secret: secret, PolicySource: []byte(open)},
		{Secret: secret, PolicySource: []byte(open), Upstreams: strings.Fields(strings.Repeat("a:1 ", 65))}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

func TestDrainLetsRequestsFinishAndTakesNoNewOnes(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	b := newBackend(t, func(http.ResponseWriter, *http.Request) { close(arrived); <-release })
	e := serve(t, open, []string{b.address()})
	c := e.connect(t)
	defer c.Close()
	idle := e.connect(t)
	defer idle.Close()
	_, _ = io.WriteString(idle, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	r := newReader(idle)
	readOne(t, r, "")
	_, _ = io.WriteString(c, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
	<-arrived
	stopped := make(chan error, 1)
	go func() { stopped <- e.stop() }()
	testenv.Eventually(t, 5*time.Second, "no new connection is taken", func() bool {
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
		t.Errorf("the request under way got %+v", answers)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Serve returned %v", err)
	}
}

func TestDrainCutsOffWhatDoesNotFinish(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	b := newBackend(t, func(http.ResponseWriter, *http.Request) { close(arrived); <-release })
	defer close(release)
	g, err := New(Config{Upstreams: []string{b.address()}, PolicySource: []byte(open), Secret: secret, DrainTimeout: 200 * time.Millisecond})
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
		if err == nil || !strings.Contains(err.Error(), "1 connections were cut off after 200ms") {
			t.Errorf("Serve returned %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Serve does not return")
	}
	if err := g.Serve(context.Background(), ln); err == nil {
		t.Error("Serve may be called twice")
	}
}

func TestConnectionsBeyondTheMostAreTurnedAway(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()}, func(c *Config) { c.MaxConns = 2 })
	var kept []net.Conn
	for range 2 {
		c := e.connect(t)
		defer c.Close()
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		readOne(t, newReader(c), "")
		kept = append(kept, c)
	}
	c := e.connect(t)
	defer c.Close()
	answers := readAll(t, c, "")
	if len(answers) != 1 {
		t.Fatalf("%d answers", len(answers))
	}
	mustHave(t, answers[0], 503, "Retry-After", "1", "Content-Type", "application/problem+json")
	mustContain(t, "the body", answers[0].body, `"code":"temporarily-unavailable"`)
	if n := e.count(t, "sluice_edge_connections_refused_total"); n != 1 {
		t.Errorf("%v were counted, want 1", n)
	}
	if n := e.count(t, "sluice_edge_connections"); n != 2 {
		t.Errorf("%v connections are counted, want 2", n)
	}
	_ = kept[0].Close()
	testenv.Eventually(t, 5*time.Second, "there is room again", func() bool {
		resp, err := http.Get("http://" + e.address + "/healthz")
		if err != nil { // turned away while it was still sending
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == 200
	})
}

// Running out of descriptors passes; a server that stops accepting because of it does not come back.
func TestAcceptOutlivesTrouble(t *testing.T) {
	inner := &troubled{errs: []error{syscall.EMFILE, syscall.ECONNABORTED, net.ErrClosed}}
	l := &listener{Listener: inner, log: slog.New(slog.DiscardHandler), clock: newClock()}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) || len(inner.errs) != 0 {
		t.Errorf("Accept gives up with %v, with %d errors to come", err, len(inner.errs))
	}
}

type troubled struct {
	net.Listener
	errs []error
}

func (l *troubled) Accept() (net.Conn, error) {
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, &net.OpError{Op: "accept", Err: err}
}

func TestPanicIsA500AndNotTheEnd(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, shop, []string{b.address()}, func(c *Config) { c.Random = func(int) int { panic("dice") } })
	for range 6 {
		mustHave(t, e.ask(t, "GET", "/", ""), 200)
	}
	got := e.ask(t, "GET", "/", "")
	mustHave(t, got, 500, "Content-Type", "application/problem+json")
	mustContain(t, "the body", got.body, `"code":"internal-error"`)
	mustContain(t, "the log", e.log.String(), "dice")
	mustHave(t, e.ask(t, "GET", "/healthz", ""), 200)
}

// The stated bound, through sockets and the real clock: rate*L + burst + 1 for any interval L.
func TestBoundHoldsThroughTheEdge(t *testing.T) {
	const perSecond, burst, workers = 200, 10, 8
	b := newBackend(t, nil)
	e := serve(t, fmt.Sprintf(`return { rules = { { name = "ip", key = "ip", rate = "%dr/s", burst = %d } } }`, perSecond, burst), []string{b.address()},
		func(c *Config) { c.Now = nil })
	var admitted, refused atomic.Int64
	start := time.Now()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			c := e.connect(t)
			defer c.Close()
			r := newReader(c)
			for { // for a second; a machine that stands still meanwhile has some more
				passed := time.Since(start)
				if passed > time.Second && admitted.Load() >= perSecond/2 && refused.Load() > 0 || passed > 3*time.Second {
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
		t.Errorf("%v were admitted in %v, want at most %v and most of that", n, span, bound)
	}
	if refused.Load() == 0 {
		t.Error("nobody was refused: the test did not press")
	}
}

// A connection that is answered and not closed yet is not cut off, and does not make a drain in time a failure.
func TestDrainWaitsForConnectionsToBeClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closing, stuck := &conn{}, &conn{}
		l := &listener{open: map[*conn]struct{}{closing: {}, stuck: {}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		time.AfterFunc(time.Second, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.open, closing)
		})
		l.awaitClosed(ctx)
		if took := time.Since(start); took != time.Minute || l.count() != 1 {
			t.Errorf("with one that stays it waited for %v, and %d are left; want the whole minute and 1", took, l.count())
		}
		delete(l.open, stuck)
		start = time.Now()
		l.awaitClosed(t.Context())
		if took := time.Since(start); took != 0 {
			t.Errorf("with none left it waited for %v", took)
		}
	})
}
