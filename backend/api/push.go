package api

import (
	"bytes"
	"net/url"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/events/notify"
	"sluice/backend/store"
	"sluice/internal/problem"
)

var errNoSubscription = refusalOf(problem.NotFound, "You have no such subscription.")

// subscriptionBody is a subscription as its buyer sees it: without the browser's keys, which nobody needs to hear again.
type subscriptionBody struct {
	ID        string    `json:"id"`
	Endpoint  string    `json:"endpoint"`
	Lang      string    `json:"lang"`
	CreatedAt time.Time `json:"created_at"`
}

func subscriptionJSON(s store.PushSubscription) subscriptionBody {
	return subscriptionBody{strconv.FormatInt(s.ID, 10), s.Endpoint, s.Lang, s.CreatedAt.UTC()}
}

// pushKey is GET /v1/push/key.
func (p *public) pushKey(c *fiber.Ctx) error {
	if p.cfg.Subscriptions == nil {
		return errUnavailable
	}
	return sendJSON(c, fiber.StatusOK, map[string]string{"key": p.cfg.PushKey})
}

// subscriptions is GET /v1/me/push/subscriptions.
func (p *public) subscriptions(c *fiber.Ctx) error {
	buyer, err := p.pushBuyer(c)
	if err != nil {
		return err
	}
	all, err := p.cfg.Subscriptions.Subscriptions(p.look.next(), buyer)
	if err != nil {
		return err
	}
	list := make([]subscriptionBody, len(all))
	for i, s := range all {
		list[i] = subscriptionJSON(s)
	}
	return sendJSON(c, fiber.StatusOK, map[string]any{"subscriptions": list})
}

// subscribe is POST /v1/me/push/subscriptions.
func (p *public) subscribe(c *fiber.Ctx) error {
	buyer, err := p.pushBuyer(c)
	if err != nil {
		return err
	}
	s, err := readSubscription(c.Context().Request.Header.ContentType(), c.Context().Request.Body(), p.cfg.CheckPushURL)
	if err != nil {
		return err
	}
	s.Buyer = buyer
	kept, err := p.cfg.Subscriptions.Subscribe(p.look.next(), s, notify.MaxSubscriptions)
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusCreated, subscriptionJSON(kept))
}

// unsubscribe is DELETE /v1/me/push/subscriptions/{subscription}.
func (p *public) unsubscribe(c *fiber.Ctx) error {
	buyer, err := p.pushBuyer(c)
	if err != nil {
		return err
	}
	id, err := strconv.ParseInt(c.Params("subscription"), 10, 64)
	if err != nil || id < 1 {
		return mistake("subscription", "must be a number from 1 on")
	}
	err = p.cfg.Subscriptions.Unsubscribe(p.look.next(), buyer, id)
	if r, known := refusalFor(err); err != nil && known && r == errNotFound {
		return errNoSubscription
	}
	if err != nil {
		return err
	}
	c.Context().Response.SetStatusCode(fiber.StatusNoContent)
	return nil
}

func (p *public) pushBuyer(c *fiber.Ctx) (string, error) {
	buyer, err := p.buyer(c)
	if err == nil && p.cfg.Subscriptions == nil {
		err = errUnavailable
	}
	return buyer, err
}

// readSubscription reads what PushSubscription.toJSON writes, and the language that the buyer wants. The error names every mistake.
func readSubscription(contentType, body []byte, checkURL func(string) (*url.URL, error)) (store.PushSubscription, error) {
	if media, _, _ := bytes.Cut(contentType, []byte{';'}); !bytes.EqualFold(bytes.TrimSpace(media), []byte(fiber.MIMEApplicationJSON)) {
		return store.PushSubscription{}, mistake("Content-Type", "must be application/json")
	}
	o, err := readObject(body)
	if err != nil {
		return store.PushSubscription{}, err
	}
	s := store.PushSubscription{Endpoint: o.text("endpoint"), Lang: o.text("lang")}
	o.take("expirationTime") // a hint that no browser gives; its push service tells when a subscription has ended
	keys := o.child("keys")
	s.P256dh, s.Auth = keys.text("p256dh"), keys.text("auth")
	keys.unknown()
	o.unknown()
	if err := o.err(); err != nil {
		return store.PushSubscription{}, err
	}
	return notify.CheckSubscription(s, func(raw string) error {
		_, err := checkURL(raw)
		return err
	})
}
