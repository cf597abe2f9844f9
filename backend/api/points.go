package api

import (
	"github.com/gofiber/fiber/v2"

	"sluice/backend/web/httpserver"
)

// points is GET /v1/me/points.
func (h *handlers) points(_ *fiber.Ctx, buyer string) (any, error) {
	if h.cfg.Points == nil {
		return nil, httpserver.ErrUnavailable
	}
	n, err := h.cfg.Points.Balance(h.reads.next(), buyer)
	return map[string]int64{"points": n}, err
}
