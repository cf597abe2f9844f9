package client

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// ErrInvalidSignature reports that a webhook is not signed with the secret, or that its timestamp differs from the
// clock by more than five minutes.
var ErrInvalidSignature = errors.New("invalid signature")

// Webhook is a delivery to an endpoint. A delivery may arrive more than once: process it and store its ID in one
// transaction, and respond with 2xx to a known ID.
type Webhook struct {
	ID        string       `json:"-"`    // the same for each attempt
	Type      string       `json:"type"` // order.created, order.paid, order.cancelled, ping
	Timestamp time.Time    `json:"timestamp"`
	Data      WebhookOrder `json:"data"`
}

// WebhookOrder is the order of a webhook. It is empty for a ping.
type WebhookOrder struct {
	OrderID string `json:"order_id"`
	SaleID  string `json:"sale_id"`
	Buyer   string `json:"buyer"`
	Nth     int    `json:"nth"` // slot of the buyer in the sale, from 1
	Price   Price  `json:"price"`
	Was     Status `json:"was"` // previous status
}

// minSecret is the minimum length of a secret in bytes, as in Standard Webhooks.
const minSecret = 24

// VerifyWebhook verifies the signature of a webhook with the secret of the endpoint (whsec_...) and decodes it. The
// body must be the unmodified bytes of the request. The error wraps ErrInvalidSignature unless the secret is malformed
// or the body cannot be decoded.
func VerifyWebhook(secret string, header http.Header, body []byte) (Webhook, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(key) < minSecret {
		return Webhook{}, fmt.Errorf("client: the webhook secret must be whsec_ and base64 of at least %d bytes", minSecret)
	}
	hook, err := standardwebhooks.NewWebhookRaw(key)
	if err != nil {
		return Webhook{}, fmt.Errorf("client: %w", err)
	}
	if err := hook.Verify(body, header); err != nil {
		return Webhook{}, fmt.Errorf("client: %w: %w", ErrInvalidSignature, err)
	}
	w := Webhook{ID: header.Get(standardwebhooks.HeaderWebhookID)}
	if err := json.Unmarshal(body, &w); err != nil {
		return Webhook{}, fmt.Errorf("client: decode the webhook %s: %w", w.ID, err)
	}
	return w, nil
}

const maxWebhook = 1 << 20

// WebhookHandler returns a handler that verifies webhooks and passes them to handle, concurrently. It responds with 400
// to a body that is incomplete or larger than 1 MiB, with 401 to an invalid signature, with 500 if handle returns an
// error, which is not logged, or if the secret is malformed or the body cannot be decoded, and with 204 otherwise. Each
// status except 204 causes another attempt.
func WebhookHandler(secret string, handle func(*http.Request, Webhook) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxWebhook))
		if err != nil {
			http.Error(w, "cannot read the body", http.StatusBadRequest)
			return
		}
		hook, err := VerifyWebhook(secret, r.Header, body)
		if errors.Is(err, ErrInvalidSignature) {
			http.Error(w, "invalid signature", http.StatusUnauthorized)
			return
		}
		if err == nil {
			err = handle(r, hook)
		}
		if err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
