package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/sale"
	"sluice/backend/telemetry"
	"sluice/backend/web/httpserver"
	"sluice/client"
	"sluice/internal/problem"
)

// maxWait is the longest ?wait.
const maxWait = 30 * time.Second

var errNoOrder = httpserver.NewProblem(problem.NotFound, "You have no such order.")

func orderJSON(o sale.Order) client.Order {
	b := client.Order{
		OrderID: o.ID.String(), SaleID: o.SaleID, Status: client.Status(o.Status), CreatedAt: o.CreatedAt(),
		Expired: o.Expired,
	}
	if o.Status == sale.StatusCreated {
		b.PayBy = httpserver.OptionalTime(o.DueAt)
	}
	return b
}

// showOrder is GET /v1/orders/{order}.
func (h *handlers) showOrder(c *fiber.Ctx) (any, error) {
	id, err := httpserver.OrderParam(c)
	if err != nil {
		return nil, err
	}
	buyer, err := h.buyer(c)
	if err != nil {
		return nil, err
	}
	wait, err := waitParam(c)
	if err != nil {
		return nil, err
	}
	span := httpserver.Span(c.Context())
	rows := h.rows.Order
	if span != nil { // not merged with other requests, so that the trace of the request has its query
		rows = h.cfg.Rows.Order
	}
	o, err := h.findOrder(span, rows, buyer, id)
	if err == nil && wait > 0 && !o.Status.Final() {
		h.metrics.waiting.Inc()
		h.waiters.wait(id, wait)
		h.metrics.waiting.Dec()
		o, err = h.findOrder(span, rows, buyer, id)
	}
	return orderJSON(o), err
}

// maxCancelled bounds the cancelled orders in a list of a buyer's orders.
const maxCancelled = 20

// listOrders is GET /v1/me/orders.
func (h *handlers) listOrders(c *fiber.Ctx, buyer string) (any, error) {
	q := httpserver.NewQuery(c)
	q.Require("sale")
	saleID := q.Sale()
	if err := q.Err(); err != nil {
		return nil, err
	}
	if !sale.Meets(buyer, saleID) {
		return nil, httpserver.ErrNoSale
	}
	ctx := httpserver.Span(c.Context()).In(h.reads.next())
	if _, err := h.cfg.Stock.View(ctx, saleID); errors.Is(err, sale.ErrNotFound) {
		return nil, h.unknownSale(saleID)
	} else if err != nil {
		return nil, err
	}
	orders, err := h.ordersInSale(ctx, buyer, saleID)
	return map[string]any{"orders": httpserver.Bodies(orders, orderJSON)}, err
}

// ordersInSale returns the buyer's orders in a sale, oldest first. Redis is read before SQL, so that an order that
// becomes a row meanwhile is not missed.
func (h *handlers) ordersInSale(ctx context.Context, buyer, saleID string) ([]sale.Order, error) {
	held, err := h.cfg.Finder.OrdersHeld(ctx, buyer, saleID)
	if err != nil {
		return nil, err
	}
	orders, err := h.cfg.Orders.OrdersInSale(ctx, buyer, saleID, maxCancelled)
	if err != nil {
		return nil, err
	}
	rows := len(orders)
	for _, o := range held {
		if slices.ContainsFunc(orders[:rows], func(row sale.Order) bool { return row.ID == o.ID }) {
			continue
		}
		switch _, err := h.cfg.Dead.DeadLetter(ctx, o.ID); {
		case err == nil:
			o.Status = sale.StatusDead
		case !errors.Is(err, sale.ErrNotFound):
			return nil, err
		}
		orders = append(orders, o)
	}
	slices.SortFunc(orders, func(a, b sale.Order) int { return cmp.Compare(a.ID, b.ID) })
	return orders, nil
}

func waitParam(c *fiber.Ctx) (time.Duration, error) {
	args := c.Context().QueryArgs()
	if !args.Has("wait") {
		return 0, nil
	}
	wait, err := time.ParseDuration(string(args.Peek("wait")))
	if err != nil || wait < 0 || wait > maxWait {
		return 0, sale.Invalid("wait", "must be a duration between 0s and 30s, such as 10s")
	}
	return wait, nil
}

// rowReader is Rows.Order.
type rowReader func(ctx context.Context, id sale.OrderID) (sale.Order, error)

// findOrder reads the buyer's order from the rows, then from the dead letters, then from the buyers' slots in Redis.
// The slots are read last, because they also name dead orders and, while SQL is down, orders that are rows. An order
// that is found nowhere is read from SQL again: since the first read, it can have become a row and been cancelled,
// which frees its slot. An order of another buyer is reported as missing. span is the span of the request, or nil.
func (h *handlers) findOrder(
	span *telemetry.Request, readRow rowReader, buyer string, id sale.OrderID,
) (sale.Order, error) {
	row, sqlErr := readRow(span.In(h.reads.next()), id)
	if sqlErr == nil {
		return ownOrder(row, buyer)
	}
	if !errors.Is(sqlErr, sale.ErrNotFound) && !unavailable(sqlErr) {
		return sale.Order{}, sqlErr
	}

	intact := h.cfg.Intact(id)
	ctx := span.In(h.reads.next())
	dead, err := h.cfg.Dead.DeadLetter(ctx, id)
	switch {
	case err == nil:
		dead.Message.Status = sale.StatusDead
		return ownOrder(dead.Message, buyer)
	case !errors.Is(err, sale.ErrNotFound):
		return sale.Order{}, err
	}
	queued, err := h.cfg.Finder.FindOrder(ctx, buyer, id)
	switch {
	case err == nil:
		queued.Status = sale.StatusQueued
		return queued, nil
	case !errors.Is(err, sale.ErrNotFound):
		return sale.Order{}, err
	case unavailable(sqlErr): // the order may be a row
		return sale.Order{}, sqlErr
	case !intact(ctx):
		return sale.Order{}, lost(id)
	}
	row, err = readRow(span.In(h.reads.next()), id)
	if errors.Is(err, sale.ErrNotFound) {
		err = errNoOrder
	}
	if err != nil {
		return sale.Order{}, err
	}
	return ownOrder(row, buyer)
}

// ownOrder returns an order if it is the buyer's.
func ownOrder(o sale.Order, buyer string) (sale.Order, error) {
	if o.Buyer != buyer {
		return sale.Order{}, errNoOrder
	}
	return o, nil
}

// lost returns the error for an order that Redis may have lost. It is restored from a journal or by a worker.
func lost(id sale.OrderID) error {
	return fmt.Errorf("order %s: %w: Redis may have lost it", id, sale.ErrUnavailable)
}

func unavailable(err error) bool {
	p, known := httpserver.ProblemFor(err)
	return known && p == httpserver.ErrUnavailable
}
