package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"sluice/client"
)

// A callback is repeated with the same id, and not before the time in Retry-After.
func TestPaymentIsReportedAfterRetryAfter(t *testing.T) {
	var at []time.Time
	var ids []string
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/orders/7", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"order_id":"7","sale_id":"shoe","status":"created"}`)
	})
	mux.HandleFunc("GET /v1/sales/shoe", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"id":"shoe","price":{"amount":1999,"currency":"EUR"}}`)
	})
	mux.HandleFunc("POST /v1/payments", func(w http.ResponseWriter, r *http.Request) {
		at, ids = append(at, time.Now()), append(ids, r.Header.Get("Webhook-Id"))
		if len(at) == 1 {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	sluice := httptest.NewServer(mux)
	defer sluice.Close()
	s := &shop{sales: sluice.URL, sessions: map[string]string{"1": "ann"}, payments: map[string]string{}}
	var err error
	if s.sluice, err = client.New(s.sales); err != nil {
		t.Fatal(err)
	}
	if err := s.newKey(); err != nil {
		t.Fatal(err)
	}
	form := url.Values{"order": {"7"}, "sale": {"shoe"}}.Encode()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/pay", strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.AddCookie(&http.Cookie{Name: "shop", Value: "1"})
	w := httptest.NewRecorder()
	s.pay(w, r)
	if w.Code != http.StatusOK || len(at) != 2 || ids[0] != ids[1] || at[1].Sub(at[0]) < 2*time.Second {
		t.Errorf("status %d after callbacks %v at %v, want two with one id, two seconds apart", w.Code, ids, at)
	}
}
