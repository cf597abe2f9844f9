package adminhttp

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/admin"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
)

var (
	errPaidOrder = httpserver.NewProblem(problem.Conflict, "The order is paid. Paid orders cannot be cancelled here.")
	errNoRowHere = httpserver.NewProblem(
		problem.NotFound,
		"There is no such order in SQL. A queued order is written soon; cancel a dead order under /admin/v1/dead.",
	)
	errNoRefund = httpserver.NewProblem(problem.Conflict, "This payment paid an order, so there is nothing to refund.")
)

// rowBody is an order row.
type rowBody struct {
	OrderID     string      `json:"order_id"`
	SaleID      string      `json:"sale_id"`
	Buyer       string      `json:"buyer"`
	Status      sale.Status `json:"status"`
	CreatedAt   time.Time   `json:"created_at"`
	UpdatedAt   time.Time   `json:"updated_at"`
	PayBy       *time.Time  `json:"pay_by,omitempty"`
	Reference   string      `json:"reference,omitempty"`    // of the payment
	CancelledBy string      `json:"cancelled_by,omitempty"` // an admin, or hold
	Reason      string      `json:"reason,omitempty"`       // of the cancellation
	Returning   bool        `json:"returning"`              // cancelled, and its unit is not on sale again yet
}

func rowJSON(r store.OrderRow) rowBody {
	b := rowBody{
		OrderID: r.ID.String(), SaleID: r.SaleID, Buyer: r.Buyer, Status: r.Status,
		CreatedAt: r.CreatedAt(), UpdatedAt: r.UpdatedAt.UTC(),
		Reference: r.Reference, CancelledBy: r.CancelledBy, Reason: r.Note, Returning: r.Returning,
	}
	if r.Status == sale.StatusCreated {
		b.PayBy = optionalTime(r.DueAt)
	}
	return b
}

// callbackBody is a processed callback of the payment provider.
type callbackBody struct {
	Payment   string     `json:"payment"` // for settle
	At        time.Time  `json:"at"`
	OrderID   string     `json:"order_id"`
	SaleID    string     `json:"sale_id"`
	Event     string     `json:"event"`
	Price     sale.Price `json:"price"`
	Reference string     `json:"reference,omitempty"`
	Outcome   string     `json:"outcome"`
	Refund    bool       `json:"refund"`               // the payment paid no order
	SettledAt *time.Time `json:"settled_at,omitempty"` // when the refund was recorded
	SettledBy string     `json:"settled_by,omitempty"`
	Note      string     `json:"note,omitempty"`
}

func callbackJSON(c store.Callback) callbackBody {
	return callbackBody{
		Payment: strconv.FormatInt(c.Number, 10), At: c.At.UTC(), OrderID: c.OrderID.String(), SaleID: c.SaleID,
		Event: string(c.Event), Price: c.Price, SettledAt: optionalTime(c.SettledAt),
		Reference: c.Reference, Outcome: string(c.Settlement), Refund: c.Refund, SettledBy: c.SettledBy, Note: c.Note,
	}
}

func callbacksJSON(callbacks []store.Callback) []callbackBody {
	bodies := make([]callbackBody, len(callbacks))
	for i, c := range callbacks {
		bodies[i] = callbackJSON(c)
	}
	return bodies
}

// orderViewBody is an order with its payment callbacks.
type orderViewBody struct {
	rowBody
	Payments []callbackBody `json:"payments"`
}

func orderViewJSON(v admin.OrderDetails) orderViewBody {
	return orderViewBody{rowJSON(v.OrderRow), callbacksJSON(v.Callbacks)}
}

func (h *handlers) showOrder(ctx context.Context, c *fiber.Ctx, _ string) error {
	id, err := httpserver.OrderParam(c)
	if err != nil {
		return err
	}
	v, err := h.cfg.Admin.Order(ctx, id)
	if errors.Is(err, sale.ErrNotFound) {
		return errNoRowHere
	}
	if err != nil {
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusOK, orderViewJSON(v))
}

func (h *handlers) cancelOrder(ctx context.Context, c *fiber.Ctx, actor string) error {
	id, err := httpserver.OrderParam(c)
	if err != nil {
		return err
	}
	reason, err := httpserver.ReadLine(c, "reason")
	if err != nil {
		return err
	}
	v, err := h.cfg.Admin.CancelOrder(ctx, actor, id, reason)
	switch {
	case errors.Is(err, sale.ErrNotFound):
		return errNoRowHere
	case errors.Is(err, sale.ErrConflict):
		return errPaidOrder
	case err != nil:
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusOK, orderViewJSON(v))
}

func (h *handlers) listOrders(ctx context.Context, c *fiber.Ctx, _ string) error {
	q := httpserver.NewQuery(c)
	status := q.OneOf("status", string(sale.StatusCreated), string(sale.StatusPaid), string(sale.StatusCancelled))
	wanted := store.OrderQuery{SaleID: q.Sale(), Status: sale.Status(status), After: q.Order("after"), Limit: q.Limit()}
	if err := q.Err(); err != nil {
		return err
	}
	rows, err := h.cfg.Admin.Orders(ctx, wanted)
	if err != nil {
		return err
	}
	body := struct {
		Orders []rowBody `json:"orders"`
		Next   string    `json:"next,omitempty"` // the after of the next page
	}{Orders: make([]rowBody, len(rows))}
	for i, r := range rows {
		body.Orders[i] = rowJSON(r)
	}
	if len(rows) == wanted.Limit {
		body.Next = rows[len(rows)-1].ID.String()
	}
	return httpserver.SendJSON(c, fiber.StatusOK, body)
}

func (h *handlers) listPayments(ctx context.Context, c *fiber.Ctx, _ string) error {
	q := httpserver.NewQuery(c)
	wanted := store.CallbackQuery{
		OpenRefunds: q.OneOf("refund", "open") == "open", SaleID: q.Sale(), OrderID: q.Order("order"),
		After: q.Number("after"), Limit: q.Limit(),
	}
	if err := q.Err(); err != nil {
		return err
	}
	callbacks, err := h.cfg.Admin.Callbacks(ctx, wanted)
	if err != nil {
		return err
	}
	body := struct {
		Payments []callbackBody `json:"payments"`
		Next     string         `json:"next,omitempty"`
	}{Payments: callbacksJSON(callbacks)}
	if len(callbacks) == wanted.Limit {
		body.Next = strconv.FormatInt(callbacks[len(callbacks)-1].Number, 10)
	}
	return httpserver.SendJSON(c, fiber.StatusOK, body)
}

func (h *handlers) settlePayment(ctx context.Context, c *fiber.Ctx, actor string) error {
	number, err := strconv.ParseInt(c.Params("payment"), 10, 64)
	if err != nil || number < 1 {
		return httpserver.Invalid("payment", "must be a positive number")
	}
	note, err := httpserver.ReadLine(c, "note")
	if err != nil {
		return err
	}
	settled, err := h.cfg.Admin.SettleRefund(ctx, actor, number, note)
	if errors.Is(err, sale.ErrConflict) {
		return errNoRefund
	}
	if err != nil {
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusOK, callbackJSON(settled))
}
