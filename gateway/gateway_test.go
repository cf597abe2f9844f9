package gateway

import (
	"net/http"
	"testing"
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
