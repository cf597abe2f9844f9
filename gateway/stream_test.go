package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

// eventSource is a backend that sends the events of a channel until its client disconnects.
type eventSource struct {
	*backend
	send chan string
	left chan struct{}
}

func newEventSource(t *testing.T) *eventSource {
	s := &eventSource{send: make(chan string), left: make(chan struct{}, 10)}
	s.backend = newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		for {
			select {
			case event, more := <-s.send:
				if !more {
					return
				}
				_, _ = fmt.Fprintf(w, "data: %s\n\n", event)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				s.left <- struct{}{}
				return
			}
		}
	})
	return s
}

func (e *edge) events(t *testing.T) (*http.Response, *bufio.Reader, io.Closer) {
	t.Helper()
	c := e.connect(t)
	if _, err := io.WriteString(c,
		"GET /v1/sales/42/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp, bufio.NewReader(resp.Body), c
}

func TestEventsArePassedOnImmediately(t *testing.T) {
	s := newEventSource(t)
	e := serve(t, open, []string{s.address()})
	resp, r, c := e.events(t)
	defer c.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("the head is %+v", resp)
	}
	for i := range 3 {
		s.send <- fmt.Sprint(i)
		if line, err := r.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("event %d arrived as %q, %v", i, line, err)
		}
		_, _ = r.ReadString('\n')
	}
	if n := e.count(t, "sluice_edge_event_streams"); n != 1 {
		t.Errorf("counted %v streams, want 1", n)
	}
	close(s.send)
	if rest, err := io.ReadAll(r); err != nil || len(rest) != 0 {
		t.Errorf("the stream ends in %q, %v, want a proper end", rest, err)
	}
	testenv.Eventually(t, time.Minute, "no stream is counted",
		func() bool { return e.count(t, "sluice_edge_event_streams") == 0 })
}

// Without events, the backend connection must be closed when the client disconnects.
func TestDisconnectEndsTheStream(t *testing.T) {
	s := newEventSource(t)
	e := serve(t, open, []string{s.address()})
	_, _, c := e.events(t)
	_ = c.Close()
	select {
	case <-s.left:
	case <-time.After(time.Minute):
		t.Fatal("the stream is open after the client has disconnected")
	}
}

// A client that does not read must not hold its connection, the one to the backend and what is in their buffers.
func TestClientThatDoesNotReadEndsTheStream(t *testing.T) {
	s := newEventSource(t)
	e := serve(t, open, []string{s.address()}, func(c *Config) { c.WriteTimeout = 100 * time.Millisecond })
	_, _, c := e.events(t)
	defer c.Close()
	for event, end := strings.Repeat("x", 64<<10), time.After(time.Minute); ; {
		select {
		case s.send <- event:
		case <-s.left:
			testenv.Eventually(t, time.Minute, "no stream is counted",
				func() bool { return e.count(t, "sluice_edge_event_streams") == 0 })
			return
		case <-end:
			t.Fatal("the stream is open although its client does not read")
		}
	}
}

// To read without end what a client sends behind its request would let one connection use a processor.
func TestInputBehindTheRequestEndsTheStream(t *testing.T) {
	s := newEventSource(t)
	e := serve(t, open, []string{s.address()})
	_, r, c := e.events(t)
	defer c.Close()
	w := c.(io.Writer)
	_, _ = io.WriteString(w, strings.Repeat("x", 60<<10))
	s.send <- "still open"
	if line, err := r.ReadString('\n'); err != nil || line != "data: still open\n" {
		t.Fatalf("after 60 KiB: %q, %v", line, err)
	}
	_, _ = r.ReadString('\n')
	_, _ = io.WriteString(w, strings.Repeat("x", 5<<10))
	select {
	case <-s.left:
	case <-time.After(time.Minute):
		t.Fatal("the stream is open after the client has sent 65 KiB")
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) != 0 {
		t.Errorf("the stream ends in %q, %v, want a proper end", rest, err)
	}
}

func TestDrainEndsStreamsProperly(t *testing.T) {
	s := newEventSource(t)
	e := serve(t, open, []string{s.address()})
	_, r, c := e.events(t)
	defer c.Close()
	s.send <- "last"
	_, _ = r.ReadString('\n')
	start := time.Now()
	if err := e.stop(); err != nil {
		t.Fatalf("Serve returned %v", err)
	}
	if d := time.Since(start); d > time.Minute/2 {
		t.Errorf("draining waited for the stream: %v", d)
	}
	if _, err := io.ReadAll(r); err != nil {
		t.Errorf("the stream was cut off: %v", err)
	}
}

func TestSilentBackendBreaksTheStream(t *testing.T) {
	s := newEventSource(t)
	e := serve(t, open, []string{s.address()}, func(c *Config) { c.SilenceTimeout = 100 * time.Millisecond })
	_, r, c := e.events(t)
	defer c.Close()
	if _, err := io.ReadAll(r); err == nil {
		t.Error("the stream ended as if it were complete")
	}
	<-s.left
}

// The backend must not be considered down because of HTTP/1.0 clients.
func TestEventsNeedHTTP11(t *testing.T) {
	s := newEventSource(t)
	e := serve(t, open, []string{s.address()})
	for range 3 {
		if answers := e.raw(t, "GET /v1/sales/42/events HTTP/1.0\r\n\r\n"); len(answers) != 1 || answers[0].status != 400 {
			t.Errorf("answers %+v, want a 400", answers)
		}
	}
	if n := e.upstreamFailures(t, s.address()); n != 0 {
		t.Errorf("%v failures of the backend, want none", n)
	}
}

func TestTruncatedResponseIsNotComplete(t *testing.T) {
	for name, head := range map[string]string{
		"chunked":            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"chunked in a chunk": "Transfer-Encoding: chunked\r\n\r\n50\r\nhello",
		"of known length":    "Content-Length: 100000\r\n\r\nhello",
	} {
		e := serve(t, open, []string{answering(t, "HTTP/1.1 200 OK\r\n"+head)})
		c := e.connect(t)
		_, _ = io.WriteString(c, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if body, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%s: %q ended as if it were complete", name, body)
		}
		_ = c.Close()
	}
}
