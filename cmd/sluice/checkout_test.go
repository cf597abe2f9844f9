package main

import (
	"bytes"
	"strings"
	"testing"

	"sluice/backend/payment"
	"sluice/backend/web/buyer"
)

// Without the secret, the checkout takes payments that sluice cannot record.
func TestCheckoutWithoutPaymentSecretIsLogged(t *testing.T) {
	for _, c := range []struct {
		checkout  string
		callbacks *payment.Verifier
		want      bool
	}{
		{"https://shop.example/pay?order={order}", nil, true},
		{"https://shop.example/pay?order={order}", new(payment.Verifier), false},
		{"", nil, false},
	} {
		var log bytes.Buffer
		b := backendFlags{pages: buyer.Config{Checkout: c.checkout}}
		b.cfg.Callbacks = c.callbacks
		b.warn((&program{errOut: &log, getenv: func(string) string { return "" }}).logger())
		if got := strings.Contains(log.String(), "SLUICE_PAYMENT_SECRET is not set"); got != c.want {
			t.Errorf("%+v: %q", c, &log)
		}
	}
}
