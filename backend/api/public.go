package api

import (
	"errors"
	"log/slog"
	"net/url"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/admission"
	"sluice/backend/events/salechange"
	"sluice/backend/sale"
	"sluice/backend/telemetry"
	"sluice/internal/problem"
)

// PublicConfig is what NewPublic needs. Fields without a default in their comment are required.
type PublicConfig struct {
	Admitter Admitter
	Stock    Stock
	Orders   Orders
	Dead     DeadLetters
	Tokens   Verifier

	Limiter   UserLimiter              // nil: no per-user limit here
	Known     func(saleID string) bool // tells of sales that SQL has, for when Redis lost one; nil: no such sales
	Checks    []Check                  // what /readyz asks
	Callbacks Callbacks                // nil: payment callbacks are not set up, and get 503
	Payments  Payments                 // required with Callbacks
	Points    Points                   // nil: nobody credits points here, and who asks gets 503
	Signals   Signals                  // nil: event streams are told within a second, and edges by what is said to purchases

	Live          Live                               // nil: nobody tells open pages here, and they get 503
	BuyerOrders   BuyerOrders                        // required with Live
	Subscriptions Subscriptions                      // nil: Web Push is not set up, and who asks gets 503
	PushKey       string                             // the public key that browsers subscribe with; required with Subscriptions
	CheckPushURL  func(raw string) (*url.URL, error) // judges the endpoints that browsers name; required with Subscriptions
	Pages         Pages                              // nil: no pages for browsers

	AdmitTimeout time.Duration                     // bound of one decision, whether or not the client still listens; 0: 2 s
	ReadTimeout  time.Duration                     // bound of one look into a store; 0: 1 s
	Away         func(saleID string) time.Duration // how long buyers who find the queue full are kept away, at least; nil: 5 s
	MaxStreams   int                               // open event streams of sales; 0: MaxStreams
	MaxWaiting   int                               // requests held back by ?wait; 0: 10,000
	Drain        time.Duration                     // 0: DefaultDrain

	Metrics *Metrics          // nil: not exported
	Tracer  *telemetry.Tracer // nil: nothing is traced
	Log     *slog.Logger      // nil: slog.Default
	Now     func() time.Time  // nil: time.Now
	Jitter  func() float64    // in [0, 1), spreads Retry-After; nil: random
}

// MaxStreams is how many event streams of sales a process keeps open, unless it is told otherwise.
const MaxStreams = 10_000

// publicBodyLimit is far above what any public request needs.
const publicBodyLimit = 16 << 10

const (
	defaultAdmitTimeout = 2 * time.Second
	defaultReadTimeout  = time.Second
	defaultMaxWaiting   = 10_000
)

type public struct {
	*App
	cfg   PublicConfig
	admit deadlines // of decisions
	look  deadlines // of looks into a store
	lists *holderLists
}

// NewPublic makes the application that stands behind an edge. The error names every required field that is missing.
func NewPublic(cfg PublicConfig) (*App, error) {
	missing := errors.Join(
		required("PublicConfig.Admitter", cfg.Admitter != nil), required("PublicConfig.Stock", cfg.Stock != nil),
		required("PublicConfig.Orders", cfg.Orders != nil), required("PublicConfig.Dead", cfg.Dead != nil), required("PublicConfig.Tokens", cfg.Tokens != nil),
		required("PublicConfig.Payments", cfg.Payments != nil || cfg.Callbacks == nil),
		required("PublicConfig.BuyerOrders", cfg.BuyerOrders != nil || cfg.Live == nil),
		required("PublicConfig.PushKey and CheckPushURL", cfg.PushKey != "" && cfg.CheckPushURL != nil || cfg.Subscriptions == nil),
	)
	if missing != nil {
		return nil, missing
	}
	if cfg.AdmitTimeout <= 0 {
		cfg.AdmitTimeout = defaultAdmitTimeout
	}
	if cfg.ReadTimeout <= 0 {
		cfg.ReadTimeout = defaultReadTimeout
	}
	if cfg.MaxStreams <= 0 {
		cfg.MaxStreams = MaxStreams
	}
	if cfg.MaxWaiting <= 0 {
		cfg.MaxWaiting = defaultMaxWaiting
	}
	if cfg.Away == nil {
		cfg.Away = func(string) time.Duration { return 5 * time.Second }
	}
	if cfg.Signals == nil {
		cfg.Signals = &salechange.Hub{}
	}
	fresh := cfg.Stock
	cfg.Stock = &sharedLooks{Stock: cfg.Stock}

	a := newApp(settings{log: cfg.Log, metrics: cfg.Metrics, tracer: cfg.Tracer, now: cfg.Now, jitter: cfg.Jitter, drain: cfg.Drain, bodyLimit: publicBodyLimit})
	a.room = newWaitingRoom(cfg.Orders, cfg.Dead, cfg.MaxWaiting, a.stopping)
	a.streams = newFeeds(fresh, cfg.Signals, cfg.MaxStreams, a.stopping)
	a.metrics.streamsLimit.Set(float64(cfg.MaxStreams))
	p := &public{
		App: a, cfg: cfg,
		admit: deadlines{timeout: cfg.AdmitTimeout}, look: deadlines{timeout: cfg.ReadTimeout},
		lists: newHolderLists(cfg.Stock, a.now),
	}
	a.health(cfg.Checks)
	a.handle(fiber.MethodGet, "/v1/sales", p.listSales)
	a.handle(fiber.MethodGet, "/v1/sales/:sale", p.showSale)
	a.handle(fiber.MethodPost, "/v1/sales/:sale/orders", p.purchase)
	a.handle(fiber.MethodGet, "/v1/sales/:sale/events", p.events)
	a.handle(fiber.MethodGet, "/v1/orders/:order", p.showOrder)
	a.handle(fiber.MethodGet, "/v1/orders/:order/events", p.orderEvents)
	a.handle(fiber.MethodGet, "/v1/me/points", p.points)
	a.handle(fiber.MethodGet, "/v1/me/events", p.myEvents)
	a.handle(fiber.MethodGet, "/v1/push/key", p.pushKey)
	a.handle(fiber.MethodGet, "/v1/me/push/subscriptions", p.subscriptions)
	a.handle(fiber.MethodPost, "/v1/me/push/subscriptions", p.subscribe)
	a.handle(fiber.MethodDelete, "/v1/me/push/subscriptions/:subscription", p.unsubscribe)
	a.handle(fiber.MethodPost, "/v1/payments", p.payment)
	a.handle(fiber.MethodGet, "/.sluice/sales/:sale/holders", p.holders)
	a.handle(fiber.MethodGet, signalsPath, p.signals)
	if cfg.Pages != nil {
		p.addPages()
	}
	a.finish()
	return a, nil
}

// unknownSale is the refusal for a sale that Redis does not hold: it does not exist, or Redis lost it and will get it back.
func (p *public) unknownSale(saleID string) error {
	if p.cfg.Known != nil && p.cfg.Known(saleID) {
		return errUnavailable
	}
	return errNoSale
}

var errNoSale = refusalOf(problem.NotFound, "There is no such sale.")

// saleParam takes the sale's id from the path. The copy outlives the request.
func saleParam(c *fiber.Ctx) (string, error) {
	raw := c.Params("sale")
	if err := sale.ValidateID(raw); err != nil {
		return "", &sale.InvalidError{Fields: []sale.FieldError{{Field: "sale", Detail: err.Error()}}}
	}
	return string([]byte(raw)), nil
}

func (p *public) view(saleID string) (admission.View, error) {
	v, err := p.cfg.Stock.View(p.look.next(), saleID)
	if errors.Is(err, sale.ErrNotFound) {
		return v, p.unknownSale(saleID)
	}
	return v, err
}

// looked is the sale that a request names, if whoever asks may see it.
func (p *public) looked(c *fiber.Ctx) (admission.View, error) {
	saleID, err := saleParam(c)
	if err != nil {
		return admission.View{}, err
	}
	if sale.IsRehearsal(saleID) { // real sales are shown to everybody, and no token is looked at
		if buyer, err := p.buyer(c); err != nil || !sale.Meets(buyer, saleID) {
			return admission.View{}, errNoSale
		}
	}
	return p.view(saleID)
}

func (p *public) showSale(c *fiber.Ctx) error {
	v, err := p.looked(c)
	if err != nil {
		return err
	}
	return sendJSON(c, fiber.StatusOK, saleJSON(v))
}

// listed are the sales that the public sees.
func (p *public) listed() ([]admission.View, error) {
	views, err := p.cfg.Stock.List(p.look.next())
	shown := make([]admission.View, 0, len(views)) // others share views
	for _, v := range views {
		if !sale.IsRehearsal(v.ID) {
			shown = append(shown, v)
		}
	}
	return shown, err
}

func (p *public) listSales(c *fiber.Ctx) error {
	views, err := p.listed()
	if err != nil {
		return err
	}
	list := salesBody{Sales: make([]saleBody, len(views))}
	for i, v := range views {
		list.Sales[i] = saleJSON(v)
	}
	sortSales(list.Sales)
	return sendJSON(c, fiber.StatusOK, list)
}
