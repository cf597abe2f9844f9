package adminhttp

import (
	"strings"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/web/httpserver/servertest"
	web "sluice/backend/web/page"
)

const reportText = `{"verdict":"no-go","rehearsed":"drop","copy":{"id":"` + rehearsed + `","title":"<script>alert(1)</script>"},` +
	`"why":["</style><script>alert(2)</script>"],"seconds":[{"at":100000000000000000,"p99_seconds":1e308},{"at":100000000000000064}]}`

func TestReportsAreStoredAndShown(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	const at = "2026-11-27T10:00:07Z"
	d.report = []byte(reportText)
	head := `{"id":"` + rehearsed + `","sale_id":"drop","verdict":"go","stored_at":"` + at + `","stored_by":"ann"`
	s.exact(d, []exchange{
		{"POST", "/admin/v1/rehearsals/" + rehearsed + "/report", " " + reportText, 201,
			"admin saves " + rehearsed + " of drop: no-go " + reportText, `{"id":"` + rehearsed + `","verdict":"no-go"}`},
		{"GET", "/admin/v1/reports", "", 200, "reports", `{"reports":[` + head + `}]}`},
		{"GET", "/admin/v1/reports/" + rehearsed, "", 200, "report " + rehearsed, head + `,"report":` + reportText + `}`},
	})
}

func TestReportsOfOtherShapesAreRejected(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	for name, row := range map[string]struct{ path, body string }{
		"no JSON":        {rehearsed, "verdict: go"},
		"two documents":  {rehearsed, reportText + reportText},
		"another type":   {rehearsed, `{"verdict":7}`},
		"no UTF-8":       {rehearsed, strings.Replace(reportText, "alert", "\xff", 1)},
		"another copy":   {rehearsed + "x", reportText},
		"a real sale":    {"drop", strings.ReplaceAll(reportText, rehearsed, "drop")},
		"no verdict":     {rehearsed, strings.Replace(reportText, "no-go", "maybe", 1)},
		"no sale":        {rehearsed, strings.Replace(reportText, `"drop"`, `"../x"`, 1)},
		"an empty body":  {rehearsed, ""},
		"deeply nested":  {rehearsed, strings.Repeat("[", 100_000)},
		"an unsafe path": {"..%2f" + sale.RehearsalPrefix, reportText},
	} {
		if a := s.operate("POST", "/admin/v1/rehearsals/"+row.path+"/report", row.body); a.Status != 400 && a.Status != 404 {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
		if got := d.called(); got != "" {
			t.Errorf("%s called the service: %s", name, got)
		}
	}
	// A body of a few kilobytes can decompress to gigabytes.
	a := s.operate("POST", "/admin/v1/rehearsals/"+rehearsed+"/report", string(web.Compress([]byte(reportText))), gzipped)
	servertest.WantProblem(t, a, 400, "bad-request")
	if got := d.called(); got != "" {
		t.Errorf("a compressed body called the service: %s", got)
	}
}

// The page of a report runs no script and has no origin, whatever the report contains.
func TestPageOfAReport(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	d.report = []byte(reportText)
	a := s.operate("GET", "/admin/v1/reports/"+rehearsed+"/page", "")
	if a.Status != 200 || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") ||
		strings.Contains(a.Body, "<script") {
		t.Errorf("%d %v\n%s", a.Status, a.Header, a.Body)
	}
	for _, directive := range []string{"default-src 'none'", "sandbox"} {
		if !strings.Contains(a.Header.Get("Content-Security-Policy"), directive) {
			t.Errorf("the policy %q lacks %s", a.Header.Get("Content-Security-Policy"), directive)
		}
	}
	d.err = sale.ErrNotFound
	servertest.WantProblem(t, s.operate("GET", "/admin/v1/reports/"+rehearsed+"/page", ""), 404, "not-found")
	servertest.WantProblem(t, s.operate("GET", "/admin/v1/reports/"+rehearsed, ""), 404, "not-found")
}
