package adminhttp

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/store"
	"sluice/backend/web/httpserver"
)

// logBody is one entry of the admin log.
type logBody struct {
	Number int64     `json:"number"`
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"` // such as sale.pause
	Target string    `json:"target"` // for example a sale, an order or an endpoint
	Detail string    `json:"detail"`
}

// listLog is GET /admin/v1/log, newest first.
func (h *handlers) listLog(ctx context.Context, c *fiber.Ctx, _ string) error {
	q := httpserver.NewQuery(c)
	wanted := store.LogQuery{
		Target: q.Line(
			"target",
		),
		Actor:  q.Line("actor"),
		Action: q.Line("action"),
		Before: q.Number("before"),
		Limit:  q.Limit(),
	}
	if err := q.Err(); err != nil {
		return err
	}
	entries, err := h.cfg.Admin.Log(ctx, wanted)
	if err != nil {
		return err
	}
	body := struct {
		Log  []logBody `json:"log"`
		Next int64     `json:"next,omitempty"` // the before of the next page
	}{Log: make([]logBody, len(entries))}
	for i, e := range entries {
		body.Log[i] = logBody{e.Number, e.At.UTC(), e.Actor, e.Action, e.Target, e.Detail}
	}
	if len(entries) == wanted.Limit {
		body.Next = entries[len(entries)-1].Number
	}
	return httpserver.SendJSON(c, fiber.StatusOK, body)
}
