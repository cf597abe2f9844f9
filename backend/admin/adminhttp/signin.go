package adminhttp

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"
	"github.com/valyala/fasthttp"

	"sluice/backend/admin/session"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
)

const (
	// sessionCookie is limited to sessionPath, because cookies are shared by all ports of a host, and another port may
	// serve buyers.
	sessionCookie = "sluice_admin"
	sessionPath   = "/admin"
	// consoleHeader accompanies every change that the console makes. A page of another origin cannot send it without a
	// CORS preflight, which the server does not answer.
	consoleHeader = "Sluice-Admin"
	// noteTimeout bounds the write of a sign-in or sign-out to the stores.
	noteTimeout = 2 * time.Second
)

var (
	errTokenInURL = httpserver.NewProblem(problem.BadRequest,
		"Do not put the admin token in a URL: browsers and servers log URLs. Send it as Authorization: Bearer, or sign in "+
			"at /admin/. If this was a real token, replace it.")
	errOtherOrigin = httpserver.NewProblem(problem.Forbidden, "This request did not come from the admin console.")
)

// caller is the authenticated client of an admin request.
type caller struct {
	actor   string
	session string // text of the session; empty if the request has the token
}

// authenticate returns the caller. The token takes precedence over a session.
func (h *handlers) authenticate(c *fiber.Ctx) (caller, error) {
	if given := c.Context().Request.Header.PeekAll(fiber.HeaderAuthorization); len(given) > 0 {
		token, ok := httpserver.Bearer(utils.UnsafeString(given[0]))
		if len(given) > 1 || !ok || !h.isToken(utils.UnsafeBytes(token)) {
			return caller{}, httpserver.ErrUnauthorized
		}
		actor, err := actorOf(c)
		return caller{actor: actor}, err
	}
	s, ok := h.sessionOf(c)
	if !ok {
		return caller{}, httpserver.ErrUnauthorized
	}
	if !sameOrigin(c) || !isRead(c) && c.Get(consoleHeader) != "1" {
		return caller{}, errOtherOrigin
	}
	return caller{actor: s.Actor, session: sessionText(c)}, nil
}

// actorOf returns the name for the action log: the header X-Actor, which every client with the token may choose.
func actorOf(c *fiber.Ctx) (string, error) {
	given := c.Context().Request.Header.PeekAll("X-Actor")
	switch {
	case len(given) == 0:
		return defaultActor, nil
	case len(given) > 1 || !isActor(utils.UnsafeString(given[0])):
		return "", sale.Invalid("X-Actor", "must be sent once, with 1 to 64 bytes of text")
	case store.ReservedActor(utils.UnsafeString(given[0])):
		return "", sale.Invalid("X-Actor",
			"must not be "+store.ReservedActors+", which are reserved for automatic actions")
	}
	return strings.Clone(utils.UnsafeString(given[0])), nil
}

// isActor reports whether a name is valid in the action log.
func isActor(name string) bool { return len(name) <= maxActor && sale.ValidateBuyer(name) == nil }

func sessionText(c *fiber.Ctx) string {
	return string(c.Context().Request.Header.Cookie(sessionCookie))
}

func (h *handlers) sessionOf(c *fiber.Ctx) (session.Session, bool) {
	return h.sessions.Verify(sessionText(c))
}

func isRead(c *fiber.Ctx) bool {
	return c.Method() == fiber.MethodGet || c.Method() == fiber.MethodHead
}

// sameOrigin reports whether a browser's request comes from a page of this listener, or is a navigation that the user
// started. SameSite cookies alone would accept pages of every other port of this host.
func sameOrigin(c *fiber.Ctx) bool {
	header := &c.Context().Request.Header
	switch string(header.Peek("Sec-Fetch-Site")) {
	case "same-origin":
		return true // pages cannot set this header; the Host header may have been changed by a proxy
	case "none":
		if !isRead(c) {
			return false
		}
	case "": // browsers before 2023: Origin decides
		if !isRead(c) && len(header.Peek(fiber.HeaderOrigin)) == 0 {
			return false
		}
	default:
		return false
	}
	origin := header.Peek(fiber.HeaderOrigin)
	if len(origin) == 0 {
		return true
	}
	u, err := url.Parse(string(origin))
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, string(header.Host()))
}

// tokenInURL reports whether the query contains the admin token, or a parameter with the name of a token.
func (h *handlers) tokenInURL(ctx *fasthttp.RequestCtx) bool {
	found := false
	for name, value := range ctx.QueryArgs().All() {
		switch strings.ToLower(utils.UnsafeString(name)) {
		case "token", "admin_token", "access_token", "authorization", "bearer":
			found = true
		}
		found = found || h.isToken(value) || h.isToken(name)
	}
	return found
}

// isToken compares digests of equal length, so that the duration does not depend on the token.
func (h *handlers) isToken(text []byte) bool {
	sum := sha256.Sum256(text)
	return subtle.ConstantTimeCompare(sum[:], h.token[:]) == 1
}

// signIn is POST /admin/sign-in: a form with a name, the token, and the page to open next.
func (h *handlers) signIn(c *fiber.Ctx) error {
	if !sameOrigin(c) {
		return errOtherOrigin
	}
	ctx := c.Context()
	from := remoteAddress(ctx)
	if wait, ok := h.attempts.Allow(from, h.Now()); !ok {
		ctx.Response.Header.Set(fiber.HeaderRetryAfter, h.RetryAfter(wait))
		return h.sendSignIn(c, fiber.StatusTooManyRequests, "limited")
	}
	form := ctx.PostArgs()
	if !h.isToken(form.Peek("token")) {
		return h.sendSignIn(c, fiber.StatusUnauthorized, "wrong")
	}
	h.attempts.Reset(from)
	actor := enteredName(c)
	if !isActor(actor) {
		return h.sendSignIn(c, fiber.StatusBadRequest, "name")
	}
	if store.ReservedActor(actor) {
		return h.sendSignIn(c, fiber.StatusBadRequest, "reserved")
	}
	text, s := h.sessions.Begin(actor)
	cookie := newCookie(ctx, text)
	cookie.SetExpire(s.Until)
	ctx.Response.Header.SetCookie(cookie)
	h.note(actor, "admin.sign_in", "from "+from.String())
	return seeOther(c, localPage(string(form.Peek("to"))))
}

// signOut is POST /admin/sign-out, a form of the console.
func (h *handlers) signOut(c *fiber.Ctx) error {
	if !sameOrigin(c) {
		return errOtherOrigin
	}
	if s, ok := h.sessionOf(c); ok {
		h.endSession(s)
		h.note(s.Actor, "admin.sign_out", "")
	}
	cookie := newCookie(c.Context(), "")
	cookie.SetExpire(fasthttp.CookieExpireDelete)
	c.Context().Response.Header.SetCookie(cookie)
	return seeOther(c, consolePath+"sign-in")
}

// endSession ends a session in this process, and in the other backends if Redis answers.
func (h *handlers) endSession(s session.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	if err := h.sessions.End(ctx, s); err != nil {
		h.Log().Warn("session ended here, but other backends still accept it", "actor", s.Actor, "until", s.Until, "err", err)
	}
}

// note writes a sign-in or sign-out to the action log. A failure is logged and ignored: the console must work while
// SQL is down.
func (h *handlers) note(actor, action, detail string) {
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	if err := h.cfg.Store.Record(store.WithActor(ctx, actor), action, actor, detail); err != nil {
		h.Log().Warn("cannot write to the action log", "actor", actor, "action", action, "err", err)
	}
}

func newCookie(ctx *fasthttp.RequestCtx, value string) *fasthttp.Cookie {
	cookie := &fasthttp.Cookie{}
	cookie.SetKey(sessionCookie)
	cookie.SetValue(value)
	cookie.SetPath(sessionPath)
	cookie.SetHTTPOnly(true)
	cookie.SetSameSite(fasthttp.CookieSameSiteLaxMode) // links from other sites open the console; see also sameOrigin
	// A proxy that terminates TLS sets X-Forwarded-Proto. A forged value affects only the client that sends it.
	proto := utils.UnsafeString(ctx.Request.Header.Peek("X-Forwarded-Proto"))
	cookie.SetSecure(ctx.IsTLS() || strings.EqualFold(proto, "https"))
	return cookie
}

func seeOther(c *fiber.Ctx, to string) error {
	resp := &c.Context().Response
	resp.SetStatusCode(fiber.StatusSeeOther)
	resp.Header.Set(fiber.HeaderLocation, to)
	resp.Header.Set(fiber.HeaderCacheControl, "no-store")
	return nil
}

// localPage returns a page of the console, or the overview for any other target.
func localPage(to string) string {
	u, err := url.Parse(to)
	switch {
	case err != nil || u.IsAbs() || u.Host != "",
		!strings.HasPrefix(u.Path, consolePath),
		strings.HasPrefix(u.Path, consolePath+"sign-"),
		strings.Contains(to, "\\"),
		strings.Contains(u.Path, ".."):
		return consolePath
	}
	return u.String()
}

func remoteAddress(ctx *fasthttp.RequestCtx) netip.Addr {
	a, err := netip.ParseAddrPort(ctx.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr()
}
