package api

import (
	"context"
	"log/slog"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"
	"github.com/valyala/fasthttp"

	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
)

// buyer verifies the request's token and returns its subject, which outlives the request.
func (h *handlers) buyer(c *fiber.Ctx) (string, error) {
	buyer, _, err := h.buyerUntil(c)
	return buyer, err
}

// buyerUntil is buyer with the expiry of the token. It returns ErrUnauthorized unless the token is valid and its
// subject is a valid buyer, and logs the reason at debug level.
func (h *handlers) buyerUntil(c *fiber.Ctx) (buyer string, expires time.Time, err error) {
	raw, ok := credential(c)
	if !ok {
		return "", time.Time{}, httpserver.ErrUnauthorized
	}
	buyer, expires, err = h.cfg.Tokens.VerifyUntil(raw)
	if err == nil {
		err = sale.ValidateBuyer(buyer)
	}
	if err != nil {
		if h.Log().Enabled(context.Background(), slog.LevelDebug) {
			h.Log().DebugContext(httpserver.LogContext(c.Context()), "token rejected", "err", err)
		}
		return "", time.Time{}, httpserver.ErrUnauthorized
	}
	return buyer, expires, nil
}

// credential returns the token: Authorization: Bearer, or, without an Authorization header, the header "token". It
// rejects a request with several of either, because the edge might have checked another one. The result lives as long
// as the request.
func credential(c *fiber.Ctx) (raw string, ok bool) {
	header := &c.Context().Request.Header
	if given := header.PeekAll(fiber.HeaderAuthorization); len(given) > 0 {
		raw, ok = httpserver.Bearer(utils.UnsafeString(given[0]))
		return raw, ok && len(given) == 1
	}
	raw, ok = onlyOne(header, "Token")
	return raw, ok && raw != ""
}

// onlyOne returns a header that must be present once. The value lives as long as the request.
func onlyOne(header *fasthttp.RequestHeader, name string) (value string, ok bool) {
	given := header.PeekAll(name)
	if len(given) != 1 {
		return "", false
	}
	return utils.UnsafeString(given[0]), true
}
