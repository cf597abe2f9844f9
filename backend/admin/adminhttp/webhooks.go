package adminhttp

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/events/webhook"
	"sluice/backend/web/httpserver"
)

func (h *handlers) addWebhooks() {
	const one, of = "/admin/v1/webhooks/:webhook", "/admin/v1/webhooks/:webhook/deliveries/:delivery"
	h.handle(fiber.MethodPost, "/admin/v1/webhooks", h.addWebhook)
	h.handle(fiber.MethodGet, "/admin/v1/webhooks", h.listWebhooks)
	h.handle(fiber.MethodGet, one, h.showWebhook)
	h.handle(fiber.MethodPost, one+"/change", h.changeWebhook)
	h.handle(fiber.MethodPost, one+"/pause", h.switchWebhook(h.cfg.Webhooks.Pause))
	h.handle(fiber.MethodPost, one+"/resume", h.switchWebhook(h.cfg.Webhooks.Resume))
	h.handle(fiber.MethodPost, one+"/rotate", h.rotateWebhook)
	h.handle(fiber.MethodPost, one+"/remove", h.removeWebhook)
	h.handle(fiber.MethodPost, one+"/ping", h.pingWebhook)
	h.handle(fiber.MethodPost, one+"/redeliver", h.redeliverSince)
	h.handle(fiber.MethodGet, one+"/deliveries", h.listDeliveries)
	h.handle(fiber.MethodGet, of, h.showDelivery)
	h.handle(fiber.MethodPost, of+"/redeliver", h.redeliver)
}

type webhookBody struct {
	ID               string                `json:"id"`
	URL              string                `json:"url"`
	Title            string                `json:"title"`
	Types            []string              `json:"types"` // empty: all
	Sales            []string              `json:"sales"` // empty: all
	Strict           bool                  `json:"strict"`
	State            webhook.EndpointState `json:"state"`
	Reason           string                `json:"reason"`
	CreatedAt        time.Time             `json:"created_at"`
	CreatedBy        string                `json:"created_by"`
	OldSecretUntil   *time.Time            `json:"old_secret_until,omitempty"`
	FailingSince     *time.Time            `json:"failing_since,omitempty"`
	HeldUntil        *time.Time            `json:"held_until,omitempty"`
	Waiting          int64                 `json:"waiting"`
	Failed           int64                 `json:"failed"`
	OldestAgeSeconds float64               `json:"oldest_age_seconds"`
	Secret           string                `json:"secret,omitempty"` // in the response to its creation only
}

func webhookJSON(e webhook.Endpoint) webhookBody {
	return webhookBody{
		ID:        e.ID,
		URL:       e.URL,
		Title:     e.Title,
		Types:     nonNil(e.Types),
		Sales:     nonNil(e.Sales),
		Strict:    e.Strict,
		State:     e.State,
		Reason:    e.Reason,
		CreatedAt: e.CreatedAt,
		CreatedBy: e.CreatedBy,
		OldSecretUntil: optionalTime(
			e.OldUntil,
		),
		FailingSince:     optionalTime(e.FailingSince),
		HeldUntil:        optionalTime(e.HoldUntil),
		Waiting:          e.Waiting,
		Failed:           e.Failed,
		OldestAgeSeconds: e.Oldest.Seconds(),
	}
}

// nonNil returns items so that JSON has [] instead of null.
func nonNil(items []string) []string {
	if items == nil {
		return []string{}
	}
	return items
}

// optionalTime returns t in UTC, or nil if it is zero.
func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
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

func (h *handlers) addWebhook(ctx context.Context, c *fiber.Ctx, actor string) error {
	body, err := httpserver.ReadObject(c)
	if err != nil {
		return err
	}
	s, strict, reason := readSettings(body), body.Bool("strict"), body.Line("reason")
	body.RejectUnknown()
	if err := body.Err(); err != nil {
		return err
	}
	e, err := h.cfg.Webhooks.Add(ctx, actor, s, strict, reason)
	if err != nil {
		return err
	}
	answer := webhookJSON(e)
	answer.Secret = e.Secret
	c.Set(fiber.HeaderLocation, "/admin/v1/webhooks/"+e.ID)
	return httpserver.SendJSON(c, fiber.StatusCreated, answer)
}

func (h *handlers) listWebhooks(ctx context.Context, c *fiber.Ctx, _ string) error {
	all, err := h.cfg.Webhooks.List(ctx)
	if err != nil {
		return err
	}
	body := struct {
		Webhooks []webhookBody `json:"webhooks"`
	}{make([]webhookBody, len(all))}
	for i, e := range all {
		body.Webhooks[i] = webhookJSON(e)
	}
	return httpserver.SendJSON(c, fiber.StatusOK, body)
}

// pathParam returns a copy of a part of the path, or "" if it cannot be unescaped.
func pathParam(c *fiber.Ctx, name string) string {
	text, err := url.PathUnescape(c.Params(name))
	if err != nil {
		return ""
	}
	return strings.Clone(text)
}

func (h *handlers) showWebhook(ctx context.Context, c *fiber.Ctx, _ string) error {
	e, err := h.cfg.Webhooks.Show(ctx, pathParam(c, "webhook"))
	if err != nil {
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusOK, webhookJSON(e))
}

func (h *handlers) changeWebhook(ctx context.Context, c *fiber.Ctx, actor string) error {
	body, err := httpserver.ReadObject(c)
	if err != nil {
		return err
	}
	s, reason := readSettings(body), body.Line("reason")
	body.RejectUnknown()
	if s == (webhook.Settings{}) {
		body.Reject("body", "must have at least one of url, title, types and sales")
	}
	if err := body.Err(); err != nil {
		return err
	}
	e, err := h.cfg.Webhooks.Change(ctx, actor, pathParam(c, "webhook"), s, reason)
	if err != nil {
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusOK, webhookJSON(e))
}

// switchWebhook answers pause and resume.
func (h *handlers) switchWebhook(
	turn func(ctx context.Context, actor, id, reason string) (webhook.Endpoint, error),
) handler {
	return func(ctx context.Context, c *fiber.Ctx, actor string) error {
		reason, err := httpserver.ReadLine(c, "reason")
		if err != nil {
			return err
		}
		e, err := turn(ctx, actor, pathParam(c, "webhook"), reason)
		if err != nil {
			return err
		}
		return httpserver.SendJSON(c, fiber.StatusOK, webhookJSON(e))
	}
}

func (h *handlers) rotateWebhook(ctx context.Context, c *fiber.Ctx, actor string) error {
	body, err := httpserver.ReadObject(c)
	if err != nil {
		return err
	}
	keep := webhook.DefaultKeep
	if body.Has("keep") {
		keep = body.Duration("keep")
	}
	reason := body.Line("reason")
	body.RejectUnknown()
	if err := body.Err(); err != nil {
		return err
	}
	id := pathParam(c, "webhook")
	secret, err := h.cfg.Webhooks.Rotate(ctx, actor, id, keep, reason)
	if err != nil {
		return err
	}
	return httpserver.SendJSON(
		c,
		fiber.StatusOK,
		map[string]string{"id": id, "secret": secret, "keep": httpserver.DurationText(keep)},
	)
}

func (h *handlers) removeWebhook(ctx context.Context, c *fiber.Ctx, actor string) error {
	reason, err := httpserver.ReadLine(c, "reason")
	if err != nil {
		return err
	}
	id := pathParam(c, "webhook")
	if err := h.cfg.Webhooks.Remove(ctx, actor, id, reason); err != nil {
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusOK, map[string]string{"id": id, "status": "removed"})
}

func (h *handlers) pingWebhook(ctx context.Context, c *fiber.Ctx, actor string) error {
	reason, err := httpserver.ReadLine(c, "reason")
	if err != nil {
		return err
	}
	id := pathParam(c, "webhook")
	delivery, err := h.cfg.Webhooks.Ping(ctx, id)
	if err != nil {
		return err
	}
	if err := h.cfg.Admin.Note(ctx, actor, "webhook.ping", id, reason); err != nil {
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusAccepted, map[string]string{"delivery": delivery})
}
