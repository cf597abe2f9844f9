package httpserver_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/backend/web/httpserver"
	"sluice/backend/web/httpserver/servertest"
	"sluice/test/testenv"
)

// newServer returns a server without further routes.
func newServer(cfg httpserver.Config) *httpserver.Server {
	cfg.Log = servertest.Quiet()
	s := httpserver.New(cfg)
	s.Finish()
	return s
}

func TestServeWithAnEndedContextReturns(t *testing.T) {
	server := newServer(httpserver.Config{})
	ln := testenv.Listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := server.Serve(ctx, ln); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// failing is a listener whose first calls of Accept fail.
type failing struct {
	net.Listener
	left atomic.Int32
	with error
}

func (l *failing) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", l.with)}
	}
	return l.Listener.Accept()
}

func TestServeRetriesAfterTemporaryAcceptErrors(t *testing.T) {
	for _, with := range []error{syscall.EMFILE, syscall.EHOSTUNREACH} {
		t.Run(with.Error(), func(t *testing.T) { serveDespite(t, with) })
	}
}

// serveDespite serves a request, although the first three calls of Accept return an error.
func serveDespite(t *testing.T, with error) {
	server := newServer(httpserver.Config{})
	ln := testenv.Listen(t)
	flaky := &failing{Listener: ln, with: with}
	flaky.left.Store(3)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, flaky) }()
	s := &servertest.Site{T: t, Server: server, Addr: ln.Addr().String()}
	if a := s.Do("GET", "/healthz", ""); a.Status != 200 {
		t.Errorf("%d", a.Status)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestServeReportsAPermanentAcceptError(t *testing.T) {
	server := newServer(httpserver.Config{})
	ln := testenv.Listen(t)
	broken := &failing{Listener: ln, with: syscall.EINVAL}
	broken.left.Store(1)
	if err := server.Serve(context.Background(), broken); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Serve: %v", err)
	}
}

// accepting reports each connection that it accepts.
type accepting struct {
	net.Listener
	accepted chan net.Conn
}

func (l accepting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- c
	}
	return c, err
}

// A connection may send its first request after the drain, for example one that a browser has opened ahead. If the
// connection stayed open, its client would never reach the next server.
func TestResponseAfterTheDrainClosesItsConnection(t *testing.T) {
	server := newServer(httpserver.Config{Drain: time.Millisecond})
	ln := testenv.Listen(t)
	l := accepting{ln, make(chan net.Conn, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, l) }()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	<-l.accepted
	cancel()
	if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Serve: %v", err)
	}
	if _, err := io.WriteString(client, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || !resp.Close {
		t.Errorf("%s with the headers %v", resp.Status, resp.Header)
	}
}

func TestRejectedBodyNamesTheLimit(t *testing.T) {
	upload := func(head *fasthttp.RequestHeader) int {
		if string(head.RequestURI()) == "/readyz" {
			return 2 << 20
		}
		return 0
	}
	const length, chunked = "Content-Length: 3000000", "Transfer-Encoding: chunked"
	for _, c := range []struct {
		upload                func(*fasthttp.RequestHeader) int
		path, framing, detail string
	}{
		{nil, "/healthz", length, "The request body exceeds 16 KiB."},
		{nil, "/healthz", chunked, "The request body exceeds 16 KiB."},
		{upload, "/healthz", length, "The request body exceeds 16 KiB."},
		{upload, "/readyz", length, "The request body exceeds 2 MiB."},
		{upload, "/readyz", chunked, "The request body is too large."},
	} {
		s := servertest.Serve(t, newServer(httpserver.Config{Upload: c.upload}))
		a := s.RawClosed("POST " + c.path + " HTTP/1.1\r\nHost: x\r\n" + c.framing + "\r\n\r\n2dc6c0\r\n")
		servertest.WantProblem(t, a, 413, "too-large")
		if got := a.Field(t, "detail"); got != c.detail {
			t.Errorf("%s with %s: %s", c.path, c.framing, got)
		}
	}
}
