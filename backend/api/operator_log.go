package api

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/store"
)

// logBody is one line of the desk log.
type logBody struct {
	Number int64     `json:"number"`
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"` // such as sale.pause
	Target string    `json:"target"` // a sale, an order, an endpoint ...
	Detail string    `json:"detail"`
}

// listLog is GET /admin/v1/log: who did what and when, the newest first.
func (o *operator) listLog(ctx context.Context, c *fiber.Ctx, _ string) error {
	q := newQuery(c)
	wanted := store.LogQuery{Target: q.search("target"), Actor: q.search("actor"), Action: q.search("action"), Before: q.number("before"), Limit: q.limit()}
	if err := q.err(); err != nil {
		return err
	}
	entries, err := o.cfg.Desk.Log(ctx, wanted)
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
	return sendJSON(c, fiber.StatusOK, body)
}
