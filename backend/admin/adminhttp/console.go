package adminhttp

import (
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/web/httpserver"
)

const consolePath = "/admin/"

// consoleViews are the pages of the console below consolePath. The value states whether a page has sub-pages by name.
var consoleViews = map[string]bool{
	"sales":    true,
	"dead":     false,
	"groups":   true,
	"webhooks": true,
	"edge":     false,
	"log":      false,
}

func (h *handlers) addConsole() {
	plain := func(method, path string, answer fiber.Handler) {
		h.Handle(method, path, func(c *fiber.Ctx) error {
			if h.tokenInURL(c.Context()) {
				return errTokenInURL
			}
			return answer(c)
		})
	}
	plain(fiber.MethodGet, "/", func(c *fiber.Ctx) error { return seeOther(c, consolePath) })
	plain(fiber.MethodGet, consolePath+"sign-in", func(c *fiber.Ctx) error { return h.sendSignIn(c, fiber.StatusOK, "") })
	plain(fiber.MethodPost, consolePath+"sign-in", h.signIn)
	plain(fiber.MethodPost, consolePath+"sign-out", h.signOut)
	plain(
		fiber.MethodGet,
		consolePath+"assets/:name",
		func(c *fiber.Ctx) error { return httpserver.SendAsset(c, h.cfg.Pages.Asset) },
	)
	plain(fiber.MethodGet, consolePath, h.view)
	plain(fiber.MethodGet, consolePath+":view", h.view)
	plain(fiber.MethodGet, consolePath+":view/:name", h.view)
}

// view answers with a page of the console. Without a session it redirects to the sign-in form.
func (h *handlers) view(c *fiber.Ctx) error {
	view, name := c.Params("view"), c.Params("name")
	if named, known := consoleViews[view]; view != "" && (!known || name != "" && !named) {
		return httpserver.ErrNotFound
	}
	s, ok := h.sessionOf(c)
	if !ok {
		to := ""
		if at := string(c.Context().RequestURI()); at != consolePath {
			to = "?to=" + url.QueryEscape(at)
		}
		return seeOther(c, consolePath+"sign-in"+to)
	}
	page, err := h.cfg.Pages.View(s.Actor, s.Until)
	if err != nil {
		return err
	}
	return httpserver.SendPage(c, fiber.StatusOK, page)
}

func (h *handlers) sendSignIn(c *fiber.Ctx, status int, problem string) error {
	to := localPage(string(c.Context().QueryArgs().Peek("to")))
	if posted := c.Context().PostArgs().Peek("to"); len(posted) > 0 {
		to = localPage(string(posted))
	}
	actor := enteredName(c)
	if h.isToken([]byte(actor)) { // entered in the wrong field, which is not masked
		actor = ""
	}
	page, err := h.cfg.Pages.SignIn(problem, actor, to)
	if err != nil {
		return err
	}
	return httpserver.SendPage(c, status, page)
}

// enteredName returns the name of a submitted sign-in form.
func enteredName(c *fiber.Ctx) string {
	return strings.TrimSpace(string(c.Context().PostArgs().Peek("name")))
}
