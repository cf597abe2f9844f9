package api

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/sale"
	"sluice/backend/store"
)

// DeliveryDesk shows deliveries and has them sent again.
type DeliveryDesk interface {
	Ping(ctx context.Context, id string) (deliveryID string, err error)
	Deliveries(ctx context.Context, q store.DeliveryQuery) ([]store.Delivery, error)
	Delivery(ctx context.Context, endpointID, id string) (store.Delivery, []store.DeliveryAttempt, error)
	Redeliver(ctx context.Context, actor, endpointID, id, reason string) error
	RedeliverSince(ctx context.Context, actor, endpointID string, since time.Time, reason string) (int64, error)
}

type deliveryBody struct {
	ID        string     `json:"id"`
	Type      string     `json:"type"`
	State     string     `json:"state"`
	Attempts  int        `json:"attempts"`
	Sending   bool       `json:"sending"`
	CreatedAt time.Time  `json:"created_at"`
	DueAt     *time.Time `json:"due_at,omitempty"`   // of one that waits
	EndedAt   *time.Time `json:"ended_at,omitempty"` // of one that does not
}

var deliveryStates = map[store.DeliveryState]string{store.DeliveryWaiting: "waiting", store.DeliveryDelivered: "delivered", store.DeliveryFailed: "failed"}

func deliveryJSON(d store.Delivery) deliveryBody {
	b := deliveryBody{ID: d.ID, Type: d.Type, State: deliveryStates[d.State], Attempts: d.Attempts, Sending: d.Leased, CreatedAt: d.CreatedAt, EndedAt: unlessZero(d.EndedAt)}
	if d.State == store.DeliveryWaiting {
		b.DueAt = &d.DueAt
	}
	return b
}

func (o *operator) listDeliveries(ctx context.Context, c *fiber.Ctx, _ string) error {
	q := newQuery(c)
	wanted := store.DeliveryQuery{EndpointID: pathParam(c, "webhook"), Before: q.number("before"), Limit: q.limit()}
	word := q.oneOf("state", "waiting", "delivered", "failed")
	for state, name := range deliveryStates {
		if name == word {
			wanted.State = state
		}
	}
	if err := q.err(); err != nil {
		return err
	}
	all, err := o.cfg.Webhooks.Deliveries(ctx, wanted)
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
	return sendJSON(c, fiber.StatusOK, body)
}

func (o *operator) showDelivery(ctx context.Context, c *fiber.Ctx, _ string) error {
	d, log, err := o.cfg.Webhooks.Delivery(ctx, pathParam(c, "webhook"), pathParam(c, "delivery"))
	if err != nil {
		return err
	}
	type attempt struct {
		Number  int64     `json:"number"`
		At      time.Time `json:"at"`
		Seconds float64   `json:"seconds"`
		Status  int       `json:"status"` // 0: there was no answer
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
	return sendJSON(c, fiber.StatusOK, body)
}

func (o *operator) redeliver(ctx context.Context, c *fiber.Ctx, actor string) error {
	reason, err := remark(c, "reason")
	if err != nil {
		return err
	}
	id := pathParam(c, "delivery")
	if err := o.cfg.Webhooks.Redeliver(ctx, actor, pathParam(c, "webhook"), id, reason); err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, map[string]string{"delivery": id, "status": "redelivering"})
}

func (o *operator) redeliverSince(ctx context.Context, c *fiber.Ctx, actor string) error {
	body, err := readBody(c)
	if err != nil {
		return err
	}
	since, reason := body.instant("since"), body.remark("reason")
	body.unknown()
	if since.IsZero() {
		since = sale.Epoch // all
	}
	if err := body.err(); err != nil {
		return err
	}
	n, err := o.cfg.Webhooks.RedeliverSince(ctx, actor, pathParam(c, "webhook"), since, reason)
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, map[string]int64{"redelivering": n})
}
