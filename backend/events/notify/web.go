package notify

import (
	"context"
	"crypto/ecdh"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	webpush "github.com/SherClockHolmes/webpush-go"

	"sluice/backend/events"
	"sluice/internal/outbound"
)

// WebConfig configures Web Push.
type WebConfig struct {
	Key     Key
	Contact string // contact address for push services: mailto:... or https://...
	Client  *outbound.Client
}

// notice is the payload that the service worker receives.
type notice struct {
	ID      string `json:"id"`
	Tag     string `json:"tag"` // the browser shows one notification per tag
	Title   string `json:"title"`
	Body    string `json:"body"`
	Lang    string `json:"lang"`
	Type    string `json:"type"`
	OrderID string `json:"order_id"`
	SaleID  string `json:"sale_id"`
	Status  string `json:"status"`
	At      string `json:"at"`
}

// send makes one attempt to send an event to the push service, encrypted for the browser (RFC 8291) and signed (RFC
// 8292). The push service keeps the message for an offline browser for the duration ttl. The outcome is Sent, or
// Failed, Gone or Refused with an error. retryAfter is the delay that the push service requests; 0: none.
func (w *WebConfig) send(
	ctx context.Context, to Subscription, e events.Event, ttl time.Duration,
) (outcome Outcome, retryAfter time.Duration, err error) {
	text := TextOf(e, Lang(to.Lang))
	payload, _ := json.Marshal(notice{ // it cannot fail
		ID: e.ID, Tag: e.ID, Title: text.Title, Body: text.Body, Lang: to.Lang,
		Type: string(e.Type), OrderID: e.OrderID.String(), SaleID: e.SaleID,
		Status: string(e.Status()), At: e.At.Format(time.RFC3339Nano),
	})
	target := &webpush.Subscription{Endpoint: to.Endpoint, Keys: webpush.Keys{Auth: to.Auth, P256dh: to.P256dh}}
	resp, err := webpush.SendNotificationWithContext(ctx, payload, target, &webpush.Options{
		HTTPClient: w.Client, Subscriber: strings.TrimPrefix(w.Contact, "mailto:"),
		TTL: int(ttl.Seconds()), Urgency: webpush.UrgencyHigh,
		Topic:          e.OrderID.String(), // a newer message of the order replaces one that waits at the push service
		VAPIDPublicKey: w.Key.Public, VAPIDPrivateKey: w.Key.Private,
	})
	switch {
	case errors.Is(err, outbound.ErrRefused):
		return Refused, 0, err
	case err != nil:
		return Failed, 0, err
	}
	defer resp.Body.Close()
	err = fmt.Errorf("the push service returned status %d", resp.StatusCode)
	switch s := resp.StatusCode; {
	case s >= 200 && s < 300:
		return Sent, 0, nil
	case s == http.StatusNotFound || s == http.StatusGone:
		return Gone, 0, err
	case s == http.StatusTooManyRequests || s == http.StatusRequestTimeout || s >= 500:
		return Failed, outbound.RetryAfter(resp.Header.Get("Retry-After"), time.Now()), err
	default:
		return Refused, 0, err
	}
}

// Key is the key pair that identifies the shop to push services (VAPID, RFC 8292), in base64url. Private is a secret.
// Browsers subscribe with Public (applicationServerKey).
type Key struct{ Private, Public string }

// ErrBadKey means that a text is not a private key.
var ErrBadKey = errors.New("must be a P-256 private key of 32 bytes in base64url, as sluice group vapid creates one")

// NewKey generates a key.
func NewKey() (k Key, err error) {
	k.Private, k.Public, err = webpush.GenerateVAPIDKeys()
	return k, err
}

// ParseKey returns the pair of a private key. Error: ErrBadKey.
func ParseKey(private string) (Key, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(private)
	if err != nil {
		return Key{}, ErrBadKey
	}
	k, err := ecdh.P256().NewPrivateKey(raw)
	if err != nil {
		return Key{}, ErrBadKey
	}
	encode := base64.RawURLEncoding.EncodeToString
	key := Key{encode(k.Bytes()), encode(k.PublicKey().Bytes())}
	if key.Private != private { // the decoder ignores line ends
		return Key{}, ErrBadKey
	}
	return key, nil
}
