package api

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/admin/livestats"
	"sluice/internal/problem"
)

// Board holds the figures that the desk shows (board.Board).
type Board interface {
	Since(at int64) (samples []livestats.Sample, more <-chan struct{})
	Sources() []livestats.Source
	Started() time.Time
}

// maxWatchers bounds the open pages of the desk that are told of each sample; further ones are told to ask.
const maxWatchers = 64

var errWatchersFull = refusalOf(problem.Unavailable, "Too many desks are open here. Please ask every few seconds instead: GET /admin/v1/live.")

// liveBody is what the desk shows: samples after some time, and where they come from.
type liveBody struct {
	StartedAt time.Time          `json:"started_at"`
	Now       int64              `json:"now"` // Unix milliseconds
	MaxReady  int64              `json:"max_ready"`
	Sources   []livestats.Source `json:"sources"`
	Samples   []livestats.Sample `json:"samples"`
}

func (o *operator) liveBody(since int64) (liveBody, <-chan struct{}) {
	samples, more := o.cfg.Board.Since(since)
	if samples == nil {
		samples = []livestats.Sample{}
	}
	return liveBody{StartedAt: o.cfg.Board.Started().UTC(), Now: o.now().UnixMilli(), MaxReady: o.cfg.MaxReady, Sources: o.cfg.Board.Sources(), Samples: samples}, more
}

// live is GET /admin/v1/live.
func (o *operator) live(_ context.Context, c *fiber.Ctx, _ string) error {
	q := newQuery(c)
	since := q.number("since")
	if err := q.err(); err != nil {
		return err
	}
	body, _ := o.liveBody(since)
	return sendJSON(c, fiber.StatusOK, body)
}

// liveEvents is GET /admin/v1/live/events.
func (o *operator) liveEvents(c *fiber.Ctx) error {
	if o.tokenInURL(c.Context()) {
		return errTokenInURL
	}
	who, err := o.caller(c)
	if err != nil {
		return err
	}
	q := newQuery(c)
	since := q.number("since")
	if err := q.err(); err != nil {
		return err
	}
	if o.draining() {
		return errUnavailable
	}
	ctx := c.Context()
	if o.watchers.Add(1) > maxWatchers {
		o.watchers.Add(-1)
		return errWatchersFull.with(header{fiber.HeaderRetryAfter, o.retryAfter(pollInstead)})
	}
	pageHeaders(c)
	if ctx.IsHead() {
		o.watchers.Add(-1)
		return nil
	}
	w := &watcher{
		operator: o, conn: ctx.Conn(), since: since,
		alive: func() bool { _, ok := o.sessions.Who(who.session); return ok || who.session == "" },
	}
	o.writeEvents(ctx, func(out *bufio.Writer) {
		defer o.watchers.Add(-1)
		w.run(out)
	})
	return nil
}

// watcher writes the samples to one open page. It ends when the client is gone, when the session is over, and when the application drains.
type watcher struct {
	*operator
	conn  net.Conn
	since int64
	alive func() bool
}

func (w *watcher) run(out *bufio.Writer) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	_, _ = out.WriteString("retry: " + strconv.FormatInt(reconnect.Milliseconds(), 10) + "\n\n")
	for w.alive() {
		body, more := w.liveBody(w.since)
		if n := len(body.Samples); n > 0 {
			w.since = body.Samples[n-1].At
			data, err := json.Marshal(body)
			if err != nil { // a NaN, which no counter is
				return
			}
			_, _ = out.WriteString("event: live\ndata: ")
			_, _ = out.Write(data)
			_, _ = out.WriteString("\n\n")
		}
		if w.conn.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil || out.Flush() != nil {
			return
		}
		select {
		case <-more:
		case <-beat.C:
			_, _ = out.WriteString(":\n\n")
		case <-w.stopping:
			return
		}
	}
}
