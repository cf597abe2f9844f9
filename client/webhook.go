package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// ErrForged says that a webhook was not signed with the secret, or is older than five minutes.
var ErrForged = errors.New("the webhook is not genuine")

// Webhook is what sluice posts to an endpoint. The same one may come twice: do its work and note its ID in one transaction, and answer 2xx to an ID that is known.
type Webhook struct {
	ID        string       `json:"-"`    // the same however often it comes
	Type      string       `json:"type"` // order.created, order.paid, order.cancelled, ping
	Timestamp time.Time    `json:"timestamp"`
	Data      WebhookOrder `json:"data"`
}

// WebhookOrder is the order that a webhook is about; it is empty in a ping.
type WebhookOrder struct {
	OrderID string `json:"order_id"`
	SaleID  string `json:"sale_id"`
	Buyer   string `json:"buyer"`
	Nth     int    `json:"nth"` // which of the buyer's places in the sale it takes, from 1
	Price   Price  `json:"price"`
	Was     Status `json:"was"` // before
}

// VerifyWebhook checks a webhook, whose body is as it came, against the endpoint's secret (whsec_...). The error wraps ErrForged, or says that the secret cannot be read.
func VerifyWebhook(secret string, header http.Header, body []byte) (Webhook, error) {
	hook, err := standardwebhooks.NewWebhook(secret)
	if err != nil || secret == "" {
		return Webhook{}, errors.New("client: the secret of a webhook is whsec_ and base64")
	}
	if err := hook.Verify(body, header); err != nil {
		return Webhook{}, fmt.Errorf("client: %w: %w", ErrForged, err)
	}
	w := Webhook{ID: header.Get(standardwebhooks.HeaderWebhookID)}
	if err := json.Unmarshal(body, &w); err != nil {
		return Webhook{}, fmt.Errorf("client: the webhook %s is not sluice's: %w", w.ID, err)
	}
	return w, nil
}

// largestWebhook is far above what any webhook takes.
const largestWebhook = 1 << 20

// WebhookHandler answers webhooks: 401 to what is not genuine, 500 when handle returns an error, so that it comes again, and 204 otherwise.
func WebhookHandler(secret string, handle func(*http.Request, Webhook) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largestWebhook))
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		hook, err := VerifyWebhook(secret, r.Header, body)
		if err != nil {
			http.Error(w, "not genuine", http.StatusUnauthorized)
			return
		}
		if err := handle(r, hook); err != nil {
			http.Error(w, "try again", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
