package api

import (
	"errors"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/sale"
	"sluice/backend/web/buyer"
	"sluice/backend/web/httpserver"
	"sluice/backend/web/page"
)

// pageCache lets browsers and edges reuse a page for one second. When a sale opens, all its buyers request the same
// page.
const pageCache = "public, max-age=1"

func (h *handlers) salesPage(c *fiber.Ctx) error {
	lang := pageLanguage(c)
	views, err := h.visibleSales()
	if err != nil {
		return h.sendNotReady(c, lang)
	}
	list := make([]buyer.Sale, len(views))
	for i, v := range views {
		list[i] = buyer.Sale{Sale: v.Sale, Left: v.Left, State: v.State}
	}
	rendered, err := h.cfg.Pages.Sales(lang, list)
	return sendPage(c, fiber.StatusOK, rendered, err)
}

func (h *handlers) salePage(c *fiber.Ctx) error {
	lang := pageLanguage(c)
	v, err := h.visibleSale(c)
	_, invalid := errors.AsType[*sale.InvalidError](err)
	switch {
	case invalid, errors.Is(err, httpserver.ErrNoSale):
		rendered, err := h.cfg.Pages.Missing(lang)
		return sendPage(c, fiber.StatusNotFound, rendered, err)
	case err != nil:
		return h.sendNotReady(c, lang)
	}
	v.Details = h.details.get(h.reads.next(), v.ID, v.Version)
	rendered, err := h.cfg.Pages.Sale(lang, buyer.Sale{Sale: v.Sale, Left: v.Left, State: v.State})
	if err == nil && sale.IsRehearsal(v.ID) { // not cached, because the page depends on the token
		return httpserver.SendPage(c, fiber.StatusOK, rendered)
	}
	return sendPage(c, fiber.StatusOK, rendered, err)
}

func (h *handlers) sendNotReady(c *fiber.Ctx, lang buyer.Lang) error {
	rendered, err := h.cfg.Pages.NotReady(lang)
	c.Context().Response.Header.Set(fiber.HeaderRetryAfter, h.RetryAfter(0))
	return sendPage(c, fiber.StatusServiceUnavailable, rendered, err)
}

func sendPage(c *fiber.Ctx, status int, rendered page.Page, err error) error {
	if err != nil {
		return err
	}
	if err := httpserver.SendPage(c, status, rendered); err != nil {
		return err
	}
	if status == fiber.StatusOK {
		c.Context().Response.Header.Set(fiber.HeaderCacheControl, pageCache)
	}
	return nil
}

func (h *handlers) asset(c *fiber.Ctx) error { return httpserver.SendAsset(c, h.cfg.Pages.Asset) }

func pageLanguage(c *fiber.Ctx) buyer.Lang {
	return buyer.Language(c.Query("lang"), c.Get(fiber.HeaderAcceptLanguage))
}
