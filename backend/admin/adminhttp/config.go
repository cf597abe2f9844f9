// Package adminhttp serves the admin API and the admin console: their routes, sign-in and JSON. It decides nothing
// about sales itself; package admin and the services in Config do. It belongs on a listener of its own.
package adminhttp

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"sluice/backend/admin"
	"sluice/backend/admin/session"
	"sluice/backend/events"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
)

// Config configures New. Fields without a default in their comment are required.
type Config struct {
	Admin         Service
	Auditor       Auditor
	Queue         Queue
	Pace          Pace
	Rebuilder     Rebuilder
	Events        Events
	Webhooks      Webhooks
	LiveStats     LiveStats
	Pages         Pages
	Gatherer      prometheus.Gatherer // for /metrics
	Token         string              // the admin token, sent as Authorization: Bearer ...
	MaxReady      int64               // bound of each shard's queue, shown only
	EndedSessions session.Store       // shares ended sessions with other backends; nil: this process alone knows them

	Server httpserver.Config // BodyLimit and Problem are set by New
}

const (
	bodyLimit = 1 << 20
	// requestTimeout bounds one admin request. The audit of a long queue takes the longest.
	requestTimeout = 30 * time.Second
	defaultActor   = "admin"
	maxActor       = 64 // bytes
)

// handlers answers the routes.
type handlers struct {
	*httpserver.Server
	cfg   Config
	token [sha256.Size]byte
	rates *rates

	sessions *session.Sessions
	attempts *session.Attempts
	streams  atomic.Int64 // open streams of live stats
}

// New returns the server of the admin API and console. Every route below /admin/v1/ needs the admin token or a
// session. /metrics, /healthz, /readyz and the API reference need none, so the listener must be private. The error
// names all missing fields.
func New(cfg Config) (*httpserver.Server, error) {
	missing := errors.Join(
		httpserver.Required("adminhttp: Config.Admin", cfg.Admin != nil),
		httpserver.Required("adminhttp: Config.Auditor", cfg.Auditor != nil),
		httpserver.Required("adminhttp: Config.Queue", cfg.Queue != nil),
		httpserver.Required("adminhttp: Config.Pace", cfg.Pace != nil),
		httpserver.Required("adminhttp: Config.Rebuilder", cfg.Rebuilder != nil),
		httpserver.Required("adminhttp: Config.Events", cfg.Events != nil),
		httpserver.Required("adminhttp: Config.Webhooks", cfg.Webhooks != nil),
		httpserver.Required("adminhttp: Config.LiveStats", cfg.LiveStats != nil),
		httpserver.Required("adminhttp: Config.Pages", cfg.Pages != nil),
		httpserver.Required("adminhttp: Config.Gatherer", cfg.Gatherer != nil),
		httpserver.Required("adminhttp: Config.Token", cfg.Token != ""),
	)
	if missing != nil {
		return nil, missing
	}
	cfg.Server.BodyLimit, cfg.Server.Problem = bodyLimit, problemFor
	s := httpserver.New(cfg.Server)
	h := &handlers{
		Server: s, cfg: cfg, token: sha256.Sum256([]byte(cfg.Token)), rates: newRates(s.Now),
		sessions: session.New(cfg.Token, cfg.EndedSessions, s.Now), attempts: session.NewAttempts(),
	}
	h.addMetrics()
	h.addSales()
	h.addOrders()
	h.addQueue()
	h.addRehearsals()
	h.addGroups()
	h.addWebhooks()
	h.addProfiles()
	h.handle(fiber.MethodGet, "/admin/v1/log", h.listLog)
	h.handle(fiber.MethodGet, "/admin/v1/live", h.live)
	h.Handle(fiber.MethodGet, "/admin/v1/live/events", h.liveEvents)
	h.addConsole()
	s.Finish()
	return s, nil
}

func (h *handlers) addMetrics() {
	// Without promhttp's own timeout, which reads fasthttp's context while Shutdown writes it. Collectors bound their
	// own work.
	scrape := fasthttpadaptor.NewFastHTTPHandler(
		promhttp.HandlerFor(h.cfg.Gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	h.Handle(fiber.MethodGet, "/metrics", func(c *fiber.Ctx) error {
		scrape(c.Context())
		return nil
	})
}

func (h *handlers) addSales() {
	const one = "/admin/v1/sales/:sale"
	h.handle(fiber.MethodPost, "/admin/v1/sales", h.createSale)
	h.handle(fiber.MethodGet, "/admin/v1/sales", h.listSales)
	h.handle(fiber.MethodGet, one, h.showSale)
	h.handle(fiber.MethodPost, one+"/pause", h.switchSale(h.cfg.Admin.Pause))
	h.handle(fiber.MethodPost, one+"/resume", h.switchSale(h.cfg.Admin.Resume))
	h.handle(fiber.MethodPost, one+"/open", h.switchSale(h.cfg.Admin.Open))
	h.handle(fiber.MethodPost, one+"/close", h.switchSale(h.cfg.Admin.Close))
	h.handle(fiber.MethodPost, one+"/restock", h.restock)
	h.handle(fiber.MethodGet, one+"/audit", h.audit)
}

func (h *handlers) addOrders() {
	h.handle(fiber.MethodGet, "/admin/v1/orders", h.listOrders)
	h.handle(fiber.MethodGet, "/admin/v1/orders/:order", h.showOrder)
	h.handle(fiber.MethodPost, "/admin/v1/orders/:order/cancel", h.cancelOrder)
	h.handle(fiber.MethodGet, "/admin/v1/payments", h.listPayments)
	h.handle(fiber.MethodPost, "/admin/v1/payments/:payment/settle", h.settlePayment)
}

func (h *handlers) addQueue() {
	const dead = "/admin/v1/dead"
	h.handle(fiber.MethodPost, "/admin/v1/rebuild", h.startRebuild)
	h.handle(fiber.MethodGet, "/admin/v1/rebuild", h.showRebuild)
	h.handle(fiber.MethodGet, "/admin/v1/queue", h.queue)
	h.handle(fiber.MethodGet, dead, h.listDead)
	h.handle(fiber.MethodPost, dead+"/retry", h.settleDead(admin.RetryDead))
	h.handle(fiber.MethodPost, dead+"/cancel", h.settleDead(admin.CancelDead))
	h.handle(fiber.MethodGet, dead+"/:order", h.showDead)
	h.handle(fiber.MethodPost, dead+"/:order/retry", h.retryDead)
	h.handle(fiber.MethodPost, dead+"/:order/cancel", h.cancelDead)
}

// handler answers an authenticated request. actor is a copy.
type handler func(ctx context.Context, c *fiber.Ctx, actor string) error

// handle registers a route that needs the admin token, or a session that began with it. The handler's context does
// not end when the client disconnects.
func (h *handlers) handle(method, path string, answer handler) {
	h.Handle(method, path, func(c *fiber.Ctx) error {
		if h.tokenInURL(c.Context()) {
			return errTokenInURL
		}
		from, err := h.authenticate(c)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		return answer(ctx, c, from.actor)
	})
}

// hasToken reports whether the request has the admin token. It compares digests of one length, so that the time does
// not depend on the token.
func (h *handlers) hasToken(c *fiber.Ctx) bool {
	given := c.Context().Request.Header.PeekAll(fiber.HeaderAuthorization)
	if len(given) != 1 {
		return false
	}
	raw, ok := httpserver.Bearer(utils.UnsafeString(given[0]))
	return ok && h.isToken(utils.UnsafeBytes(raw))
}

// actorOf returns the name for the admin log: the header X-Actor, which every client with the token may choose.
func actorOf(c *fiber.Ctx) (string, error) {
	given := c.Context().Request.Header.PeekAll("X-Actor")
	switch {
	case len(given) == 0:
		return defaultActor, nil
	case len(given) > 1 || !isActor(utils.UnsafeString(given[0])):
		return "", httpserver.Invalid("X-Actor", "must be sent once, with 1 to 64 bytes of text")
	}
	return strings.Clone(utils.UnsafeString(given[0])), nil
}

// isActor reports whether a name is valid in the admin log.
func isActor(name string) bool { return len(name) <= maxActor && sale.ValidateBuyer(name) == nil }

var (
	errNoGroup = httpserver.NewProblem(problem.NotFound, "There is no such consumer group.")
	errPending = httpserver.NewProblem(
		problem.Unavailable,
		"The change is stored and takes effect when Redis answers again.",
	)
)

// problemFor translates the errors of package admin and of consumer groups.
func problemFor(err error) *httpserver.Problem {
	if _, ok := errors.AsType[*admin.PendingError](err); ok {
		return errPending
	}
	if refused, ok := errors.AsType[*admin.RefusedError](err); ok {
		return httpserver.NewProblem(problem.Conflict, refused.Detail)
	}
	if errors.Is(err, events.ErrNoGroup) && !errors.Is(err, sale.ErrUnavailable) {
		return errNoGroup
	}
	return nil
}
