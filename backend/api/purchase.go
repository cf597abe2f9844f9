package api

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"
	"github.com/valyala/fasthttp"

	"sluice/backend/admission"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
)

// purchase is POST /v1/sales/{sale}/orders.
func (h *handlers) purchase(c *fiber.Ctx) error {
	start := time.Now()
	outcome, err := h.buy(c)
	h.metrics.purchase(outcome, time.Since(start), httpserver.Span(c.Context()).TraceID())
	return err
}

// buy checks the form of the sale's id, the token, the user's limit, the rest of the request, and then the stock.
// Cheap checks come first, and a client without a token gets no information about sales. outcome is the label for the
// metrics.
func (h *handlers) buy(c *fiber.Ctx) (outcome string, err error) {
	saleID, err := httpserver.SaleParam(c)
	if err != nil {
		return "bad_request", err
	}
	buyer, err := h.buyer(c)
	if err != nil {
		return "unauthorized", err
	}
	if !sale.Meets(buyer, saleID) {
		return string(sale.UnknownSale), httpserver.ErrNoSale
	}
	if err := h.limit(buyer); err != nil {
		return "rate_limited", err
	}
	request, err := purchaseRequest(c, saleID, buyer)
	if err != nil {
		return "bad_request", err
	}
	request.Spread, err = h.cfg.Stock.Spread(h.reads.next(), saleID)
	if err != nil && !errors.Is(err, admission.ErrNotLoaded) { // the script answers for a sale that is not loaded
		return "unavailable", err
	}
	sending := httpserver.Span(c.Context()).Send(saleID)
	request.Trace = sending.Parent()
	d, err := h.cfg.Admitter.Admit(h.admit.next(), request)
	sending.Decided(d.Outcome, d.OrderID, err)
	if err != nil {
		return "unavailable", err
	}
	if request.Spread > 1 {
		h.sumAccepted(&d, saleID)
	}
	if d.Outcome == sale.Accepted || d.Outcome == sale.Replayed {
		h.cfg.Finder.Remember(d.OrderID, saleID) // the buyer will query the status of the order
	}
	return string(d.Outcome), h.answer(c, request, d)
}

// purchaseRequest reads the headers and the body of a purchase. All strings are copies, because the Redis client may
// hold them longer than the request lives.
func purchaseRequest(c *fiber.Ctx, saleID, buyer string) (admission.Request, error) {
	header := &c.Context().Request.Header
	idempotency, err := httpserver.IdempotencyKey(header)
	if err != nil {
		return admission.Request{}, err
	}
	if err := checkPurchaseBody(c); err != nil {
		return admission.Request{}, err
	}
	key, ttl := requestKey(idempotency, utils.UnsafeString(header.Peek(fiber.HeaderXRequestID)))
	request := admission.Request{SaleID: saleID, Buyer: buyer, Key: key, KeyTTL: ttl}
	if ttl > 0 {
		request.Fingerprint = fingerprint(saleID)
		if sale.IsRehearsal(saleID) {
			request.KeyTTL = rehearsalKeyTTL
		}
	}
	return request, nil
}

// checkPurchaseBody accepts no body, or a JSON object without fields. It rejects unknown fields, so that they can get
// a meaning later.
func checkPurchaseBody(c *fiber.Ctx) error {
	if len(c.Context().Request.Body()) == 0 {
		return nil
	}
	o, err := httpserver.ReadObject(c)
	if err != nil {
		return err
	}
	o.RejectUnknown()
	return o.Err()
}

// fingerprint returns a short hash of method, sale and canonical body, which is always the empty object.
func fingerprint(saleID string) string {
	b := make([]byte, 0, 96)
	b = append(append(append(b, "POST\n"...), saleID...), "\n{}"...)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// saleRefusals maps the refusals of a whole sale to their problems, and to the state that the edge may cache.
var saleRefusals = map[sale.Outcome]struct {
	problem *httpserver.Problem
	state   sale.State
}{
	sale.SoldOut:    {httpserver.NewProblem(problem.SoldOut, "All units are sold."), sale.StateSoldOut},
	sale.SalePaused: {httpserver.NewProblem(problem.SalePaused, "The sale is paused. It may resume."), sale.StatePaused},
	sale.SaleClosed: {httpserver.NewProblem(problem.SaleClosed, "The sale is closed."), sale.StateClosed},
}

var (
	errKeyReused = httpserver.NewProblem(problem.IdempotencyKeyReused,
		"This Idempotency-Key was used for another request.")
	errQueueFull = httpserver.NewProblem(problem.Unavailable, "The order queue is full. Please try again.")
)

// edgeTTL is how long an edge may cache a refusal of a whole sale.
const edgeTTL = time.Second

// answer writes the 202 for an order, or returns the problem for a refusal.
func (h *handlers) answer(c *fiber.Ctx, r admission.Request, d admission.Decision) error {
	header, saleID := &c.Context().Response.Header, r.SaleID
	switch d.Outcome {
	case sale.Accepted:
		accepted(c, saleID, d.OrderID)
		return nil
	case sale.Replayed:
		header.Set("Idempotency-Replayed", "true")
		accepted(c, saleID, d.OrderID)
		return nil
	case sale.UnknownSale:
		if h.cfg.Archived(saleID) {
			return saleRefusals[sale.SaleClosed].problem
		}
		return h.unknownSale(saleID)
	case sale.QueueFull:
		wait := h.RetryAfter(h.cfg.QueueFull(spread.HomePart(saleID, r.Buyer, r.Spread)))
		return errQueueFull.With(httpserver.Header{Name: fiber.HeaderRetryAfter, Value: wait})
	case sale.KeyReused:
		return errKeyReused
	case sale.AlreadyBought:
		body := problem.New(problem.AlreadyBought, "You have reached the limit per buyer.")
		body.OrderID = d.OrderID.String()
		return httpserver.ProblemOf(body)
	case sale.NotOpen:
		body := problem.New(problem.SaleNotOpen, "The sale has not opened yet.")
		body.OpensAt = d.OpensAt.UTC().Format(time.RFC3339Nano)
		hint(header, saleID, sale.StateScheduled, d, min(edgeTTL, max(d.RetryAfter, 0)))
		wait := httpserver.Seconds(d.RetryAfter)
		return httpserver.ProblemOf(body, httpserver.Header{Name: fiber.HeaderRetryAfter, Value: wait})
	}
	refusal, ok := saleRefusals[d.Outcome]
	if !ok {
		return httpserver.ErrInternal
	}
	hint(header, saleID, refusal.state, d, edgeTTL)
	return refusal.problem
}

// sumAccepted changes the number of accepted orders in a refusal of a spread sale. The decision has the number of one
// segment; sumAccepted replaces it by the sum over all segments. If a segment cannot be read, the number becomes -1,
// and edges do not cache the refusal: buyers with an order in that segment would not bypass the cache.
func (h *handlers) sumAccepted(d *admission.Decision, saleID string) {
	_, refused := saleRefusals[d.Outcome]
	if !refused && d.Outcome != sale.NotOpen {
		return
	}
	var err error
	if d.Accepted, err = h.cfg.Stock.Accepted(h.reads.next(), saleID); err != nil {
		d.Accepted = -1
	}
}

// hint sets the header Sluice-Sale, which lets an edge cache a refusal of the sale for ttl. Edges do not forward it. In
// the header, ttl is in milliseconds; holders is the number of orders that the sale has accepted, whose buyers bypass
// the cache; and opens is when a scheduled sale opens, in milliseconds since 1970. If d.Accepted is negative, hint sets
// nothing.
func hint(header *fasthttp.ResponseHeader, saleID string, state sale.State, d admission.Decision, ttl time.Duration) {
	if d.Accepted < 0 {
		return
	}
	b := make([]byte, 0, 128)
	b = append(append(append(b, saleID...), ";state="...), state...)
	b = strconv.AppendInt(append(b, ";version="...), d.Version, 10)
	b = strconv.AppendInt(append(b, ";ttl="...), ttl.Milliseconds(), 10)
	b = strconv.AppendInt(append(b, ";holders="...), d.Accepted, 10)
	if state == sale.StateScheduled {
		b = strconv.AppendInt(append(b, ";opens="...), d.OpensAt.UnixMilli(), 10)
	}
	header.SetBytesV("Sluice-Sale", b)
}

// accepted writes the 202. Both ids are safe in JSON and URLs.
func accepted(c *fiber.Ctx, saleID string, id sale.OrderID) {
	resp := &c.Context().Response
	var buf [160]byte
	location := strconv.AppendInt(append(buf[:0], "/v1/orders/"...), int64(id), 10)
	resp.SetStatusCode(fiber.StatusAccepted)
	resp.Header.SetBytesV(fiber.HeaderLocation, location)
	resp.Header.SetContentType(fiber.MIMEApplicationJSON)
	resp.Header.Set(fiber.HeaderCacheControl, "no-store")
	b := append(buf[:0], `{"order_id":"`...)
	b = strconv.AppendInt(b, int64(id), 10)
	b = append(append(b, `","sale_id":"`...), saleID...)
	resp.SetBody(append(b, `","status":"queued"}`...))
}
