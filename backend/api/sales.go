package api

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/admission"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
	"sluice/client"
)

func saleJSON(v admission.View) client.Sale {
	return client.Sale{
		ID: v.ID, Title: v.Title, Price: client.Price(v.Price), Stock: v.Stock, Left: v.Left, PerBuyer: v.PerBuyer,
		State: client.State(v.State), OpensAt: v.OpensAt.UTC(), ClosesAt: httpserver.OptionalTime(v.ClosesAt),
	}
}

func (h *handlers) showSale(c *fiber.Ctx) (any, error) {
	v, err := h.visibleSale(c)
	return saleJSON(v), err
}

func (h *handlers) listSales(*fiber.Ctx) (any, error) {
	views, err := h.visibleSales()
	list := httpserver.Bodies(views, saleJSON)
	slices.SortFunc(list, func(a, b client.Sale) int {
		return cmp.Or(a.OpensAt.Compare(b.OpensAt), cmp.Compare(a.ID, b.ID))
	})
	return map[string]any{"sales": list}, err
}

// visibleSale returns the sale that a request names. A rehearsal is visible to its own buyers only.
func (h *handlers) visibleSale(c *fiber.Ctx) (admission.View, error) {
	saleID, err := httpserver.SaleParam(c)
	if err != nil {
		return admission.View{}, err
	}
	if sale.IsRehearsal(saleID) { // real sales are public, so their requests need no token
		if buyer, err := h.buyer(c); err != nil || !sale.Meets(buyer, saleID) {
			return admission.View{}, httpserver.ErrNoSale
		}
	}
	v, err := h.cfg.Stock.View(httpserver.Span(c.Context()).In(h.reads.next()), saleID)
	if errors.Is(err, sale.ErrNotFound) {
		return v, h.unknownSale(saleID)
	}
	return v, err
}

// visibleSales returns all sales except rehearsals.
func (h *handlers) visibleSales() ([]admission.View, error) {
	views, err := h.cfg.Stock.List(h.reads.next())
	visible := slices.Clone(views) // because views is shared with other requests
	return slices.DeleteFunc(visible, func(v admission.View) bool { return sale.IsRehearsal(v.ID) }), err
}

// unknownSale returns the error for a sale that Redis does not hold. Either the sale does not exist, or Redis lost it
// and is restored from SQL.
func (h *handlers) unknownSale(saleID string) error {
	if h.cfg.Known(saleID) {
		return fmt.Errorf("sale %s: %w: Redis does not have it, and SQL does", saleID, sale.ErrUnavailable)
	}
	return httpserver.ErrNoSale
}
