package api

import (
	"testing"
	"time"

	"sluice/backend/web/httpserver/servertest"
	"sluice/client"
)

const dropJSON = `{"id":"drop","title":"Tea & <cups>","price":{"amount":1999,"currency":"EUR"},"stock":100,"left":42,"per_buyer":1,"state":"open","opens_at":"2026-11-27T10:00:00Z","closes_at":null}`

func TestSaleIsShownAsDocumented(t *testing.T) {
	s := newWorld().serve(t)
	if a := s.Do("GET", "/v1/sales/drop", ""); a.Status != 200 || a.Body != dropJSON+"\n" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	servertest.WantProblem(t, s.Do("GET", "/v1/sales/other", ""), 404, "not-found")
}

func TestSalesAreListedByOpening(t *testing.T) {
	w := newWorld()
	s := w.serve(t)
	if a := s.Do("GET", "/v1/sales", ""); a.Status != 200 || a.Body != `{"sales":[`+dropJSON+"]}\n" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	early := time.Date(2026, 1, 1, 0, 0, 0, 500e6, time.FixedZone("", 7200))
	w.do(func() {
		other := w.sales["drop"]
		other.OpensAt = early
		other.ID = "aunt"
		w.sales["aunt"] = other
		other.ID, other.ClosesAt = "zebra", early.Add(time.Hour)
		w.sales["zebra"] = other
	})
	a := s.Do("GET", "/v1/sales", "")
	var got struct{ Sales []client.Sale }
	a.Decode(t, &got)
	if len(got.Sales) != 3 || got.Sales[0].ID != "aunt" || got.Sales[1].ID != "zebra" || got.Sales[2].ID != "drop" {
		t.Fatalf("%s", a.Body)
	}
	if text := got.Sales[1].ClosesAt.Format(time.RFC3339Nano); text != "2025-12-31T23:00:00.5Z" {
		t.Errorf("closes_at %s", text)
	}
	w.do(func() { clear(w.sales) })
	if a := s.Do("GET", "/v1/sales", ""); a.Body != `{"sales":[]}`+"\n" {
		t.Errorf("no sales: %s", a.Body)
	}
}
