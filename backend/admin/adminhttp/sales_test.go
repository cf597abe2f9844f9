package adminhttp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/backend/admin"
	"sluice/backend/sale"
	"sluice/backend/web/httpserver/servertest"
)

func TestCreateSalePassesEveryField(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	a := s.operate(
		"POST",
		"/admin/v1/sales",
		`{"id":"drop","title":"Tea","stock":100,"price":{"amount":1999,"currency":"EUR"},"per_buyer":2,
		"opens_at":"2026-11-27T12:00:00.0015+02:00","closes_at":"2026-11-28T10:00:00Z"}`,
		"X-Actor: mia",
	)
	if a.Status != 201 || a.Header.Get("Location") != "/admin/v1/sales/drop" || a.Field(t, "id") != "drop" ||
		a.Field(t, "version") != "0" ||
		a.Field(t, "sold") != "57" {
		t.Errorf("%d %v %s", a.Status, a.Header, a.Body)
	}
	want := fmt.Sprintf("mia creates %+v", sale.Sale{
		ID: "drop", Title: "Tea", Price: sale.Price{Amount: 1999, Currency: "EUR"}, Stock: 100, PerBuyer: 2, Switch: sale.On,
		OpensAt: time.Date(2026, 11, 27, 10, 0, 0, 1e6, time.UTC), ClosesAt: time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC),
	})
	if got := d.called(); got != want {
		t.Errorf("called %s\nwant   %s", got, want)
	}
	a = s.operate(
		"POST",
		"/admin/v1/sales",
		`{"title":"Tea","stock":1,"price":{"amount":0,"currency":"EUR"},"opens_at":"2026-11-27T10:00:00Z","closes_at":null,"hold":"90m"}`,
	)
	if a.Status != 201 || a.Header.Get("Location") != "/admin/v1/sales/chosen" || a.Field(t, "hold") != "1h30m" {
		t.Errorf("without id, per_buyer and end: %d %s", a.Status, a.Body)
	}
	if got := d.called(); !strings.Contains(got, "PerBuyer:1 ") || !strings.Contains(got, "Hold:1h30m0s") ||
		!strings.HasPrefix(got, "admin creates") {
		t.Errorf("called %s", got)
	}
}

func TestStoredSaleWithoutRedisIsNamed(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	for path, body := range map[string]string{
		"/admin/v1/sales": `{"title":"Tea","stock":1,"price":{"amount":0,"currency":"EUR"},` +
			`"opens_at":"2026-11-27T10:00:00Z"}`,
		"/admin/v1/rehearsals": `{"sale":"drop","closes_at":"2026-11-27T10:05:00Z"}`,
	} {
		d.err = &admin.PendingError{Sale: sale.Sale{ID: "generated"}, Cause: servertest.ErrRedisDown}
		a := s.operate("POST", path, body)
		servertest.WantProblem(t, a, 503, "temporarily-unavailable")
		if got := a.Header.Get("Location"); got != "/admin/v1/sales/generated" ||
			!strings.Contains(a.Field(t, "detail"), "sale generated is stored") {
			t.Errorf("POST %s: Location %q, %s", path, got, a.Body)
		}
		d.err = sale.ErrUnavailable
		if a := s.operate("POST", path, body); a.Status != 503 || a.Header.Get("Location") != "" {
			t.Errorf("POST %s: nothing is stored: %d %v", path, a.Status, a.Header)
		}
	}
}

func TestCreateSaleReportsEveryInvalidField(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	good := map[string]string{
		"id":        `"drop"`,
		"title":     `"Tea"`,
		"stock":     "100",
		"price":     `{"amount":1999,"currency":"EUR"}`,
		"per_buyer": "1",
		"opens_at":  `"2026-11-27T10:00:00Z"`,
		"closes_at": `"2026-11-28T10:00:00Z"`,
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
		fields string // all of them, in the order of the errors
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
		"hold without a unit":    {change{"hold": `"15"`}, "hold"},
		"hold as a number":       {change{"hold": "900"}, "hold"},
		"hold too short":         {change{"hold": `"999ms"`}, "hold"},
		"hold too long":          {change{"hold": `"721h"`}, "hold"},
		"hold below a ms":        {change{"hold": `"1.0000001s"`}, "hold"},
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
		"all errors together": {change{
			"id": `"-"`, "title": "1", "stock": "0", "price": `{"amount":"x","currency":5,"vat":1}`, "per_buyer": "0.5",
			"opens_at": `"x"`, "closes_at": "{}", "more": "[]",
		},
			"closes_at id more opens_at per_buyer price.amount price.currency price.vat stock title"},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.operate("POST", "/admin/v1/sales", body(row.change))
			servertest.WantProblem(t, a, 400, "bad-request")
			var got struct {
				Errors []sale.FieldError `json:"errors"`
			}
			a.Decode(t, &got)
			if fields := fieldsOf(got.Errors); fields != row.fields {
				t.Errorf("rejects %q, want %q: %s", fields, row.fields, a.Body)
			}
			for _, e := range got.Errors {
				if e.Detail == "" {
					t.Errorf("no error for %s", e.Field)
				}
			}
		})
	}
	for _, text := range map[string]string{
		"twice": `{"stock":1,"stock":100}`, "twice in price": `{"price":{"amount":1,"amount":2}}`, "behind": body(nil) + "x",
		"array": "[" + body(nil) + "]", "deep": strings.Repeat(`{"a":`, 10_000),
		"huge number": `{"stock":` + strings.Repeat("9", 5000) + `}`,
	} {
		servertest.WantProblem(t, s.operate("POST", "/admin/v1/sales", text), 400, "bad-request")
	}
	servertest.WantProblem(t, s.operate("POST", "/admin/v1/sales", ""), 400, "bad-request")
	servertest.WantProblem(t, s.Do("POST", "/admin/v1/sales", body(nil), "Authorization: Bearer "+adminToken), 400,
		"bad-request")
	servertest.WantProblem(t, s.operate("POST", "/admin/v1/sales", strings.Repeat(" ", 1<<20+1)), 413, "too-large")
	if got := d.called(); got != "" {
		t.Errorf("the service was called: %s", got)
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

func TestSaleIsShownWithoutRedis(t *testing.T) {
	d := newFakeService()
	d.view.Live = nil
	a := d.serve(t).operate("GET", "/admin/v1/sales/drop", "")
	if a.Status != 200 || !strings.Contains(a.Body, `"left":null`) || !strings.Contains(a.Body, `"applied":false`) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestSaleWithAPendingChangeIsNotApplied(t *testing.T) {
	d := newFakeService()
	d.view.Version++
	a := d.serve(t).operate("GET", "/admin/v1/sales/drop", "")
	if a.Field(t, "applied") != "false" || a.Field(t, "version") != "4" {
		t.Errorf("%s", a.Body)
	}
}

func TestDescribeReplacesTheDetails(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	a := s.operate("POST", "/admin/v1/sales/drop/describe", `{"picture":"https://shop.example/a.jpg","description":"# A"}`,
		"X-Actor: mia")
	if got := d.called(); a.Status != 200 ||
		got != "mia describes drop: {Picture:https://shop.example/a.jpg Description:# A}" {
		t.Errorf("%d %s: %s", a.Status, a.Body, got)
	}
	a = s.operate("POST", "/admin/v1/sales/drop/describe", `{}`)
	if got := d.called(); a.Status != 200 || got != "admin describes drop: {Picture: Description:}" {
		t.Errorf("%d %s: %s", a.Status, a.Body, got)
	}
	for _, body := range []string{
		`{"picture":"x"}`, `{"picture":null}`, `{"picture":5}`, `{"description":"\u0000"}`, `{"description":[]}`, `{"title":"x"}`,
		`{"description":"` + strings.Repeat("x", sale.MaxDescriptionLen+1) + `"}`,
	} {
		servertest.WantProblem(t, s.operate("POST", "/admin/v1/sales/drop/describe", body), 400, "bad-request")
	}
	if got := d.called(); got != "" {
		t.Errorf("called %s", got)
	}
}
