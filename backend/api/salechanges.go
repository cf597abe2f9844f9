package api

import (
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/web/httpserver"
)

const (
	// maxEdgeStreams bounds the edges that listen, because each occupies a connection.
	maxEdgeStreams = 256
	// edgeHeartbeat is how long the stream of an edge may be silent. An edge reconnects after two missed heartbeats.
	edgeHeartbeat = 5 * time.Second
)

// saleChanges is GET /.sluice/signals, a stream of sale changes for edges. An edge drops its cached refusals of a
// changed sale. Without the stream the cache entries expire after a second.
func (h *handlers) saleChanges(c *fiber.Ctx) error {
	if h.edges.Add(1) > maxEdgeStreams {
		h.edges.Add(-1)
		return httpserver.ErrUnavailable
	}
	listener := h.cfg.SaleChanges.Listen("")
	release := func() {
		listener.Close()
		h.edges.Add(-1)
	}
	return h.SendEvents(c, edgeHeartbeat, release, func(e *httpserver.EventStream) {
		e.Beat()
		for e.Wait(listener.Wake()) {
			for _, change := range listener.Take() { // type and id need no escaping
				e.Event("", string(change.Type), []byte(`{"v":1,"sale":"`+change.SaleID+`"}`))
			}
		}
	})
}
