package api

import (
	"errors"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/sale"
	"sluice/internal/problem"
)

// maxWait is the longest ?wait.
const maxWait = 30 * time.Second

var errNoOrder = refusalOf(problem.NotFound, "You have no such order.")

// showOrder is GET /v1/orders/{order}.
func (p *public) showOrder(c *fiber.Ctx) error {
	id, err := orderParam(c)
	if err != nil {
		return err
	}
	buyer, err := p.buyer(c)
	if err != nil {
		return err
	}
	wait, err := waitParam(c)
	if err != nil {
		return err
	}
	o, err := p.findOrder(buyer, id)
	if err == nil && wait > 0 && !o.Status.Final() {
		p.metrics.waiting.Inc()
		p.room.wait(id, wait)
		p.metrics.waiting.Dec()
		o, err = p.findOrder(buyer, id)
	}
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, orderJSON(o))
}

func orderParam(c *fiber.Ctx) (sale.OrderID, error) {
	id, err := sale.ParseOrderID(c.Params("order"))
	if err != nil {
		return 0, mistake("order", err.Error())
	}
	return id, nil
}

func waitParam(c *fiber.Ctx) (time.Duration, error) {
	args := c.Context().QueryArgs()
	if !args.Has("wait") {
		return 0, nil
	}
	wait, err := time.ParseDuration(string(args.Peek("wait")))
	if err != nil || wait < 0 || wait > maxWait {
		return 0, mistake("wait", "must be a duration between 0s and 30s, such as 10s")
	}
	return wait, nil
}

// findOrder looks for the buyer's order where it may be: a row in SQL, a dead letter, the queue. The buyers' hash in Redis still
// names the dead ones and, with SQL down, those that are rows already; so the queue is the last to be believed. An order of somebody
// else does not exist.
func (p *public) findOrder(buyer string, id sale.OrderID) (sale.Order, error) {
	row, sqlErr := p.row(id)
	if sqlErr == nil {
		if row.Buyer != buyer {
			return sale.Order{}, errNoOrder
		}
		return row, nil
	}
	if !errors.Is(sqlErr, sale.ErrNotFound) && !unavailable(sqlErr) {
		return sale.Order{}, sqlErr
	}

	ctx := p.look.next()
	dead, err := p.cfg.Dead.DeadLetter(ctx, id)
	switch {
	case err == nil && dead.Message.Buyer == buyer:
		o := dead.Message
		o.Status = sale.StatusDead
		return o, nil
	case err == nil:
		return sale.Order{}, errNoOrder
	case !errors.Is(err, sale.ErrNotFound):
		return sale.Order{}, err
	}
	queued, err := p.cfg.Stock.FindOrder(ctx, buyer, id)
	switch {
	case err == nil:
		queued.Status = sale.StatusQueued
		return queued, nil
	case !errors.Is(err, sale.ErrNotFound):
		return sale.Order{}, err
	case unavailable(sqlErr): // it may be a row; nobody can tell now
		return sale.Order{}, sqlErr
	}
	return sale.Order{}, errNoOrder
}

func (p *public) row(id sale.OrderID) (sale.Order, error) {
	return p.cfg.Orders.Order(p.look.next(), id)
}

func unavailable(err error) bool {
	r, known := refusalFor(err)
	return known && r == errUnavailable
}
