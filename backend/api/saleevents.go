package api

import (
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
)

var errStreamsFull = httpserver.NewProblem(problem.Unavailable,
	"Too many pages are open. Please poll every few seconds instead: GET /v1/sales/{sale}.")

// pollInstead returns the problem with a Retry-After for a stream that was refused, and starts a sweep for streams
// whose clients have disconnected.
func (h *handlers) pollInstead(full *httpserver.Problem) error {
	h.sweep.run(h.Now())
	return full.With(httpserver.Header{Name: fiber.HeaderRetryAfter, Value: h.RetryAfter(httpserver.PollInstead)})
}

// saleEvents is GET /v1/sales/{sale}/events.
func (h *handlers) saleEvents(c *fiber.Ctx) error {
	v, err := h.visibleSale(c)
	if err != nil {
		return err
	}
	if h.Draining() {
		return httpserver.ErrUnavailable
	}
	if c.Context().IsHead() {
		httpserver.StreamHeaders(c)
		return nil
	}
	feed, ok := h.feeds.subscribe(v)
	if !ok {
		return h.pollInstead(errStreamsFull)
	}
	h.metrics.streams.Inc()
	h.SendEvents(c, func(e *httpserver.EventStream) {
		defer h.metrics.streams.Dec()
		defer h.feeds.unsubscribe(feed)
		h.sendSale(e, feed)
	})
	return nil
}

// sendSale writes the state and the number of units left whenever they change, until the client disconnects or the
// server drains.
func (h *handlers) sendSale(e *httpserver.EventStream, feed *saleFeed) {
	beat := time.NewTicker(httpserver.Heartbeat)
	defer beat.Stop()
	e.Retry()
	var state sale.State
	left := int64(-1)
	swept := h.sweep.next()
	for {
		v, changed := feed.current()
		if v.State != state {
			state = v.State
			e.Event("", "state", []byte(`{"state":"`+string(state)+`"}`))
		}
		if v.Left != left {
			left = v.Left
			e.Event("", "left", []byte(`{"left":`+strconv.FormatInt(left, 10)+"}"))
		}
		if e.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-beat.C:
			if peerClosed(e.Conn) { // a write would succeed, and the next one might
				return
			}
			e.Beat()
		case <-swept:
			if peerClosed(e.Conn) {
				return
			}
			swept = h.sweep.next()
		case <-e.Stopping:
			return
		}
	}
}
