package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
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
	"sluice/backend/sale"
)

// OperatorConfig is what NewOperator needs. Fields without a default in their comment are required.
type OperatorConfig struct {
	Desk     Desk
	Ledger   Auditor
	Queue    QueueStats
	Rebuild  Rebuilder
	Pace     Pace
	Events   EventDesk
	Webhooks WebhookDesk
	Board    Board
	Pages    DeskPages
	MaxReady int64          // of each shard, to be shown
	Ended    session.Others // who else hears that a session was ended early; nil: nobody
	Token    string         // what operators send as Authorization: Bearer ...
	Gatherer prometheus.Gatherer

	Checks []Check       // what /readyz asks
	Drain  time.Duration // 0: DefaultDrain

	Metrics *Metrics         // nil: not exported
	Log     *slog.Logger     // nil: slog.Default
	Now     func() time.Time // nil: time.Now
	Jitter  func() float64   // in [0, 1), spreads Retry-After; nil: random
}

const (
	operatorBodyLimit = 1 << 20
	// operatorTimeout bounds one operator request; an audit of a long queue takes the longest.
	operatorTimeout = 30 * time.Second
	defaultActor    = "operator"
	maxActor        = 64
)

type operator struct {
	*App
	cfg   OperatorConfig
	token [sha256.Size]byte
	rates *rates

	sessions *session.Keeper
	tries    *session.Tries
	watchers atomic.Int64 // open pages of the desk that are told of each sample
}

// NewOperator makes the application for operators. It belongs on a listener of its own, on loopback or behind something that knows
// who may come. /metrics, /healthz, /readyz and the documentation need no token there.
func NewOperator(cfg OperatorConfig) (*App, error) {
	missing := errors.Join(
		required("OperatorConfig.Desk", cfg.Desk != nil), required("OperatorConfig.Ledger", cfg.Ledger != nil),
		required("OperatorConfig.Queue", cfg.Queue != nil), required("OperatorConfig.Token", cfg.Token != ""),
		required("OperatorConfig.Gatherer", cfg.Gatherer != nil), required("OperatorConfig.Rebuild", cfg.Rebuild != nil),
		required("OperatorConfig.Pace", cfg.Pace != nil), required("OperatorConfig.Events", cfg.Events != nil),
		required("OperatorConfig.Webhooks", cfg.Webhooks != nil), required("OperatorConfig.Board", cfg.Board != nil),
		required("OperatorConfig.Pages", cfg.Pages != nil),
	)
	if missing != nil {
		return nil, missing
	}
	a := newApp(settings{log: cfg.Log, metrics: cfg.Metrics, now: cfg.Now, jitter: cfg.Jitter, drain: cfg.Drain, bodyLimit: operatorBodyLimit})
	o := &operator{
		App: a, cfg: cfg, token: sha256.Sum256([]byte(cfg.Token)), rates: newRates(a.now), sessions: session.New(cfg.Token, cfg.Ended, a.now), tries: session.NewTries(),
	}
	a.health(cfg.Checks)
	// Without promhttp's own timeout, which listens to fasthttp's context while Shutdown writes it. Collectors bound themselves.
	scrape := fasthttpadaptor.NewFastHTTPHandler(promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	a.handle(fiber.MethodGet, "/metrics", func(c *fiber.Ctx) error {
		scrape(c.Context())
		return nil
	})
	o.handle(fiber.MethodPost, "/admin/v1/sales", o.createSale)
	o.handle(fiber.MethodGet, "/admin/v1/sales", o.listSales)
	o.handle(fiber.MethodGet, "/admin/v1/sales/:sale", o.showSale)
	o.handle(fiber.MethodPost, "/admin/v1/sales/:sale/pause", o.turn(cfg.Desk.Pause))
	o.handle(fiber.MethodPost, "/admin/v1/sales/:sale/resume", o.turn(cfg.Desk.Resume))
	o.handle(fiber.MethodPost, "/admin/v1/sales/:sale/open", o.turn(cfg.Desk.Open))
	o.handle(fiber.MethodPost, "/admin/v1/sales/:sale/close", o.turn(cfg.Desk.Close))
	o.handle(fiber.MethodPost, "/admin/v1/sales/:sale/restock", o.restock)
	o.handle(fiber.MethodGet, "/admin/v1/sales/:sale/audit", o.audit)
	o.handle(fiber.MethodGet, "/admin/v1/orders", o.listOrderRows)
	o.handle(fiber.MethodGet, "/admin/v1/orders/:order", o.showOrderRow)
	o.handle(fiber.MethodPost, "/admin/v1/orders/:order/cancel", o.cancelOrderRow)
	o.handle(fiber.MethodGet, "/admin/v1/payments", o.listPayments)
	o.handle(fiber.MethodPost, "/admin/v1/payments/:payment/settle", o.settlePayment)
	o.handle(fiber.MethodPost, "/admin/v1/rebuild", o.startRebuild)
	o.handle(fiber.MethodGet, "/admin/v1/rebuild", o.showRebuild)
	o.handle(fiber.MethodGet, "/admin/v1/queue", o.queue)
	o.handle(fiber.MethodGet, "/admin/v1/dead", o.listDead)
	o.handle(fiber.MethodPost, "/admin/v1/dead/retry", o.settleDead(admin.RetryDead))
	o.handle(fiber.MethodPost, "/admin/v1/dead/cancel", o.settleDead(admin.CancelDead))
	o.handle(fiber.MethodGet, "/admin/v1/dead/:order", o.showDead)
	o.handle(fiber.MethodPost, "/admin/v1/dead/:order/retry", o.retryDead)
	o.handle(fiber.MethodPost, "/admin/v1/dead/:order/cancel", o.cancelDead)
	o.rehearsals()
	o.groups()
	o.webhooks()
	o.profiles()
	o.handle(fiber.MethodGet, "/admin/v1/log", o.listLog)
	o.handle(fiber.MethodGet, "/admin/v1/live", o.live)
	o.App.handle(fiber.MethodGet, "/admin/v1/live/events", o.liveEvents)
	o.deskPages()
	a.finish()
	return a, nil
}

// required names a field of a configuration that is not there.
func required(field string, there bool) error {
	if there {
		return nil
	}
	return errors.New("api: " + field + " is missing")
}

// operatorHandler answers a request whose token was right. actor is a copy.
type operatorHandler func(ctx context.Context, c *fiber.Ctx, actor string) error

// handle adds a route that needs the operator's token, or a session that was begun with it. What it does goes on to its end when the operator hangs up.
func (o *operator) handle(method, path string, h operatorHandler) {
	o.App.handle(method, path, func(c *fiber.Ctx) error {
		if o.tokenInURL(c.Context()) {
			return errTokenInURL
		}
		who, err := o.caller(c)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), operatorTimeout)
		defer cancel()
		return h(ctx, c, who.actor)
	})
}

// authorized compares digests, which have one length, so that the time it takes tells nothing about the token.
func (o *operator) authorized(c *fiber.Ctx) bool {
	given := c.Context().Request.Header.PeekAll(fiber.HeaderAuthorization)
	if len(given) != 1 {
		return false
	}
	raw, ok := bearer(utils.UnsafeString(given[0]))
	if !ok {
		return false
	}
	return o.isToken(utils.UnsafeBytes(raw))
}

// actorOf is who does it, for the records: the header X-Actor, as everybody with the token says it.
func actorOf(c *fiber.Ctx) (string, error) {
	given := c.Context().Request.Header.PeekAll("X-Actor")
	switch {
	case len(given) == 0:
		return defaultActor, nil
	case len(given) > 1 || !isActor(utils.UnsafeString(given[0])):
		return "", mistake("X-Actor", "must be sent once, with 1 to 64 bytes of text")
	}
	return strings.Clone(utils.UnsafeString(given[0])), nil
}

// isActor tells whether a name can stand in the records.
func isActor(name string) bool { return len(name) <= maxActor && sale.ValidateBuyer(name) == nil }

// readBody reads the JSON object of an operator's request; without a body it is empty.
func readBody(c *fiber.Ctx) (*object, error) {
	body := c.Context().Request.Body()
	if len(body) == 0 {
		return &object{bad: new(sale.InvalidError)}, nil
	}
	if !isJSON(c.Context().Request.Header.ContentType()) {
		return nil, mistake("Content-Type", "must be application/json")
	}
	return readObject(body)
}
