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

	"sluice/internal/outbound"
)

// Doer sends HTTP requests to addresses that strangers have named (*outbound.Client). Its errors hold no URL, because an endpoint is a secret.
type Doer interface {
	Do(r *http.Request) (*http.Response, error)
}

// WebConfig is what Web Push needs.
type WebConfig struct {
	Key     Key
	Contact string // whom push services may write to: mailto:... or https://...
	Client  Doer
}

const (
	// webTTL is how long a push service keeps a message for a browser that is not there.
	webTTL = 24 * time.Hour
	// maxRefusals in a row end a subscription: nothing will ever reach it.
	maxRefusals = 10
	// maxRetryAfter bounds how long a push service may have a message wait.
	maxRetryAfter = time.Hour
)

// errGone says that the push service does not know the subscription any more.
var errGone = errors.New("the subscription is gone")

// waitError is a temporary refusal that says when to come again.
type waitError struct {
	status int
	after  time.Duration // 0: it does not say
}

func (e *waitError) Error() string { return fmt.Sprintf("the push service answers %d", e.status) }

// webPush sends messages to browsers, encrypted for them (RFC 8291) and signed (RFC 8292).
type webPush struct{ cfg WebConfig }

// notice is the payload, as a service worker gets it.
type notice struct {
	ID      string `json:"id"`
	Tag     string `json:"tag"` // a browser shows one notification for each
	Title   string `json:"title"`
	Body    string `json:"body"`
	Lang    string `json:"lang"`
	Type    string `json:"type"`
	OrderID string `json:"order_id"`
	SaleID  string `json:"sale_id"`
	Status  string `json:"status"`
	At      string `json:"at"`
}

// send returns errGone, *waitError, an error that wraps ErrPermanent, or one that is tried again.
func (w *webPush) send(ctx context.Context, to Subscription, m Message) error {
	lang := Lang(to.Lang)
	text := m.Text(lang)
	payload, err := json.Marshal(notice{
		ID: m.ID, Tag: m.ID, Title: text.Title, Body: text.Body, Lang: to.Lang, Type: string(m.Type), OrderID: m.OrderID.String(), SaleID: m.SaleID,
		Status: string(m.status()), At: m.At.Format(time.RFC3339Nano),
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPermanent, err)
	}
	resp, err := webpush.SendNotificationWithContext(ctx, payload, &webpush.Subscription{Endpoint: to.Endpoint, Keys: webpush.Keys{Auth: to.Auth, P256dh: to.P256dh}}, &webpush.Options{
		HTTPClient: w.cfg.Client, Subscriber: strings.TrimPrefix(w.cfg.Contact, "mailto:"), TTL: int(webTTL.Seconds()), Urgency: webpush.UrgencyHigh,
		Topic:          m.OrderID.String(), // of what waits for a browser, the newest of an order is enough
		VAPIDPublicKey: w.cfg.Key.public, VAPIDPrivateKey: w.cfg.Key.private,
	})
	if err != nil {
		if errors.Is(err, outbound.ErrRefused) {
			return fmt.Errorf("%w: %w", ErrPermanent, err)
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
		return fmt.Errorf("%w: the push service answers %d", ErrPermanent, s)
	}
}

// retryAfter reads whole seconds; the other form, a date, is left to the backoff, because it is by somebody else's clock.
func retryAfter(text string) time.Duration {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(min(n, 1<<20))*time.Second, maxRetryAfter)
}
