package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/admission"
	"sluice/backend/sale"
)

// saleBody is a sale as everybody may see it.
type saleBody struct {
	ID       string     `json:"id"`
	Title    string     `json:"title"`
	Price    sale.Price `json:"price"`
	Stock    int64      `json:"stock"`
	Left     int64      `json:"left"`
	PerBuyer int        `json:"per_buyer"`
	State    sale.State `json:"state"`
	OpensAt  time.Time  `json:"opens_at"`
	ClosesAt *time.Time `json:"closes_at"` // null: it has no end
}

type salesBody struct {
	Sales []saleBody `json:"sales"`
}

func saleJSON(v admission.View) saleBody {
	b := saleBody{
		ID: v.ID, Title: v.Title, Price: v.Price, Stock: v.Stock, Left: v.Left, PerBuyer: v.PerBuyer, State: v.State, OpensAt: v.OpensAt.UTC(),
	}
	if !v.ClosesAt.IsZero() {
		closes := v.ClosesAt.UTC()
		b.ClosesAt = &closes
	}
	return b
}

func sortSales(s []saleBody) {
	slices.SortFunc(s, func(a, b saleBody) int { return cmp.Or(a.OpensAt.Compare(b.OpensAt), cmp.Compare(a.ID, b.ID)) })
}

// orderBody is an order as its buyer sees it.
type orderBody struct {
	OrderID   string      `json:"order_id"`
	SaleID    string      `json:"sale_id"`
	Status    sale.Status `json:"status"`
	CreatedAt time.Time   `json:"created_at"`
	PayBy     *time.Time  `json:"pay_by,omitempty"` // of a created order that is cancelled unless it is paid by then
}

func orderJSON(o sale.Order) orderBody {
	b := orderBody{OrderID: o.ID.String(), SaleID: o.SaleID, Status: o.Status, CreatedAt: o.CreatedAt()}
	if o.Status == sale.StatusCreated && !o.DueAt.IsZero() {
		due := o.DueAt.UTC()
		b.PayBy = &due
	}
	return b
}

// sendJSON answers with v. Titles keep their <, > and & as they are: the answer is JSON, never HTML.
func sendJSON(c *fiber.Ctx, status int, v any) error {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	resp := &c.Context().Response
	resp.SetStatusCode(status)
	resp.Header.SetContentType(fiber.MIMEApplicationJSON)
	if len(resp.Header.Peek(fiber.HeaderCacheControl)) == 0 {
		resp.Header.Set(fiber.HeaderCacheControl, "no-store")
	}
	resp.SetBody(buf.Bytes())
	return nil
}

// noBody refuses a body that says anything: the call takes nothing.
func noBody(c *fiber.Ctx) error {
	body, err := readBody(c)
	if err != nil {
		return err
	}
	body.unknown()
	return body.err()
}
