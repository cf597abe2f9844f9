package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/admission"
	"sluice/backend/desk"
	"sluice/backend/ledger"
	"sluice/backend/queue"
	"sluice/backend/sale"
)

const adminToken = "the operator's token"

// deskWorld is a desk that answers as told and remembers what it was asked.
type deskWorld struct {
	mu     sync.Mutex
	asked  []string
	err    error
	view   desk.View
	wasRow bool
	dead   []queue.DeadLetter
	next   string
	stats  queue.Stats
}

func newDeskWorld() *deskWorld {
	v := newWorld().sales["drop"]
	return &deskWorld{view: desk.View{Sale: v.Sale, Sold: 57, State: v.State, Live: &v}}
}

func (d *deskWorld) ask(format string, args ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, fmt.Sprintf(format, args...))
	return d.err
}

func (d *deskWorld) was() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := strings.Join(d.asked, ", ")
	d.asked = nil
	return s
}

func (d *deskWorld) Create(_ context.Context, actor string, s sale.Sale) (desk.View, error) {
	err := d.ask("%s creates %+v", actor, s)
	v := d.view
	v.Sale = s
	if s.ID == "" {
		v.ID = "chosen"
	}
	return v, err
}
func (d *deskWorld) Show(_ context.Context, id string) (desk.View, error) {
	return d.view, d.ask("show %s", id)
}
func (d *deskWorld) List(context.Context) ([]desk.View, error) {
	return []desk.View{d.view}, d.ask("list")
}
func (d *deskWorld) Restock(_ context.Context, actor, id string, add int64, key string) (desk.View, error) {
	return d.view, d.ask("%s adds %d to %s, key %q", actor, add, id, key)
}
func (d *deskWorld) Pause(_ context.Context, actor, id string) (desk.View, error) {
	return d.view, d.ask("%s pauses %s", actor, id)
}
func (d *deskWorld) Resume(_ context.Context, actor, id string) (desk.View, error) {
	return d.view, d.ask("%s resumes %s", actor, id)
}
func (d *deskWorld) Close(_ context.Context, actor, id string) (desk.View, error) {
	return d.view, d.ask("%s closes %s", actor, id)
}
func (d *deskWorld) Dead(_ context.Context, q queue.DeadQuery) ([]queue.DeadLetter, string, error) {
	return d.dead, d.next, d.ask("dead %+v", q)
}
func (d *deskWorld) Retry(_ context.Context, actor string, id sale.OrderID) error {
	return d.ask("%s retries %s", actor, id)
}
func (d *deskWorld) Cancel(_ context.Context, actor string, id sale.OrderID, reason string) (desk.Cancelled, error) {
	o := bought(id.Sequence(), "ann", sale.StatusCancelled)
	if d.wasRow {
		o.Status = sale.StatusCreated
	}
	return desk.Cancelled{Order: o, WasRow: d.wasRow}, d.ask("%s cancels %s because %q", actor, id, reason)
}
func (d *deskWorld) Drop(_ context.Context, actor, key string) error {
	return d.ask("%s drops %s", actor, key)
}
func (d *deskWorld) Audit(_ context.Context, id string) (ledger.Report, error) {
	return ledger.Report{SaleID: id, Stock: 100, Left: 42, Ready: 1, Ordered: 57, Balanced: true}, d.ask("audit %s", id)
}
func (d *deskWorld) Stats(context.Context) (queue.Stats, error) { return d.stats, d.ask("stats") }

func (d *deskWorld) config() OperatorConfig {
	return OperatorConfig{
		Desk: d, Ledger: d, Queue: d, Token: adminToken, Gatherer: prometheus.NewRegistry(), Log: quiet(), Jitter: func() float64 { return 0 }, Drain: 5 * time.Second,
	}
}

func (d *deskWorld) serve(t testing.TB) *site {
	t.Helper()
	a, err := NewOperator(d.config())
	return serve(t, a, err)
}

func (s *site) operate(method, path, body string, headers ...string) answer {
	s.t.Helper()
	return s.ask(method, path, body, append(headers, "Authorization: Bearer "+adminToken, "Content-Type: application/json")...)
}

const deskJSONWanted = `{"id":"drop","title":"Tea & <cups>","price":{"amount":1999,"currency":"EUR"},"stock":100,"left":42,"per_buyer":1,"state":"open","opens_at":"2026-11-27T10:00:00Z","closes_at":null,"switch":"on","sold":57,"accepted":58,"version":3,"applied":true}`

func TestOperatorNeedsTheToken(t *testing.T) {
	d := newDeskWorld()
	s := d.serve(t)
	for _, route := range s.app.routes {
		if !strings.HasPrefix(route.path, "/admin/") {
			continue
		}
		path := strings.NewReplacer(":sale", "drop", ":order", "5").Replace(route.path)
		for _, headers := range [][]string{
			nil, {"Authorization: Bearer wrong"}, {"Authorization: Bearer " + adminToken + "x"}, {"Authorization: Bearer " + adminToken[:5]}, {"Authorization: Bearer "}, {"Authorization: Basic " + adminToken},
			{"token: " + adminToken}, {"Authorization: Bearer " + adminToken, "Authorization: Bearer " + adminToken}, {"Authorization: " + bearerOf(t, "ann")},
		} {
			a := s.ask(route.method, path, "", headers...)
			wantProblem(t, a, 401, "unauthorized")
			if a.header.Get("WWW-Authenticate") == "" {
				t.Error("no WWW-Authenticate")
			}
		}
	}
	if got := d.was(); got != "" {
		t.Errorf("the desk was asked: %s", got)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if a := s.ask("GET", path, ""); a.status != 200 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

func TestCreateSalePassesOnEveryField(t *testing.T) {
	d := newDeskWorld()
	s := d.serve(t)
	a := s.operate("POST", "/admin/v1/sales", `{"id":"drop","title":"Tea","stock":100,"price":{"amount":1999,"currency":"EUR"},"per_buyer":2,
		"opens_at":"2026-11-27T12:00:00.0015+02:00","closes_at":"2026-11-28T10:00:00Z"}`, "X-Actor: mia")
	if a.status != 201 || a.header.Get("Location") != "/admin/v1/sales/drop" || a.field(t, "id") != "drop" || a.field(t, "version") != "0" || a.field(t, "sold") != "57" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	want := fmt.Sprintf("mia creates %+v", sale.Sale{
		ID: "drop", Title: "Tea", Price: sale.Price{Amount: 1999, Currency: "EUR"}, Stock: 100, PerBuyer: 2, Switch: sale.On,
		OpensAt: time.Date(2026, 11, 27, 10, 0, 0, 1e6, time.UTC), ClosesAt: time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC),
	})
	if got := d.was(); got != want {
		t.Errorf("asked %s\nwant  %s", got, want)
	}
	a = s.operate("POST", "/admin/v1/sales", `{"title":"Tea","stock":1,"price":{"amount":0,"currency":"EUR"},"opens_at":"2026-11-27T10:00:00Z","closes_at":null}`)
	if a.status != 201 || a.header.Get("Location") != "/admin/v1/sales/chosen" {
		t.Errorf("without id, per_buyer and end: %d %s", a.status, a.body)
	}
	if got := d.was(); !strings.Contains(got, "PerBuyer:1 ") || !strings.HasPrefix(got, "operator creates") {
		t.Errorf("asked %s", got)
	}
}

func TestCreateSaleNamesEveryMistake(t *testing.T) {
	d := newDeskWorld()
	s := d.serve(t)
	good := map[string]string{
		"id": `"drop"`, "title": `"Tea"`, "stock": "100", "price": `{"amount":1999,"currency":"EUR"}`, "per_buyer": "1", "opens_at": `"2026-11-27T10:00:00Z"`, "closes_at": `"2026-11-28T10:00:00Z"`,
	}
	body := func(changes map[string]string) string {
		var members []string
		for name, value := range good {
			if change, ok := changes[name]; ok {
				value = change
			}
			if value != "" {
				members = append(members, `"`+name+`":`+value)
			}
		}
		for name, value := range changes {
			if _, ok := good[name]; !ok {
				members = append(members, `"`+name+`":`+value)
			}
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	type change = map[string]string
	for name, row := range map[string]struct {
		change change
		fields string // all of them, sorted by mention
	}{
		"stock 0":                {change{"stock": "0"}, "stock"},
		"stock -1":               {change{"stock": "-1"}, "stock"},
		"stock 2^63":             {change{"stock": "9223372036854775808"}, "stock"},
		"stock -2^63-1":          {change{"stock": "-9223372036854775809"}, "stock"},
		"stock above the bound":  {change{"stock": "1000000001"}, "stock"},
		"stock with a fraction":  {change{"stock": "1.5"}, "stock"},
		"stock like a float":     {change{"stock": "100.0"}, "stock"},
		"stock with an exponent": {change{"stock": "1e2"}, "stock"},
		"stock in quotes":        {change{"stock": `"100"`}, "stock"},
		"stock null":             {change{"stock": "null"}, "stock"},
		"stock true":             {change{"stock": "true"}, "stock"},
		"no stock":               {change{"stock": ""}, "stock"},
		"per_buyer 0":            {change{"per_buyer": "0"}, "per_buyer"},
		"per_buyer -1":           {change{"per_buyer": "-1"}, "per_buyer"},
		"per_buyer huge":         {change{"per_buyer": "4294967297"}, "per_buyer"},
		"per_buyer above stock":  {change{"per_buyer": "3", "stock": "2"}, "per_buyer"},
		"per_buyer null":         {change{"per_buyer": "null"}, "per_buyer"},
		"closes before it opens": {change{"closes_at": `"2026-11-27T09:59:59Z"`}, "closes_at"},
		"closes as it opens":     {change{"closes_at": `"2026-11-27T10:00:00Z"`}, "closes_at"},
		"closes in year 1":       {change{"closes_at": `"0001-01-01T00:00:00Z"`}, "closes_at"},
		"opens in 1969":          {change{"opens_at": `"1969-12-31T23:59:59Z"`}, "opens_at"},
		"opens at no time":       {change{"opens_at": `"tomorrow"`}, "opens_at"},
		"opens without zone":     {change{"opens_at": `"2026-11-27T10:00:00"`}, "opens_at"},
		"opens on Feb 30":        {change{"opens_at": `"2026-02-30T10:00:00Z"`}, "opens_at"},
		"opens at a number":      {change{"opens_at": "1795773600"}, "opens_at"},
		"never opens":            {change{"opens_at": ""}, "opens_at"},
		"opens null":             {change{"opens_at": "null"}, "opens_at"},
		"no title":               {change{"title": ""}, "title"},
		"blank title":            {change{"title": `" "`}, "title"},
		"title with NUL":         {change{"title": `"a\u0000b"`}, "title"},
		"title too long":         {change{"title": `"` + strings.Repeat("a", 201) + `"`}, "title"},
		"title a number":         {change{"title": "5"}, "title"},
		"id empty":               {change{"id": `""`}, "id"},
		"id null":                {change{"id": "null"}, "id"},
		"id with a brace":        {change{"id": `"a{b}"`}, "id"},
		"id too long":            {change{"id": `"` + strings.Repeat("a", 65) + `"`}, "id"},
		"no price":               {change{"price": ""}, "price"},
		"price a number":         {change{"price": "1999"}, "price"},
		"price null":             {change{"price": "null"}, "price"},
		"price without amount":   {change{"price": `{"currency":"EUR"}`}, "price.amount"},
		"price negative":         {change{"price": `{"amount":-1,"currency":"EUR"}`}, "price.amount"},
		"price with a fraction":  {change{"price": `{"amount":19.99,"currency":"EUR"}`}, "price.amount"},
		"price in small letters": {change{"price": `{"amount":1,"currency":"eur"}`}, "price.currency"},
		"price with more":        {change{"price": `{"amount":1,"currency":"EUR","vat":1}`}, "price.vat"},
		"switch":                 {change{"switch": `"on"`}, "switch"},
		"Title":                  {change{"Title": `"x"`}, "Title"},
		"everything at once": {change{"id": `"-"`, "title": "1", "stock": "0", "price": `{"amount":"x","currency":5,"vat":1}`, "per_buyer": "0.5", "opens_at": `"x"`, "closes_at": "{}", "more": "[]"},
			"closes_at id more opens_at per_buyer price.amount price.currency price.vat stock title"},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.operate("POST", "/admin/v1/sales", body(row.change))
			wantProblem(t, a, 400, "bad-request")
			var got struct {
				Errors []sale.FieldError `json:"errors"`
			}
			decode(t, a, &got)
			if fields := fieldsOf(got.Errors); fields != row.fields {
				t.Errorf("complains of %q, want %q: %s", fields, row.fields, a.body)
			}
			for _, e := range got.Errors {
				if e.Detail == "" {
					t.Errorf("says nothing about %s", e.Field)
				}
			}
		})
	}
	for _, text := range map[string]string{
		"twice": `{"stock":1,"stock":100}`, "twice in price": `{"price":{"amount":1,"amount":2}}`, "behind": body(nil) + "x", "array": "[" + body(nil) + "]", "deep": strings.Repeat(`{"a":`, 10_000),
		"huge number": `{"stock":` + strings.Repeat("9", 5000) + `}`,
	} {
		wantProblem(t, s.operate("POST", "/admin/v1/sales", text), 400, "bad-request")
	}
	wantProblem(t, s.operate("POST", "/admin/v1/sales", ""), 400, "bad-request")
	wantProblem(t, s.ask("POST", "/admin/v1/sales", body(nil), "Authorization: Bearer "+adminToken), 400, "bad-request")
	wantProblem(t, s.operate("POST", "/admin/v1/sales", strings.Repeat(" ", 1<<20+1)), 413, "too-large")
	if got := d.was(); got != "" {
		t.Errorf("the desk was asked: %s", got)
	}
}

func fieldsOf(errors []sale.FieldError) string {
	var names []string
	for _, e := range errors {
		names = append(names, e.Field)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestOperatorCallsReachTheDesk(t *testing.T) {
	d := newDeskWorld()
	s := d.serve(t)
	id := orderID(5).String()
	for _, row := range []struct{ method, path, body, asked, answer string }{
		{"GET", "/admin/v1/sales", "", "list", `{"sales":[` + deskJSONWanted + `]}`},
		{"GET", "/admin/v1/sales/drop", "", "show drop", deskJSONWanted},
		{"POST", "/admin/v1/sales/drop/pause", "", "operator pauses drop", deskJSONWanted},
		{"POST", "/admin/v1/sales/drop/resume", "{}", "operator resumes drop", deskJSONWanted},
		{"POST", "/admin/v1/sales/drop/close", "", "operator closes drop", deskJSONWanted},
		{"POST", "/admin/v1/sales/drop/restock", `{"add":1000000000}`, `operator adds 1000000000 to drop, key ""`, deskJSONWanted},
		{"GET", "/admin/v1/sales/drop/audit", "", "audit drop", `{"sale_id":"drop","stock":100,"left":42,"ready":1,"delayed":0,"leased":0,"ordered":57,"dead":0,"balanced":true}`},
		{"GET", "/admin/v1/dead", "", "dead {SaleID: Limit:0 After:}", `{"dead":[]}`},
		{"GET", "/admin/v1/dead?sale=drop&limit=7&after=0~5-x", "", "dead {SaleID:drop Limit:7 After:0~5-x}", `{"dead":[]}`},
		{"POST", "/admin/v1/dead/" + id + "/retry", "", "operator retries " + id, `{"key":"` + id + `","order_id":"` + id + `","status":"queued","given_back":false}`},
		{"POST", "/admin/v1/dead/" + id + "/cancel", "", `operator cancels ` + id + ` because ""`, `{"key":"` + id + `","order_id":"` + id + `","sale_id":"drop","status":"cancelled","given_back":true}`},
		{"POST", "/admin/v1/dead/" + id + "/cancel", `{"reason":"fraud"}`, `operator cancels ` + id + ` because "fraud"`, `{"key":"` + id + `","order_id":"` + id + `","sale_id":"drop","status":"cancelled","given_back":true}`},
		{"POST", "/admin/v1/dead/raw:ab12/cancel", "", "operator drops raw:ab12", `{"key":"raw:ab12","status":"dropped","given_back":false}`},
		{"POST", "/admin/v1/dead/raw%3Aab12/cancel", "", "operator drops raw:ab12", `{"key":"raw:ab12","status":"dropped","given_back":false}`},
	} {
		a := s.operate(row.method, row.path, row.body)
		if a.status != 200 || a.body != row.answer+"\n" {
			t.Errorf("%s %s: %d %s\nwant %s", row.method, row.path, a.status, a.body, row.answer)
		}
		if got := d.was(); got != row.asked {
			t.Errorf("%s %s asked the desk: %s; want %s", row.method, row.path, got, row.asked)
		}
	}
	s.operate("POST", "/admin/v1/sales/drop/restock", `{"add":5}`, `Idempotency-Key: "once"`, "X-Actor: Zoë")
	if got := d.was(); got != `Zoë adds 5 to drop, key "once"` {
		t.Errorf("asked %s", got)
	}
	d.wasRow = true
	if a := s.operate("POST", "/admin/v1/dead/"+id+"/cancel", ""); a.field(t, "given_back") != "false" || a.field(t, "status") != "created" {
		t.Errorf("a row was cancelled: %s", a.body)
	}
}

func TestOperatorRequestsOfWrongFormAre400(t *testing.T) {
	d := newDeskWorld()
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
		{"GET", "/admin/v1/dead?limit=1001", "", ""},
		{"GET", "/admin/v1/dead?limit=x", "", ""},
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
		if a.status != 400 || a.field(t, "errors") == "" {
			t.Errorf("%s %s %.50s %s: %d %s", row.method, row.path, row.body, row.header, a.status, a.body)
		}
	}
	if got := d.was(); got != "" {
		t.Errorf("the desk was asked: %s", got)
	}
}

func TestErrorsOfTheDeskAreAnsweredAsDocumented(t *testing.T) {
	d := newDeskWorld()
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
		{fmt.Errorf("postgres at 10.0.0.7: %w", sale.ErrUnavailable), 503, "temporarily-unavailable", "try again"},
		{&desk.PendingError{Cause: unavailableErr}, 503, "temporarily-unavailable", "stored"},
		{fmt.Errorf("desk: %w", &sale.InvalidError{Fields: []sale.FieldError{{Field: "after", Detail: "is not a cursor"}}}), 400, "bad-request", "errors"},
		{context.DeadlineExceeded, 503, "temporarily-unavailable", ""},
		{fmt.Errorf("surprise at 10.0.0.7"), 500, "internal-error", ""},
	} {
		d.mu.Lock()
		d.err = row.err
		d.mu.Unlock()
		for _, call := range []struct{ method, path, body string }{
			{"POST", "/admin/v1/sales", `{"title":"Tea","stock":1,"price":{"amount":0,"currency":"EUR"},"opens_at":"2026-11-27T10:00:00Z"}`},
			{"GET", "/admin/v1/sales", ""}, {"GET", "/admin/v1/sales/drop", ""}, {"POST", "/admin/v1/sales/drop/pause", ""}, {"POST", "/admin/v1/sales/drop/restock", `{"add":1}`},
			{"GET", "/admin/v1/sales/drop/audit", ""}, {"GET", "/admin/v1/queue", ""}, {"GET", "/admin/v1/dead", ""}, {"POST", "/admin/v1/dead/5/retry", ""}, {"POST", "/admin/v1/dead/5/cancel", ""}, {"POST", "/admin/v1/dead/raw:x/cancel", ""},
		} {
			a := s.operate(call.method, call.path, call.body)
			wantProblem(t, a, row.status, row.code)
			if strings.Contains(a.body, "10.0.0.7") {
				t.Errorf("the answer tells where things are: %s", a.body)
			}
			if !strings.Contains(a.field(t, "detail"), row.detail) {
				t.Errorf("%v: detail %q", row.err, a.field(t, "detail"))
			}
			if row.status == 503 && a.header.Get("Retry-After") == "" {
				t.Error("503 without Retry-After")
			}
		}
	}
}

func TestSaleIsShownWithoutRedis(t *testing.T) {
	d := newDeskWorld()
	d.view.Live = nil
	a := d.serve(t).operate("GET", "/admin/v1/sales/drop", "")
	if a.status != 200 || !strings.Contains(a.body, `"left":null`) || !strings.Contains(a.body, `"applied":false`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestDeadLettersAreShownWithReasonAndHistory(t *testing.T) {
	d := newDeskWorld()
	at := time.Date(2026, 11, 27, 10, 0, 9, 5e6, time.UTC)
	d.dead = []queue.DeadLetter{
		{Key: orderID(5).String(), Message: bought(5, "ann", sale.StatusQueued), Reason: "rejected", History: []queue.Attempt{{At: at, Reason: "deadlock"}}, Crashes: 2, DiedAt: at, Cancelling: true},
		{Key: "raw:ab12", Raw: []byte("x\xff"), Reason: "not a message", DiedAt: at},
	}
	d.next = "0~17-raw:ab12"
	a := d.serve(t).operate("GET", "/admin/v1/dead", "")
	id := orderID(5).String()
	want := `{"dead":[{"key":"` + id + `","order_id":"` + id + `","sale_id":"drop","buyer":"ann","reason":"rejected","history":[{"at":"2026-11-27T10:00:09.005Z","reason":"deadlock"}],"crashes":2,"died_at":"2026-11-27T10:00:09.005Z","cancelling":true},` +
		`{"key":"raw:ab12","raw":"x` + "\uFFFD" + `","reason":"not a message","history":[],"crashes":0,"died_at":"2026-11-27T10:00:09.005Z","cancelling":false}],"next":"0~17-raw:ab12"}` + "\n"
	if a.body != want {
		t.Errorf("%s\nwant %s", a.body, want)
	}
}

func TestQueueShowsDepthsAndRates(t *testing.T) {
	d := newDeskWorld()
	d.stats = queue.Stats{Ready: 1, Delayed: 2, Leased: 3, Leases: 4, Dead: 5, OldestAge: 90 * time.Second}
	cfg := d.config()
	now := time.Unix(1000, 0)
	cfg.Now = func() time.Time { return now }
	app, err := NewOperator(cfg)
	s := serve(t, app, err)
	depths := `{"ready":1,"delayed":2,"leased":3,"leases":4,"dead":5,"oldest_age_seconds":90,`
	if a := s.operate("GET", "/admin/v1/queue", ""); a.body != depths+`"accepted_per_second":null,"ordered_per_second":null}`+"\n" {
		t.Errorf("%d %s", a.status, a.body)
	}
	now = now.Add(10 * time.Second)
	live := *d.view.Live
	live.Accepted += 50
	d.view.Live, d.view.Sold = &live, d.view.Sold+20
	if a := s.operate("GET", "/admin/v1/queue", ""); a.body != depths+`"accepted_per_second":5,"ordered_per_second":2}`+"\n" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestRatesCompareOnlyWhatIsComparable(t *testing.T) {
	now := time.Unix(1000, 0)
	r := newRates(func() time.Time { return now })
	count := func(after time.Duration, accepted, ordered int64) string {
		now = now.Add(after)
		v := desk.View{Sold: ordered}
		if accepted >= 0 {
			v.Live = &admission.View{Accepted: accepted}
		}
		a, o := r.since([]desk.View{v})
		show := func(f *float64) string {
			if f == nil {
				return "?"
			}
			return fmt.Sprint(*f)
		}
		return show(a) + " " + show(o)
	}
	for i, row := range []struct {
		after             time.Duration
		accepted, ordered int64
		want              string
	}{
		{0, 100, 50, "? ?"},
		{500 * time.Millisecond, 200, 60, "? ?"}, // too soon
		{500 * time.Millisecond, 300, 70, "200 20"},
		{500 * time.Millisecond, 450, 85, "233.33333333333334 23.333333333333332"}, // since the first
		{time.Second, -1, 100, "? 20"},                                             // without Redis
		{time.Second, 900, 90, "? 0"},                                              // never below 0
		{2 * time.Minute, 1000, 200, "? ?"},                                        // too long ago
		{2 * time.Second, 1010, 204, "5 2"},
	} {
		if got := count(row.after, row.accepted, row.ordered); got != row.want {
			t.Errorf("row %d: %s, want %s", i, got, row.want)
		}
	}
}
