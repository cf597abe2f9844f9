package api

import (
	"strings"
	"testing"
	"time"

	"sluice/backend/admin"
	"sluice/backend/sale"
)

const rehearsed = sale.RehearsalPrefix + "drop-abc"

func (w *world) rehearse() {
	w.do(func() {
		v := w.sales["drop"]
		v.ID = rehearsed
		w.sales[rehearsed] = v
	})
}

// A rehearsal exists for its own crowd only, and for that crowd nothing else does.
func TestRehearsalIsSeenByItsCrowdAlone(t *testing.T) {
	w := newWorld()
	w.rehearse()
	s := w.serve(t)
	crowd, real := "Authorization: "+bearerOf(t, sale.RehearsalBuyer(rehearsed, "1")), "Authorization: "+bearerOf(t, "ann")
	other := "Authorization: " + bearerOf(t, sale.RehearsalBuyer(sale.RehearsalPrefix+"other-abc", "1"))

	if a := s.ask("GET", "/v1/sales", ""); a.body != `{"sales":[`+dropJSON+"]}\n" {
		t.Errorf("the public list: %s", a.body)
	}
	if a := s.ask("GET", "/", ""); strings.Contains(a.body, rehearsed) || !strings.Contains(a.body, "/s/drop") {
		t.Errorf("the page of sales: %s", a.body)
	}
	if a := s.ask("GET", "/s/"+rehearsed, ""); a.status != 404 {
		t.Errorf("its page: %d", a.status)
	}
	for _, path := range []string{"/v1/sales/" + rehearsed, "/v1/sales/" + rehearsed + "/events"} {
		for name, headers := range map[string][]string{"nobody": nil, "a buyer": {real}, "a forger": {"Authorization: Bearer x.y.z"}, "another crowd": {other}} {
			if a := s.ask("GET", path, "", headers...); a.status != 404 {
				t.Errorf("GET %s by %s: %d %s", path, name, a.status, a.body)
			}
		}
	}
	if a := s.ask("GET", "/v1/sales/"+rehearsed, "", crowd); a.field(t, "id") != rehearsed {
		t.Errorf("its crowd: %d %s", a.status, a.body)
	}

	for _, c := range []struct{ who, saleID, header string }{{"a buyer", rehearsed, real}, {"another crowd", rehearsed, other}, {"the crowd", "drop", crowd}} {
		wantProblem(t, s.ask("POST", "/v1/sales/"+c.saleID+"/orders", "", c.header), 404, "not-found")
		w.do(func() {
			if len(w.requests) > 0 {
				t.Errorf("%s reached the stock of %s", c.who, c.saleID)
			}
		})
	}
	if a := s.ask("POST", "/v1/sales/"+rehearsed+"/orders", "", crowd, `Idempotency-Key: "k"`); a.status != 202 {
		t.Fatalf("its crowd: %d %s", a.status, a.body)
	}
	w.do(func() {
		if r := w.requests[0]; r.SaleID != rehearsed || r.KeyTTL > 2*time.Minute {
			t.Errorf("asked %+v", r)
		}
	})
}

func TestRehearsalRoutesReachTheDesk(t *testing.T) {
	d := newDeskWorld()
	s := d.serve(t)
	at := "/admin/v1/rehearsals/" + rehearsed
	for _, row := range []struct {
		method, path, body string
		status             int
		asked, answer      string
	}{
		{"POST", "/admin/v1/rehearsals", `{"sale":"drop","stock":5,"opens_at":"2026-11-27T10:00:00Z","closes_at":"2026-11-27T10:05:00Z","beside_real_sales":true}`, 201,
			"operator rehearses {SaleID:drop Stock:5 OpensAt:2026-11-27 10:00:00 +0000 UTC ClosesAt:2026-11-27 10:05:00 +0000 UTC Beside:true}", deskJSONWanted},
		{"GET", "/admin/v1/rehearsals", "", 200, "rehearsals", `{"rehearsals":[` + deskJSONWanted + `]}`},
		{"POST", at + "/remove", "", 200, "operator removes " + rehearsed, `{"id":"` + rehearsed + `","orders":7}`},
		{"POST", at + "/fault", `{"kind":"pause_redis","for":"2s"}`, 200, "operator pauses redis for 2s in " + rehearsed + ", beside false", `{"kind":"pause_redis","orders":0}`},
		{"POST", at + "/fault", `{"kind":"worker_dies"}`, 200, "operator abandons 100 of " + rehearsed + ", beside false", `{"kind":"worker_dies","orders":3}`},
		{"POST", at + "/fault", `{"kind":"worker_dies","orders":5,"beside_real_sales":true}`, 200, "operator abandons 5 of " + rehearsed + ", beside true", `{"kind":"worker_dies","orders":3}`},
	} {
		a := s.operate(row.method, row.path, row.body)
		if a.status != row.status || a.body != row.answer+"\n" {
			t.Errorf("%s %s: %d %s\nwant %d %s", row.method, row.path, a.status, a.body, row.status, row.answer)
		}
		if got := d.was(); got != row.asked {
			t.Errorf("%s %s asked the desk: %s; want %s", row.method, row.path, got, row.asked)
		}
	}
	for path, body := range map[string]string{
		"/admin/v1/rehearsals": `{"sale":7,"stock":0,"closes_at":"soon","more":1}`, at + "/fault": `{"kind":"explode","for":2,"orders":"all","beside_real_sales":"yes"}`, at + "/remove": `{"now":true}`,
	} {
		wantProblem(t, s.operate("POST", path, body), 400, "bad-request")
		if got := d.was(); got != "" {
			t.Errorf("POST %s asked the desk: %s", path, got)
		}
	}
	d.err = &admin.RefusedError{Detail: "The sale drop is open."}
	if a := s.operate("POST", at+"/remove", ""); a.status != 409 || a.field(t, "detail") != "The sale drop is open." {
		t.Errorf("%d %s", a.status, a.body)
	}
	wantProblem(t, s.operate("POST", at+"/fault", `{"kind":"worker_dies","orders":-9223372036854775808}`), 400, "bad-request")
	if got, want := d.was(), "operator abandons 0 of "+rehearsed+", beside false"; !strings.HasSuffix(got, want) {
		t.Errorf("out of any range, the desk was asked: %s; want %s", got, want)
	}
}
