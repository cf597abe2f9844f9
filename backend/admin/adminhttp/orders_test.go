package adminhttp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/web/httpserver/servertest"
)

func TestOrdersAndPayments(t *testing.T) {
	d := newFakeService()
	due := servertest.OrderID(1).Time().Add(15 * time.Minute)
	created := servertest.Order(1, "ann", sale.StatusCreated)
	created.DueAt = due
	d.rows = []store.OrderRow{
		{Order: created, UpdatedAt: servertest.OrderID(1).Time()},
		{Order: servertest.Order(2, "bob", sale.StatusPaid), UpdatedAt: servertest.OrderID(2).Time(), Reference: "pi_1"},
	}
	callback := store.Callback{
		Number: 7, SaleID: "drop", At: servertest.OrderID(3).Time(), Settlement: store.SettledCancelled, Refund: true,
	}
	callback.OrderID, callback.Event, callback.Reference = servertest.OrderID(5), store.EventSucceeded, "pi_2"
	callback.Price = sale.Price{Amount: 1999, Currency: "EUR"}
	d.callbacks = []store.Callback{callback}
	s := d.serve(t)

	id := func(n uint32) string { return servertest.OrderID(n).String() }
	const at = `"2026-11-27T10:00:07Z"`
	rows := `{"order_id":"` + id(1) + `","sale_id":"drop","buyer":"ann","status":"created","created_at":` + at +
		`,"updated_at":` + at + `,"pay_by":"2026-11-27T10:15:07Z","returning":false},` +
		`{"order_id":"` + id(2) + `","sale_id":"drop","buyer":"bob","status":"paid","created_at":` + at +
		`,"updated_at":` + at + `,"reference":"pi_1","returning":false}`
	payment := `{"payment":"7","at":` + at + `,"order_id":"` + id(5) + `","sale_id":"drop","event":"succeeded",` +
		`"price":{"amount":1999,"currency":"EUR"},"reference":"pi_2","outcome":"order_cancelled","refund":true}`
	view := `{"order_id":"` + id(5) + `","sale_id":"drop","buyer":"ann","status":"cancelled","created_at":` + at +
		`,"updated_at":"2026-11-27T10:01:07Z","cancelled_by":"hold","reason":"not paid in time","returning":true,` +
		`"payments":[` + payment + `]}`
	s.exact(d, []exchange{
		{
			"GET", "/admin/v1/orders", "", 200, "orders {ID:0 SaleID: Buyer: Status: Newest:false After:0 Limit:100}",
			`{"orders":[` + rows + `]}`,
		},
		{
			"GET", "/admin/v1/orders?sale=drop&buyer=ann&status=paid&sort=newest&limit=2&after=7", "", 200,
			"orders {ID:0 SaleID:drop Buyer:ann Status:paid Newest:true After:7 Limit:2}",
			`{"next":"` + id(2) + `","orders":[` + rows + `]}`,
		},
		{"GET", "/admin/v1/orders/" + id(5), "", 200, "order " + id(5), view},
		{
			"POST", "/admin/v1/orders/" + id(5) + "/cancel", `{"reason":"wrong size"}`, 200,
			`admin cancels row ` + id(5) + ` because "wrong size"`, view,
		},
		{"POST", "/admin/v1/orders/" + id(5) + "/cancel", "", 200, `admin cancels row ` + id(5) + ` because ""`, view},
		{
			"GET", "/admin/v1/payments", "", 200, "callbacks {OpenRefunds:false OrderID:0 SaleID: After:0 Limit:100}",
			`{"payments":[` + payment + `]}`,
		},
		{
			"GET", "/admin/v1/payments?refund=open&sale=drop&order=9&after=3&limit=1", "", 200,
			"callbacks {OpenRefunds:true OrderID:9 SaleID:drop After:3 Limit:1}", `{"next":"7","payments":[` + payment + `]}`,
		},
		{"POST", "/admin/v1/payments/7/settle", `{"note":"sent back"}`, 200, "admin settles 7: sent back",
			`{"payment":"7","at":` + at + `,"order_id":"` + id(1) + `","sale_id":"drop","event":"succeeded",` +
				`"price":{"amount":0,"currency":""},"outcome":"paid_already","refund":true,"settled_at":` + at +
				`,"settled_by":"admin"}`},
	})
}

func TestOrderProblems(t *testing.T) {
	d := newFakeService()
	s := d.serve(t)
	id := servertest.OrderID(5).String()
	for _, row := range []struct {
		err           error
		method, path  string
		status        int
		code, mention string
	}{
		{sale.ErrNotFound, "GET", "/admin/v1/orders/" + id, 404, "not-found", "queued"},
		{sale.ErrNotFound, "POST", "/admin/v1/orders/" + id + "/cancel", 404, "not-found", "dead"},
		{store.Refused("It is paid."), "POST", "/admin/v1/orders/" + id + "/cancel", 409, "conflict", "paid"},
		{store.Refused("There is no refund."), "POST", "/admin/v1/payments/7/settle", 409, "conflict", "no refund"},
		{sale.ErrNotFound, "POST", "/admin/v1/payments/7/settle", 404, "not-found", "no such payment"},
		{servertest.ErrRedisDown, "POST", "/admin/v1/orders/" + id + "/cancel", 503, "temporarily-unavailable", ""},
		{servertest.ErrRedisDown, "GET", "/admin/v1/payments", 503, "temporarily-unavailable", ""},
		{servertest.ErrRedisDown, "GET", "/admin/v1/orders", 503, "temporarily-unavailable", ""},
	} {
		d.err = fmt.Errorf("admin: %w", row.err)
		a := s.operate(row.method, row.path, "")
		servertest.WantProblem(t, a, row.status, row.code)
		if !strings.Contains(a.Body, row.mention) {
			t.Errorf("%s %s does not mention %q: %s", row.method, row.path, row.mention, a.Body)
		}
	}
	d.err = nil
	d.called()
	for _, row := range []struct{ method, path, body string }{
		{"GET", "/admin/v1/orders?status=queued", ""},
		{"GET", "/admin/v1/orders?status=", ""},
		{"GET", "/admin/v1/orders?limit=0", ""},
		{"GET", "/admin/v1/orders?after=x", ""},
		{"GET", "/admin/v1/orders?sale=a%20b", ""},
		{"GET", "/admin/v1/orders/x", ""},
		{"POST", "/admin/v1/orders/0/cancel", ""},
		{"POST", "/admin/v1/orders/" + id + "/cancel", `{"reason":5}`},
		{"POST", "/admin/v1/orders/" + id + "/cancel", `{"why":"x"}`},
		{"POST", "/admin/v1/orders/" + id + "/cancel", `{"reason":"` + strings.Repeat("x", 201) + `"}`},
		{"GET", "/admin/v1/payments?refund=closed", ""},
		{"GET", "/admin/v1/payments?after=-1", ""},
		{"GET", "/admin/v1/payments?order=x", ""},
		{"POST", "/admin/v1/payments/x/settle", ""},
		{"POST", "/admin/v1/payments/-1/settle", ""},
		{"POST", "/admin/v1/payments/+7/settle", ""},
		{"POST", "/admin/v1/payments/07/settle", ""},
		{"POST", "/admin/v1/payments/7/settle", `{"note":"a\u0007b"}`},
	} {
		servertest.WantProblem(t, s.operate(row.method, row.path, row.body), 400, "bad-request")
	}
	if got := d.called(); got != "" {
		t.Errorf("the service was called: %s", got)
	}
	for _, row := range []struct{ method, path string }{
		{"GET", "/admin/v1/orders"}, {"GET", "/admin/v1/orders/" + id}, {"POST", "/admin/v1/orders/" + id + "/cancel"},
		{"GET", "/admin/v1/payments"}, {"POST", "/admin/v1/payments/7/settle"},
	} {
		servertest.WantProblem(t, s.Do(row.method, row.path, ""), 401, "unauthorized")
	}
}
