// Package adminhttp serves the admin API and the admin console: their routes, sign-in and JSON. Package admin and the
// services in Config make all decisions about sales. The server needs a listener of its own.
package adminhttp

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice/backend/admin"
	"sluice/backend/admin/livestats"
	"sluice/backend/admin/pages"
	"sluice/backend/admin/session"
	"sluice/backend/audit"
	"sluice/backend/events"
	"sluice/backend/events/webhook"
	"sluice/backend/recovery/guard"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver"
	"sluice/internal/plural"
	"sluice/internal/problem"
)

// Config configures New. Fields without a default in their comment are required.
type Config struct {
	Admin         Service
	Dead          DeadLetters
	Store         Store
	Audit         func(ctx context.Context, saleID string) (audit.Report, error)
	Queue         livestats.Queue
	Pace          livestats.Pace
	Rebuilder     Rebuilder
	Shards        func(ctx context.Context) []guard.Status
	Events        Events
	Webhooks      Webhooks
	Policies      PolicyTrial
	LiveStats     LiveStats
	Gatherer      prometheus.Gatherer // for /metrics
	Token         string              // the admin token, sent as Authorization: Bearer ...
	MaxReady      int64               // bound of each shard's queue, shown only
	EndedSessions session.Store       // shares ended sessions with other backends; nil: only this process rejects them

	Server httpserver.Config // BodyLimit, Upload and Problem are set by New
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
	pages *pages.Pages

	sessions *session.Sessions
	attempts *session.Attempts
	streams  atomic.Int64 // open streams of live stats

	startsRebuild sync.Mutex // held by the request that starts a rebuild, until the rebuild has a fence
}

// New returns the server of the admin API and console. Every route below /admin/v1/ needs the admin token or a
// session. /metrics, /healthz, /readyz and the API reference need none, so the listener must be private. The error
// names all missing fields.
func New(cfg Config) (*httpserver.Server, error) {
	err := httpserver.Required("adminhttp", cfg, "Admin", "Dead", "Store", "Audit", "Queue", "Pace", "Rebuilder", "Shards",
		"Events", "Webhooks", "Policies", "LiveStats", "Gatherer", "Token")
	if err != nil {
		return nil, err
	}
	console, err := pages.New()
	if err != nil {
		return nil, err
	}
	h := &handlers{
		cfg: cfg, token: sha256.Sum256([]byte(cfg.Token)), pages: console, attempts: session.NewAttempts(),
	}
	cfg.Server.BodyLimit, cfg.Server.Upload, cfg.Server.Problem = bodyLimit, h.upload, problemFor
	s := httpserver.New(cfg.Server)
	h.Server, h.sessions = s, session.New(cfg.Token, cfg.EndedSessions, s.Now)
	h.addSales()
	h.addOrders()
	h.addDead()
	h.addGroups()
	h.addWebhooks()
	h.addReports()
	h.addPolicy()
	h.addProfiles()
	h.get("/admin/v1/queue", h.queue)
	h.get("/admin/v1/shards", h.listShards)
	h.post("/admin/v1/rebuild", h.startRebuild)
	h.get("/admin/v1/rebuild", h.showRebuild)
	h.get("/admin/v1/log", h.listLog)
	h.get("/admin/v1/live", h.live)
	h.handleRaw(fiber.MethodGet, "/admin/v1/live/events", h.liveEvents)
	// promhttp's timeout is not used: it reads fasthttp's context while Shutdown writes it. Collectors have their own
	// timeouts.
	metrics := promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, EnableOpenMetrics: true, // exemplars need OpenMetrics
	})
	h.Handle(fiber.MethodGet, "/metrics", func(c *fiber.Ctx) error { return serveHTTP(c, metrics) })
	h.addConsole()
	s.Finish()
	return s, nil
}

var (
	errNoGroup      = httpserver.NewProblem(problem.NotFound, "There is no such consumer group.")
	errNoDeadLetter = httpserver.NewProblem(problem.NotFound, "There is no such dead letter.")
	errNoWebhook    = httpserver.NewProblem(problem.NotFound, "There is no such webhook endpoint.")
	errNoDelivery   = httpserver.NewProblem(problem.NotFound, "There is no such delivery.")
)

// orMissing returns missing in place of an err that wraps sale.ErrNotFound, unless err also wraps sale.ErrUnavailable:
// an *admin.PendingError means that the change is stored, even if its cause wraps sale.ErrNotFound. It returns any
// other err unchanged.
func orMissing(err error, missing *httpserver.Problem) error {
	if errors.Is(err, sale.ErrNotFound) && !errors.Is(err, sale.ErrUnavailable) {
		return missing
	}
	return err
}

// problemFor translates the errors of the packages admin, store, events and webhook.
func problemFor(err error) *httpserver.Problem {
	if pending, ok := errors.AsType[*admin.PendingError](err); ok {
		return httpserver.NewProblem(problem.Unavailable,
			"The change of sale "+pending.Sale.ID+" is stored. It takes effect at the latest when Redis is available again.")
	}
	if refused, ok := errors.AsType[*store.RefusedError](err); ok {
		return httpserver.NewProblem(problem.Conflict, refused.Detail)
	}
	if down, ok := errors.AsType[*admin.UnavailableError](err); ok {
		return httpserver.NewProblem(problem.Unavailable, "The dead letters of "+plural.Named("shard", down.Shards)+
			" cannot be read now; sluice shard list has the reason.")
	}
	switch {
	case errors.Is(err, sale.ErrUnavailable):
		return nil
	case errors.Is(err, events.ErrNoGroup):
		return errNoGroup
	case errors.Is(err, events.ErrNoDeadLetter):
		return errNoDeadLetter
	case errors.Is(err, webhook.ErrNoEndpoint):
		return errNoWebhook
	case errors.Is(err, webhook.ErrNoDelivery):
		return errNoDelivery
	}
	return nil
}
