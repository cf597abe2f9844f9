package adminhttp

import (
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
)

const consolePath = sessionPath + "/"

func (h *handlers) addConsole() {
	h.handlePublic(fiber.MethodGet, "/", func(c *fiber.Ctx) error { return seeOther(c, consolePath) })
	h.handlePublic(fiber.MethodGet, consolePath+"sign-in", func(c *fiber.Ctx) error {
		return h.sendSignIn(c, fiber.StatusOK, "")
	})
	h.handlePublic(fiber.MethodPost, consolePath+"sign-in", h.signIn)
	h.handlePublic(fiber.MethodPost, consolePath+"sign-out", h.signOut)
	h.handlePublic(fiber.MethodGet, consolePath+"assets/:name", func(c *fiber.Ctx) error {
		return httpserver.SendAsset(c, h.pages.Asset)
	})
	h.handlePublic(fiber.MethodGet, sessionPath, h.view)
	h.handlePublic(fiber.MethodGet, consolePath, h.view)
	h.handlePublic(fiber.MethodGet, consolePath+":view", h.view)
	h.handlePublic(fiber.MethodGet, consolePath+":view/:name", h.view)
}

// view answers with a page of the console. Without a session it redirects to the sign-in form. For an unknown path, a
// browser with a session gets a page with the navigation.
func (h *handlers) view(c *fiber.Ctx) error {
	s, ok := h.sessionOf(c)
	found, status := h.pages.Has(c.Params("view"), c.Params("name")), fiber.StatusOK
	if !found {
		if !ok || c.Accepts(problem.ContentType, fiber.MIMETextHTML) != fiber.MIMETextHTML {
			return httpserver.ErrNotFound
		}
		status = fiber.StatusNotFound
	}
	if !ok {
		to := ""
		if at := string(c.Context().RequestURI()); at != consolePath && at != sessionPath {
			to = "?to=" + url.QueryEscape(at)
		}
		return seeOther(c, consolePath+"sign-in"+to)
	}
	page, err := h.pages.View(s.Actor, s.Until, found)
	if err != nil {
		return err
	}
	return httpserver.SendPage(c, status, page)
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
	page, err := h.pages.SignIn(problem, actor, to)
	if err != nil {
		return err
	}
	return httpserver.SendPage(c, status, page)
}

// enteredName returns the name of a submitted sign-in form.
func enteredName(c *fiber.Ctx) string {
	return strings.TrimSpace(string(c.Context().PostArgs().Peek("name")))
}
