package adminhttp

import (
	"fmt"
	"testing"
	"time"

	"sluice/backend/admin"
	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver/servertest"
)

func TestManyDeadOrdersAreSettled(t *testing.T) {
	d := newFakeService()
	letter := queue.DeadLetter{Message: servertest.Order(5, "ann", sale.StatusQueued), Reason: "deadlock"}
	d.settled = []admin.Settled{
		{DeadLetter: letter, Status: sale.StatusQueued, UnitReturned: true},
		{DeadLetter: letter, Status: sale.StatusDead, Err: fmt.Errorf("it is being cancelled: %w", sale.ErrConflict)},
		{DeadLetter: letter, Status: sale.StatusDead, Err: sale.ErrNotFound},
	}
	d.next, d.unavailable = "1~", []int{0}
	s := d.serve(t)
	a := s.operate(
		"POST",
		"/admin/v1/dead/retry",
		`{"sale":"drop","error_contains":"Dead","died_before":"2026-11-27T10:00:09Z","limit":7,"after":"0~5-x","reason":"fixed"}`,
		"X-Actor: zoe",
	)
	id := servertest.OrderID(5).String()
	one := `{"order_id":"` + id + `","sale_id":"drop","buyer":"ann","reason":"deadlock","status":"`
	want := `{"dry_run":false,"done":1,"failed":2,"orders":[` + one + `queued","units":1,"given_back":true},` + one + `dead","units":1,"given_back":false,"error":"it is being cancelled: not possible in this state"},` +
		one + `dead","units":1,"given_back":false,"error":"it was settled by another request"}],"died_before":"2026-11-27T10:00:09Z","next":"1~","unavailable_shards":[0]}` + "\n"
	if a.Status != 200 || a.Body != want {
		t.Errorf("%d %s\nwant %s", a.Status, a.Body, want)
	}
	wanted := admin.Settlement{
		Verb: admin.RetryDead,
		DeadQuery: queue.DeadQuery{
			SaleID: "drop", ErrorContains: "Dead", DiedBefore: time.Date(2026, 11, 27, 10, 0, 9, 0, time.UTC), Limit: 7,
			After: "0~5-x",
		},
	}
	if got := d.called(); got != fmt.Sprintf("zoe settles %+v because %q", wanted, "fixed") {
		t.Errorf("called the service: %s", got)
	}
	d.settled, d.next, d.unavailable = nil, "", nil
	a = s.operate("POST", "/admin/v1/dead/cancel", `{"all":true,"dry_run":true}`)
	if a.Body != `{"dry_run":true,"done":0,"failed":0,"orders":[],"died_before":"2026-11-27T10:00:00Z"}`+"\n" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	wanted = admin.Settlement{Verb: admin.CancelDead, DryRun: true, DeadQuery: queue.DeadQuery{Limit: 100}}
	if got := d.called(); got != fmt.Sprintf("admin settles %+v because %q", wanted, "") {
		t.Errorf("called the service: %s", got)
	}
	for _, body := range []string{
		``, `{}`, `{"dry_run":true}`, `{"all":"yes"}`, `{"all":true,"limit":501}`, `{"sale":"no such/sale"}`, `{"all":true,"sale":""}`,
		`{"died_after":"yesterday"}`, `{"all":true,"buyer":"ann"}`,
	} {
		if a := s.operate("POST", "/admin/v1/dead/cancel", body); a.Status != 400 || d.called() != "" {
			t.Errorf("%s: %d %s", body, a.Status, a.Body)
		}
	}
	d.err = sale.ErrUnavailable
	servertest.WantProblem(t, s.operate("POST", "/admin/v1/dead/retry", `{"all":true}`), 503, "temporarily-unavailable")
}
