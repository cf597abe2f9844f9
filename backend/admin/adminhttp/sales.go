package adminhttp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/admin"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
)

var (
	errClosedSale = httpserver.NewProblem(problem.Conflict, "The sale is closed and cannot be reopened.")
	errNoRestock  = httpserver.NewProblem(problem.Conflict, fmt.Sprintf(
		"Nothing was added: the sale is closed, its stock would exceed %d, or this Idempotency-Key was used with another "+
			"number.",
		int64(sale.MaxStock),
	))
)

// saleProblem translates an error about one sale; conflict stands for sale.ErrConflict.
func saleProblem(err error, conflict *httpserver.Problem) error {
	switch {
	case errors.Is(err, sale.ErrNotFound):
		return httpserver.ErrNoSale
	case errors.Is(err, sale.ErrConflict):
		return conflict
	}
	return err
}

// saleBody is a sale as admins see it.
type saleBody struct {
	ID       string      `json:"id"`
	Title    string      `json:"title"`
	Price    sale.Price  `json:"price"`
	Stock    int64       `json:"stock"`
	Left     *int64      `json:"left"` // null: Redis does not hold the sale or does not answer
	PerBuyer int         `json:"per_buyer"`
	State    sale.State  `json:"state"`
	OpensAt  time.Time   `json:"opens_at"`
	ClosesAt *time.Time  `json:"closes_at"`
	Hold     string      `json:"hold"` // how long an order may stay unpaid, such as 1h30m; 0s: forever
	Switch   sale.Switch `json:"switch"`
	Sold     int64       `json:"sold"`     // orders that are rows
	Accepted *int64      `json:"accepted"` // orders ever accepted; null if left is
	Version  int64       `json:"version"`
	Applied  bool        `json:"applied"`             // Redis has this version
	Paused   string      `json:"paused_by,omitempty"` // the admin and the reason
	// DrainSeconds is the time until every accepted order is a row; null: unknown, or nothing leaves the queue.
	DrainSeconds *float64 `json:"drain_seconds,omitempty"`
}

func saleJSON(v admin.View) saleBody {
	b := saleBody{
		ID: v.ID, Title: v.Title, Price: v.Price, Stock: v.Stock, PerBuyer: v.PerBuyer, State: v.State,
		OpensAt: v.OpensAt.UTC(), ClosesAt: optionalTime(v.ClosesAt), Hold: httpserver.DurationText(v.Hold),
		Switch: v.Switch, Sold: v.Sold, Version: v.Version, Paused: v.Paused,
	}
	if v.Live != nil {
		b.Left, b.Accepted, b.Applied = &v.Live.Left, &v.Live.Accepted, v.Live.Version >= v.Version
	}
	return b
}

func (h *handlers) createSale(ctx context.Context, c *fiber.Ctx, actor string) error {
	wanted, err := readSale(c)
	if err != nil {
		return err
	}
	created, err := h.cfg.Admin.Create(ctx, actor, wanted)
	if err != nil {
		return err
	}
	c.Context().Response.Header.Set(fiber.HeaderLocation, "/admin/v1/sales/"+created.ID)
	return httpserver.SendJSON(c, fiber.StatusCreated, saleJSON(created))
}

// readSale reads the body of a new sale and reports all invalid fields. The id may be absent; per_buyer defaults to 1.
func readSale(c *fiber.Ctx) (sale.Sale, error) {
	body, err := httpserver.ReadObject(c)
	if err != nil {
		return sale.Sale{}, err
	}
	hasID, hasPrice := body.Has("id"), body.Has("price")
	s := sale.Sale{
		ID: body.Text("id"), Title: body.Text("title"), PerBuyer: 1, Switch: sale.On,
		OpensAt: body.Time("opens_at"), ClosesAt: body.Time("closes_at"), Hold: body.Duration("hold"),
	}
	s.Stock, _ = body.Integer("stock")
	if n, ok := body.Integer("per_buyer"); ok {
		s.PerBuyer = int(min(max(n, 0), sale.MaxPerBuyer+1)) // out of range stays out of range
	}
	price := body.Child("price")
	amount, hasAmount := price.Integer("amount")
	switch {
	case !hasPrice:
		body.Reject("price", "must be set")
	case !hasAmount && !body.Rejected("price") && !price.Rejected("amount"):
		price.Reject("amount", "must be set") // a missing amount must not become a price of 0
	}
	s.Price = sale.Price{Amount: amount, Currency: price.Text("currency")}
	price.RejectUnknown()
	body.RejectUnknown()

	checked := s
	if !hasID {
		checked.ID = "chosen-later"
	}
	body.Merge(checked.Validate())
	return s, body.Err()
}

func (h *handlers) listSales(ctx context.Context, c *fiber.Ctx, _ string) error {
	q := httpserver.NewQuery(c)
	wanted := store.SalesQuery{
		Text: q.Line("q"), After: q.Text("after"), Limit: q.Limit(),
		State: sale.State(q.OneOf(
			"state",
			string(
				sale.StateScheduled,
			),
			string(sale.StateOpen),
			string(sale.StatePaused),
			string(sale.StateSoldOut),
			string(sale.StateClosed),
		)),
	}
	if wanted.After != "" && sale.ValidateID(wanted.After) != nil {
		q.Reject("after", "must be the next of the previous page")
	}
	if err := q.Err(); err != nil {
		return err
	}
	if q.Empty() { // all sales, oldest first
		views, err := h.cfg.Admin.List(ctx)
		return sendSales(c, views, "", err)
	}
	views, err := h.cfg.Admin.Page(ctx, wanted)
	next := ""
	if len(views) == wanted.Limit {
		next = views[len(views)-1].ID
	}
	return sendSales(c, views, next, err)
}

func sendSales(c *fiber.Ctx, views []admin.View, next string, err error) error {
	if err != nil {
		return err
	}
	return httpserver.SendJSON(c, fiber.StatusOK, struct {
		Sales []saleBody `json:"sales"`
		Next  string     `json:"next,omitempty"` // the after of the next page
	}{saleBodies(views), next})
}

func saleBodies(views []admin.View) []saleBody {
	list := make([]saleBody, len(views))
	for i, v := range views {
		list[i] = saleJSON(v)
	}
	return list
}

func (h *handlers) showSale(ctx context.Context, c *fiber.Ctx, _ string) error {
	saleID, err := httpserver.SaleParam(c)
	if err != nil {
		return err
	}
	v, err := h.cfg.Admin.Show(ctx, saleID)
	if err != nil {
		return saleProblem(err, httpserver.ErrConflict)
	}
	body := saleJSON(v)
	body.DrainSeconds = drainSeconds(h.cfg.Pace)
	return httpserver.SendJSON(c, fiber.StatusOK, body)
}

// switchSale answers pause, resume, open and close, which have no body.
func (h *handlers) switchSale(to func(ctx context.Context, actor, id string) (admin.View, error)) handler {
	return func(ctx context.Context, c *fiber.Ctx, actor string) error {
		saleID, err := httpserver.SaleParam(c)
		if err != nil {
			return err
		}
		if err := httpserver.NoBody(c); err != nil {
			return err
		}
		v, err := to(ctx, actor, saleID)
		if err != nil {
			return saleProblem(err, errClosedSale)
		}
		return httpserver.SendJSON(c, fiber.StatusOK, saleJSON(v))
	}
}

func (h *handlers) restock(ctx context.Context, c *fiber.Ctx, actor string) error {
	saleID, err := httpserver.SaleParam(c)
	if err != nil {
		return err
	}
	key, err := httpserver.IdempotencyKey(&c.Context().Request.Header)
	if err != nil {
		return err
	}
	body, err := httpserver.ReadObject(c)
	if err != nil {
		return err
	}
	add, _ := body.Integer("add")
	if (add < 1 || add > sale.MaxStock) && !body.Rejected("add") {
		body.Reject("add", fmt.Sprintf("must be between 1 and %d", sale.MaxStock))
	}
	body.RejectUnknown()
	if err := body.Err(); err != nil {
		return err
	}
	v, err := h.cfg.Admin.Restock(ctx, actor, saleID, add, key)
	if err != nil {
		return saleProblem(err, errNoRestock)
	}
	return httpserver.SendJSON(c, fiber.StatusOK, saleJSON(v))
}

func (h *handlers) audit(ctx context.Context, c *fiber.Ctx, _ string) error {
	saleID, err := httpserver.SaleParam(c)
	if err != nil {
		return err
	}
	report, err := h.cfg.Auditor.Audit(ctx, saleID)
	if err != nil {
		return saleProblem(err, httpserver.ErrConflict)
	}
	return httpserver.SendJSON(c, fiber.StatusOK, report)
}
