package api

import (
	"bufio"
	"bytes"
	"net"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"sluice/backend/sale"
	"sluice/internal/problem"
)

// heartbeat is how long a stream stays silent at most: proxies cut silent connections, and a write finds out that a client is gone. Where places are short,
// a rollCall does.
const heartbeat = 15 * time.Second

// reconnect is how long a browser waits before it opens a stream again; spread, since a restart ends all streams at once.
const reconnect = 2 * time.Second

var errStreamsFull = refusalOf(problem.Unavailable, "Too many pages are open here. Please ask for the sale every few seconds instead: GET /v1/sales/{sale}.")

// events is GET /v1/sales/{sale}/events.
func (p *public) events(c *fiber.Ctx) error {
	v, err := p.looked(c)
	if err != nil {
		return err
	}
	if p.draining() {
		return errUnavailable
	}
	ctx := c.Context()
	if ctx.IsHead() {
		pageHeaders(c)
		return nil
	}
	f, ok := p.streams.subscribe(v)
	if !ok {
		p.roll.call(p.now())
		return errStreamsFull.with(header{fiber.HeaderRetryAfter, p.retryAfter(pollInstead)})
	}
	pageHeaders(c)
	s := &stream{conn: ctx.Conn(), feed: f, roll: &p.roll, stopping: p.stopping, retry: reconnect + time.Duration(p.jitter()*float64(reconnect))}
	p.metrics.streams.Inc()
	p.writeEvents(ctx, func(w *bufio.Writer) {
		defer p.metrics.streams.Dec()
		defer p.streams.unsubscribe(f)
		s.run(w)
	})
	return nil
}

// stream writes one client's events. It ends when the client is gone or the application drains.
type stream struct {
	conn     net.Conn
	feed     *feed
	roll     *rollCall
	stopping <-chan struct{}
	retry    time.Duration
}

func (s *stream) run(w *bufio.Writer) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	_, _ = w.WriteString("retry: " + strconv.FormatInt(s.retry.Milliseconds(), 10) + "\n\n")
	var state sale.State
	left := int64(-1)
	called := s.roll.next()
	for {
		v, changed := s.feed.current()
		if v.State != state {
			state = v.State
			_, _ = w.WriteString(`event: state` + "\n" + `data: {"state":"` + string(state) + `"}` + "\n\n")
		}
		if v.Left != left {
			left = v.Left
			_, _ = w.WriteString(`event: left` + "\n" + `data: {"left":` + strconv.FormatInt(left, 10) + "}\n\n")
		}
		if s.flush(w) != nil {
			return
		}
		select {
		case <-changed:
		case <-beat.C:
			_, _ = w.WriteString(":\n\n") // flushed at the top of the loop
		case <-called:
			if hungUp(s.conn) {
				return
			}
			called = s.roll.next()
		case <-s.stopping:
			return
		}
	}
}

// flush gives the client writeTimeout for what was written since the last flush. Write errors stick to w and come out here.
func (s *stream) flush(w *bufio.Writer) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return w.Flush()
}

// streamConfig lifts the server's write timeout from event streams, which set their own with every event.
func streamConfig(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	path, _, _ := bytes.Cut(h.RequestURI(), []byte{'?'})
	if h.IsGet() && (bytes.HasSuffix(path, []byte("/events")) || string(path) == signalsPath) {
		return fasthttp.RequestConfig{WriteTimeout: 24 * time.Hour}
	}
	return fasthttp.RequestConfig{}
}
