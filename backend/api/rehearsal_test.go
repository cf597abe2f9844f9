package api

import (
	"strings"
	"testing"
	"time"

	"sluice/backend/sale"
	"sluice/backend/web/httpserver/servertest"
)

const rehearsed = sale.RehearsalPrefix + "drop-abc"

func (w *world) rehearse() {
	w.do(func() {
		v := w.sales["drop"]
		v.ID = rehearsed
		w.sales[rehearsed] = v
	})
}

// A rehearsal is visible to its own buyers only, and no other sale is visible to them.
func TestRehearsalIsVisibleToItsBuyersOnly(t *testing.T) {
	w := newWorld()
	w.rehearse()
	s := w.serve(t)
	own := "Authorization: " + bearerOf(t, sale.RehearsalBuyer(rehearsed, "1"))
	real := "Authorization: " + bearerOf(t, "ann")
	other := "Authorization: " + bearerOf(t, sale.RehearsalBuyer(sale.RehearsalPrefix+"other-abc", "1"))

	if a := s.Do("GET", "/v1/sales", ""); a.Body != `{"sales":[`+dropJSON+"]}\n" {
		t.Errorf("the public list: %s", a.Body)
	}
	if a := s.Do("GET", "/", ""); strings.Contains(a.Body, rehearsed) || !strings.Contains(a.Body, "/s/drop") {
		t.Errorf("the page of sales: %s", a.Body)
	}
	if a := s.Do("GET", "/s/"+rehearsed, ""); a.Status != 404 {
		t.Errorf("its page: %d", a.Status)
	}
	// A shared cache must not keep a page that depends on a token.
	if a := s.Do("GET", "/s/"+rehearsed, "", own); a.Status != 200 || a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("its page for its buyer: %d, Cache-Control %q", a.Status, a.Header.Get("Cache-Control"))
	}
	for _, path := range []string{"/v1/sales/" + rehearsed, "/v1/sales/" + rehearsed + "/events"} {
		for name, headers := range map[string][]string{
			"no token": nil, "a buyer": {real}, "an invalid token": {"Authorization: Bearer x.y.z"}, "another rehearsal": {other},
		} {
			if a := s.Do("GET", path, "", headers...); a.Status != 404 {
				t.Errorf("GET %s with %s: %d %s", path, name, a.Status, a.Body)
			}
		}
	}
	if a := s.Do("GET", "/v1/sales/"+rehearsed, "", own); a.Field(t, "id") != rehearsed {
		t.Errorf("its buyer: %d %s", a.Status, a.Body)
	}

	for _, c := range []struct{ name, saleID, header string }{
		{"a buyer", rehearsed, real}, {"another rehearsal", rehearsed, other}, {"its buyer", "drop", own},
	} {
		servertest.WantProblem(t, s.Do("POST", "/v1/sales/"+c.saleID+"/orders", "", c.header), 404, "not-found")
		w.do(func() {
			if len(w.requests) > 0 {
				t.Errorf("%s reached the stock of %s", c.name, c.saleID)
			}
		})
	}
	if a := s.Do("POST", "/v1/sales/"+rehearsed+"/orders", "", own, `Idempotency-Key: "k"`); a.Status != 202 {
		t.Fatalf("its buyer: %d %s", a.Status, a.Body)
	}
	w.do(func() {
		if r := w.requests[0]; r.SaleID != rehearsed || r.KeyTTL > 2*time.Minute {
			t.Errorf("the purchase is %+v", r)
		}
	})
}
