package api

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"
	"github.com/valyala/fasthttp"

	"sluice/backend/payment"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/internal/problem"
)

const (
	signatureIsNotGood = "The signature of this callback is not right."
	// notYet is when a callback should come again whose order is accepted and not written: workers need milliseconds for that, unless they are behind.
	notYet = 2 * time.Second
	// notSetUp is when a callback should come again for which nobody has set the secret: that takes a person.
	notSetUp = 5 * time.Minute
)

var (
	errNoCallbacks = refusalOf(problem.Unavailable, "Payment callbacks are not set up here.",
		header{fiber.HeaderRetryAfter, seconds(notSetUp)})
	// The challenge is not a registered scheme: HTTP wants one in every 401.
	challenge    = header{fiber.HeaderWWWAuthenticate, "Webhook"}
	errForged    = refusalOf(problem.Unauthorized, signatureIsNotGood, challenge)
	errStale     = refusalOf(problem.Unauthorized, "This callback was signed more than five minutes from now; is a clock wrong?", challenge)
	errReused    = refusalOf(problem.IdempotencyKeyReused, "This webhook-id came with another text before.")
	errNoRow     = refusalOf(problem.NotFound, "There is no such order.")
	errUnwritten = refusalOf(problem.Unavailable, "This order may be accepted and not written yet. Send the callback again.",
		header{fiber.HeaderRetryAfter, seconds(notYet)})
)

// settlements says how each settlement is answered: with a result, or with a refusal for money that no order took.
var settlements = map[store.Settlement]struct {
	result string
	code   problem.Code
	detail string
}{
	store.SettledPaid:      {result: "paid"},
	store.SettledFailed:    {result: "noted"},
	store.SettledCancelled: {code: problem.OrderCancelled, detail: "The order was cancelled before the money came. The payment is noted, to be given back."},
	store.SettledMismatch:  {code: problem.PaymentMismatch, detail: "This is not the price of the sale. The payment is noted, to be given back."},
	store.SettledTwice:     {code: problem.AlreadyPaid, detail: "Another payment has paid this order. The payment is noted, to be given back."},
}

// payment is POST /v1/payments.
func (p *public) payment(c *fiber.Ctx) error {
	result, err := p.takePayment(c)
	p.metrics.callbacks.WithLabelValues(result).Inc()
	return err
}

func (p *public) takePayment(c *fiber.Ctx) (result string, err error) {
	if p.cfg.Callbacks == nil {
		return "not_set_up", errNoCallbacks
	}
	id, err := p.genuine(c)
	if err != nil {
		return "forged", err
	}
	wanted, err := readPayment(c.Context().Request.Header.ContentType(), c.Context().Request.Body())
	if err != nil {
		return "bad_request", err
	}
	if wanted == nil {
		return "ignored", sendJSON(c, fiber.StatusOK, paymentBody{Result: "ignored"})
	}
	wanted.CallbackID = id
	settled, replayed, err := p.cfg.Payments.Pay(p.admit.next(), *wanted)
	switch {
	case errors.Is(err, sale.ErrNotFound):
		return p.notWritten(wanted.OrderID)
	case errors.Is(err, store.ErrCallbackReused):
		return "reused", errReused
	case err != nil:
		return "unavailable", err
	}
	if replayed {
		c.Context().Response.Header.Set("Idempotency-Replayed", "true")
		result = "replayed"
	} else {
		result = string(settled)
	}
	row, known := settlements[settled]
	switch {
	case !known:
		return result, errInternal
	case row.result != "":
		return result, sendJSON(c, fiber.StatusOK, paymentBody{OrderID: wanted.OrderID.String(), Result: row.result})
	}
	if !replayed {
		p.log.WarnContext(logging(c.Context()), "money came that no order took", "order", wanted.OrderID.String(), "reference", wanted.Reference, "why", string(settled))
	}
	body := problem.New(row.code, row.detail)
	body.OrderID = wanted.OrderID.String()
	return result, refusalWith(body)
}

// genuine checks the signature over the body as it came, and returns a copy of the callback's id.
func (p *public) genuine(c *fiber.Ctx) (id string, err error) {
	h := &c.Context().Request.Header
	id, ok1 := onlyOne(h, "Webhook-Id")
	timestamp, ok2 := onlyOne(h, "Webhook-Timestamp")
	signature, ok3 := onlyOne(h, "Webhook-Signature")
	if !ok1 || !ok2 || !ok3 {
		return "", errForged
	}
	err = p.cfg.Callbacks.Verify(id, timestamp, signature, c.Context().Request.Body())
	switch {
	case errors.Is(err, payment.ErrStale):
		return "", errStale
	case err != nil:
		return "", errForged
	}
	return strings.Clone(id), nil
}

// onlyOne is the value of a header that must come once. It lives as long as the request.
func onlyOne(h *fasthttp.RequestHeader, name string) (value string, ok bool) {
	given := h.PeekAll(name)
	if len(given) != 1 {
		return "", false
	}
	return utils.UnsafeString(given[0]), true
}

// paymentBody is the answer to a callback that was taken.
type paymentBody struct {
	OrderID string `json:"order_id,omitempty"`
	Result  string `json:"result"` // paid, noted or ignored
}

// callbackEvents are the types of callbacks that mean something here.
var callbackEvents = map[string]store.Event{"payment.succeeded": store.EventSucceeded, "payment.failed": store.EventFailed}

// readPayment reads the text of a callback; nil is one of a type that means nothing here. Providers add fields, so unknown ones are passed over.
func readPayment(contentType, body []byte) (*store.Payment, error) {
	if !isJSON(contentType) {
		return nil, mistake("Content-Type", "must be application/json")
	}
	o, err := readObject(body)
	if err != nil {
		return nil, err
	}
	kind := o.text("type")
	if err := o.err(); err != nil {
		return nil, err
	}
	event, known := callbackEvents[kind]
	switch {
	case kind == "":
		return nil, mistake("type", "must be set")
	case !known:
		return nil, nil
	}
	sum := sha256.Sum256(body)
	p := &store.Payment{Digest: hex.EncodeToString(sum[:]), Event: event}
	data := o.child("data")
	if p.OrderID, err = sale.ParseOrderID(data.text("order_id")); err != nil {
		data.mistakeOnce("order_id", err.Error())
	}
	amount, hasAmount := data.integer("amount")
	p.Price = sale.Price{Amount: amount, Currency: data.text("currency")}
	p.Reference = data.text("reference")
	succeeded := event == store.EventSucceeded
	if succeeded && !hasAmount {
		data.mistakeOnce("amount", "must be set")
	}
	if (succeeded || p.Price.Currency != "") && !currencyCode(p.Price.Currency) {
		data.mistakeOnce("currency", "must be three capital letters (ISO 4217)")
	}
	if (succeeded || p.Reference != "") && sale.ValidateBuyer(p.Reference) != nil {
		data.mistakeOnce("reference", "must be 1 to "+strconv.Itoa(sale.MaxBuyerLen)+" bytes of text without control characters")
	}
	return p, o.err()
}

func currencyCode(s string) bool {
	return len(s) == 3 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// mistakeOnce notes a mistake in a field with which nothing was wrong so far.
func (o *object) mistakeOnce(name, detail string) {
	if !o.mistaken(name) {
		o.mistake(name, detail)
	}
}

// notWritten answers a callback about an order that is no row. The order may be on its way to the database; only when nothing is on the way, and it is no row
// even then, it does not exist. Nothing of the callback is kept: whoever sends it sends it again.
func (p *public) notWritten(id sale.OrderID) (result string, err error) {
	ctx := p.look.next()
	stats, err := p.cfg.Dead.Stats(ctx)
	if err != nil {
		return "unavailable", err
	}
	if stats.Ready+stats.Delayed+stats.Leased > 0 {
		return "not_written", errUnwritten
	}
	if stats.Dead > 0 {
		_, err := p.cfg.Dead.DeadLetter(ctx, id)
		if err == nil {
			return "not_written", errUnwritten
		}
		if !errors.Is(err, sale.ErrNotFound) {
			return "unavailable", err
		}
	}
	_, err = p.row(id) // it may have become one between the first look and the count
	switch {
	case err == nil:
		return "not_written", errUnwritten
	case !errors.Is(err, sale.ErrNotFound):
		return "unavailable", err
	}
	return "unknown_order", errNoRow
}
