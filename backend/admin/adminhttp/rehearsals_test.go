package adminhttp

import (
	"strings"
	"testing"

	"sluice/backend/admin"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver/servertest"
)

const rehearsed = sale.RehearsalPrefix + "drop-abc"

func TestRehearsalRoutesReachTheDesk(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	at := "/admin/v1/rehearsals/" + rehearsed
	for _, row := range []struct {
		method, path, body string
		status             int
		asked, answer      string
	}{
		{"POST", "/admin/v1/rehearsals", `{"sale":"drop","stock":5,"opens_at":"2026-11-27T10:00:00Z","closes_at":"2026-11-27T10:05:00Z","beside_real_sales":true}`, 201,
			"admin rehearses {SaleID:drop Stock:5 OpensAt:2026-11-27 10:00:00 +0000 UTC ClosesAt:2026-11-27 10:05:00 +0000 UTC Beside:true}", saleJSONWanted},
		{"GET", "/admin/v1/rehearsals", "", 200, "rehearsals", `{"rehearsals":[` + saleJSONWanted + `]}`},
		{"POST", at + "/remove", "", 200, "admin removes " + rehearsed, `{"id":"` + rehearsed + `","orders":7}`},
		{"POST", at + "/fault", `{"kind":"pause_redis","for":"2s"}`, 200, "admin pauses redis for 2s in " + rehearsed + ", beside false", `{"kind":"pause_redis","orders":0}`},
		{"POST", at + "/fault", `{"kind":"worker_dies"}`, 200, "admin abandons 100 of " + rehearsed + ", beside false", `{"kind":"worker_dies","orders":3}`},
		{"POST", at + "/fault", `{"kind":"worker_dies","orders":5,"beside_real_sales":true}`, 200, "admin abandons 5 of " + rehearsed + ", beside true", `{"kind":"worker_dies","orders":3}`},
	} {
		a := s.operate(row.method, row.path, row.body)
		if a.Status != row.status || a.Body != row.answer+"\n" {
			t.Errorf("%s %s: %d %s\nwant %d %s", row.method, row.path, a.Status, a.Body, row.status, row.answer)
		}
		if got := d.was(); got != row.asked {
			t.Errorf("%s %s asked the desk: %s; want %s", row.method, row.path, got, row.asked)
		}
	}
	for path, body := range map[string]string{
		"/admin/v1/rehearsals": `{"sale":7,"stock":0,"closes_at":"soon","more":1}`, at + "/fault": `{"kind":"explode","for":2,"orders":"all","beside_real_sales":"yes"}`, at + "/remove": `{"now":true}`,
	} {
		servertest.WantProblem(t, s.operate("POST", path, body), 400, "bad-request")
		if got := d.was(); got != "" {
			t.Errorf("POST %s asked the desk: %s", path, got)
		}
	}
	d.err = &admin.RefusedError{Detail: "The sale drop is open."}
	if a := s.operate("POST", at+"/remove", ""); a.Status != 409 || a.Field(t, "detail") != "The sale drop is open." {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	servertest.WantProblem(t, s.operate("POST", at+"/fault", `{"kind":"worker_dies","orders":-9223372036854775808}`), 400, "bad-request")
	if got, want := d.was(), "admin abandons 0 of "+rehearsed+", beside false"; !strings.HasSuffix(got, want) {
		t.Errorf("out of any range, the desk was asked: %s; want %s", got, want)
	}
}
