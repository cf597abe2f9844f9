package adminhttp

import (
	"context"
	"strconv"
	"time"

	"sluice/backend/admin"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver"
	"sluice/client"
	"sluice/internal/problem"
)

var (
	errNoRowHere = httpserver.NewProblem(problem.NotFound,
		"There is no such order in SQL. A queued order is written soon; cancel a dead order under /admin/v1/dead.")
	errNoPayment = httpserver.NewProblem(problem.NotFound, "There is no such payment.")
)

func (h *handlers) addOrders() {
	h.get("/admin/v1/orders", h.listOrders)
	h.get("/admin/v1/orders/:order", show((*request).orderID, h.order, orderJSON))
	h.post("/admin/v1/orders/:order/cancel", change((*request).orderID, h.cancelOrder, orderJSON))
	h.get("/admin/v1/payments", h.listPayments)
	h.post("/admin/v1/payments/:payment/settle", h.settlePayment)
}

func rowJSON(r store.OrderRow) client.AdminOrder {
	b := client.AdminOrder{
		OrderID: r.ID.String(), SaleID: r.SaleID, Buyer: r.Buyer, Status: client.Status(r.Status),
		CreatedAt: r.CreatedAt(), UpdatedAt: r.UpdatedAt.UTC(),
		Reference: r.Reference, CancelledBy: r.CancelledBy, Reason: r.Note, Returning: r.Returning,
	}
	if r.Status == sale.StatusCreated {
		b.PayBy = httpserver.OptionalTime(r.DueAt)
	}
	return b
}

// Payment is a processed callback of the payment provider.
type Payment struct {
	Number    string       `json:"payment"` // for settle
	At        time.Time    `json:"at"`
	OrderID   string       `json:"order_id"`
	SaleID    string       `json:"sale_id"`
	Event     string       `json:"event"`
	Price     client.Price `json:"price"`
	Reference string       `json:"reference,omitempty"`
	Outcome   string       `json:"outcome"`
	Refund    bool         `json:"refund"`               // the payment paid no order
	SettledAt *time.Time   `json:"settled_at,omitempty"` // when the refund was recorded
	SettledBy string       `json:"settled_by,omitempty"`
	Note      string       `json:"note,omitempty"`
}

func paymentJSON(c store.Callback) Payment {
	return Payment{
		Number: strconv.FormatInt(c.Number, 10), At: c.At.UTC(), OrderID: c.OrderID.String(), SaleID: c.SaleID,
		Event: string(c.Event), Price: client.Price(c.Price), SettledAt: httpserver.OptionalTime(c.SettledAt),
		Reference: c.Reference, Outcome: string(c.Settlement), Refund: c.Refund, SettledBy: c.SettledBy, Note: c.Note,
	}
}

// orderJSON is an order with its payment callbacks.
func orderJSON(o admin.OrderDetails) any {
	return struct {
		client.AdminOrder
		Payments []Payment `json:"payments"`
	}{rowJSON(o.OrderRow), httpserver.Bodies(o.Callbacks, paymentJSON)}
}

func (h *handlers) order(ctx context.Context, id sale.OrderID) (admin.OrderDetails, error) {
	o, err := h.cfg.Admin.Order(ctx, id)
	return o, orMissing(err, errNoRowHere)
}

func (h *handlers) cancelOrder(ctx context.Context, id sale.OrderID) (admin.OrderDetails, error) {
	o, err := h.cfg.Admin.CancelOrder(ctx, id)
	return o, orMissing(err, errNoRowHere)
}

func (h *handlers) listOrders(ctx context.Context, r *request) (any, error) {
	q := httpserver.NewQuery(r.Ctx)
	status := q.OneOf("status", string(sale.StatusCreated), string(sale.StatusPaid), string(sale.StatusCancelled))
	wanted := store.OrderQuery{
		SaleID: q.Sale(), Buyer: q.Line("buyer"), Status: sale.Status(status),
		Newest: q.OneOf("sort", "oldest", "newest") == "newest", After: q.Order("after"), Limit: q.Limit(),
	}
	if err := q.End(); err != nil {
		return nil, err
	}
	rows, next, err := h.cfg.Store.OrderPage(ctx, wanted)
	found := map[string]any{"orders": httpserver.Bodies(rows, rowJSON)}
	if next != 0 {
		found["next"] = next.String()
	}
	return found, err
}

func (h *handlers) listPayments(ctx context.Context, r *request) (any, error) {
	q := httpserver.NewQuery(r.Ctx)
	wanted := store.CallbackQuery{
		OpenRefunds: q.OneOf("refund", "open") == "open", SaleID: q.Sale(), OrderID: q.Order("order"),
		After: q.Number("after"), Limit: q.Limit(),
	}
	if err := q.End(); err != nil {
		return nil, err
	}
	callbacks, err := h.cfg.Store.Callbacks(ctx, wanted)
	next := func(last Payment) any { return last.Number }
	return page("payments", httpserver.Bodies(callbacks, paymentJSON), wanted.Limit, next), err
}

func (h *handlers) settlePayment(ctx context.Context, r *request) (any, error) {
	number, err := httpserver.NumberParam(r.Ctx, "payment")
	if err != nil {
		return nil, err
	}
	body := r.object()
	note := body.Line("note")
	if err := r.end(body); err != nil {
		return nil, err
	}
	settled, err := h.cfg.Store.SettleRefund(ctx, number, note)
	return paymentJSON(settled), orMissing(err, errNoPayment)
}
