package adminhttp

import (
	"context"
	"encoding/json"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/admin/livestats"
	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
)

// maxLiveStreams bounds the open streams of live stats. Further pages poll.
const maxLiveStreams = 64

var errLiveFull = httpserver.NewProblem(problem.Unavailable,
	"Too many consoles are open. Please poll every few seconds instead: GET /admin/v1/live.")

// liveBody holds the samples after a given time, and their sources.
type liveBody struct {
	StartedAt time.Time          `json:"started_at"`
	Now       int64              `json:"now"` // Unix milliseconds
	MaxReady  int64              `json:"max_ready"`
	Sources   []livestats.Source `json:"sources"`
	Samples   []livestats.Sample `json:"samples"`
}

func (h *handlers) liveBody(since int64) (liveBody, <-chan struct{}) {
	samples, more := h.cfg.LiveStats.Since(since)
	return liveBody{
		StartedAt: h.cfg.LiveStats.Started().UTC(), Now: h.Now().UnixMilli(), MaxReady: h.cfg.MaxReady,
		Sources: h.cfg.LiveStats.Sources(), Samples: samples,
	}, more
}

// live is GET /admin/v1/live.
func (h *handlers) live(_ context.Context, r *request) (any, error) {
	q := httpserver.NewQuery(r.Ctx)
	body, _ := h.liveBody(q.Number("since"))
	return body, q.End()
}

// liveEvents is GET /admin/v1/live/events.
func (h *handlers) liveEvents(c *fiber.Ctx, from caller) error {
	q := httpserver.NewQuery(c)
	at := q.Number("since")
	if err := q.End(); err != nil {
		return err
	}
	if h.streams.Add(1) > maxLiveStreams {
		h.streams.Add(-1)
		return h.PollInstead(errLiveFull)
	}
	signedIn := func() bool { _, ok := h.sessions.Verify(from.session); return ok || from.session == "" }
	release := func() { h.streams.Add(-1) }
	return h.SendEvents(c, httpserver.Heartbeat, release, func(e *httpserver.EventStream) { h.sendLive(e, at, signedIn) })
}

// sendLive writes new samples until the session or the stream ends.
func (h *handlers) sendLive(e *httpserver.EventStream, since int64, signedIn func() bool) {
	e.Retry()
	for signedIn() {
		body, more := h.liveBody(since)
		if n := len(body.Samples); n > 0 {
			since = body.Samples[n-1].At
			data, err := json.Marshal(body)
			if err != nil { // cannot happen: JSON rejects only NaN and infinity, which no value is
				return
			}
			e.Event("", "live", data)
		}
		if !e.Wait(more) {
			return
		}
	}
}
