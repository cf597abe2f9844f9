package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/test/testenv"
)

// callback sends a signed callback of the payment provider through the edge, and repeats it until the answer is not
// 503.
func (s *stack) callback(id, event, orderID, reference string) answer {
	s.t.Helper()
	body := fmt.Sprintf(`{"type":%q,"data":{"order_id":%q,"amount":1999,"currency":"EUR","reference":%q}}`, event, orderID,
		reference)
	hook, err := standardwebhooks.NewWebhook(paymentSecret)
	if err != nil {
		s.t.Fatal(err)
	}
	now := time.Now()
	signature, err := hook.Sign(id, now, []byte(body))
	if err != nil {
		s.t.Fatal(err)
	}
	var a answer
	testenv.Eventually(s.t, time.Minute, "the callback is answered", func() bool {
		a = do(s.t, "POST", s.base+"/v1/payments", "", body, "Content-Type", "application/json",
			"Webhook-Id", id, "Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10), "Webhook-Signature", signature)
		return a.Status != 503 && a.Status != 429
	})
	return a
}

func (s *stack) status(buyer, orderID string) string {
	s.t.Helper()
	return do(s.t, "GET", s.base+"/v1/orders/"+orderID+"?wait=10s", s.token(buyer), "").State
}

// buyUnit buys as soon as a unit is available.
func (s *stack) buyUnit(saleID, buyer string) string {
	s.t.Helper()
	var a answer
	testenv.Eventually(s.t, time.Minute, buyer+" buys", func() bool {
		a = s.buy(saleID, buyer)
		return a.Status == 202
	})
	return a.OrderID
}

// Some buyers pay, some do not, and a backend is killed in between. An order that is not paid in time is cancelled and
// its unit sold again, exactly the stock is sold in the end, late payments are recorded for an admin, and every audit
// balances.
func TestUnpaidUnitsAreSoldAgain(t *testing.T) {
	t.Parallel()
	for _, edge := range []string{"edge", "gateway"} {
		t.Run(edge, func(t *testing.T) {
			t.Parallel()
			s := startStack(t, shape{edge: edge, backends: 2, workers: 1})
			const stock, payers = 8, 3
			body := fmt.Sprintf(
				`{"id":"s","title":"Thing","stock":%d,"price":{"amount":1999,"currency":"EUR"},"opens_at":%q,"hold":"1h"}`,
				stock,
				time.Now().Add(-time.Minute).UTC().Format(time.RFC3339),
			)
			if a := s.adminAPI("POST", "/admin/v1/sales", body); a.Status != 201 {
				t.Fatalf("create sale: %d %s", a.Status, a.Body)
			}
			ids := make([]string, stock)
			for i := range ids {
				ids[i] = s.buyUnit("s", fmt.Sprint("early", i))
			}
			for i := range payers {
				for again, want := range []string{"", "true"} {
					a := s.callback(fmt.Sprint("msg_", i), "payment.succeeded", ids[i], fmt.Sprint("ref_", i))
					if a.Status != 200 || !strings.Contains(string(a.Body), `"paid"`) || a.Header.Get("Idempotency-Replayed") != want {
						t.Fatalf("payment %d, time %d: %d %s %v", i, again+1, a.Status, a.Body, a.Header)
					}
				}
			}
			if a := s.callback("msg_failed", "payment.failed", ids[payers], ""); a.Status != 200 {
				t.Fatalf("a payment that failed: %d %s", a.Status, a.Body)
			}
			if a := s.callback("msg_unknown", "payment.succeeded", "77", "ref"); a.Status != 404 {
				t.Fatalf("a payment for an unknown order: %d %s", a.Status, a.Body)
			}
			if a := s.buy("s", "late"); a.Code != "sold-out" {
				t.Fatalf("a ninth unit: %d %s", a.Status, a.Body)
			}
			s.settle("s", stock)
			conn := s.sql()
			defer conn.Close(context.Background())
			// A hold of some seconds could end during the payments above if the machine is slow.
			if _, err := conn.Exec(context.Background(),
				`UPDATE orders SET due_at = now() WHERE sale_id = 's' AND status = 'created'`); err != nil {
				t.Fatal(err)
			}
			s.backends[1].crash()

			testenv.Eventually(t, time.Minute, "the unpaid units are left again", func() bool {
				r := s.audit("s")
				if !r.Balanced {
					t.Errorf("audit %+v", r)
				}
				return r.Left == stock-payers && r.Ordered == payers && r.Returning == 0
			})
			for i, id := range ids {
				want := "cancelled"
				if i < payers {
					want = "paid"
				}
				if got := s.status(fmt.Sprint("early", i), id); got != want {
					t.Errorf("order %d is %s, want %s", i, got, want)
				}
			}
			a := s.callback("msg_late", "payment.succeeded", ids[payers], "ref_late")
			if a.Status != 409 || a.Code != "order-cancelled" {
				t.Errorf("a payment for a cancelled order: %d %s", a.Status, a.Body)
			}

			again := make([]string, stock-payers)
			for i := range again {
				buyer := fmt.Sprint("early", payers+i) // a buyer that lost a unit may buy again
				again[i] = s.buyUnit("s", buyer)
				if got := s.callback(fmt.Sprint("msg_again_", i), "payment.succeeded", again[i],
					fmt.Sprint("ref_again_", i)); got.Status != 200 {
					t.Fatalf("payment: %d %s", got.Status, got.Body)
				}
			}
			if r := s.settle("s", stock); !r.Balanced || r.Left != 0 || r.Returning != 0 {
				t.Errorf("audit %+v", r)
			}
			var paid, unpaid, cancelled, sold int
			if err := conn.QueryRow(context.Background(), `SELECT count(*) FILTER (WHERE status = 'paid'), count(*) FILTER (WHERE status = 'created'),
				count(*) FILTER (WHERE status = 'cancelled'), (SELECT sold FROM sales WHERE id = 's') FROM orders WHERE sale_id = 's'`).
				Scan(&paid, &unpaid, &cancelled, &sold); err != nil {
				t.Fatal(err)
			}
			if paid != stock || unpaid != 0 || cancelled != stock-payers || sold != stock {
				t.Errorf("%d paid, %d unpaid, %d cancelled, %d sold; want %d, 0, %d, %d", paid, unpaid, cancelled, sold, stock,
					stock-payers, stock)
			}
			s.wantOneRefund(ids[payers])
		})
	}
}

// wantOneRefund lists the refunds and settles the only one, as an admin does.
func (s *stack) wantOneRefund(orderID string) {
	s.t.Helper()
	env := []string{"SLUICE_SERVER=" + s.admin, "SLUICE_ADMIN_TOKEN=" + adminToken, "HOME=" + s.t.TempDir()}
	out, errOut, code := sluiceRun(s.t, env, "payment", "list", "--json")
	var list struct {
		Payments []struct {
			Payment string
			OrderID string `json:"order_id"`
			Outcome string
		}
	}
	if code != 0 || json.Unmarshal([]byte(out), &list) != nil || len(list.Payments) != 1 ||
		list.Payments[0].OrderID != orderID ||
		list.Payments[0].Outcome != "order_cancelled" {
		s.t.Fatalf("exit %d, refunds %s%s", code, out, errOut)
	}
	if out, errOut, code := sluiceRun(s.t, env, "payment", "settle", list.Payments[0].Payment, "--note",
		"sent back"); code != 0 {
		s.t.Fatalf("settle: exit %d %s%s", code, out, errOut)
	}
	if out, _, code := sluiceRun(s.t, env, "payment", "list"); code != 0 || strings.Contains(out, orderID) {
		s.t.Errorf("exit %d, still listed: %s", code, out)
	}
	if out, _, code := sluiceRun(s.t, env, "order", "show",
		orderID); code != 0 || !strings.Contains(out, "hold: not paid in time") ||
		!strings.Contains(out, "sent back") {
		s.t.Errorf("exit %d, shown as %s", code, out)
	}
}

// An admin cancels an order with the command line; a paid one is refused.
func TestAdminCancelsAnOrder(t *testing.T) {
	t.Parallel()
	s := startStack(t, shape{backends: 1, workers: 1})
	s.createSale("s", 2)
	ann, bob := s.buyUnit("s", "ann"), s.buyUnit("s", "bob")
	s.status("ann", ann)
	if a := s.callback("msg_1", "payment.succeeded", bob, "ref"); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	env := []string{"SLUICE_SERVER=" + s.admin, "SLUICE_ADMIN_TOKEN=" + adminToken, "HOME=" + t.TempDir()}
	out, errOut, code := sluiceRun(t, env, "sale", "create", "--id", "h", "--title", "Held", "--stock", "1", "--price",
		"1EUR", "--hold", "90m")
	if code != 0 || !strings.Contains(strings.Join(strings.Fields(out), " "), "hold 1h30m") {
		t.Errorf("exit %d %s%s", code, out, errOut)
	}
	if _, errOut, code := sluiceRun(t, env, "sale", "create", "--title", "Held", "--stock", "1", "--price", "1EUR",
		"--hold", "1ms"); code != 2 ||
		!strings.Contains(errOut, "hold") {
		t.Errorf("a hold of a millisecond: exit %d %s", code, errOut)
	}
	for range 2 {
		if out, errOut, code := sluiceRun(t, env, "order", "cancel", ann, "--reason", "requested"); code != 0 ||
			!strings.Contains(out, "is cancelled") {
			t.Fatalf("exit %d %s%s", code, out, errOut)
		}
	}
	if _, errOut, code := sluiceRun(t, env, "order", "cancel", bob); code != 1 || !strings.Contains(errOut, "paid") {
		t.Errorf("a paid order: exit %d %s", code, errOut)
	}
	if _, errOut, code := sluiceRun(t, env, "order", "cancel", "77"); code != 1 || !strings.Contains(errOut, "queued") {
		t.Errorf("no row: exit %d %s", code, errOut)
	}
	out, _, code = sluiceRun(t, env, "order", "list", "--sale", "s", "--status", "cancelled")
	if code != 0 || !strings.Contains(out, ann) || strings.Contains(out, bob) || !strings.Contains(out, "requested") {
		t.Errorf("exit %d, list %s", code, out)
	}
	if got := s.status("ann", ann); got != "cancelled" {
		t.Errorf("ann sees %s", got)
	}
	s.buyUnit("s", "ann")
	if r := s.settle("s", 2); !r.Balanced || r.Left != 0 {
		t.Errorf("audit %+v", r)
	}
}
