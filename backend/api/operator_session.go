package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/netip"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"
	"github.com/valyala/fasthttp"

	"sluice/backend/admin/session"
	"sluice/internal/problem"
)

const (
	// sessionCookie goes to paths of operators only: cookies know no ports, and the same host may answer buyers on another.
	sessionCookie = "sluice_desk"
	sessionPath   = "/admin"
	// deskHeader comes with every change that the desk makes. A page of another origin cannot send it without asking first, and nobody answers that.
	deskHeader = "Sluice-Desk"
)

var (
	errTokenInURL = refusalOf(problem.BadRequest,
		"An operator's token does not belong in an address: addresses are kept in histories and logs. Send it as Authorization: Bearer, or sign in at /admin/. Change the token if it was a real one.")
	errOtherOrigin = refusalOf(problem.Forbidden, "This did not come from the desk's own pages.")
)

// caller is who makes an operator's request.
type caller struct {
	actor   string
	session string // the proof of it; empty: the token came with the request
}

// caller finds out who it is. The token counts before a session: commands have no cookies.
func (o *operator) caller(c *fiber.Ctx) (caller, error) {
	if o.authorized(c) {
		actor, err := actorOf(c)
		return caller{actor: actor}, err
	}
	if len(c.Context().Request.Header.Peek(fiber.HeaderAuthorization)) > 0 {
		return caller{}, errUnauthorized
	}
	text := string(c.Context().Request.Header.Cookie(sessionCookie))
	s, ok := o.sessions.Who(text)
	if !ok {
		return caller{}, errUnauthorized
	}
	if !sameOrigin(c) {
		return caller{}, errOtherOrigin
	}
	if reads := c.Method() == fiber.MethodGet || c.Method() == fiber.MethodHead; !reads && c.Get(deskHeader) != "1" {
		return caller{}, errOtherOrigin
	}
	return caller{actor: s.Actor, session: text}, nil
}

func (o *operator) sessionOf(c *fiber.Ctx) (session.Session, bool) {
	return o.sessions.Who(string(c.Context().Request.Header.Cookie(sessionCookie)))
}

// sameOrigin tells whether a browser's request comes from this listener's own pages, or was typed in for reading. SameSite alone would let in the
// pages of every other port of this host.
func sameOrigin(c *fiber.Ctx) bool {
	h := &c.Context().Request.Header
	reads := c.Method() == fiber.MethodGet || c.Method() == fiber.MethodHead
	site := h.Peek("Sec-Fetch-Site")
	switch string(site) {
	case "same-origin":
		return true // a page cannot set this header; a proxy may have changed Host
	case "none":
		if !reads {
			return false
		}
	case "": // a browser of before 2023: its Origin decides
		if !reads && len(h.Peek(fiber.HeaderOrigin)) == 0 {
			return false
		}
	default:
		return false
	}
	origin := h.Peek(fiber.HeaderOrigin)
	if len(origin) == 0 {
		return true
	}
	u, err := url.Parse(string(origin))
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, string(h.Host()))
}

// tokenInURL tells whether the address of a request holds the operator's token, or what looks meant to be one.
func (o *operator) tokenInURL(ctx *fasthttp.RequestCtx) bool {
	found := false
	for name, value := range ctx.QueryArgs().All() {
		switch strings.ToLower(utils.UnsafeString(name)) {
		case "token", "admin_token", "access_token", "authorization", "bearer":
			found = true
		}
		found = found || o.isToken(value) || o.isToken(name)
	}
	return found
}

func (o *operator) isToken(text []byte) bool {
	sum := sha256.Sum256(text)
	return subtle.ConstantTimeCompare(sum[:], o.token[:]) == 1
}

// signIn is POST /admin/sign-in: a form with name, token, and where to go then.
func (o *operator) signIn(c *fiber.Ctx) error {
	if !sameOrigin(c) {
		return errOtherOrigin
	}
	ctx := c.Context()
	from, now := remoteAddress(ctx), o.now()
	if wait, ok := o.tries.Try(from, now); !ok {
		after := header{fiber.HeaderRetryAfter, o.retryAfter(wait)}
		return o.sendSignIn(c, fiber.StatusTooManyRequests, "limited", after)
	}
	form := ctx.PostArgs()
	if !o.isToken(form.Peek("token")) {
		return o.sendSignIn(c, fiber.StatusUnauthorized, "wrong")
	}
	o.tries.Right(from)
	actor := typedName(c)
	if !isActor(actor) {
		return o.sendSignIn(c, fiber.StatusBadRequest, "name")
	}
	text, s := o.sessions.Begin(actor)
	cookie := o.cookie(ctx, text)
	cookie.SetExpire(s.Until)
	ctx.Response.Header.SetCookie(cookie)
	o.note(actor, "desk.sign_in", "from "+from.String())
	return seeOther(c, localPage(string(form.Peek("to"))))
}

// signOut is POST /admin/sign-out, a form of the desk's pages.
func (o *operator) signOut(c *fiber.Ctx) error {
	if !sameOrigin(c) {
		return errOtherOrigin
	}
	if s, ok := o.sessionOf(c); ok {
		o.endSession(s)
		o.note(s.Actor, "desk.sign_out", "")
	}
	cookie := o.cookie(c.Context(), "")
	cookie.SetExpire(fasthttp.CookieExpireDelete)
	c.Context().Response.Header.SetCookie(cookie)
	return seeOther(c, deskPath+"sign-in")
}

// endSession ends a session here, and at the other backends as far as they can be told.
func (o *operator) endSession(s session.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	if err := o.sessions.End(ctx, s); err != nil {
		o.log.Warn("who signed out has signed out here and in the browser; other backends do not know", "actor", s.Actor, "until", s.Until, "err", err)
	}
}

// note writes down what needs no store to be done. That a store is away must keep nobody from the desk.
func (o *operator) note(actor, action, detail string) {
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	if err := o.cfg.Desk.Note(ctx, actor, action, actor, detail); err != nil {
		o.log.Warn("who signed in could not be written down", "actor", actor, "action", action, "err", err)
	}
}

func (o *operator) cookie(ctx *fasthttp.RequestCtx, value string) *fasthttp.Cookie {
	cookie := &fasthttp.Cookie{}
	cookie.SetKey(sessionCookie)
	cookie.SetValue(value)
	cookie.SetPath(sessionPath)
	cookie.SetHTTPOnly(true)
	cookie.SetSameSite(fasthttp.CookieSameSiteStrictMode)
	// Whoever ends TLS in front of this listener says so. A false word of it costs nobody but the one who says it.
	cookie.SetSecure(ctx.IsTLS() || strings.EqualFold(utils.UnsafeString(ctx.Request.Header.Peek("X-Forwarded-Proto")), "https"))
	return cookie
}

func seeOther(c *fiber.Ctx, to string) error {
	resp := &c.Context().Response
	resp.SetStatusCode(fiber.StatusSeeOther)
	resp.Header.Set(fiber.HeaderLocation, to)
	resp.Header.Set(fiber.HeaderCacheControl, "no-store")
	return nil
}

// localPage is a page of the desk, or its first one for any other place.
func localPage(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, deskPath) || strings.Contains(to, "\\") || strings.Contains(u.Path, "..") ||
		strings.HasPrefix(u.Path, deskPath+"sign-") {
		return deskPath
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
