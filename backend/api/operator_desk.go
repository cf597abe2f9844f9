package api

import (
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/web/buyer"
)

// DeskPages makes the pages of the operators' desk (deskpage.Pages).
type DeskPages interface {
	// SignIn is the page with the form; problem is "", wrong, name or limited, and actor what was typed for a name.
	SignIn(problem, actor, to string) (buyer.Page, error)
	// View is one page of the desk for whoever has signed in.
	View(actor string, until time.Time) (buyer.Page, error)
	Asset(name string) (buyer.Asset, bool)
}

const (
	deskPath    = "/admin/"
	noteTimeout = 2 * time.Second
)

// deskViews are the pages of the desk below deskPath, and whether each has pages of its own below it.
var deskViews = map[string]bool{"sales": true, "dead": false, "groups": true, "webhooks": true, "edge": false, "log": false}

func (o *operator) deskPages() {
	plain := func(method, path string, h fiber.Handler) {
		o.App.handle(method, path, func(c *fiber.Ctx) error {
			if o.tokenInURL(c.Context()) {
				return errTokenInURL
			}
			return h(c)
		})
	}
	plain(fiber.MethodGet, "/", func(c *fiber.Ctx) error { return seeOther(c, deskPath) })
	plain(fiber.MethodGet, deskPath+"sign-in", func(c *fiber.Ctx) error { return o.sendSignIn(c, fiber.StatusOK, "") })
	plain(fiber.MethodPost, deskPath+"sign-in", o.signIn)
	plain(fiber.MethodPost, deskPath+"sign-out", o.signOut)
	plain(fiber.MethodGet, deskPath+"assets/:name", func(c *fiber.Ctx) error { return sendAsset(c, o.cfg.Pages.Asset) })
	plain(fiber.MethodGet, deskPath, o.deskView)
	plain(fiber.MethodGet, deskPath+":view", o.deskView)
	plain(fiber.MethodGet, deskPath+":view/:name", o.deskView)
}

func (o *operator) deskView(c *fiber.Ctx) error {
	view, name := c.Params("view"), c.Params("name")
	if named, known := deskViews[view]; view != "" && (!known || name != "" && !named) {
		return errNotFound
	}
	s, ok := o.sessionOf(c)
	if !ok {
		to := ""
		if at := string(c.Context().RequestURI()); at != deskPath {
			to = "?to=" + url.QueryEscape(at)
		}
		return seeOther(c, deskPath+"sign-in"+to)
	}
	page, err := o.cfg.Pages.View(s.Actor, s.Until)
	if err != nil {
		return err
	}
	return sendDeskPage(c, fiber.StatusOK, page)
}

func (o *operator) sendSignIn(c *fiber.Ctx, status int, problem string, headers ...header) error {
	to := localPage(string(c.Context().QueryArgs().Peek("to")))
	if posted := c.Context().PostArgs().Peek("to"); len(posted) > 0 {
		to = localPage(string(posted))
	}
	actor := typedName(c)
	if o.isToken([]byte(actor)) { // in the wrong field, where everybody could read it
		actor = ""
	}
	page, err := o.cfg.Pages.SignIn(problem, actor, to)
	if err != nil {
		return err
	}
	for _, h := range headers {
		c.Context().Response.Header.Set(h.name, h.value)
	}
	return sendDeskPage(c, status, page)
}

// typedName is the name that a sign-in form was sent with.
func typedName(c *fiber.Ctx) string {
	return strings.TrimSpace(string(c.Context().PostArgs().Peek("name")))
}

func sendDeskPage(c *fiber.Ctx, status int, page buyer.Page) error {
	resp := &c.Context().Response
	resp.SetStatusCode(status)
	resp.Header.SetContentType(fiber.MIMETextHTMLCharsetUTF8)
	for _, h := range page.Headers {
		resp.Header.Set(h.Name, h.Value)
	}
	resp.Header.Set(fiber.HeaderCacheControl, "no-store")
	resp.SetBodyRaw(page.Body)
	return nil
}
