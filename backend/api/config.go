// Package api serves the public API and the buyer's pages: purchases, orders, sales, payments, notifications, event
// streams, and the routes that edges use. It translates requests into calls of the interfaces in ports.go, and their
// results into JSON, HTML or problem details. It takes no decision about a sale and stores nothing.
package api

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/events/notify"
	"sluice/backend/events/salechange"
	"sluice/backend/payment"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/web/buyer"
	"sluice/backend/web/httpserver"
)

// Config configures New. Fields without a default in their comment are required.
type Config struct {
	Admitter Admitter
	Stock    Stock
	Finder   Finder
	Orders   Orders
	Dead     DeadLetters
	Tokens   Verifier
	Archived func(saleID string) bool // reports whether a sale that Redis does not hold is archived
	Known    func(saleID string) bool // reports whether SQL has a sale that Redis does not hold
	// Intact is called before an order is read from Redis, and returns the function still. If Redis does not have the
	// order, still is called. It reports whether the data of the order's shard is verified and was not rebuilt since the
	// call of Intact. If not, Redis may have lost the order.
	Intact func(id sale.OrderID) (still func(ctx context.Context) bool)
	// QueueFull returns the minimum Retry-After of a purchase that a full queue rejects. home is the part of the sale to
	// which the buyer belongs; it selects the shard.
	QueueFull func(home spread.Part) time.Duration

	Rows        Rows              // reads the status of an order; nil: Orders
	Limiter     UserLimiter       // nil: no per-user limit
	Callbacks   *payment.Verifier // nil: payment callbacks are not configured and get 503
	Details     Details           // nil: sales have no picture and no description
	Points      Points            // nil: points are not configured and get 503
	SaleChanges *salechange.Hub   // nil: event streams and edges poll

	Live          *notify.Live           // nil: event streams of orders get 503
	Subscriptions Subscriptions          // nil: Web Push is not configured and gets 503
	PushKey       string                 // public VAPID key; required with Subscriptions
	CheckPushURL  func(raw string) error // validates endpoints of browsers; required with Subscriptions
	Pages         *buyer.Pages           // nil: no pages for browsers

	MaxStreams int               // open event streams of sales; 0: MaxStreams
	Metrics    *Metrics          // nil: not exported
	Server     httpserver.Config // New sets BodyLimit
}

// MaxStreams is the default bound on open event streams of sales per process.
const MaxStreams = 10_000

const (
	bodyLimit    = 16 << 10
	admitTimeout = 2 * time.Second // of one decision, which continues if the client disconnects
	readTimeout  = time.Second     // of one query of a store
	maxWaiting   = 10_000          // requests with ?wait
)

func (cfg *Config) setDefaults() {
	cfg.MaxStreams = cmp.Or(cfg.MaxStreams, MaxStreams)
	cfg.SaleChanges = cmp.Or(cfg.SaleChanges, &salechange.Hub{})
	if cfg.Rows == nil {
		cfg.Rows = cfg.Orders
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	cfg.Server.BodyLimit = bodyLimit
}

// handlers answers the routes.
type handlers struct {
	*httpserver.Server
	cfg     Config
	metrics *Metrics

	admit deadlines // of decisions
	reads deadlines // of queries

	rows    *rowReads // of status queries
	bypass  *bypassLists
	waiters *orderWaiters
	details *detailsCache
	feeds   *saleFeeds
	edges   atomic.Int64 // edges that listen for sale changes
}

// New returns the server of the public API, to which edges forward requests. The error names all missing fields.
func New(cfg Config) (*httpserver.Server, error) {
	h, err := newHandlers(cfg)
	if err != nil {
		return nil, err
	}
	return h.Server, nil
}

func newHandlers(cfg Config) (*handlers, error) {
	required := []string{
		"Admitter", "Stock", "Finder", "Orders", "Dead", "Tokens", "Archived", "Known", "Intact", "QueueFull",
	}
	if cfg.Subscriptions != nil {
		required = append(required, "PushKey", "CheckPushURL")
	}
	if err := httpserver.Required("api", cfg, required...); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	uncoalesced := cfg.Stock
	cfg.Stock = &coalescedReads{Stock: cfg.Stock}
	s := httpserver.New(cfg.Server)
	h := &handlers{
		Server: s, cfg: cfg, metrics: cfg.Metrics,
		admit: deadlines{timeout: admitTimeout}, reads: deadlines{timeout: readTimeout},
		bypass:  newBypassLists(cfg.Stock, s.Now),
		waiters: newOrderWaiters(cfg.Orders, cfg.Dead, maxWaiting, s.Serving()),
		details: newDetailsCache(cfg.Details, s.Now),
		feeds:   newSaleFeeds(uncoalesced, cfg.SaleChanges, cfg.MaxStreams, s.Serving()),
	}
	h.rows = newRowReads(cfg.Rows, &h.reads)
	h.metrics.streamsLimit.Set(float64(cfg.MaxStreams))
	h.addRoutes()
	s.Finish()
	return h, nil
}

func (h *handlers) addRoutes() {
	h.get("/v1/sales", h.listSales)
	h.get("/v1/sales/:sale", h.showSale)
	h.Handle(fiber.MethodPost, "/v1/sales/:sale/orders", h.purchase)
	h.Handle(fiber.MethodGet, "/v1/sales/:sale/events", h.saleEvents)
	h.get("/v1/orders/:order", h.showOrder)
	h.Handle(fiber.MethodGet, "/v1/orders/:order/events", h.orderEvents)
	h.getAsBuyer("/v1/me/orders", h.listOrders)
	h.getAsBuyer("/v1/me/points", h.points)
	h.Handle(fiber.MethodGet, "/v1/me/events", h.myEvents)
	h.get("/v1/push/key", h.pushKey)
	h.get("/v1/me/push/subscriptions", h.subscriptions)
	h.Handle(fiber.MethodPost, "/v1/me/push/subscriptions", h.subscribe)
	h.Handle(fiber.MethodDelete, "/v1/me/push/subscriptions/:subscription", h.unsubscribe)
	h.Handle(fiber.MethodPost, "/v1/payments", h.payment)
	h.Handle(fiber.MethodGet, "/.sluice/sales/:sale/holders", h.bypassList)
	h.Handle(fiber.MethodGet, "/.sluice/signals", h.saleChanges)
	if h.cfg.Pages != nil {
		h.Handle(fiber.MethodGet, "/", h.salesPage)
		h.Handle(fiber.MethodGet, "/s/:sale", h.salePage)
		h.Handle(fiber.MethodGet, "/assets/:name", h.asset)
	}
}

// get registers a route that answers with the JSON body that read returns.
func (h *handlers) get(path string, read func(c *fiber.Ctx) (body any, err error)) {
	h.Handle(fiber.MethodGet, path, func(c *fiber.Ctx) error {
		body, err := read(c)
		if err != nil {
			return err
		}
		return httpserver.SendJSON(c, fiber.StatusOK, body)
	})
}

// getAsBuyer is get for a route that begins with the verification of the buyer's token.
func (h *handlers) getAsBuyer(path string, read func(c *fiber.Ctx, buyer string) (body any, err error)) {
	h.get(path, func(c *fiber.Ctx) (any, error) {
		buyer, err := h.buyer(c)
		if err != nil {
			return nil, err
		}
		return read(c, buyer)
	})
}
