package httpserver

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
)

const (
	// Heartbeat is the longest time that a browser's stream is silent. Proxies cut silent connections, and a write
	// detects a client that has disconnected.
	Heartbeat = 15 * time.Second
	// pollInstead is the Retry-After for a rejected stream of a browser. The browser polls until then.
	pollInstead = 30 * time.Second
	// reconnect is the minimum time before a browser opens a stream again. A random time is added, because a restart ends
	// all streams together.
	reconnect = 2 * time.Second
)

// EventStream writes server-sent events to one client. Writes are buffered until Flush, which returns the first error
// of any of them. An EventStream must not be used concurrently.
type EventStream struct {
	Beats <-chan time.Time // has a value when a heartbeat is due: call Beat
	Done  <-chan struct{}  // closed when the stream must end, because the server drains or the client has disconnected

	conn    net.Conn
	pending bytes.Buffer // for the next Flush
	out     *bufio.Writer
	end     context.CancelFunc // closes Done
	retry   time.Duration
}

// SendEvents answers with an event stream. run writes it after the handler has returned, and the stream ends when run
// returns. A panic in run ends this stream alone. heartbeat is the longest time that the stream is silent. release is
// called once: when the stream has ended, or immediately for a request without a stream, which is a HEAD request or one
// that is rejected because the server drains.
func (s *Server) SendEvents(c *fiber.Ctx, heartbeat time.Duration, release func(), run func(*EventStream)) error {
	ctx := c.Context()
	if s.draining() {
		release()
		return ErrUnavailable
	}
	h := &ctx.Response.Header
	h.SetContentType("text/event-stream")
	h.Set(fiber.HeaderCacheControl, "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would delay events
	if ctx.IsHead() {
		release()
		return nil
	}
	done, end := context.WithCancel(s.serving)
	e := &EventStream{
		Done:  done.Done(),
		conn:  ctx.Conn(),
		end:   end,
		retry: reconnect + time.Duration(s.cfg.Jitter()*float64(reconnect)),
	}
	s.streams.Store(e, nil)
	ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
		defer func() {
			if v := recover(); v != nil { // a panic here is outside of Handle and would end the process
				s.Log().Error("panic in an event stream", "panic", v)
			}
		}()
		defer release()
		defer e.end()
		defer s.streams.Delete(e)
		beats := time.NewTicker(heartbeat)
		defer beats.Stop()
		e.Beats, e.out = beats.C, w
		run(e)
		_ = e.Flush() // also sets the write deadline for the end of the response, which fasthttp writes
	})
	return nil
}

// PollInstead returns the problem with a Retry-After for a stream that was rejected because all are in use. It ends the
// streams of clients that have disconnected. Without that, a stream detects a disconnect only with its next heartbeat,
// and a client that opens and closes streams could occupy all of them.
func (s *Server) PollInstead(full *Problem) *Problem {
	if s.sweeps.AllowN(s.Now(), 1) {
		for stream := range s.streams.Range {
			if e := stream.(*EventStream); peerClosed(e.conn) {
				e.end()
			}
		}
	}
	return full.With(Header{Name: fiber.HeaderRetryAfter, Value: s.RetryAfter(pollInstead)})
}

// Retry writes how long the browser waits before it reconnects.
func (e *EventStream) Retry() {
	e.pending.WriteString("retry: " + strconv.FormatInt(e.retry.Milliseconds(), 10) + "\n\n")
}

// Event writes one event. id may be empty; data must not contain line breaks.
func (e *EventStream) Event(id, name string, data []byte) {
	if id != "" {
		e.pending.WriteString("id: " + id + "\n")
	}
	e.pending.WriteString("event: " + name + "\ndata: ")
	e.pending.Write(data)
	e.pending.WriteString("\n\n")
}

// Beat writes a comment, which clients ignore. It returns false if the client has disconnected. It checks that itself,
// because the first writes after a disconnect can succeed.
func (e *EventStream) Beat() bool {
	if peerClosed(e.conn) {
		return false
	}
	e.pending.WriteString(":\n\n")
	return true
}

// Wait calls Flush and returns when wake is closed or has a value, or after a heartbeat. It returns false if the stream
// must end.
func (e *EventStream) Wait(wake <-chan struct{}) bool {
	if e.Flush() != nil {
		return false
	}
	select {
	case <-wake:
		return true
	case <-e.Beats:
		return e.Beat()
	case <-e.Done:
		return false
	}
}

// Flush sends the buffered bytes. The client has writeTimeout to read them.
func (e *EventStream) Flush() error {
	if err := e.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, _ = e.pending.WriteTo(e.out) // out.Flush returns the same error
	return e.out.Flush()
}
