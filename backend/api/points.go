package api

import (
	"context"

	"github.com/gofiber/fiber/v2"
)

// Points tells how many points a buyer has (order.Store).
type Points interface {
	Points(ctx context.Context, buyer string) (int64, error)
}

// points is GET /v1/me/points.
func (p *public) points(c *fiber.Ctx) error {
	buyer, err := p.buyer(c)
	if err != nil {
		return err
	}
	if p.cfg.Points == nil {
		return errUnavailable
	}
	n, err := p.cfg.Points.Points(p.look.next(), buyer)
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderCacheControl, "no-store")
	return sendJSON(c, fiber.StatusOK, map[string]int64{"points": n})
}
