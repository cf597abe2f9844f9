package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"

	"sluice/backend/admission"
	"sluice/backend/sale"
	"sluice/internal/problem"
)

// purchase is POST /v1/sales/{sale}/orders.
func (p *public) purchase(c *fiber.Ctx) error {
	start := time.Now()
	outcome, err := p.buy(c)
	p.metrics.purchase(outcome, time.Since(start))
	return err
}

// buy checks in the order of what a check costs and of what it tells a stranger: the id's form, the token, the user's limit, the
// rest of the request, and only then the stock. The outcome is the name for the metrics.
func (p *public) buy(c *fiber.Ctx) (outcome string, err error) {
	saleID, err := saleParam(c)
	if err != nil {
		return "bad_request", err
	}
	buyer, err := p.buyer(c)
	if err != nil {
		return "unauthorized", err
	}
	if !sale.Meets(buyer, saleID) {
		return sale.UnknownSale.String(), errNoSale
	}
	if err := p.limit(buyer); err != nil {
		if r, ok := errors.AsType[*refusal](err); ok && r.status == fiber.StatusTooManyRequests {
			return "rate_limited", err
		}
		return "unavailable", err
	}
	request, err := purchaseRequest(c, saleID, buyer)
	if err != nil {
		return "bad_request", err
	}
	sending := spanOf(c.Context()).Send(saleID)
	request.Trace = sending.Parent()
	d, err := p.cfg.Admitter.Admit(p.admit.next(), request)
	sending.Decided(d.Outcome, d.OrderID, err)
	if err != nil {
		return "unavailable", err
	}
	if d.Outcome == sale.Accepted || d.Outcome == sale.Replayed {
		p.cfg.Stock.Remember(d.OrderID, saleID) // its buyer asks for it next
	}
	return d.Outcome.String(), p.answer(c, saleID, d)
}

// purchaseRequest reads the headers and the body of a purchase. All strings are copies: the Redis client may hold them for longer
// than the request lives.
func purchaseRequest(c *fiber.Ctx, saleID, buyer string) (admission.Request, error) {
	h := &c.Context().Request.Header
	idempotency, err := idempotencyKey(h)
	if err != nil {
		return admission.Request{}, err
	}
	if err := checkPurchaseBody(h.ContentType(), c.Context().Request.Body()); err != nil {
		return admission.Request{}, err
	}
	key := keyOf(idempotency, utils.UnsafeString(h.Peek(fiber.HeaderXRequestID)))
	if sale.IsRehearsal(saleID) { // what a rehearsal leaves in Redis must not outlive it for long
		key.ttl = min(key.ttl, requestKeyTTL)
	}
	return admission.Request{SaleID: saleID, Buyer: buyer, Key: key.key, KeyTTL: key.ttl, Fingerprint: fingerprint(saleID)}, nil
}

func mistake(field, detail string) error {
	return &sale.InvalidError{Fields: []sale.FieldError{{Field: field, Detail: detail}}}
}

// checkPurchaseBody accepts no body, or a JSON object without fields: a purchase has none today, and a field that were ignored now
// could not be given a meaning later.
func checkPurchaseBody(contentType, body []byte) error {
	if len(body) == 0 {
		return nil
	}
	if !isJSON(contentType) {
		return mistake("Content-Type", "must be application/json")
	}
	if bytes.Equal(body, []byte("{}")) {
		return nil
	}
	o, err := readObject(body)
	if err != nil {
		return err
	}
	o.unknown()
	return o.err()
}

func isJSON(contentType []byte) bool {
	media, _, _ := strings.Cut(utils.UnsafeString(contentType), ";")
	return strings.EqualFold(strings.TrimSpace(media), fiber.MIMEApplicationJSON)
}

// fingerprint is a short hash of what a purchase asks for: method, sale, and the canonical body, which is always the empty object.
func fingerprint(saleID string) string {
	b := make([]byte, 0, 96)
	b = append(append(append(b, "POST\n"...), saleID...), "\n{}"...)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// outcomes says how each outcome that is not an order is answered; state is what the edge may repeat for a while ("" for nothing).
var outcomes = map[sale.Outcome]struct {
	refusal *refusal
	state   sale.State
}{
	sale.KeyReused:     {refusalOf(problem.IdempotencyKeyReused, "This Idempotency-Key was used for another request."), ""},
	sale.AlreadyBought: {refusalOf(problem.AlreadyBought, boughtDetail), ""}, // completed by answer
	sale.SoldOut:       {refusalOf(problem.SoldOut, "Everything is sold."), sale.StateSoldOut},
	sale.NotOpen:       {refusalOf(problem.SaleNotOpen, notOpenDetail), sale.StateScheduled}, // completed by answer
	sale.SalePaused:    {refusalOf(problem.SalePaused, "The sale is paused. It may go on."), sale.StatePaused},
	sale.SaleClosed:    {refusalOf(problem.SaleClosed, "The sale is closed."), sale.StateClosed},
}

var errQueueFull = refusalOf(problem.Unavailable, "More orders wait to be written than may. Please try again.")

const (
	boughtDetail  = "You have bought as much as one buyer may."
	notOpenDetail = "The sale has not begun."
)

// edgeTTL is how long an edge may repeat a refusal of a whole sale without asking again.
const edgeTTL = time.Second

// answer turns a decision into the answer, or into the refusal that says it.
func (p *public) answer(c *fiber.Ctx, saleID string, d admission.Decision) error {
	switch d.Outcome {
	case sale.Accepted:
		accepted(c, saleID, d.OrderID)
		return nil
	case sale.Replayed:
		c.Context().Response.Header.Set("Idempotency-Replayed", "true")
		accepted(c, saleID, d.OrderID)
		return nil
	case sale.UnknownSale:
		return p.unknownSale(saleID)
	case sale.QueueFull:
		return errQueueFull.with(header{fiber.HeaderRetryAfter, p.retryAfter(p.cfg.Away(saleID))})
	}
	row, ok := outcomes[d.Outcome]
	if !ok {
		return errInternal
	}
	ttl := edgeTTL
	switch d.Outcome {
	case sale.AlreadyBought:
		body := problem.New(problem.AlreadyBought, boughtDetail)
		body.OrderID = d.OrderID.String()
		return refusalWith(body)
	case sale.NotOpen:
		body := problem.New(problem.SaleNotOpen, notOpenDetail)
		body.OpensAt = d.OpensAt.UTC().Format(time.RFC3339Nano)
		row.refusal = refusalWith(body, header{fiber.HeaderRetryAfter, seconds(d.RetryAfter)})
		ttl = min(ttl, max(d.RetryAfter, 0))
	}
	if row.state != "" {
		c.Context().Response.Header.Set("Sluice-Sale", saleHint(saleID, row.state, d, ttl))
	}
	return row.refusal
}

// saleHint is the header that tells an edge what it may answer for the sale itself, and for how long. Edges do not pass it on.
//
// holders counts the orders that the sale has accepted so far: whoever holds one must still be let through. opens, in milliseconds since 1970, is
// when a scheduled sale begins.
func saleHint(saleID string, state sale.State, d admission.Decision, ttl time.Duration) string {
	b := make([]byte, 0, 128)
	b = append(append(append(b, saleID...), ";state="...), state...)
	b = strconv.AppendInt(append(b, ";version="...), d.Version, 10)
	b = strconv.AppendInt(append(b, ";ttl="...), ttl.Milliseconds(), 10)
	b = strconv.AppendInt(append(b, ";holders="...), d.Accepted, 10)
	if state == sale.StateScheduled {
		b = strconv.AppendInt(append(b, ";opens="...), d.OpensAt.UnixMilli(), 10)
	}
	return string(b)
}

// accepted writes the 202. Neither id needs escaping in JSON or in a URL.
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
