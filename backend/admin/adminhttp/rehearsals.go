package adminhttp

import (
	"context"
	"fmt"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/admin"
	"sluice/backend/web/httpserver"
)

func (h *handlers) addRehearsals() {
	h.handle(fiber.MethodPost, "/admin/v1/rehearsals", h.rehearse)
	h.handle(fiber.MethodGet, "/admin/v1/rehearsals", h.listRehearsals)
	h.handle(fiber.MethodPost, "/admin/v1/rehearsals/:sale/fault", h.fault)
	h.handle(fiber.MethodPost, "/admin/v1/rehearsals/:sale/remove", h.removeRehearsal)
}

func (h *handlers) rehearse(ctx context.Context, c *fiber.Ctx, actor string) error {
	body, err := httpserver.ReadObject(c)
	if err != nil {
		return err
	}
	r := admin.Rehearsal{
		SaleID: body.Text("sale"), OpensAt: body.Time("opens_at"), ClosesAt: body.Time("closes_at"), Beside: body.Bool("beside_real_sales"),
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

// The faults that a rehearsal may have.
const (
	faultRedis  = "pause_redis"
	faultWorker = "worker_dies"
)

func (h *handlers) fault(ctx context.Context, c *fiber.Ctx, actor string) error {
	saleID, err := httpserver.SaleParam(c)
	if err != nil {
		return err
	}
	body, err := httpserver.ReadObject(c)
	if err != nil {
		return err
	}
	kind, beside := body.Text("kind"), body.Bool("beside_real_sales")
	span := body.Duration("for")
	limit, hasLimit := body.Integer("orders")
	if !hasLimit {
		limit = 100
	}
	if kind != faultRedis && kind != faultWorker && !body.Rejected("kind") {
		body.Reject("kind", fmt.Sprintf("must be %s or %s", faultRedis, faultWorker))
	}
	body.RejectUnknown()
	if err := body.Err(); err != nil {
		return err
	}
	orders := 0
	if kind == faultRedis {
		err = h.cfg.Admin.PauseRedis(ctx, actor, saleID, span, beside)
	} else {
		orders, err = h.cfg.Admin.AbandonBatch(ctx, actor, saleID, int(min(max(limit, 0), admin.MaxAbandoned+1)), beside) // out of range stays out of range
	}
	if err != nil {
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusOK, struct {
		Kind   string `json:"kind"`
		Orders int    `json:"orders"`
	}{kind, orders})
}
