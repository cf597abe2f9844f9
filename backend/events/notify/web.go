package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	webpush "github.com/SherClockHolmes/webpush-go"

	"sluice/backend/events"
	"sluice/internal/outbound"
)

// Doer sends HTTP requests to endpoints that buyers have supplied (*outbound.Client). Its errors must not contain the
// URL, because an endpoint is a secret.
type Doer interface {
	Do(r *http.Request) (*http.Response, error)
}

// WebConfig configures Web Push.
type WebConfig struct {
	Key     Key
	Contact string // contact address for push services: mailto:... or https://...
	Client  Doer
}

const (
	// webTTL is how long a push service keeps a message for an offline browser.
	webTTL = 24 * time.Hour
	// maxRefusals is the number of consecutive failures after which a subscription is deleted.
	maxRefusals = 10
	// maxRetryAfter bounds the delay that a push service may request.
	maxRetryAfter = time.Hour
	// maxAnswer is the number of bytes that are read of a response.
	maxAnswer = 4 << 10
)

// errGone means that the subscription no longer exists.
var errGone = errors.New("the subscription is gone")

// waitError is a temporary failure, possibly with a requested delay.
type waitError struct {
	status int
	after  time.Duration // 0: unspecified
}

func (e *waitError) Error() string {
	return fmt.Sprintf("the push service returned status %d", e.status)
}

// webPush sends messages to push services, encrypted for the browser (RFC 8291) and signed (RFC 8292).
type webPush struct{ cfg WebConfig }

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

// send makes one attempt. It returns errGone, *waitError, an error that wraps events.ErrPermanent, or an error after
// which another attempt may succeed.
func (w *webPush) send(ctx context.Context, to Subscription, m Message) error {
	lang := Lang(to.Lang)
	text := m.Text(lang)
	payload, err := json.Marshal(notice{
		ID: m.ID, Tag: m.ID, Title: text.Title, Body: text.Body, Lang: to.Lang,
		Type: string(m.Type), OrderID: m.OrderID.String(), SaleID: m.SaleID,
		Status: string(m.status()), At: m.At.Format(time.RFC3339Nano),
	})
	if err != nil {
		return fmt.Errorf("%w: %w", events.ErrPermanent, err)
	}
	target := &webpush.Subscription{Endpoint: to.Endpoint, Keys: webpush.Keys{Auth: to.Auth, P256dh: to.P256dh}}
	resp, err := webpush.SendNotificationWithContext(ctx, payload, target, &webpush.Options{
		HTTPClient: w.cfg.Client, Subscriber: strings.TrimPrefix(w.cfg.Contact, "mailto:"),
		TTL: int(webTTL.Seconds()), Urgency: webpush.UrgencyHigh,
		Topic:          m.OrderID.String(), // a newer message of the order replaces one that waits at the push service
		VAPIDPublicKey: w.cfg.Key.public, VAPIDPrivateKey: w.cfg.Key.private,
	})
	if err != nil {
		if errors.Is(err, outbound.ErrRefused) {
			return fmt.Errorf("%w: %w", events.ErrPermanent, err)
		}
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	switch s := resp.StatusCode; {
	case s >= 200 && s < 300:
		return nil
	case s == http.StatusNotFound || s == http.StatusGone:
		return errGone
	case s == http.StatusTooManyRequests || s == http.StatusRequestTimeout || s >= 500:
		return &waitError{s, retryAfter(resp.Header.Get("Retry-After"))}
	default:
		return fmt.Errorf("%w: the push service returned status %d", events.ErrPermanent, s)
	}
}

// retryAfter parses a Retry-After header in seconds. It returns 0 for a date, because the clocks may differ.
func retryAfter(text string) time.Duration {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(min(n, 1<<20))*time.Second, maxRetryAfter)
}
