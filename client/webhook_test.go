package client

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	hookSecret = "whsec_ZTJlLXBheW1lbnQtc2VjcmV0LTAxMjM0NTY3ODlhYg=="
	hookBody   = `{"type":"order.paid","timestamp":"2026-11-27T10:00:00.123Z","data":{"order_id":"923417600000000123",` +
		`"sale_id":"shoe","buyer":"ann","nth":1,"price":{"amount":1999,"currency":"EUR"},"was":"created"}}`
)

func signed(t *testing.T, at time.Time) http.Header {
	t.Helper()
	hook, err := standardwebhooks.NewWebhook(hookSecret)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := hook.Sign("923417600000000123_paid_ep_1", at, []byte(hookBody))
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	h.Set("webhook-id", "923417600000000123_paid_ep_1")
	h.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	h.Set("webhook-signature", "v1,bm90IHRoaXMgb25l "+signature)
	return h
}

func TestVerifyWebhookRejectsInvalidSignatures(t *testing.T) {
	w, err := VerifyWebhook(hookSecret, signed(t, time.Now()), []byte(hookBody))
	want := WebhookOrder{
		OrderID: "923417600000000123", SaleID: "shoe", Buyer: "ann", Nth: 1, Price: Price{1999, "EUR"}, Was: Created,
	}
	if err != nil || w.ID != "923417600000000123_paid_ep_1" || w.Type != "order.paid" || w.Data != want {
		t.Errorf("got %+v, %v, want the order %+v", w, err, want)
	}
	old, unsigned := signed(t, time.Now().Add(-time.Hour)), signed(t, time.Now())
	unsigned.Del("webhook-signature")
	for name, c := range map[string]struct {
		header http.Header
		body   string
	}{
		"changed body": {signed(t, time.Now()), hookBody + " "}, "old": {old, hookBody},
		"unsigned": {unsigned, hookBody}, "empty": {http.Header{}, ""},
	} {
		if _, err := VerifyWebhook(hookSecret, c.header, []byte(c.body)); !errors.Is(err, ErrInvalidSignature) {
			t.Errorf("%s: got %v, want %v", name, err, ErrInvalidSignature)
		}
	}
	for _, secret := range []string{"", "\n", "whsec_%", "whsec_", "whsec_\r\n", "whsec_c2hvcnQ="} {
		_, err := VerifyWebhook(secret, signed(t, time.Now()), []byte(hookBody))
		if err == nil || errors.Is(err, ErrInvalidSignature) {
			t.Errorf("secret %q: got %v, want an error about the secret", secret, err)
		}
	}
}

func TestWebhookHandlerMapsErrorsToStatus(t *testing.T) {
	var fails error
	h := WebhookHandler(hookSecret, func(*http.Request, Webhook) error { return fails })
	post := func(header http.Header, body string) int {
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Header = header
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	if got := post(signed(t, time.Now()), hookBody); got != 204 {
		t.Errorf("valid webhook: got status %d, want 204", got)
	}
	if got := post(http.Header{}, hookBody); got != 401 {
		t.Errorf("unsigned webhook: got status %d, want 401", got)
	}
	if got := post(signed(t, time.Now()), strings.Repeat("x", 2<<20)); got != 400 {
		t.Errorf("large webhook: got status %d, want 400", got)
	}
	unset := WebhookHandler("", func(*http.Request, Webhook) error { return nil })
	w := httptest.NewRecorder()
	unset.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(hookBody)))
	if w.Code != 500 {
		t.Errorf("no secret: got status %d, want 500", w.Code)
	}
	if fails = errors.New("full"); post(signed(t, time.Now()), hookBody) != 500 {
		t.Error("failed handler: got another status than 500")
	}
}
