package api

import (
	"context"
	"fmt"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/admin"
)

// RehearsalDesk makes rehearsals of sales, lets things fail in them, and removes them (desk.Desk).
type RehearsalDesk interface {
	Rehearse(ctx context.Context, actor string, r admin.Rehearsal) (admin.View, error)
	Rehearsals(ctx context.Context) ([]admin.View, error)
	RemoveRehearsal(ctx context.Context, actor, id string) (orders int64, err error)
	PauseRedis(ctx context.Context, actor, id string, span time.Duration, beside bool) error
	AbandonBatch(ctx context.Context, actor, id string, limit int, beside bool) (orders int, err error)
}

// rehearsals adds the routes about rehearsals.
func (o *operator) rehearsals() {
	o.handle(fiber.MethodPost, "/admin/v1/rehearsals", o.rehearse)
	o.handle(fiber.MethodGet, "/admin/v1/rehearsals", o.listRehearsals)
	o.handle(fiber.MethodPost, "/admin/v1/rehearsals/:sale/fault", o.fault)
	o.handle(fiber.MethodPost, "/admin/v1/rehearsals/:sale/remove", o.removeRehearsal)
}

func (o *operator) rehearse(ctx context.Context, c *fiber.Ctx, actor string) error {
	body, err := readBody(c)
	if err != nil {
		return err
	}
	r := admin.Rehearsal{SaleID: body.text("sale"), OpensAt: body.instant("opens_at"), ClosesAt: body.instant("closes_at"), Beside: body.flag("beside_real_sales")}
	if n, ok := body.integer("stock"); ok {
		if r.Stock = n; n < 1 {
			body.mistake("stock", "must be at least 1")
		}
	}
	if r.SaleID == "" && !body.mistaken("sale") {
		body.mistake("sale", "must be set")
	}
	body.unknown()
	if err := body.err(); err != nil {
		return err
	}
	v, err := o.cfg.Desk.Rehearse(ctx, actor, r)
	if err != nil {
		return err
	}
	c.Context().Response.Header.Set(fiber.HeaderLocation, "/admin/v1/sales/"+v.ID)
	return sendJSON(c, fiber.StatusCreated, deskJSON(v))
}

func (o *operator) listRehearsals(ctx context.Context, c *fiber.Ctx, _ string) error {
	views, err := o.cfg.Desk.Rehearsals(ctx)
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, struct {
		Rehearsals []deskBody `json:"rehearsals"`
	}{deskBodies(views)})
}

func (o *operator) removeRehearsal(ctx context.Context, c *fiber.Ctx, actor string) error {
	saleID, err := saleParam(c)
	if err != nil {
		return err
	}
	if err := noBody(c); err != nil {
		return err
	}
	orders, err := o.cfg.Desk.RemoveRehearsal(ctx, actor, saleID)
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, struct {
		ID     string `json:"id"`
		Orders int64  `json:"orders"`
	}{saleID, orders})
}

// The faults that a rehearsal may have.
const (
	faultRedis  = "pause_redis"
	faultWorker = "worker_dies"
)

func (o *operator) fault(ctx context.Context, c *fiber.Ctx, actor string) error {
	saleID, err := saleParam(c)
	if err != nil {
		return err
	}
	body, err := readBody(c)
	if err != nil {
		return err
	}
	kind, beside := body.text("kind"), body.flag("beside_real_sales")
	span := body.duration("for")
	limit, hasLimit := body.integer("orders")
	if !hasLimit {
		limit = 100
	}
	if kind != faultRedis && kind != faultWorker && !body.mistaken("kind") {
		body.mistake("kind", fmt.Sprintf("must be %s or %s", faultRedis, faultWorker))
	}
	body.unknown()
	if err := body.err(); err != nil {
		return err
	}
	orders := 0
	if kind == faultRedis {
		err = o.cfg.Desk.PauseRedis(ctx, actor, saleID, span, beside)
	} else {
		orders, err = o.cfg.Desk.AbandonBatch(ctx, actor, saleID, int(min(max(limit, 0), admin.MaxAbandoned+1)), beside) // out of range stays out of range
	}
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, struct {
		Kind   string `json:"kind"`
		Orders int    `json:"orders"`
	}{kind, orders})
}
