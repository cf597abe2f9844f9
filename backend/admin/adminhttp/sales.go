package adminhttp

import (
	"context"
	"errors"
	"fmt"

	"sluice/backend/admin"
	"sluice/backend/admin/livestats"
	"sluice/backend/audit"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver"
	"sluice/client"
	"sluice/internal/duration"
	"sluice/internal/problem"
)

var (
	errOtherSale = httpserver.NewProblem(problem.Conflict,
		"A sale with this id exists and has other fields. Use another id, or change that sale, for example with a restock.")
	errNoRehearsal = httpserver.NewProblem(problem.NotFound, "There is no such rehearsal.")
)

func (h *handlers) addSales() {
	const one = "/admin/v1/sales/:sale"
	h.post("/admin/v1/sales", h.createSale)
	h.get("/admin/v1/sales", h.listSales)
	h.get(one, with((*request).saleID, h.showSale))
	for verb, to := range map[string]sale.Switch{"pause": sale.Paused, "resume": sale.On, "close": sale.Closed} {
		h.post(one+"/"+verb, h.changeSale(func(ctx context.Context, id string) (admin.View, error) {
			return h.cfg.Admin.SetSwitch(ctx, id, to)
		}))
	}
	h.post(one+"/open", h.changeSale(h.cfg.Admin.Open))
	h.post(one+"/restock", with((*request).saleID, h.restock))
	h.post(one+"/describe", with((*request).saleID, h.describe))
	h.get(one+"/audit", with((*request).saleID, h.audit))
	h.post("/admin/v1/rehearsals", h.rehearse)
	h.get("/admin/v1/rehearsals", list("rehearsals", h.cfg.Admin.Rehearsals, saleJSON))
	h.post("/admin/v1/rehearsals/:sale/remove", with((*request).saleID, h.removeRehearsal))
}

func saleJSON(v admin.View) client.AdminSale {
	b := client.AdminSale{
		ID: v.ID, Title: v.Title, Price: client.Price(v.Price), Stock: v.Stock, PerBuyer: v.PerBuyer,
		State: client.State(v.State), OpensAt: v.OpensAt.UTC(), ClosesAt: httpserver.OptionalTime(v.ClosesAt),
		Hold: duration.Text(v.Hold), Switch: string(v.Switch), Sold: v.Sold, Version: v.Version,
		Spread: max(v.Spread, 1), PausedBy: v.Paused, Details: client.Details(v.Details),
	}
	if v.Live != nil {
		b.Left, b.Accepted = &v.Live.Left, &v.Live.Accepted
		b.Applied = v.Live.Version >= v.Version && len(v.Live.Segments) >= v.Spread
		for _, s := range v.Live.Segments {
			b.Segments = append(b.Segments, client.Segment{
				Segment: s.Index, Shard: int(s.Shard), Units: s.Units, Left: s.Left, Out: s.Out, Accepted: s.Accepted,
			})
		}
	}
	if a := v.Archive; a != nil {
		b.Archive = &client.SaleArchive{
			Orders: a.Orders, Paid: a.Paid, Cancelled: a.Cancelled, BegunAt: a.BegunAt.UTC(),
			EndedAt: httpserver.OptionalTime(a.EndedAt),
			Revenue: client.Price{Amount: a.Paid * v.Price.Amount, Currency: v.Price.Currency}, Files: []string{},
		}
		for _, part := range a.Parts {
			b.Archive.Files = append(b.Archive.Files, part.File)
		}
	}
	return b
}

func (h *handlers) createSale(ctx context.Context, r *request) (any, error) {
	wanted, err := readSale(r)
	if err != nil {
		return nil, err
	}
	return r.createdSale(h.cfg.Admin.Create(ctx, wanted))
}

// createdSale returns the result of a creation. A sale that is stored but not in Redis yet also gets its path.
func (r *request) createdSale(v admin.View, err error) (any, error) {
	id := v.ID
	if err != nil {
		pending, ok := errors.AsType[*admin.PendingError](err)
		switch {
		case errors.Is(err, sale.ErrExists):
			return nil, errOtherSale
		case !ok:
			return nil, err
		}
		id = pending.Sale.ID
	}
	r.created("/admin/v1/sales/" + id)
	return saleJSON(v), err
}

// readSale reads the body of a new sale and reports all invalid fields. The id may be absent; per_buyer defaults to 1.
func readSale(r *request) (sale.Sale, error) {
	body := r.object()
	body.Require("title", "price", "stock", "opens_at")
	hasID := body.Has("id")
	s := sale.Sale{
		ID: body.Text("id"), Title: body.Text("title"), PerBuyer: 1, Switch: sale.On,
		OpensAt: body.Time("opens_at"), ClosesAt: body.Time("closes_at"),
	}
	s.Hold, _ = body.Duration("hold")
	s.Details = readDetails(body)
	s.Stock, _ = body.Integer("stock")
	if n, ok := body.Integer("per_buyer"); ok {
		s.PerBuyer = int(min(max(n, 0), sale.MaxPerBuyer+1)) // fits int; Validate rejects both bounds
	}
	if n, ok := body.Integer("spread"); ok {
		s.Spread = int(min(max(n, -1), sale.MaxSpread+1)) // fits int; Validate rejects both bounds
		if n == 0 {
			s.Spread = -1
		}
	}
	price := body.Child("price")
	price.Require("amount", "currency") // a missing amount must not become a price of 0
	s.Price.Amount, _ = price.Integer("amount")
	s.Price.Currency = price.Text("currency")
	price.RejectUnknown()

	checked := s
	if !hasID {
		checked.ID = "chosen-later"
	}
	body.Merge(checked.Validate())
	return s, r.end(body)
}

// readDetails reads the optional fields picture and description.
func readDetails(body *httpserver.Object) sale.Details {
	return sale.Details{Picture: body.Text("picture"), Description: body.Text("description")}
}

func (h *handlers) describe(ctx context.Context, r *request, saleID string) (any, error) {
	body := r.object()
	to := readDetails(body)
	body.Merge(to.Validate())
	if err := r.end(body); err != nil {
		return nil, err
	}
	v, err := h.cfg.Admin.Describe(ctx, saleID, to)
	return saleJSON(v), orMissing(err, httpserver.ErrNoSale)
}

func (h *handlers) listSales(ctx context.Context, r *request) (any, error) {
	q := httpserver.NewQuery(r.Ctx)
	state := q.OneOf("state", string(sale.StateScheduled), string(sale.StateOpen), string(sale.StatePaused),
		string(sale.StateSoldOut), string(sale.StateClosed))
	wanted := store.SalesQuery{
		Text: q.Line("q"), After: q.Text("after"), Limit: q.Limit(), State: sale.State(state),
	}
	if wanted.After != "" && sale.ValidateID(wanted.After) != nil {
		q.Reject("after", "must be the next of the previous page")
	}
	if err := q.End(); err != nil {
		return nil, err
	}
	if r.Context().QueryArgs().Len() == 0 { // all sales, oldest first
		views, err := h.cfg.Admin.List(ctx)
		return map[string]any{"sales": httpserver.Bodies(views, saleJSON)}, err
	}
	views, err := h.cfg.Admin.Page(ctx, wanted)
	next := func(last client.AdminSale) any { return last.ID }
	return page("sales", httpserver.Bodies(views, saleJSON), wanted.Limit, next), err
}

func (h *handlers) showSale(ctx context.Context, _ *request, saleID string) (any, error) {
	v, err := h.cfg.Admin.Show(ctx, saleID)
	if err != nil {
		return nil, orMissing(err, httpserver.ErrNoSale)
	}
	body := saleJSON(v)
	if queued, err := h.cfg.Queue.ByShard(ctx); err == nil {
		body.DrainSeconds = livestats.DrainSeconds(h.cfg.Pace.Within(queued))
	}
	return body, nil
}

// changeSale answers pause, resume, open and close, which have no body.
func (h *handlers) changeSale(to func(ctx context.Context, id string) (admin.View, error)) handler {
	return with((*request).saleID, func(ctx context.Context, r *request, saleID string) (any, error) {
		if err := r.end(r.object()); err != nil {
			return nil, err
		}
		v, err := to(ctx, saleID)
		return saleJSON(v), orMissing(err, httpserver.ErrNoSale)
	})
}

func (h *handlers) restock(ctx context.Context, r *request, saleID string) (any, error) {
	key, err := httpserver.IdempotencyKey(&r.Context().Request.Header)
	r.fail(err)
	body := r.object()
	body.Require("add")
	add, _ := body.Integer("add")
	if add < 1 || add > sale.MaxStock {
		body.RejectOnce("add", fmt.Sprintf("must be between 1 and %d", sale.MaxStock))
	}
	if err := r.end(body); err != nil {
		return nil, err
	}
	v, err := h.cfg.Admin.Restock(ctx, saleID, add, key)
	return saleJSON(v), orMissing(err, httpserver.ErrNoSale)
}

func (h *handlers) audit(ctx context.Context, _ *request, saleID string) (any, error) {
	report, err := h.cfg.Audit(ctx, saleID)
	if err == nil && !report.Balanced { // Redis does not have archived sales
		if v, err := h.cfg.Admin.Show(ctx, saleID); err == nil && v.Archive != nil {
			return auditArchive(v), nil
		}
	}
	return report, orMissing(err, httpserver.ErrNoSale)
}

// auditArchive compares the archived orders with the units sold.
func auditArchive(v admin.View) audit.Report {
	r := audit.Report{SaleID: v.ID, Stock: v.Stock, Left: v.Stock - v.Sold, Ordered: v.Sold, Archived: true}
	if v.Archive.EndedAt.IsZero() {
		r.Differences = []string{
			"the archiving is in progress; repeat sluice sale archive " + v.ID + " if it was interrupted",
		}
	} else if held := v.Archive.Orders - v.Archive.Cancelled; held != v.Sold {
		r.Differences = []string{fmt.Sprintf("units sold: %d; archived orders with a unit: %d", v.Sold, held)}
	}
	r.Balanced = len(r.Differences) == 0
	return r
}

func (h *handlers) rehearse(ctx context.Context, r *request) (any, error) {
	body := r.object()
	body.Require("sale", "closes_at")
	wanted := admin.Rehearsal{
		SaleID: body.Sale("sale"), OpensAt: body.Time("opens_at"), ClosesAt: body.Time("closes_at"),
		BesideRealSales: body.Bool("beside_real_sales"),
	}
	if n, ok := body.Integer("stock"); ok {
		if wanted.Stock = n; n < 1 {
			body.Reject("stock", "must be at least 1")
		}
	}
	if err := r.end(body); err != nil {
		return nil, err
	}
	v, err := h.cfg.Admin.Rehearse(ctx, wanted)
	return r.createdSale(v, orMissing(err, httpserver.ErrNoSale))
}

func (h *handlers) removeRehearsal(ctx context.Context, r *request, saleID string) (any, error) {
	if err := r.end(r.object()); err != nil {
		return nil, err
	}
	orders, err := h.cfg.Admin.RemoveRehearsal(ctx, saleID)
	return map[string]any{"id": saleID, "orders": orders}, orMissing(err, errNoRehearsal)
}
