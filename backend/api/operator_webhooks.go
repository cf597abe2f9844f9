package api

import (
	"context"
	"net/url"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/events/webhook"
	"sluice/backend/store"
)

// WebhookDesk shows the endpoints of webhooks and what was sent to them, and does what operators decide about them (webhook.Desk).
type WebhookDesk interface {
	EndpointDesk
	DeliveryDesk
	Pause(ctx context.Context, actor, id, reason string) (store.Endpoint, error)
	Resume(ctx context.Context, actor, id, reason string) (store.Endpoint, error)
	Rotate(ctx context.Context, actor, id string, keep time.Duration, reason string) (secret string, err error)
}

// EndpointDesk makes, shows, changes and removes endpoints.
type EndpointDesk interface {
	Add(ctx context.Context, actor string, s webhook.Settings, strict bool, reason string) (store.Endpoint, error)
	List(ctx context.Context) ([]store.Endpoint, error)
	Show(ctx context.Context, id string) (store.Endpoint, error)
	Change(ctx context.Context, actor, id string, s webhook.Settings, reason string) (store.Endpoint, error)
	Remove(ctx context.Context, actor, id, reason string) error
}

func (o *operator) webhooks() {
	const one, of = "/admin/v1/webhooks/:webhook", "/admin/v1/webhooks/:webhook/deliveries/:delivery"
	o.handle(fiber.MethodPost, "/admin/v1/webhooks", o.addWebhook)
	o.handle(fiber.MethodGet, "/admin/v1/webhooks", o.listWebhooks)
	o.handle(fiber.MethodGet, one, o.showWebhook)
	o.handle(fiber.MethodPost, one+"/change", o.changeWebhook)
	o.handle(fiber.MethodPost, one+"/pause", o.turnWebhook(o.cfg.Webhooks.Pause))
	o.handle(fiber.MethodPost, one+"/resume", o.turnWebhook(o.cfg.Webhooks.Resume))
	o.handle(fiber.MethodPost, one+"/rotate", o.rotateWebhook)
	o.handle(fiber.MethodPost, one+"/remove", o.removeWebhook)
	o.handle(fiber.MethodPost, one+"/ping", o.pingWebhook)
	o.handle(fiber.MethodPost, one+"/redeliver", o.redeliverSince)
	o.handle(fiber.MethodGet, one+"/deliveries", o.listDeliveries)
	o.handle(fiber.MethodGet, of, o.showDelivery)
	o.handle(fiber.MethodPost, of+"/redeliver", o.redeliver)
}

type webhookBody struct {
	ID               string              `json:"id"`
	URL              string              `json:"url"`
	Title            string              `json:"title"`
	Types            []string            `json:"types"` // empty: all
	Sales            []string            `json:"sales"` // empty: all
	Strict           bool                `json:"strict"`
	State            store.EndpointState `json:"state"`
	Reason           string              `json:"reason"`
	CreatedAt        time.Time           `json:"created_at"`
	CreatedBy        string              `json:"created_by"`
	OldSecretUntil   *time.Time          `json:"old_secret_until,omitempty"`
	FailingSince     *time.Time          `json:"failing_since,omitempty"`
	HeldUntil        *time.Time          `json:"held_until,omitempty"`
	Waiting          int64               `json:"waiting"`
	Failed           int64               `json:"failed"`
	OldestAgeSeconds float64             `json:"oldest_age_seconds"`
	Secret           string              `json:"secret,omitempty"` // of a new one only
}

func webhookJSON(e store.Endpoint) webhookBody {
	return webhookBody{
		ID: e.ID, URL: e.URL, Title: e.Title, Types: list(e.Types), Sales: list(e.Sales), Strict: e.Strict, State: e.State, Reason: e.Reason,
		CreatedAt: e.CreatedAt, CreatedBy: e.CreatedBy, OldSecretUntil: unlessZero(e.OldUntil), FailingSince: unlessZero(e.FailingSince), HeldUntil: unlessZero(e.HoldUntil),
		Waiting: e.Waiting, Failed: e.Failed, OldestAgeSeconds: e.Oldest.Seconds(),
	}
}

func list(items []string) []string {
	if items == nil {
		return []string{}
	}
	return items
}

func unlessZero(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// settings takes what may be said of an endpoint.
func (o *object) settings() webhook.Settings {
	var s webhook.Settings
	for name, field := range map[string]**string{"url": &s.URL, "title": &s.Title} {
		if _, present := o.fields[name]; present {
			text := o.text(name)
			*field = &text
		}
	}
	for name, field := range map[string]**[]string{"types": &s.Types, "sales": &s.Sales} {
		if items, present := o.texts(name); present {
			*field = &items
		}
	}
	return s
}

// texts takes a list of strings.
func (o *object) texts(name string) (items []string, present bool) {
	v, present := o.take(name)
	if !present {
		return nil, false
	}
	raw, ok := v.([]any)
	for _, item := range raw {
		text, isText := item.(string)
		items, ok = append(items, text), ok && isText
	}
	if !ok {
		o.mistake(name, "must be a list of strings")
	}
	return items, true
}

func (o *operator) addWebhook(ctx context.Context, c *fiber.Ctx, actor string) error {
	body, err := readBody(c)
	if err != nil {
		return err
	}
	s, strict, reason := body.settings(), body.flag("strict"), body.remark("reason")
	body.unknown()
	if err := body.err(); err != nil {
		return err
	}
	e, err := o.cfg.Webhooks.Add(ctx, actor, s, strict, reason)
	if err != nil {
		return err
	}
	answer := webhookJSON(e)
	answer.Secret = e.Secret
	c.Set(fiber.HeaderLocation, "/admin/v1/webhooks/"+e.ID)
	return sendJSON(c, fiber.StatusCreated, answer)
}

func (o *operator) listWebhooks(ctx context.Context, c *fiber.Ctx, _ string) error {
	all, err := o.cfg.Webhooks.List(ctx)
	if err != nil {
		return err
	}
	body := struct {
		Webhooks []webhookBody `json:"webhooks"`
	}{make([]webhookBody, len(all))}
	for i, e := range all {
		body.Webhooks[i] = webhookJSON(e)
	}
	return sendJSON(c, fiber.StatusOK, body)
}

// pathParam is a part of the path, as a copy; "" if nothing can have it as its name.
func pathParam(c *fiber.Ctx, name string) string {
	text, err := url.PathUnescape(c.Params(name))
	if err != nil {
		return ""
	}
	return string([]byte(text))
}

func (o *operator) showWebhook(ctx context.Context, c *fiber.Ctx, _ string) error {
	e, err := o.cfg.Webhooks.Show(ctx, pathParam(c, "webhook"))
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, webhookJSON(e))
}

func (o *operator) changeWebhook(ctx context.Context, c *fiber.Ctx, actor string) error {
	body, err := readBody(c)
	if err != nil {
		return err
	}
	s, reason := body.settings(), body.remark("reason")
	body.unknown()
	if s == (webhook.Settings{}) {
		body.mistake("body", "must say what is to be changed: url, title, types or sales")
	}
	if err := body.err(); err != nil {
		return err
	}
	e, err := o.cfg.Webhooks.Change(ctx, actor, pathParam(c, "webhook"), s, reason)
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, webhookJSON(e))
}

func (o *operator) turnWebhook(turn func(ctx context.Context, actor, id, reason string) (store.Endpoint, error)) operatorHandler {
	return func(ctx context.Context, c *fiber.Ctx, actor string) error {
		reason, err := remark(c, "reason")
		if err != nil {
			return err
		}
		e, err := turn(ctx, actor, pathParam(c, "webhook"), reason)
		if err != nil {
			return err
		}
		return sendJSON(c, fiber.StatusOK, webhookJSON(e))
	}
}

func (o *operator) rotateWebhook(ctx context.Context, c *fiber.Ctx, actor string) error {
	body, err := readBody(c)
	if err != nil {
		return err
	}
	keep := webhook.DefaultKeep
	if _, said := body.fields["keep"]; said {
		keep = body.duration("keep")
	}
	reason := body.remark("reason")
	body.unknown()
	if err := body.err(); err != nil {
		return err
	}
	id := pathParam(c, "webhook")
	secret, err := o.cfg.Webhooks.Rotate(ctx, actor, id, keep, reason)
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, map[string]string{"id": id, "secret": secret, "keep": durationText(keep)})
}

func (o *operator) removeWebhook(ctx context.Context, c *fiber.Ctx, actor string) error {
	reason, err := remark(c, "reason")
	if err != nil {
		return err
	}
	id := pathParam(c, "webhook")
	if err := o.cfg.Webhooks.Remove(ctx, actor, id, reason); err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, map[string]string{"id": id, "status": "removed"})
}

func (o *operator) pingWebhook(ctx context.Context, c *fiber.Ctx, actor string) error {
	reason, err := remark(c, "reason")
	if err != nil {
		return err
	}
	id := pathParam(c, "webhook")
	delivery, err := o.cfg.Webhooks.Ping(ctx, id)
	if err != nil {
		return err
	}
	if err := o.cfg.Desk.Note(ctx, actor, "webhook.ping", id, reason); err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusAccepted, map[string]string{"delivery": delivery})
}
