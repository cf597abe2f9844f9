package adminhttp

import (
	"strings"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver/servertest"
)

const rehearsed = sale.RehearsalPrefix + "drop-abc"

func TestRehearsalRequestsReachTheService(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	at := "/admin/v1/rehearsals/" + rehearsed
	const start = `{"sale":"drop","stock":5,"opens_at":"2026-11-27T10:00:00Z","closes_at":"2026-11-27T10:05:00Z",` +
		`"beside_real_sales":true}`
	s.exact(d, []exchange{
		{"POST", "/admin/v1/rehearsals", start, 201,
			"admin rehearses {SaleID:drop Stock:5 OpensAt:2026-11-27 10:00:00 +0000 UTC ClosesAt:2026-11-27 10:05:00 +0000 " +
				"UTC BesideRealSales:true}", saleJSONWanted},
		{"GET", "/admin/v1/rehearsals", "", 200, "rehearsals", `{"rehearsals":[` + saleJSONWanted + `]}`},
		{"POST", at + "/remove", "", 200, "admin removes " + rehearsed, `{"id":"` + rehearsed + `","orders":7}`},
	})
	for path, body := range map[string]string{
		"/admin/v1/rehearsals": `{"sale":7,"stock":0,"closes_at":"soon","more":1}`, at + "/remove": `{"now":true}`,
	} {
		servertest.WantProblem(t, s.operate("POST", path, body), 400, "bad-request")
		if got := d.called(); got != "" {
			t.Errorf("POST %s called the service: %s", path, got)
		}
	}
	for _, id := range []string{"", "a b", `a\u0000b`, `\uFFFD`} {
		a := s.operate("POST", "/admin/v1/rehearsals", `{"sale":"`+id+`","closes_at":"2026-11-27T10:05:00Z"}`)
		servertest.WantProblem(t, a, 400, "bad-request")
		if got := d.called(); got != "" || !strings.Contains(a.Body, `"field":"sale"`) {
			t.Errorf("sale %s: %s, called the service: %s", id, a.Body, got)
		}
	}
	d.err = store.Refused("The sale drop is open.")
	if a := s.operate("POST", at+"/remove", ""); a.Status != 409 || a.Field(t, "detail") != "The sale drop is open." {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
