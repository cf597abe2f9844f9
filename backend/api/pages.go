package api

import (
	"errors"
	"strings"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/admission"
	"sluice/backend/sale"
	"sluice/backend/web/buyer"
)

// Pages makes what browsers are shown (web.Pages). Bodies are not changed by anybody.
type Pages interface {
	Sale(lang buyer.Lang, s buyer.Sale) (buyer.Page, error)
	Sales(lang buyer.Lang, list []buyer.Sale) (buyer.Page, error)
	Missing(lang buyer.Lang) (buyer.Page, error)
	NotReady(lang buyer.Lang) (buyer.Page, error)
	Asset(name string) (buyer.Asset, bool)
}

// pageAge is how long browsers and edges may show a page again: in a flood everybody asks for the same one.
const pageAge = "public, max-age=1"

// addPages adds the routes for browsers.
func (p *public) addPages() {
	p.handle(fiber.MethodGet, "/", p.salesPage)
	p.handle(fiber.MethodGet, "/s/:sale", p.salePage)
	p.handle(fiber.MethodGet, "/assets/:name", p.asset)
}

func (p *public) salesPage(c *fiber.Ctx) error {
	lang := pageLanguage(c)
	views, err := p.listed()
	if err != nil {
		return p.sendNotReady(c, lang)
	}
	list := make([]buyer.Sale, len(views))
	for i, v := range views {
		list[i] = pageSale(v)
	}
	page, err := p.cfg.Pages.Sales(lang, list)
	return p.sendPage(c, fiber.StatusOK, page, err)
}

func (p *public) salePage(c *fiber.Ctx) error {
	lang := pageLanguage(c)
	v, err := p.looked(c)
	var invalid *sale.InvalidError
	switch {
	case errors.Is(err, errNoSale), errors.As(err, &invalid):
		page, err := p.cfg.Pages.Missing(lang)
		return p.sendPage(c, fiber.StatusNotFound, page, err)
	case err != nil:
		return p.sendNotReady(c, lang)
	}
	page, err := p.cfg.Pages.Sale(lang, pageSale(v))
	return p.sendPage(c, fiber.StatusOK, page, err)
}

func (p *public) sendNotReady(c *fiber.Ctx, lang buyer.Lang) error {
	page, err := p.cfg.Pages.NotReady(lang)
	c.Context().Response.Header.Set(fiber.HeaderRetryAfter, p.retryAfter(0))
	return p.sendPage(c, fiber.StatusServiceUnavailable, page, err)
}

func (p *public) sendPage(c *fiber.Ctx, status int, page buyer.Page, err error) error {
	if err != nil {
		return err
	}
	resp := &c.Context().Response
	resp.SetStatusCode(status)
	resp.Header.SetContentType(fiber.MIMETextHTMLCharsetUTF8)
	for _, h := range page.Headers {
		resp.Header.Set(h.Name, h.Value)
	}
	resp.Header.Set(fiber.HeaderContentLanguage, string(page.Lang))
	resp.Header.Set(fiber.HeaderVary, fiber.HeaderAcceptLanguage)
	resp.Header.Set(fiber.HeaderCacheControl, "no-store")
	if status == fiber.StatusOK {
		resp.Header.Set(fiber.HeaderCacheControl, pageAge)
	}
	resp.SetBodyRaw(page.Body)
	return nil
}

func (p *public) asset(c *fiber.Ctx) error { return sendAsset(c, p.cfg.Pages.Asset) }

func sendAsset(c *fiber.Ctx, find func(name string) (buyer.Asset, bool)) error {
	a, ok := find(c.Params("name"))
	if !ok {
		return errNotFound
	}
	resp := &c.Context().Response
	resp.Header.SetContentType(a.Type)
	resp.Header.Set(fiber.HeaderCacheControl, "no-store")
	if a.Exact {
		resp.Header.Set(fiber.HeaderCacheControl, "public, max-age=31536000, immutable")
	}
	resp.Header.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	resp.Header.Set(fiber.HeaderVary, fiber.HeaderAcceptEncoding)
	resp.SetBodyRaw(a.Body)
	if strings.Contains(c.Get(fiber.HeaderAcceptEncoding), "gzip") {
		resp.Header.Set(fiber.HeaderContentEncoding, "gzip")
		resp.SetBodyRaw(a.Gzip)
	}
	return nil
}

func pageLanguage(c *fiber.Ctx) buyer.Lang {
	return buyer.Language(c.Query("lang"), c.Get(fiber.HeaderAcceptLanguage))
}

func pageSale(v admission.View) buyer.Sale {
	return buyer.Sale{
		ID: v.ID, Title: v.Title, Price: v.Price, Stock: v.Stock, Left: v.Left, PerBuyer: v.PerBuyer, State: v.State, OpensAt: v.OpensAt, ClosesAt: v.ClosesAt,
	}
}
