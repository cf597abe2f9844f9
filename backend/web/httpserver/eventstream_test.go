package httpserver

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/test/testenv"
)

// deadlines counts the write deadlines of a connection.
type deadlines struct {
	*net.TCPConn
	n *atomic.Int64
}

func (d deadlines) SetWriteDeadline(at time.Time) error {
	d.n.Add(1)
	if d.TCPConn == nil {
		return nil
	}
	return d.TCPConn.SetWriteDeadline(at)
}

// When a stream was silent for a while, the write deadline of its last write has passed. fasthttp must therefore not
// write events that exceed its buffer before Flush sets a new deadline.
func TestEventsAreWrittenWithinADeadlineOfTheirOwn(t *testing.T) {
	var set atomic.Int64
	var written bytes.Buffer
	e := &EventStream{conn: deadlines{n: &set}, out: bufio.NewWriter(&written)}
	for range 2 {
		before, n := written.Len(), set.Load()
		e.Event("1", "state", bytes.Repeat([]byte("x"), 10_000))
		if written.Len() != before {
			t.Errorf("%d bytes were written before Flush", written.Len()-before)
		}
		if err := e.Flush(); err != nil || set.Load() != n+1 || written.Len() < before+10_000 {
			t.Errorf("%v; %d deadlines, %d bytes written", err, set.Load()-n, written.Len()-before)
		}
	}
}

// countingListener accepts connections that count their write deadlines.
type countingListener struct {
	net.Listener
	n *atomic.Int64
}

func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return deadlines{c.(*net.TCPConn), l.n}, nil
}

// The end of the response has a deadline of its own too. Without one, the response of a stream that was silent is cut,
// as after a failure.
func TestEndOfAnEventStreamHasADeadline(t *testing.T) {
	var set, atReturn atomic.Int64
	s := New(Config{Log: slog.New(slog.DiscardHandler)})
	s.Handle(fiber.MethodGet, "/stream", func(c *fiber.Ctx) error {
		return s.SendEvents(c, time.Hour, func() {}, func(e *EventStream) {
			testenv.Eventually(t, time.Minute, "the response has begun", func() bool { return set.Load() > 0 })
			e.Event("", "first", []byte("1"))
			if err := e.Flush(); err != nil {
				t.Error(err)
			}
			e.Event("", "last", []byte("2"))
			atReturn.Store(set.Load())
		})
	})
	s.Finish()
	ln := testenv.Listen(t)
	testenv.Run(t, func(ctx context.Context) error { return s.Serve(ctx, countingListener{ln, &set}) })
	resp, err := http.Get("http://" + ln.Addr().String() + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if want := "event: first\ndata: 1\n\nevent: last\ndata: 2\n\n"; err != nil || string(body) != want {
		t.Errorf("%q, %v; want %q", body, err, want)
	}
	if set.Load() == atReturn.Load() {
		t.Error("no deadline was set for the end of the response")
	}
	http.DefaultClient.CloseIdleConnections()
}
