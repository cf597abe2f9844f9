package adminhttp

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/events/webhook"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
)

type deliveryBody struct {
	ID        string     `json:"id"`
	Type      string     `json:"type"`
	State     string     `json:"state"`
	Attempts  int        `json:"attempts"`
	Sending   bool       `json:"sending"`
	CreatedAt time.Time  `json:"created_at"`
	DueAt     *time.Time `json:"due_at,omitempty"`   // while waiting
	EndedAt   *time.Time `json:"ended_at,omitempty"` // after delivery or failure
}

var deliveryStates = map[webhook.DeliveryState]string{
	webhook.DeliveryWaiting: "waiting", webhook.DeliveryDelivered: "delivered", webhook.DeliveryFailed: "failed",
}

func deliveryJSON(d webhook.Delivery) deliveryBody {
	b := deliveryBody{
		ID: d.ID, Type: d.Type, State: deliveryStates[d.State], Attempts: d.Attempts, Sending: d.Leased,
		CreatedAt: d.CreatedAt, EndedAt: optionalTime(d.EndedAt),
	}
	if d.State == webhook.DeliveryWaiting {
		b.DueAt = &d.DueAt
	}
	return b
}

func (h *handlers) listDeliveries(ctx context.Context, c *fiber.Ctx, _ string) error {
	q := httpserver.NewQuery(c)
	wanted := webhook.DeliveryQuery{EndpointID: pathParam(c, "webhook"), Before: q.Number("before"), Limit: q.Limit()}
	word := q.OneOf("state", "waiting", "delivered", "failed")
	for state, name := range deliveryStates {
		if name == word {
			wanted.State = state
		}
	}
	if err := q.Err(); err != nil {
		return err
	}
	all, err := h.cfg.Webhooks.Deliveries(ctx, wanted)
	if err != nil {
		return err
	}
	body := struct {
		Deliveries []deliveryBody `json:"deliveries"`
		Next       int64          `json:"next,omitempty"` // the before of the next page
	}{Deliveries: make([]deliveryBody, len(all))}
	for i, d := range all {
		body.Deliveries[i] = deliveryJSON(d)
	}
	if len(all) == wanted.Limit {
		body.Next = all[len(all)-1].Number
	}
	return httpserver.SendJSON(c, fiber.StatusOK, body)
}

func (h *handlers) showDelivery(ctx context.Context, c *fiber.Ctx, _ string) error {
	d, log, err := h.cfg.Webhooks.Delivery(ctx, pathParam(c, "webhook"), pathParam(c, "delivery"))
	if err != nil {
		return err
	}
	type attempt struct {
		Number  int64     `json:"number"`
		At      time.Time `json:"at"`
		Seconds float64   `json:"seconds"`
		Status  int       `json:"status"` // 0: no response
		Error   string    `json:"error,omitempty"`
		Answer  string    `json:"answer"`
	}
	body := struct {
		deliveryBody
		Body string    `json:"body"`
		Log  []attempt `json:"log"`
	}{deliveryJSON(d), d.Body, make([]attempt, len(log))}
	for i, a := range log {
		body.Log[i] = attempt{a.Number, a.At, a.Took.Seconds(), a.Status, a.Error, a.Answer}
	}
	return httpserver.SendJSON(c, fiber.StatusOK, body)
}

func (h *handlers) redeliver(ctx context.Context, c *fiber.Ctx, actor string) error {
	reason, err := httpserver.ReadLine(c, "reason")
	if err != nil {
		return err
	}
	id := pathParam(c, "delivery")
	if err := h.cfg.Webhooks.Redeliver(ctx, actor, pathParam(c, "webhook"), id, reason); err != nil {
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusOK, map[string]string{"delivery": id, "status": "redelivering"})
}

func (h *handlers) redeliverSince(ctx context.Context, c *fiber.Ctx, actor string) error {
	body, err := httpserver.ReadObject(c)
	if err != nil {
		return err
	}
	since, reason := body.Time("since"), body.Line("reason")
	body.RejectUnknown()
	if since.IsZero() {
		since = sale.Epoch // every failed delivery
	}
	if err := body.Err(); err != nil {
		return err
	}
	n, err := h.cfg.Webhooks.RedeliverSince(ctx, actor, pathParam(c, "webhook"), since, reason)
	if err != nil {
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusOK, map[string]int64{"redelivering": n})
}
