package gateway

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestRequestAndResponseAreForwarded(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/v1/orders/1")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte("taken"))
	})
	e := serve(t, open, []string{b.address()})
	got := e.send(t, "POST", "/v1/sales/42/orders?a=b%20c&d", `{"x":1}`, "Accept: text/plain", "accept: */*")
	if got.status != 202 || got.body != "taken" || got.header.Get("Location") != "/v1/orders/1" {
		t.Errorf("the client got %+v", got)
	}
	r := b.last(t)
	if r.method != "POST" || r.target != "/v1/sales/42/orders?a=b%20c&d" || r.body != `{"x":1}` ||
		r.host != "shop.example" {
		t.Errorf("the backend got %+v", r)
	}
	if a := r.header.Values("Accept"); len(a) != 1 || a[0] != "text/plain" {
		t.Errorf("the backend got Accept %q, want the first line", a)
	}
}

// Two gateways cannot share a registry: the second one is an error, and leaves the metrics of the first.
func TestSecondGatewayOfARegistryIsAnError(t *testing.T) {
	registry := prometheus.NewRegistry()
	config := Config{Shared: shared("127.0.0.1:1"), PolicySource: []byte(open),
		Registry: registry}
	if _, err := New(config); err != nil {
		t.Fatal(err)
	}
	before, err := registry.Gather()
	if err != nil || len(before) == 0 {
		t.Fatalf("%d metrics, %v", len(before), err)
	}
	var twice prometheus.AlreadyRegisteredError
	if _, err := New(config); !errors.As(err, &twice) || !strings.Contains(err.Error(), "a registry of its own") {
		t.Errorf("the second gateway: %v", err)
	}
	if after, err := registry.Gather(); err != nil || len(after) != len(before) {
		t.Errorf("%d metrics, %v; want %d", len(after), err, len(before))
	}
}
