package adminhttp

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/admin"
	"sluice/backend/web/httpserver"
)

func (h *handlers) addRehearsals() {
	h.handle(fiber.MethodPost, "/admin/v1/rehearsals", h.rehearse)
	h.handle(fiber.MethodGet, "/admin/v1/rehearsals", h.listRehearsals)
	h.handle(fiber.MethodPost, "/admin/v1/rehearsals/:sale/remove", h.removeRehearsal)
}

func (h *handlers) rehearse(ctx context.Context, c *fiber.Ctx, actor string) error {
	body, err := httpserver.ReadObject(c)
	if err != nil {
		return err
	}
	r := admin.Rehearsal{
		SaleID: body.Text(
			"sale",
		),
		OpensAt:         body.Time("opens_at"),
		ClosesAt:        body.Time("closes_at"),
		BesideRealSales: body.Bool("beside_real_sales"),
	}
	if n, ok := body.Integer("stock"); ok {
		if r.Stock = n; n < 1 {
			body.Reject("stock", "must be at least 1")
		}
	}
	if r.SaleID == "" && !body.Rejected("sale") {
		body.Reject("sale", "must be set")
	}
	body.RejectUnknown()
	if err := body.Err(); err != nil {
		return err
	}
	v, err := h.cfg.Admin.Rehearse(ctx, actor, r)
	if err != nil {
		return err
	}
	c.Context().Response.Header.Set(fiber.HeaderLocation, "/admin/v1/sales/"+v.ID)
	return httpserver.SendJSON(c, fiber.StatusCreated, saleJSON(v))
}

func (h *handlers) listRehearsals(ctx context.Context, c *fiber.Ctx, _ string) error {
	views, err := h.cfg.Admin.Rehearsals(ctx)
	if err != nil {
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusOK, struct {
		Rehearsals []saleBody `json:"rehearsals"`
	}{saleBodies(views)})
}

func (h *handlers) removeRehearsal(ctx context.Context, c *fiber.Ctx, actor string) error {
	saleID, err := httpserver.SaleParam(c)
	if err != nil {
		return err
	}
	if err := httpserver.NoBody(c); err != nil {
		return err
	}
	orders, err := h.cfg.Admin.RemoveRehearsal(ctx, actor, saleID)
	if err != nil {
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusOK, struct {
		ID     string `json:"id"`
		Orders int64  `json:"orders"`
	}{saleID, orders})
}
