package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/admin"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/internal/problem"
)

var (
	errClosedSale = refusalOf(problem.Conflict, "The sale is closed, and stays so.")
	errNoRestock  = refusalOf(problem.Conflict, fmt.Sprintf("Nothing was added: the sale is closed, its stock would exceed %d, or this Idempotency-Key came with another number before.", int64(sale.MaxStock)))
)

// ofSale says what an error means that came of one sale.
func ofSale(err error, conflict *refusal) error {
	switch {
	case errors.Is(err, sale.ErrNotFound):
		return errNoSale
	case errors.Is(err, sale.ErrConflict):
		return conflict
	}
	return err
}

// deskBody is a sale as an operator sees it.
type deskBody struct {
	ID       string      `json:"id"`
	Title    string      `json:"title"`
	Price    sale.Price  `json:"price"`
	Stock    int64       `json:"stock"`
	Left     *int64      `json:"left"` // null: Redis does not hold the sale, or does not answer
	PerBuyer int         `json:"per_buyer"`
	State    sale.State  `json:"state"`
	OpensAt  time.Time   `json:"opens_at"`
	ClosesAt *time.Time  `json:"closes_at"`
	Hold     string      `json:"hold"` // how long an order may stay unpaid, as 1h30m; 0s: for ever
	Switch   sale.Switch `json:"switch"`
	Sold     int64       `json:"sold"`     // its orders that are rows
	Accepted *int64      `json:"accepted"` // orders ever accepted; null as left
	Version  int64       `json:"version"`
	Applied  bool        `json:"applied"`             // Redis holds this version
	Paused   string      `json:"paused_by,omitempty"` // who paused it, and why
	// DrainSeconds: every order accepted by now is in SQL within; null: not known, or nothing leaves the queue.
	DrainSeconds *float64 `json:"drain_seconds,omitempty"`
}

func deskJSON(v admin.View) deskBody {
	b := deskBody{
		ID: v.ID, Title: v.Title, Price: v.Price, Stock: v.Stock, PerBuyer: v.PerBuyer, State: v.State, OpensAt: v.OpensAt.UTC(), Hold: durationText(v.Hold),
		Switch: v.Switch, Sold: v.Sold, Version: v.Version, Paused: v.Paused,
	}
	if !v.ClosesAt.IsZero() {
		closes := v.ClosesAt.UTC()
		b.ClosesAt = &closes
	}
	if v.Live != nil {
		b.Left, b.Accepted, b.Applied = &v.Live.Left, &v.Live.Accepted, v.Live.Version >= v.Version
	}
	return b
}

func (o *operator) createSale(ctx context.Context, c *fiber.Ctx, actor string) error {
	wanted, err := readSale(c)
	if err != nil {
		return err
	}
	created, err := o.cfg.Desk.Create(ctx, actor, wanted)
	if err != nil {
		return err
	}
	c.Context().Response.Header.Set(fiber.HeaderLocation, "/admin/v1/sales/"+created.ID)
	return sendJSON(c, fiber.StatusCreated, deskJSON(created))
}

// readSale reads the body of a new sale and finds all mistakes at once. Without an id the desk chooses one; per_buyer is 1 if absent.
func readSale(c *fiber.Ctx) (sale.Sale, error) {
	body, err := readBody(c)
	if err != nil {
		return sale.Sale{}, err
	}
	_, hasID := body.fields["id"]
	_, hasPrice := body.fields["price"]
	s := sale.Sale{
		ID: body.text("id"), Title: body.text("title"), PerBuyer: 1, OpensAt: body.instant("opens_at"), ClosesAt: body.instant("closes_at"), Hold: body.duration("hold"),
		Switch: sale.On,
	}
	s.Stock, _ = body.integer("stock")
	if n, ok := body.integer("per_buyer"); ok {
		s.PerBuyer = int(min(max(n, 0), sale.MaxPerBuyer+1)) // out of range stays out of range
	}
	price := body.child("price")
	amount, hasAmount := price.integer("amount")
	switch {
	case !hasPrice:
		body.mistake("price", "must be set")
	case !hasAmount && !body.mistaken("price") && !price.mistaken("amount"):
		price.mistake("amount", "must be set") // a forgotten price must not be a price of nothing
	}
	s.Price = sale.Price{Amount: amount, Currency: price.text("currency")}
	price.unknown()
	body.unknown()

	checked := s
	if !hasID {
		checked.ID = "chosen-later"
	}
	body.addMissing(checked.Validate())
	return s, body.err()
}

// mistaken tells whether something is known to be wrong with a field.
func (o *object) mistaken(name string) bool {
	return slices.ContainsFunc(o.bad.Fields, func(f sale.FieldError) bool { return f.Field == o.path+name })
}

// addMissing notes what Validate found in fields, and parts of fields, with which nothing was wrong so far.
func (o *object) addMissing(err error) {
	invalid, ok := errors.AsType[*sale.InvalidError](err)
	if !ok {
		return
	}
	known := slices.Clone(o.bad.Fields)
	for _, f := range invalid.Fields {
		if !slices.ContainsFunc(known, func(k sale.FieldError) bool {
			return k.Field == f.Field || f.Field == "price.currency" && k.Field == "price"
		}) {
			o.bad.Fields = append(o.bad.Fields, f)
		}
	}
}

func (o *operator) listSales(ctx context.Context, c *fiber.Ctx, _ string) error {
	q := newQuery(c)
	wanted := store.SalesQuery{
		Text: q.search("q"), After: q.text("after"), Limit: q.limit(),
		State: sale.State(q.oneOf("state", string(sale.StateScheduled), string(sale.StateOpen), string(sale.StatePaused), string(sale.StateSoldOut), string(sale.StateClosed))),
	}
	if wanted.After != "" && sale.ValidateID(wanted.After) != nil {
		q.bad.Add("after", "must be the next of the page before")
	}
	if err := q.err(); err != nil {
		return err
	}
	if q.args.Len() == 0 { // all of them, the oldest first
		views, err := o.cfg.Desk.List(ctx)
		return sendSales(c, views, "", err)
	}
	views, err := o.cfg.Desk.Page(ctx, wanted)
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
	return sendJSON(c, fiber.StatusOK, struct {
		Sales []deskBody `json:"sales"`
		Next  string     `json:"next,omitempty"` // the after of the next page
	}{deskBodies(views), next})
}

func deskBodies(views []admin.View) []deskBody {
	list := make([]deskBody, len(views))
	for i, v := range views {
		list[i] = deskJSON(v)
	}
	return list
}

func (o *operator) showSale(ctx context.Context, c *fiber.Ctx, _ string) error {
	saleID, err := saleParam(c)
	if err != nil {
		return err
	}
	v, err := o.cfg.Desk.Show(ctx, saleID)
	if err != nil {
		return ofSale(err, errConflict)
	}
	body := deskJSON(v)
	body.DrainSeconds = drain(o.cfg.Pace)
	return sendJSON(c, fiber.StatusOK, body)
}

// turn answers pause, resume, open and close, which have no body.
func (o *operator) turn(to func(ctx context.Context, actor, id string) (admin.View, error)) operatorHandler {
	return func(ctx context.Context, c *fiber.Ctx, actor string) error {
		saleID, err := saleParam(c)
		if err != nil {
			return err
		}
		if err := noBody(c); err != nil {
			return err
		}
		v, err := to(ctx, actor, saleID)
		if err != nil {
			return ofSale(err, errClosedSale)
		}
		return sendJSON(c, fiber.StatusOK, deskJSON(v))
	}
}

func (o *operator) restock(ctx context.Context, c *fiber.Ctx, actor string) error {
	saleID, err := saleParam(c)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(&c.Context().Request.Header)
	if err != nil {
		return err
	}
	body, err := readBody(c)
	if err != nil {
		return err
	}
	add, _ := body.integer("add")
	if (add < 1 || add > sale.MaxStock) && !body.mistaken("add") {
		body.mistake("add", fmt.Sprintf("must be between 1 and %d", sale.MaxStock))
	}
	body.unknown()
	if err := body.err(); err != nil {
		return err
	}
	v, err := o.cfg.Desk.Restock(ctx, actor, saleID, add, key)
	if err != nil {
		return ofSale(err, errNoRestock)
	}
	return sendJSON(c, fiber.StatusOK, deskJSON(v))
}

func (o *operator) audit(ctx context.Context, c *fiber.Ctx, _ string) error {
	saleID, err := saleParam(c)
	if err != nil {
		return err
	}
	report, err := o.cfg.Ledger.Audit(ctx, saleID)
	if err != nil {
		return ofSale(err, errConflict)
	}
	return sendJSON(c, fiber.StatusOK, report)
}
