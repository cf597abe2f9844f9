package api

import (
	"fmt"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
)

var errStreamsFull = httpserver.NewProblem(problem.Unavailable,
	"Too many pages are open. Please poll every few seconds instead: GET /v1/sales/{sale}.")

// saleEvents is GET /v1/sales/{sale}/events.
func (h *handlers) saleEvents(c *fiber.Ctx) error {
	v, err := h.visibleSale(c)
	if err != nil {
		return err
	}
	feed, ok := h.feeds.subscribe(v)
	if !ok {
		return h.PollInstead(errStreamsFull)
	}
	h.metrics.streams.Inc()
	release := func() {
		h.feeds.unsubscribe(feed)
		h.metrics.streams.Dec()
	}
	return h.SendEvents(c, httpserver.Heartbeat, release, func(e *httpserver.EventStream) { sendSale(e, feed) })
}

// sendSale writes the state, and the number of units left with the stock, whenever they change, until the stream ends.
func sendSale(e *httpserver.EventStream, feed *saleFeed) {
	e.Retry()
	var state sale.State
	left, stock := int64(-1), int64(-1)
	for {
		v, changed := feed.current()
		if v.State != state {
			state = v.State
			e.Event("", "state", []byte(`{"state":"`+string(state)+`"}`))
		}
		if v.Left != left || v.Stock != stock {
			left, stock = v.Left, v.Stock
			e.Event("", "left", fmt.Appendf(nil, `{"left":%d,"stock":%d}`, left, stock))
		}
		if !e.Wait(changed) {
			return
		}
	}
}
