package api

import (
	"errors"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/events/notify"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
)

var errNoSubscription = httpserver.NewProblem(problem.NotFound, "You have no such subscription.")

// subscriptionBody is a Web Push subscription without the browser's keys.
type subscriptionBody struct {
	ID        string    `json:"id"`
	Endpoint  string    `json:"endpoint"`
	Lang      string    `json:"lang"`
	CreatedAt time.Time `json:"created_at"`
}

func subscriptionJSON(s notify.Subscription) subscriptionBody {
	return subscriptionBody{strconv.FormatInt(s.ID, 10), s.Endpoint, s.Lang, s.CreatedAt.UTC()}
}

// pushKey is GET /v1/push/key.
func (h *handlers) pushKey(*fiber.Ctx) (any, error) {
	if h.cfg.Subscriptions == nil {
		return nil, httpserver.ErrUnavailable
	}
	return map[string]string{"key": h.cfg.PushKey}, nil
}

// subscriptions is GET /v1/me/push/subscriptions.
func (h *handlers) subscriptions(c *fiber.Ctx) (any, error) {
	buyer, err := h.pushBuyer(c)
	if err != nil {
		return nil, err
	}
	all, err := h.cfg.Subscriptions.Subscriptions(h.reads.next(), buyer)
	return map[string]any{"subscriptions": httpserver.Bodies(all, subscriptionJSON)}, err
}

// subscribe is POST /v1/me/push/subscriptions.
func (h *handlers) subscribe(c *fiber.Ctx) error {
	buyer, err := h.pushBuyer(c)
	if err != nil {
		return err
	}
	s, err := readSubscription(c, h.cfg.CheckPushURL)
	if err != nil {
		return err
	}
	s.Buyer = buyer
	stored, err := h.cfg.Subscriptions.Subscribe(h.reads.next(), s, notify.MaxSubscriptions)
	if err != nil {
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusCreated, subscriptionJSON(stored))
}

// unsubscribe is DELETE /v1/me/push/subscriptions/{subscription}.
func (h *handlers) unsubscribe(c *fiber.Ctx) error {
	buyer, err := h.pushBuyer(c)
	if err != nil {
		return err
	}
	id, err := httpserver.NumberParam(c, "subscription")
	if err != nil {
		return err
	}
	err = h.cfg.Subscriptions.Unsubscribe(h.reads.next(), buyer, id)
	switch {
	case errors.Is(err, sale.ErrNotFound):
		return errNoSubscription
	case err != nil:
		return err
	}
	c.Context().Response.SetStatusCode(fiber.StatusNoContent)
	return nil
}

// pushBuyer returns the buyer if Web Push is configured.
func (h *handlers) pushBuyer(c *fiber.Ctx) (string, error) {
	buyer, err := h.buyer(c)
	if err == nil && h.cfg.Subscriptions == nil {
		err = httpserver.ErrUnavailable
	}
	return buyer, err
}

// readSubscription reads the result of PushSubscription.toJSON() in browsers, with the buyer's language. The error
// names all invalid fields.
func readSubscription(c *fiber.Ctx, checkURL func(string) error) (s notify.Subscription, err error) {
	o, err := httpserver.ReadObject(c)
	if err != nil {
		return s, err
	}
	o.Require("endpoint", "keys")
	s.Endpoint, s.Lang = o.Text("endpoint"), o.Text("lang")
	o.Skip("expirationTime") // unused: push services report expired subscriptions
	keys := o.Child("keys")
	keys.Require("p256dh", "auth")
	s.P256dh, s.Auth = keys.Text("p256dh"), keys.Text("auth")
	keys.RejectUnknown()
	o.RejectUnknown()
	s, err = notify.CheckSubscription(s, checkURL)
	o.Merge(err)
	return s, o.Err()
}
