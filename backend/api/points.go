package api

import (
	"github.com/gofiber/fiber/v2"

	"sluice/backend/web/httpserver"
)

// points is GET /v1/me/points.
func (h *handlers) points(c *fiber.Ctx) error {
	buyer, err := h.buyer(c)
	if err != nil {
		return err
	}
	if h.cfg.Points == nil {
		return httpserver.ErrUnavailable
	}
	n, err := h.cfg.Points.Balance(h.reads.next(), buyer)
	if err != nil {
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusOK, map[string]int64{"points": n})
}
