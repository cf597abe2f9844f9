package adminhttp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/backend/admin"
	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver/servertest"
)

func TestAdminAPINeedsTheToken(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	for _, route := range s.Server.Routes() {
		if !strings.HasPrefix(route.Path, "/admin/v1/") {
			continue
		}
		path := strings.NewReplacer(":sale", "drop", ":order", "5").Replace(route.Path)
		for _, headers := range [][]string{
			nil, {"Authorization: Bearer wrong"}, {"Authorization: Bearer " + adminToken + "x"},
			{"Authorization: Bearer " + adminToken[:5]}, {"Authorization: Bearer "}, {"Authorization: Basic " + adminToken},
			{"Authorization: Bearer " + adminToken, "Authorization: Bearer " + adminToken},
			{"token: " + adminToken}, {"Authorization: Bearer x.y.z"},
		} {
			a := s.Do(route.Method, path, "", headers...)
			servertest.WantProblem(t, a, 401, "unauthorized")
			if a.Header.Get("WWW-Authenticate") == "" {
				t.Error("no WWW-Authenticate")
			}
		}
	}
	if got := d.called(); got != "" {
		t.Errorf("the service was called: %s", got)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if a := s.Do("GET", path, ""); a.Status != 200 {
			t.Errorf("%s: %d", path, a.Status)
		}
	}
}

const logWanted = `{"number":7,"at":"2026-11-27T10:00:07Z","actor":"ann","action":"sale.pause","target":"drop","detail":"version 2"}`

func TestRequestsReachTheService(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	id := servertest.OrderID(5).String()
	s.exact(d, []exchange{
		{"GET", "/admin/v1/sales", "", 200, "list", `{"sales":[` + saleJSONWanted + `]}`},
		{
			"GET", "/admin/v1/sales/drop", "", 200, "show drop, stats",
			strings.TrimSuffix(saleJSONWanted, "}") + `,"drain_seconds":3}`,
		},
		{"POST", "/admin/v1/sales/drop/pause", "", 200, "admin sets drop to paused", saleJSONWanted},
		{"POST", "/admin/v1/sales/drop/resume", "{}", 200, "admin sets drop to on", saleJSONWanted},
		{"POST", "/admin/v1/sales/drop/open", "", 200, "admin opens drop", saleJSONWanted},
		{"POST", "/admin/v1/sales/drop/close", "", 200, "admin sets drop to closed", saleJSONWanted},
		{
			"POST", "/admin/v1/sales/drop/restock", `{"add":1000000000}`, 200, `admin adds 1000000000 to drop, key ""`,
			saleJSONWanted,
		},
		{
			"GET", "/admin/v1/sales/drop/audit", "", 200, "audit drop",
			`{"sale_id":"drop","stock":100,"left":42,"ready":1,"delayed":0,"leased":0,"ordered":57,"dead":0,` +
				`"returning":0,"unbacked":0,"balanced":true}`,
		},
		{
			"GET", "/admin/v1/sales?q=sh%25&state=sold_out&limit=1&after=x", "", 200,
			"page {Text:sh% State:sold_out After:x Limit:1}", `{"next":"drop","sales":[` + saleJSONWanted + `]}`,
		},
		{"GET", "/admin/v1/sales?q=", "", 200, "page {Text: State: After: Limit:100}", `{"sales":[` + saleJSONWanted + `]}`},
		{
			"GET", "/admin/v1/log", "", 200, "log {Target: Actor: Action: SaleID: Before:0 Limit:100}",
			`{"log":[` + logWanted + `]}`,
		},
		{
			"GET", "/admin/v1/log?target=drop&actor=ann&action=sale&sale=drop&before=9&limit=1", "", 200,
			"log {Target:drop Actor:ann Action:sale SaleID:drop Before:9 Limit:1}", `{"log":[` + logWanted + `],"next":7}`,
		},
		{
			"GET", "/admin/v1/dead?error_contains=no+table&died_after=2026-11-27T10:00:00Z", "", 200,
			"dead {SaleID: Limit:100 After: ErrorContains:no table DiedAfter:2026-11-27 10:00:00 +0000 UTC " +
				"DiedBefore:0001-01-01 00:00:00 +0000 UTC}",
			`{"dead":[]}`,
		},
		{
			"GET", "/admin/v1/dead", "", 200,
			"dead {SaleID: Limit:100 After: ErrorContains: DiedAfter:0001-01-01 00:00:00 +0000 UTC DiedBefore:0001-01-01 " +
				"00:00:00 +0000 UTC}",
			`{"dead":[]}`,
		},
		{
			"GET", "/admin/v1/dead?sale=drop&limit=7&after=0~5-x", "", 200,
			"dead {SaleID:drop Limit:7 After:0~5-x ErrorContains: DiedAfter:0001-01-01 00:00:00 +0000 UTC " +
				"DiedBefore:0001-01-01 00:00:00 +0000 UTC}",
			`{"dead":[]}`,
		},
		{
			"GET", "/admin/v1/dead/" + id, "", 200, "dead letter " + id,
			`{"key":"` + id + `","order_id":"` + id + `","sale_id":"drop","buyer":"ann","message":"` + id + ` drop 1 5 ann",` +
				`"reason":"no such table","attempts":0,"history":[],"crashes":0,"died_at":"2026-11-27T10:00:07Z",` +
				`"cancelling":false,"units":1,"unbacked":false}`,
		},
		{
			"POST", "/admin/v1/dead/" + id + "/retry", `{"reason":"fixed"}`, 200, `admin retries ` + id + ` because "fixed"`,
			`{"key":"` + id + `","order_id":"` + id + `","status":"queued","given_back":false}`,
		},
		{
			"POST", "/admin/v1/dead/" + id + "/cancel", "", 200, `admin cancels ` + id + ` because ""`,
			`{"key":"` + id + `","order_id":"` + id + `","sale_id":"drop","status":"cancelled","given_back":true}`,
		},
		{
			"POST", "/admin/v1/dead/" + id + "/cancel", `{"reason":"fraud"}`, 200, `admin cancels ` + id + ` because "fraud"`,
			`{"key":"` + id + `","order_id":"` + id + `","sale_id":"drop","status":"cancelled","given_back":true}`,
		},
		{
			"POST", "/admin/v1/dead/raw:ab12/cancel", "", 200, `admin drops raw:ab12 because ""`,
			`{"key":"raw:ab12","status":"dropped","given_back":false}`,
		},
		{
			"POST", "/admin/v1/dead/raw%3Aab12/cancel", "", 200, `admin drops raw:ab12 because ""`,
			`{"key":"raw:ab12","status":"dropped","given_back":false}`,
		},
	})
	s.operate("POST", "/admin/v1/sales/drop/restock", `{"add":5}`, `Idempotency-Key: "once"`, "X-Actor: Zoë")
	if got := d.called(); got != `Zoë adds 5 to drop, key "once"` {
		t.Errorf("called %s", got)
	}
	d.wasRow = true
	a := s.operate("POST", "/admin/v1/dead/"+id+"/cancel", "")
	if a.Field(t, "given_back") != "false" || a.Field(t, "status") != "created" {
		t.Errorf("a row was cancelled: %s", a.Body)
	}
	if a := s.operate("POST", "/admin/v1/dead/"+id+"/retry", ""); a.Field(t, "status") != "created" {
		t.Errorf("a row was requeued: %s", a.Body)
	}
}

func TestInvalidRequestsAre400(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	for _, row := range []struct{ method, path, body, header string }{
		{"GET", "/admin/v1/sales/a%00b", "", ""},
		{"POST", "/admin/v1/sales/a{b}/pause", "", ""},
		{"POST", "/admin/v1/sales/drop/pause", `{"now":true}`, ""},
		{"POST", "/admin/v1/sales/drop/pause", "x", ""},
		{"POST", "/admin/v1/sales/drop/restock", "", ""},
		{"POST", "/admin/v1/sales/drop/restock", "{}", ""},
		{"POST", "/admin/v1/sales/drop/restock", `{"add":0}`, ""},
		{"POST", "/admin/v1/sales/drop/restock", `{"add":-5}`, ""},
		{"POST", "/admin/v1/sales/drop/restock", `{"add":1000000001}`, ""},
		{"POST", "/admin/v1/sales/drop/restock", `{"add":9223372036854775808}`, ""},
		{"POST", "/admin/v1/sales/drop/restock", `{"add":1.0}`, ""},
		{"POST", "/admin/v1/sales/drop/restock", `{"add":"5"}`, ""},
		{"POST", "/admin/v1/sales/drop/restock", `{"add":5,"why":"x"}`, ""},
		{"POST", "/admin/v1/sales/drop/restock", `{"add":5}`, "Idempotency-Key: "},
		{"POST", "/admin/v1/sales/drop/restock", `{"add":5}`, "X-Actor: "},
		{"POST", "/admin/v1/sales/drop/restock", `{"add":5}`, "X-Actor: " + strings.Repeat("a", 65)},
		{"GET", "/admin/v1/sales/-/audit", "", ""},
		{"GET", "/admin/v1/dead?limit=0", "", ""},
		{"GET", "/admin/v1/dead?error_contains=%00", "", ""},
		{"GET", "/admin/v1/sales?q=%00", "", ""},
		{"GET", "/admin/v1/log?target=%00x", "", ""},
		{"GET", "/admin/v1/log?after=-1", "", ""},
		{"GET", "/admin/v1/orders?stat=paid", "", ""},
		{"GET", "/admin/v1/payments?before=1", "", ""},
		{"GET", "/admin/v1/sales?limit=1&%01=2", "", ""},
		{"GET", "/admin/v1/groups/points/dead?sale=drop", "", ""},
		{"GET", "/admin/v1/webhooks/ep_1/deliveries?after=1", "", ""},
		{"GET", "/admin/v1/log?actor=a%1Bb", "", ""},
		{"GET", "/admin/v1/log?action=%FF", "", ""},
		{"GET", "/admin/v1/log?sale=", "", ""},
		{"GET", "/admin/v1/log?sale=a%20b", "", ""},
		{"GET", "/admin/v1/dead?limit=1001", "", ""},
		{"GET", "/admin/v1/dead?limit=x", "", ""},
		{"GET", "/admin/v1/dead?died_before=2019-12-31T23:59:59Z", "", ""},
		{"GET", "/admin/v1/live?after=1", "", ""},
		{"GET", "/admin/v1/live/events?limit=1", "", ""},
		{"GET", "/admin/v1/dead?sale=", "", ""},
		{"GET", "/admin/v1/dead?sale=a%20b", "", ""},
		{"POST", "/admin/v1/dead/0/retry", "", ""},
		{"POST", "/admin/v1/dead/raw:x/retry", "", ""},
		{"POST", "/admin/v1/dead/5/retry", `{"now":1}`, ""},
		{"POST", "/admin/v1/dead/x/cancel", "", ""},
		{"POST", "/admin/v1/dead/5/cancel", `{"reason":5}`, ""},
		{"POST", "/admin/v1/dead/5/cancel", `{"reason":"a\u0000"}`, ""},
		{"POST", "/admin/v1/dead/5/cancel", `{"reason":"` + strings.Repeat("a", 201) + `"}`, ""},
		{"POST", "/admin/v1/dead/5/cancel", `{"why":"x"}`, ""},
	} {
		var headers []string
		if row.header != "" {
			headers = append(headers, row.header)
		}
		a := s.operate(row.method, row.path, row.body, headers...)
		if strings.HasSuffix(row.path, "/raw:x/retry") && !strings.Contains(a.Body, "a raw entry can only be cancelled") {
			t.Errorf("%s: %s", row.path, a.Body)
		}
		if a.Status != 400 || a.Field(t, "errors") == "" {
			t.Errorf("%s %s %.50s %s: %d %s", row.method, row.path, row.body, row.header, a.Status, a.Body)
		}
	}
	if got := d.called(); got != "" {
		t.Errorf("the service was called: %s", got)
	}
}

// The problem of an absent field states only that the field must be set, and not which values it accepts.
func TestAbsentFieldsMustBeSet(t *testing.T) {
	s := newFakeService().serve(t)
	for _, row := range []struct{ path, body, fields string }{
		{"sales", `{}`, "title price stock opens_at"},
		{"sales", `{"title":"x","price":{},"stock":5,"opens_at":"2026-11-27T10:00:00Z"}`, "price.amount price.currency"},
		{"sales/drop/restock", ``, "add"},
		{"rehearsals", `{"stock":5}`, "sale closes_at"},
		{"rehearsals/" + rehearsed + "/report", `{"verdict":"go","copy":{"id":"` + rehearsed + `"}}`, "rehearsed"},
		{"webhooks", `{"types":[]}`, "url"},
		{"policy/check", `{}`, "policy"},
	} {
		var want []string
		for field := range strings.FieldsSeq(row.fields) {
			want = append(want, `{"field":"`+field+`","detail":"must be set"}`)
		}
		a := s.operate("POST", "/admin/v1/"+row.path, row.body)
		if a.Status != 400 || !strings.Contains(a.Body, "["+strings.Join(want, ",")+"]") {
			t.Errorf("%s %s: %d %s, want only %s", row.path, row.body, a.Status, a.Body, row.fields)
		}
	}
}

func TestErrorsBecomeDocumentedProblems(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	for _, row := range []struct {
		err    error
		status int
		code   string
		detail string
	}{
		{fmt.Errorf("sale drop: %w", sale.ErrNotFound), 404, "not-found", ""},
		{fmt.Errorf("sale drop: %w", sale.ErrExists), 409, "conflict", "exists"},
		{fmt.Errorf("sale drop is closed: %w", sale.ErrConflict), 409, "conflict", "state"},
		{fmt.Errorf("sale drop: %w", store.Refused("It is closed.")), 409, "conflict", "It is closed."},
		{fmt.Errorf("postgres at 10.0.0.7: %w", sale.ErrUnavailable), 503, "temporarily-unavailable", "try again"},
		{
			&admin.PendingError{Sale: sale.Sale{ID: "drop"}, Cause: servertest.ErrRedisDown}, 503, "temporarily-unavailable",
			"The change of sale drop is stored",
		},
		{
			&admin.PendingError{Sale: sale.Sale{ID: "drop"}, Cause: sale.ErrNotFound}, 503, "temporarily-unavailable",
			"The change of sale drop is stored",
		},
		{
			&admin.PendingError{Sale: sale.Sale{ID: "drop"}, Cause: sale.ErrConflict}, 503, "temporarily-unavailable",
			"The change of sale drop is stored",
		},
		{
			fmt.Errorf("admin: %w", &sale.InvalidError{Fields: []sale.FieldError{{Field: "after", Detail: "is not a cursor"}}}),
			400, "bad-request", "errors",
		},
		{context.DeadlineExceeded, 503, "temporarily-unavailable", ""},
		{errors.New("unexpected error at 10.0.0.7"), 500, "internal-error", ""},
	} {
		d.mu.Lock()
		d.err = row.err
		d.mu.Unlock()
		for _, call := range []struct{ method, path, body string }{
			{
				"POST", "/admin/v1/sales",
				`{"title":"Tea","stock":1,"price":{"amount":0,"currency":"EUR"},"opens_at":"2026-11-27T10:00:00Z"}`,
			},
			{"GET", "/admin/v1/sales", ""}, {"GET", "/admin/v1/sales/drop", ""}, {"POST", "/admin/v1/sales/drop/pause", ""},
			{"POST", "/admin/v1/sales/drop/restock", `{"add":1}`}, {"GET", "/admin/v1/sales/drop/audit", ""},
			{"GET", "/admin/v1/queue", ""}, {"GET", "/admin/v1/dead", ""}, {"POST", "/admin/v1/dead/5/retry", ""},
			{"POST", "/admin/v1/dead/5/cancel", ""}, {"POST", "/admin/v1/dead/raw:x/cancel", ""},
		} {
			if row.status == 409 && call.method == "GET" {
				continue // a read never conflicts
			}
			a := s.operate(call.method, call.path, call.body)
			servertest.WantProblem(t, a, row.status, row.code)
			if strings.Contains(a.Body, "10.0.0.7") {
				t.Errorf("the answer exposes internal addresses: %s", a.Body)
			}
			detail := row.detail
			switch ofSale := strings.HasPrefix(call.path, "/admin/v1/sales/drop"); {
			case ofSale && row.status == 404:
				detail = "no such sale"
			case ofSale && detail == "exists":
				detail = "" // ErrExists does not apply to an existing sale
			case call.path == "/admin/v1/sales" && row.detail == "exists":
				detail = "A sale with this id exists and has other fields. Use another id, or change that sale"
			}
			if !strings.Contains(a.Field(t, "detail"), detail) {
				t.Errorf("%s %s: %v: detail %q", call.method, call.path, row.err, a.Field(t, "detail"))
			}
			if row.status == 503 && a.Header.Get("Retry-After") == "" {
				t.Error("503 without Retry-After")
			}
		}
	}
}

// The 404 for an unknown id has another detail than the 404 for an unknown path.
func TestMissingThingsAreNamed(t *testing.T) {
	d := newFakeService()
	d.err = fmt.Errorf("wrapped: %w", sale.ErrNotFound)
	s := d.serve(t)
	for _, c := range []struct{ method, path, body, missing string }{
		{"GET", "/admin/v1/dead/5", "", "dead letter"},
		{"POST", "/admin/v1/dead/5/retry", "", "dead letter"},
		{"POST", "/admin/v1/dead/5/cancel", "", "dead letter"},
		{"POST", "/admin/v1/dead/raw:x/cancel", "", "dead letter"},
		{"POST", "/admin/v1/rebuild", `{"sale":"drop"}`, "sale"},
		{"POST", "/admin/v1/rehearsals", `{"sale":"drop","closes_at":"2026-11-27T10:05:00Z"}`, "sale"},
		{"POST", "/admin/v1/rehearsals/" + rehearsed + "/remove", "", "rehearsal"},
	} {
		a := s.operate(c.method, c.path, c.body)
		if got, want := a.Field(t, "detail"), "There is no such "+c.missing+"."; a.Status != 404 || got != want {
			t.Errorf("%s %s: %d %q, want %q", c.method, c.path, a.Status, got, want)
		}
	}
}

func TestDeadLettersAreShownWithReasonAndHistory(t *testing.T) {
	d := newFakeService()
	at := time.Date(2026, 11, 27, 10, 0, 9, 5e6, time.UTC)
	d.dead = []queue.DeadLetter{
		{
			Key: servertest.OrderID(5).String(), Message: servertest.Order(5, "ann", sale.StatusQueued), Reason: "rejected",
			History: []queue.Attempt{{At: at, Reason: "deadlock"}}, Crashes: 2, DiedAt: at, Cancelling: true,
		},
		{Key: "raw:ab12", Raw: []byte("x\xff"), Reason: "not a message", DiedAt: at},
	}
	d.next, d.unavailable = "0~17-raw:ab12", []int{1, 3}
	a := d.serve(t).operate("GET", "/admin/v1/dead", "")
	id := servertest.OrderID(5).String()
	want := `{"dead":[{"key":"` + id + `","order_id":"` + id + `","sale_id":"drop","buyer":"ann","message":"` + id + ` drop 1 5 ann","reason":"rejected","attempts":1,"history":[{"at":"2026-11-27T10:00:09.005Z","reason":"deadlock"}],"crashes":2,"died_at":"2026-11-27T10:00:09.005Z","cancelling":true,"units":1,"unbacked":false},` +
		`{"key":"raw:ab12","raw":"x` + "\uFFFD" + `","reason":"not a message","attempts":0,"history":[],"crashes":0,"died_at":"2026-11-27T10:00:09.005Z","cancelling":false,"units":0,"unbacked":false}],"next":"0~17-raw:ab12","unavailable_shards":[1,3]}` + "\n"
	if a.Body != want {
		t.Errorf("%s\nwant %s", a.Body, want)
	}
}

func TestUnavailableShardsOfDeadLettersAreNamed(t *testing.T) {
	d := newFakeService()
	d.err = &admin.UnavailableError{Shards: []int{1, 3}, Cause: sale.ErrUnavailable}
	s := d.serve(t)
	for _, path := range []string{"", "/" + servertest.OrderID(5).String()} {
		a := s.operate("GET", "/admin/v1/dead"+path, "")
		servertest.WantProblem(t, a, 503, "temporarily-unavailable")
		want := "The dead letters of shards 1, 3 cannot be read now; sluice shard list has the reason."
		if !strings.Contains(a.Body, want) {
			t.Errorf("%s: %s, want %s", path, a.Body, want)
		}
	}
}

// The response names unknown parameters as well as invalid ones.
func TestUnknownParametersOfListsAreNamed(t *testing.T) {
	a := newFakeService().serve(t).operate("GET", "/admin/v1/log?after=-1&limit=x", "")
	want := `[{"field":"limit","detail":"must be between 1 and 1000"},{"field":"after","detail":"is not a known parameter"}]`
	if got := a.Field(t, "errors"); a.Status != 400 || !strings.Contains(a.Body, want) {
		t.Errorf("%d %s, want %s", a.Status, got, want)
	}
}
