package api

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/admin"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/internal/problem"
)

var (
	errPaidOrder = refusalOf(problem.Conflict, "The order is paid. A paid order is not cancelled here.")
	errNoRowHere = refusalOf(problem.NotFound, "No order row has this id. One that is queued becomes a row soon; one that is dead is cancelled among the dead.")
	errNoRefund  = refusalOf(problem.Conflict, "This payment was taken: there is nothing to give back.")
)

// rowBody is an order row as an operator sees it.
type rowBody struct {
	OrderID     string      `json:"order_id"`
	SaleID      string      `json:"sale_id"`
	Buyer       string      `json:"buyer"`
	Status      sale.Status `json:"status"`
	CreatedAt   time.Time   `json:"created_at"`
	UpdatedAt   time.Time   `json:"updated_at"`
	PayBy       *time.Time  `json:"pay_by,omitempty"`
	Reference   string      `json:"reference,omitempty"`    // of the payment
	CancelledBy string      `json:"cancelled_by,omitempty"` // an operator, or hold
	Reason      string      `json:"reason,omitempty"`       // why it was cancelled
	Returning   bool        `json:"returning"`              // cancelled, and the unit is on its way back on sale
}

func rowJSON(r store.Row) rowBody {
	b := rowBody{
		OrderID: r.ID.String(), SaleID: r.SaleID, Buyer: r.Buyer, Status: r.Status, CreatedAt: r.CreatedAt(), UpdatedAt: r.UpdatedAt.UTC(),
		Reference: r.Reference, CancelledBy: r.CancelledBy, Reason: r.Note, Returning: r.Returning,
	}
	b.PayBy = orderJSON(r.Order).PayBy
	return b
}

// callbackBody is a settled callback of the payment provider.
type callbackBody struct {
	Payment   string     `json:"payment"` // what settle takes
	At        time.Time  `json:"at"`
	OrderID   string     `json:"order_id"`
	SaleID    string     `json:"sale_id"`
	Event     string     `json:"event"`
	Price     sale.Price `json:"price"`
	Reference string     `json:"reference,omitempty"`
	Outcome   string     `json:"outcome"`
	Refund    bool       `json:"refund"`               // money came that no order took
	SettledAt *time.Time `json:"settled_at,omitempty"` // when a person has seen to it
	SettledBy string     `json:"settled_by,omitempty"`
	Note      string     `json:"note,omitempty"`
}

func callbackJSON(c store.Callback) callbackBody {
	b := callbackBody{
		Payment: strconv.FormatInt(c.Number, 10), At: c.At.UTC(), OrderID: c.OrderID.String(), SaleID: c.SaleID, Event: string(c.Event), Price: c.Price,
		Reference: c.Reference, Outcome: string(c.Settlement), Refund: c.Refund, SettledBy: c.SettledBy, Note: c.Note,
	}
	if !c.SettledAt.IsZero() {
		at := c.SettledAt.UTC()
		b.SettledAt = &at
	}
	return b
}

func callbacksJSON(callbacks []store.Callback) []callbackBody {
	bodies := make([]callbackBody, len(callbacks))
	for i, c := range callbacks {
		bodies[i] = callbackJSON(c)
	}
	return bodies
}

// orderViewBody is an order with what the payment provider said of it.
type orderViewBody struct {
	rowBody
	Payments []callbackBody `json:"payments"`
}

func orderViewJSON(v admin.OrderView) orderViewBody {
	return orderViewBody{rowJSON(v.Row), callbacksJSON(v.Callbacks)}
}

func (o *operator) showOrderRow(ctx context.Context, c *fiber.Ctx, _ string) error {
	id, err := orderParam(c)
	if err != nil {
		return err
	}
	v, err := o.cfg.Desk.Order(ctx, id)
	if errors.Is(err, sale.ErrNotFound) {
		return errNoRowHere
	}
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, orderViewJSON(v))
}

func (o *operator) cancelOrderRow(ctx context.Context, c *fiber.Ctx, actor string) error {
	id, err := orderParam(c)
	if err != nil {
		return err
	}
	reason, err := remark(c, "reason")
	if err != nil {
		return err
	}
	v, err := o.cfg.Desk.CancelOrder(ctx, actor, id, reason)
	switch {
	case errors.Is(err, sale.ErrNotFound):
		return errNoRowHere
	case errors.Is(err, sale.ErrConflict):
		return errPaidOrder
	case err != nil:
		return err
	}
	return sendJSON(c, fiber.StatusOK, orderViewJSON(v))
}

// remark reads a body that holds one text, or nothing.
func remark(c *fiber.Ctx, name string) (string, error) {
	body, err := readBody(c)
	if err != nil {
		return "", err
	}
	text := body.remark(name)
	body.unknown()
	return text, body.err()
}

// remark takes a short text that a person wrote.
func (o *object) remark(name string) string {
	text := o.text(name)
	if len(text) > maxReason || !isLine(text) {
		o.mistake(name, "must be at most "+strconv.Itoa(maxReason)+" bytes of text without control characters")
	}
	return text
}

func (o *operator) listOrderRows(ctx context.Context, c *fiber.Ctx, _ string) error {
	q := newQuery(c)
	wanted := store.RowQuery{SaleID: q.sale(), Status: sale.Status(q.oneOf("status", string(sale.StatusCreated), string(sale.StatusPaid), string(sale.StatusCancelled)))}
	wanted.After = q.order("after")
	wanted.Limit = q.limit()
	if err := q.err(); err != nil {
		return err
	}
	rows, err := o.cfg.Desk.Orders(ctx, wanted)
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
	return sendJSON(c, fiber.StatusOK, body)
}

func (o *operator) listPayments(ctx context.Context, c *fiber.Ctx, _ string) error {
	q := newQuery(c)
	wanted := store.CallbackQuery{
		OpenRefunds: q.oneOf("refund", "open") == "open", SaleID: q.sale(), OrderID: q.order("order"), After: q.number("after"), Limit: q.limit(),
	}
	if err := q.err(); err != nil {
		return err
	}
	callbacks, err := o.cfg.Desk.Callbacks(ctx, wanted)
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
	return sendJSON(c, fiber.StatusOK, body)
}

func (o *operator) settlePayment(ctx context.Context, c *fiber.Ctx, actor string) error {
	number, err := strconv.ParseInt(c.Params("payment"), 10, 64)
	if err != nil || number < 1 {
		return mistake("payment", "must be a positive number")
	}
	note, err := remark(c, "note")
	if err != nil {
		return err
	}
	settled, err := o.cfg.Desk.SettleRefund(ctx, actor, number, note)
	if errors.Is(err, sale.ErrConflict) {
		return errNoRefund
	}
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, callbackJSON(settled))
}
