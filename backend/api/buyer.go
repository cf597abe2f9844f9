package api

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"

	"sluice/backend/sale"
	"sluice/internal/problem"
)

// errUnauthorized never says what was wrong with a token: that helps nobody but a forger. The log knows.
var errUnauthorized = refusalOf(problem.Unauthorized, "A valid token is needed.",
	header{fiber.HeaderWWWAuthenticate, `Bearer error="invalid_token"`})

// buyer verifies the request's token and returns its subject, which outlives the request.
func (p *public) buyer(c *fiber.Ctx) (string, error) {
	raw, ok := credential(c)
	if !ok {
		return "", errUnauthorized
	}
	buyer, err := p.cfg.Tokens.Verify(raw)
	if err := p.judged(c, buyer, err); err != nil {
		return "", err
	}
	return buyer, nil
}

// buyerUntil is buyer, and when the token expires.
func (p *public) buyerUntil(c *fiber.Ctx) (buyer string, expires time.Time, err error) {
	raw, ok := credential(c)
	if !ok {
		return "", time.Time{}, errUnauthorized
	}
	buyer, expires, err = p.cfg.Tokens.VerifyUntil(raw)
	return buyer, expires, p.judged(c, buyer, err)
}

// judged is errUnauthorized unless the token was good and its subject is a buyer.
func (p *public) judged(c *fiber.Ctx, buyer string, err error) error {
	if err == nil {
		err = sale.ValidateBuyer(buyer)
	}
	if err != nil {
		if p.log.Enabled(context.Background(), slog.LevelDebug) {
			p.log.DebugContext(logging(c.Context()), "token refused", "err", err)
		}
		return errUnauthorized
	}
	return nil
}

// credential finds the token: Authorization: Bearer, or without any Authorization the header "token". More than one of either is refused,
// since an edge might have judged another one. The result lives as long as the request.
func credential(c *fiber.Ctx) (raw string, ok bool) {
	h := &c.Context().Request.Header
	if given := h.PeekAll(fiber.HeaderAuthorization); len(given) > 0 {
		raw, ok = bearer(utils.UnsafeString(given[0]))
		return raw, ok && len(given) == 1
	}
	given := h.PeekAll("Token")
	if len(given) != 1 || len(given[0]) == 0 {
		return "", false
	}
	return utils.UnsafeString(given[0]), true
}

func bearer(authorization string) (raw string, ok bool) {
	scheme, raw, _ := strings.Cut(authorization, " ")
	raw = strings.TrimLeft(raw, " ")
	return raw, strings.EqualFold(scheme, "Bearer") && raw != ""
}
