package api

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"sluice/backend/payment"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver"
	"sluice/internal/problem"
)

const (
	// retryUnwritten is the Retry-After for an order that is accepted but not a row yet. Workers usually need
	// milliseconds.
	retryUnwritten = 2 * time.Second
	// retryUnconfigured is the Retry-After while the signing secret is not configured.
	retryUnconfigured = 5 * time.Minute
)

var (
	errNoCallbacks = httpserver.NewProblem(problem.Unavailable, "Payment callbacks are not configured.",
		httpserver.Header{Name: fiber.HeaderRetryAfter, Value: httpserver.Seconds(retryUnconfigured)})
	// challenge has a scheme that is not registered. HTTP requires a challenge in every 401.
	challenge  = httpserver.Header{Name: fiber.HeaderWWWAuthenticate, Value: "Webhook"}
	errHeaders = httpserver.NewProblem(problem.Unauthorized,
		"Send the headers webhook-id, webhook-timestamp and webhook-signature, each once.", challenge)
	errForged = httpserver.NewProblem(problem.Unauthorized, "The signature of this callback is not valid. "+
		"Compare the secret, decode its base64, and sign the raw body.", challenge)
	errReused    = httpserver.NewProblem(problem.IdempotencyKeyReused, "This webhook-id was used with another body.")
	errNoRow     = httpserver.NewProblem(problem.NotFound, "There is no such order.")
	errUnwritten = httpserver.NewProblem(problem.Unavailable,
		"The order may not be written yet. Please send the callback again.",
		httpserver.Header{Name: fiber.HeaderRetryAfter, Value: httpserver.Seconds(retryUnwritten)})
)

// invalidCallbacks maps errors of a payment.Verifier to problems. All other errors become errForged.
var invalidCallbacks = []struct {
	err error
	as  *httpserver.Problem
}{
	{payment.ErrID, httpserver.NewProblem(problem.Unauthorized,
		"The webhook-id must be 1 to 255 printable ASCII characters without spaces and full stops.", challenge)},
	{payment.ErrTimestamp, httpserver.NewProblem(problem.Unauthorized,
		"The webhook-timestamp must be a whole number of seconds since 1970.", challenge)},
	{payment.ErrStale, httpserver.NewProblem(problem.Unauthorized,
		"The webhook-timestamp is more than five minutes off. Send seconds since 1970, and check the clocks.", challenge)},
}

// settlements maps each settlement to its result, or to the problem for a payment that did not pay the order.
var settlements = map[store.Settlement]struct {
	result string
	code   problem.Code
	detail string
}{
	store.SettledPaid:   {result: "paid"},
	store.SettledFailed: {result: "noted"},
	store.SettledCancelled: {
		code:   problem.OrderCancelled,
		detail: "The order was cancelled before the payment. The payment is recorded for a refund.",
	},
	store.SettledMismatch: {
		code:   problem.PaymentMismatch,
		detail: "The amount is not the price of the sale. The payment is recorded for a refund, unless it has paid the order.",
	},
	store.SettledTwice: {
		code:   problem.AlreadyPaid,
		detail: "The order is already paid. The payment is recorded for a refund.",
	},
}

// payment is POST /v1/payments.
func (h *handlers) payment(c *fiber.Ctx) error {
	result, err := h.takePayment(c)
	h.metrics.callbacks.WithLabelValues(result).Inc()
	return err
}

func (h *handlers) takePayment(c *fiber.Ctx) (result string, err error) {
	if h.cfg.Callbacks == nil {
		return "not_configured", errNoCallbacks
	}
	id, err := h.verifyCallback(c)
	if err != nil {
		return "forged", err
	}
	wanted, err := readPayment(c.Context().Request.Header.ContentType(), c.Context().Request.Body())
	if err != nil {
		return "bad_request", err
	}
	if wanted == nil {
		return "ignored", httpserver.SendJSON(c, fiber.StatusOK, paymentBody{Result: "ignored"})
	}
	wanted.CallbackID = id
	settled, replayed, err := h.cfg.Orders.Pay(httpserver.Span(c.Context()).In(h.admit.next()), *wanted)
	switch {
	case errors.Is(err, sale.ErrNotFound):
		return h.notWritten(wanted.OrderID)
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
		return result, httpserver.ErrInternal
	case row.result != "":
		body := paymentBody{OrderID: wanted.OrderID.String(), Result: row.result}
		return result, httpserver.SendJSON(c, fiber.StatusOK, body)
	}
	if !replayed {
		h.Log().WarnContext(httpserver.LogContext(c.Context()), "payment rejected",
			"order", wanted.OrderID.String(), "reference", wanted.Reference, "reason", string(settled))
	}
	body := problem.New(row.code, row.detail)
	body.OrderID = wanted.OrderID.String()
	return result, httpserver.ProblemOf(body)
}

// verifyCallback verifies the signature of the body, and returns a copy of the callback's id.
func (h *handlers) verifyCallback(c *fiber.Ctx) (id string, err error) {
	header := &c.Context().Request.Header
	id, hasID := onlyOne(header, "Webhook-Id")
	timestamp, hasTime := onlyOne(header, "Webhook-Timestamp")
	signature, hasSignature := onlyOne(header, "Webhook-Signature")
	if !hasID || !hasTime || !hasSignature {
		return "", errHeaders
	}
	err = h.cfg.Callbacks.Verify(id, timestamp, signature, c.Context().Request.Body())
	if err == nil {
		return strings.Clone(id), nil
	}
	for _, row := range invalidCallbacks {
		if errors.Is(err, row.err) {
			return "", row.as
		}
	}
	return "", errForged
}

// paymentBody is the response to an applied callback.
type paymentBody struct {
	OrderID string `json:"order_id,omitempty"`
	Result  string `json:"result"` // paid, noted or ignored
}

// callbackEvents are the types of callbacks that are processed.
var callbackEvents = map[string]store.Event{
	"payment.succeeded": store.EventSucceeded,
	"payment.failed":    store.EventFailed,
}

// readPayment reads the body of a callback. It returns nil for a type that is not processed. Unknown fields are
// ignored, because providers add fields.
func readPayment(contentType, body []byte) (*store.Payment, error) {
	if err := httpserver.CheckJSON(contentType); err != nil {
		return nil, err
	}
	o, err := httpserver.ParseObject(body)
	if err != nil {
		return nil, err
	}
	kind := o.Text("type")
	if err := o.Err(); err != nil {
		return nil, err
	}
	event, known := callbackEvents[kind]
	switch {
	case kind == "":
		return nil, sale.Invalid("type", "must be set")
	case !known:
		return nil, nil
	}
	sum := sha256.Sum256(body)
	p := &store.Payment{Digest: hex.EncodeToString(sum[:]), Event: event}
	data := o.Child("data")
	data.Require("order_id")
	succeeded := event == store.EventSucceeded
	if succeeded {
		data.Require("amount", "currency", "reference")
	}
	if p.OrderID, err = sale.ParseOrderID(data.Text("order_id")); err != nil {
		data.RejectOnce("order_id", err.Error())
	}
	amount, _ := data.Integer("amount")
	p.Price = sale.Price{Amount: amount, Currency: data.Text("currency")}
	p.Reference = data.Text("reference")
	if amount < 0 {
		data.RejectOnce("amount", "must not be negative")
	}
	if (succeeded || p.Price.Currency != "") && !sale.IsCurrency(p.Price.Currency) {
		data.RejectOnce("currency", "must be three capital letters (ISO 4217)")
	}
	if (succeeded || p.Reference != "") && sale.ValidateBuyer(p.Reference) != nil {
		data.RejectOnce("reference",
			"must be 1 to "+strconv.Itoa(sale.MaxBuyerLen)+" bytes of text without control characters")
	}
	return p, o.Err()
}

// notWritten answers a callback for an order that is not a row. The order may still be queued. It is reported as
// unknown only if the queue of its shard is empty, the order is still not a row, and Redis has not lost it. The
// callback is not stored: the provider sends it again.
func (h *handlers) notWritten(id sale.OrderID) (result string, err error) {
	intact := h.cfg.Intact(id)
	ctx := h.reads.next()
	empty, err := h.cfg.Dead.Empty(ctx, id)
	if err != nil {
		return "unavailable", err
	}
	if !empty {
		return "not_written", errUnwritten
	}
	_, err = h.cfg.Dead.DeadLetter(ctx, id)
	if errors.Is(err, sale.ErrNotFound) {
		_, err = h.cfg.Orders.Order(h.reads.next(), id) // it may have been written since the first read
	}
	switch {
	case err == nil:
		return "not_written", errUnwritten
	case !errors.Is(err, sale.ErrNotFound):
		return "unavailable", err
	case !intact(h.reads.next()):
		return "unavailable", lost(id)
	}
	return "unknown_order", errNoRow
}
