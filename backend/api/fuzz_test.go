package api

import (
	"strings"
	"testing"
	"unicode/utf8"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver/servertest"
)

// The values read from any body of a callback can be stored, and no body causes a panic.
func FuzzReadPayment(f *testing.F) {
	f.Add([]byte(paid(servertest.OrderID(1))))
	f.Add([]byte(`{"type":"payment.failed","data":{"order_id":"7"}}`))
	f.Add([]byte(`{"type":"payment.succeeded","data":{"order_id":"7","amount":-1,"currency":"EUR","reference":"\u0000"}}`))
	f.Add([]byte(`{"type":"other"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := readPayment([]byte("application/json"), body)
		if err != nil || p == nil {
			return
		}
		if p.OrderID <= 0 || len(p.Digest) != 64 ||
			p.Event == store.EventSucceeded && (p.Reference == "" || !sale.IsCurrency(p.Price.Currency)) {
			t.Errorf("%q is read as %+v", body, p)
		}
		if strings.ContainsRune(p.Reference, 0) || !utf8.ValidString(p.Reference) || len(p.Reference) > 255 {
			t.Errorf("reference %q cannot be stored", p.Reference)
		}
	})
}
