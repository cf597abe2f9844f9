package api

import (
	"bufio"
	"net"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/events/salechange"
)

// Signals tells soon of changes of sales, and may lose any (signal.Hub).
type Signals interface {
	// Listen is about one sale, or about all when saleID is empty.
	Listen(saleID string) *salechange.Listener
}

// signalsPath is where edges listen.
const signalsPath = "/.sluice/signals"

const (
	// maxSignalStreams bounds the edges that listen: each keeps a connection.
	maxSignalStreams = 256
	// signalBeat is how long such a stream is silent at most. Edges take one that is silent for longer than two of them for dead.
	signalBeat = 5 * time.Second
)

// signals is GET /.sluice/signals, which edges listen to: what they know of a sale is out of date as soon as they hear of it here. They need not: it is out of date
// soon anyway.
func (p *public) signals(c *fiber.Ctx) error {
	if p.draining() {
		return errUnavailable
	}
	ctx := c.Context()
	resp := &ctx.Response
	resp.Header.SetContentType("text/event-stream")
	resp.Header.Set(fiber.HeaderCacheControl, "no-store")
	if ctx.IsHead() {
		return nil
	}
	if p.listening.Add(1) > maxSignalStreams {
		p.listening.Add(-1)
		resp.Header.Reset()
		return errUnavailable
	}
	s := &signalStream{conn: ctx.Conn(), listener: p.cfg.Signals.Listen(""), stopping: p.stopping, open: &p.listening}
	p.writeEvents(ctx, s.run)
	return nil
}

// signalStream tells one edge.
type signalStream struct {
	conn     net.Conn
	listener *salechange.Listener
	stopping <-chan struct{}
	open     *atomic.Int64
}

func (s *signalStream) run(w *bufio.Writer) {
	defer s.open.Add(-1)
	defer s.listener.Close()
	beat := time.NewTicker(signalBeat)
	defer beat.Stop()
	_, _ = w.WriteString(":\n\n")
	for {
		if s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil || w.Flush() != nil {
			return
		}
		select {
		case <-s.listener.Wake():
			for _, sig := range s.listener.Take() { // neither needs escaping
				_, _ = w.WriteString("event: " + string(sig.Type) + "\ndata: {\"v\":1,\"sale\":\"" + sig.SaleID + "\"}\n\n")
			}
		case <-beat.C:
			_, _ = w.WriteString(":\n\n")
		case <-s.stopping:
			return
		}
	}
}
