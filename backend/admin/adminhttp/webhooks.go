package adminhttp

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/events/webhook"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
	"sluice/client"
	"sluice/internal/duration"
)

func (h *handlers) addWebhooks() {
	const one, oneDelivery = "/admin/v1/webhooks/:webhook", "/admin/v1/webhooks/:webhook/deliveries/:delivery"
	h.post("/admin/v1/webhooks", h.addWebhook)
	h.get("/admin/v1/webhooks", list("webhooks", h.cfg.Webhooks.List, webhookJSON))
	h.get(one, show((*request).webhook, h.cfg.Webhooks.Show, webhookJSON))
	h.post(one+"/change", with((*request).webhook, h.changeWebhook))
	h.post(one+"/pause", change((*request).webhook, h.cfg.Webhooks.Pause, webhookJSON))
	h.post(one+"/resume", change((*request).webhook, h.cfg.Webhooks.Resume, webhookJSON))
	h.post(one+"/rotate", with((*request).webhook, h.rotateWebhook))
	h.post(one+"/remove", withReason((*request).webhook, h.removeWebhook))
	h.post(one+"/ping", withReason((*request).webhook, h.pingWebhook))
	h.post(one+"/redeliver", with((*request).webhook, h.redeliverSince))
	h.get(one+"/deliveries", with((*request).webhook, h.listDeliveries))
	h.get(oneDelivery, with((*request).delivery, h.showDelivery))
	h.post(oneDelivery+"/redeliver", withReason((*request).delivery, h.redeliver))
}

// webhook returns the id of the endpoint in the path.
func (r *request) webhook() string { return r.param("webhook", errNoWebhook) }

// delivery is the delivery of an endpoint in the path.
type delivery struct{ endpoint, id string }

func (r *request) delivery() delivery {
	return delivery{r.webhook(), r.param("delivery", errNoDelivery)}
}

func webhookJSON(e webhook.Endpoint) client.Endpoint {
	return client.Endpoint{
		ID: e.ID, URL: e.URL, Title: e.Title, Strict: e.Strict, State: string(e.State), Reason: e.Reason,
		Types: append([]string{}, e.Types...), Sales: append([]string{}, e.Sales...), // not null in JSON
		CreatedAt: e.CreatedAt, CreatedBy: e.CreatedBy, OldSecretUntil: httpserver.OptionalTime(e.OldUntil),
		FailingSince: httpserver.OptionalTime(e.FailingSince), HeldUntil: httpserver.OptionalTime(e.HoldUntil),
		LastError: e.LastError, LastErrorAt: httpserver.OptionalTime(e.LastErrorAt),
		Waiting: e.Waiting, Failed: e.Failed, OldestAgeSeconds: e.Oldest.Seconds(),
	}
}

// readSettings takes the settings of an endpoint that the body has.
func readSettings(body *httpserver.Object) webhook.Settings {
	var s webhook.Settings
	for name, field := range map[string]**string{"url": &s.URL, "title": &s.Title} {
		if body.Has(name) {
			text := body.Text(name)
			*field = &text
		}
	}
	for name, field := range map[string]**[]string{"types": &s.Types, "sales": &s.Sales} {
		if items, present := body.Texts(name); present {
			*field = &items
		}
	}
	return s
}

func (h *handlers) addWebhook(ctx context.Context, r *request) (any, error) {
	body := r.object()
	body.Require("url")
	s, strict := readSettings(body), body.Bool("strict")
	ctx = takeReason(ctx, body)
	if err := r.end(body); err != nil {
		return nil, err
	}
	e, err := h.cfg.Webhooks.Add(ctx, s, strict)
	if err != nil {
		return nil, err
	}
	r.created("/admin/v1/webhooks/" + e.ID)
	created := webhookJSON(e)
	created.Secret = e.Secret
	return created, nil
}

func (h *handlers) changeWebhook(ctx context.Context, r *request, id string) (any, error) {
	body := r.object()
	s := readSettings(body)
	ctx = takeReason(ctx, body)
	if s == (webhook.Settings{}) {
		body.Reject("body", "must have at least one of url, title, types and sales")
	}
	if err := r.end(body); err != nil {
		return nil, err
	}
	e, err := h.cfg.Webhooks.Change(ctx, id, s)
	return webhookJSON(e), err
}

func (h *handlers) rotateWebhook(ctx context.Context, r *request, id string) (any, error) {
	body := r.object()
	keep, ok := body.Duration("keep")
	if !ok {
		keep = webhook.DefaultKeep
	}
	ctx = takeReason(ctx, body)
	if err := r.end(body); err != nil {
		return nil, err
	}
	secret, err := h.cfg.Webhooks.Rotate(ctx, id, keep)
	return map[string]string{"id": id, "secret": secret, "keep": duration.Text(keep)}, err
}

func (h *handlers) removeWebhook(ctx context.Context, _ *request, id string) (any, error) {
	err := h.cfg.Webhooks.Remove(ctx, id)
	return map[string]string{"id": id, "status": "removed"}, err
}

func (h *handlers) pingWebhook(ctx context.Context, r *request, id string) (any, error) {
	delivery, err := h.cfg.Webhooks.Ping(ctx, id)
	if err != nil {
		return nil, err
	}
	r.Status(fiber.StatusAccepted)
	err = h.cfg.Store.Record(ctx, "webhook.ping", id, "")
	return map[string]string{"delivery": delivery}, err
}

func (h *handlers) redeliverSince(ctx context.Context, r *request, id string) (any, error) {
	body := r.object()
	since := body.Time("since")
	ctx = takeReason(ctx, body)
	if err := r.end(body); err != nil {
		return nil, err
	}
	if since.IsZero() {
		since = sale.Epoch // every failed delivery
	}
	n, err := h.cfg.Webhooks.RedeliverSince(ctx, id, since)
	return map[string]int64{"redelivering": n}, err
}

// Delivery is a delivery to an endpoint, without its body and its attempts.
type Delivery struct {
	Number    int64      `json:"-"`
	ID        string     `json:"id"`
	Type      string     `json:"type"`
	State     string     `json:"state"`
	Attempts  int        `json:"attempts"`
	Sending   bool       `json:"sending"`
	CreatedAt time.Time  `json:"created_at"`
	DueAt     *time.Time `json:"due_at,omitempty"`   // while waiting
	EndedAt   *time.Time `json:"ended_at,omitempty"` // after delivery or failure
}

// DeliveryDetails is a delivery with its body and its last attempts, oldest first.
type DeliveryDetails struct {
	Delivery
	Body string                    `json:"body"`
	Log  []webhook.DeliveryAttempt `json:"log"`
}

var deliveryStates = map[webhook.DeliveryState]string{
	webhook.DeliveryWaiting: "waiting", webhook.DeliveryDelivered: "delivered", webhook.DeliveryFailed: "failed",
}

func deliveryJSON(d webhook.Delivery) Delivery {
	b := Delivery{
		Number: d.Number, ID: d.ID, Type: d.Type, State: deliveryStates[d.State], Attempts: d.Attempts, Sending: d.Leased,
		CreatedAt: d.CreatedAt, EndedAt: httpserver.OptionalTime(d.EndedAt),
	}
	if d.State == webhook.DeliveryWaiting {
		b.DueAt = &d.DueAt
	}
	return b
}

func (h *handlers) listDeliveries(ctx context.Context, r *request, endpoint string) (any, error) {
	q := httpserver.NewQuery(r.Ctx)
	wanted := webhook.DeliveryQuery{EndpointID: endpoint, Before: q.Number("before"), Limit: q.Limit()}
	word := q.OneOf("state", "waiting", "delivered", "failed")
	for state, name := range deliveryStates {
		if name == word {
			wanted.State = state
		}
	}
	if err := q.End(); err != nil {
		return nil, err
	}
	all, err := h.cfg.Webhooks.Deliveries(ctx, wanted)
	next := func(last Delivery) any { return last.Number }
	return page("deliveries", httpserver.Bodies(all, deliveryJSON), wanted.Limit, next), err
}

func (h *handlers) showDelivery(ctx context.Context, _ *request, of delivery) (any, error) {
	d, log, err := h.cfg.Webhooks.Delivery(ctx, of.endpoint, of.id)
	return DeliveryDetails{deliveryJSON(d), d.Body, append([]webhook.DeliveryAttempt{}, log...)}, err
}

func (h *handlers) redeliver(ctx context.Context, _ *request, of delivery) (any, error) {
	err := h.cfg.Webhooks.Redeliver(ctx, of.endpoint, of.id)
	return map[string]string{"delivery": of.id, "status": "redelivering"}, err
}
