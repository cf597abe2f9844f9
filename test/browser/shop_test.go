package browser

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

const (
	tokenSecret = "browser-token-secret-0123456789abcdefghijk"
	adminToken  = "browser-admin-token-0123456789abcdefghijk"
	paymentKey  = "browser-payment-key-0123456789ab"
)

var binary string // sluice

func TestMain(m *testing.M) {
	code := testenv.MainWithSluice(m, &binary)
	if browser.stop != nil {
		browser.stop()
	}
	os.Exit(code)
}

// shop is a running sluice behind one of its edges.
type shop struct {
	t           testing.TB
	base, admin string
	database    string         // of openConsoleShop
	redis       *testenv.Redis // of openConsoleShop
	edge        *testenv.Program
}

// edges start a shop behind each edge.
var edges = map[string]func(t testing.TB, env ...string) *shop{"gateway": openUp, "nginx": openNginx}

func newShop(t testing.TB) (*shop, []string) {
	listen, admin := testenv.FreeAddress(t), testenv.FreeAddress(t)
	return &shop{t: t, base: "http://" + listen, admin: "http://" + admin}, []string{
		"SLUICE_TOKEN_SECRET=" + tokenSecret,
		"SLUICE_ADMIN_TOKEN=" + adminToken,
		"SLUICE_PAYMENT_SECRET=whsec_" + base64.StdEncoding.EncodeToString([]byte(paymentKey)),
		"SLUICE_CHECKOUT=https://shop.example/pay?order={order}&sale={sale}",
		"SLUICE_LISTEN=" + listen,
		"SLUICE_ADMIN_LISTEN=" + admin,
	}
}

// openUp starts `sluice up`, with further variables on request.
func openUp(t testing.TB, more ...string) *shop {
	s, env := newShop(t)
	s.edge = testenv.Launch(t, binary, append(env, more...), "up", "--data", t.TempDir())
	testenv.AwaitOK(s.t, s.base+"/readyz")
	return s
}

// openNginx starts a backend and a worker on Redis and PostgreSQL, behind nginx.
func openNginx(t testing.TB, more ...string) *shop {
	s, env := newShop(t)
	env = append(env, more...)
	pg, redis := testenv.SharedPostgres(t), testenv.StartRedis(t)
	env = append(env, "SLUICE_REDIS_URL=redis://"+redis.Addr+"/0", "SLUICE_DATABASE_URL="+pg.URL)
	upstream := testenv.FreeAddress(t)
	testenv.Launch(t, binary, env, "backend", "--listen", upstream)
	testenv.Launch(t, binary, env, "worker", "--metrics", testenv.FreeAddress(t))
	testenv.AwaitOK(s.t, "http://"+upstream+"/readyz") // at the edge, the wait would use up the quota of the browser
	s.edge = testenv.Launch(t, binary, env, "edge", "--upstream", "http://"+upstream, "--prefix", t.TempDir())
	testenv.AwaitOK(s.t, s.base+"/readyz")
	return s
}

func (s *shop) token(buyer string, ttl time.Duration) string {
	s.t.Helper()
	return tokentest.Sign(s.t, tokenSecret, buyer, ttl)
}

// page returns the address of a sale's page for a buyer with a token of the shop.
func (s *shop) page(saleID, buyer string) string {
	return s.base + "/s/" + saleID + "#token=" + s.token(buyer, time.Hour)
}

// adminAPI calls the admin API and fails on any error.
func (s *shop) adminAPI(method, path string, body any) map[string]any {
	s.t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequest(method, s.admin+"/admin/v1"+path, bytes.NewReader(encoded))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	var answer map[string]any
	_ = json.Unmarshal(text, &answer)
	return answer
}

func (s *shop) createSale(id, title string, stock int, opens time.Time) {
	s.t.Helper()
	s.createSaleFor(1, id, title, stock, opens)
}

// createSaleFor is createSale for so many units to a buyer.
func (s *shop) createSaleFor(perBuyer int, id, title string, stock int, opens time.Time) {
	s.t.Helper()
	s.create(id, map[string]any{
		"title": title, "stock": stock, "per_buyer": perBuyer, "opens_at": opens.UTC().Format(time.RFC3339Nano),
	})
}

// create creates a sale of ten units that is open, with other fields on request.
func (s *shop) create(id string, fields map[string]any) {
	s.t.Helper()
	body := map[string]any{
		"id": id, "title": "The shoe", "stock": 10, "price": map[string]any{"amount": 9990, "currency": "EUR"},
		"opens_at": time.Now().Add(-time.Second).UTC().Format(time.RFC3339Nano),
	}
	maps.Copy(body, fields)
	s.adminAPI(http.MethodPost, "/sales", body)
	s.settled(func() bool { _, code := s.get("/v1/sales/" + id); return code == http.StatusOK }, "the sale "+id)
}

func (s *shop) get(path string) (body string, code int) {
	resp, err := http.Get(s.base + path)
	if err != nil {
		return err.Error(), 0
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	return string(text), resp.StatusCode
}

func (s *shop) settled(is func() bool, what string) {
	s.t.Helper()
	testenv.Eventually(s.t, time.Minute, what, is)
}

// ordered returns the number of rows of a sale.
func (s *shop) ordered(saleID string) float64 {
	s.t.Helper()
	audit := s.adminAPI(http.MethodGet, "/sales/"+saleID+"/audit", nil)
	if audit["balanced"] != true {
		s.t.Fatalf("the audit of %s: %v", saleID, audit)
	}
	n, _ := audit["ordered"].(float64)
	return n
}

// buy buys without a browser, and returns the status.
func (s *shop) buy(saleID, buyer string) int {
	s.t.Helper()
	return s.status(http.MethodPost, "/v1/sales/"+saleID+"/orders", s.token(buyer, time.Hour), "")
}

// pay sends the callback of the payment provider for an order that can be paid.
func (s *shop) pay(orderID string) {
	s.t.Helper()
	code, text := 0, ""
	s.settled(func() bool { code, text = s.callback(orderID); return code != http.StatusTooManyRequests },
		"a payment that the limit of the edge admits")
	if code >= 300 {
		s.t.Fatalf("payment: %d %s", code, text)
	}
}

// callback sends the callback of the payment provider for an order.
func (s *shop) callback(orderID string) (code int, answer string) {
	s.t.Helper()
	body := `{"type":"payment.succeeded","data":{"order_id":"` + orderID + `","amount":9990,"currency":"EUR","reference":"r"}}`
	now := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(paymentKey))
	mac.Write([]byte("pay-" + orderID + "." + now + "." + body))
	req, err := http.NewRequest(http.MethodPost, s.base+"/v1/payments", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", "pay-"+orderID)
	req.Header.Set("Webhook-Timestamp", now)
	req.Header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// limitedPolicy returns the setting of an edge's policy: the default one with two further rules. In the period of rate,
// for example "6r/m", every buyer may send one purchase of the sale "limited", and every client may open the page of
// the sale "busy" once.
func limitedPolicy(t testing.TB, rate string) string {
	t.Helper()
	standard, err := os.ReadFile("../../lua/policy.lua")
	if err != nil {
		t.Fatal(err)
	}
	rule := fmt.Sprintf(`rules = {
		{ name = "limited", key = "token", rate = %[1]q, burst = 0, match = { method = "POST", path = "/v1/sales/limited/orders" } },
		{ name = "page", key = "ip", rate = %[1]q, burst = 0, match = { path = "/s/busy" } },`,
		rate)
	policy := strings.Replace(string(standard), "rules = {", rule, 1)
	path := filepath.Join(t.TempDir(), "policy.lua")
	if err := os.WriteFile(path, []byte(policy), 0o644); err != nil {
		t.Fatal(err)
	}
	return "SLUICE_POLICY=" + path
}

// exhaust uses a buyer's quota for the sale "limited" with a purchase that a backend rejects.
func (s *shop) exhaust(buyer string) {
	s.t.Helper()
	code := s.status(http.MethodPost, "/v1/sales/limited/orders", s.token(buyer, time.Hour), `{"quantity":-1}`)
	if code != http.StatusBadRequest {
		s.t.Fatalf("a purchase of a negative quantity: %d, want 400", code)
	}
}

// untilRefused sends purchases until a limit rejects the buyer.
func (s *shop) untilRefused(buyer string) {
	s.t.Helper()
	for range 1000 {
		if s.buy("another", buyer) == http.StatusTooManyRequests {
			return
		}
	}
	s.t.Fatal("1000 requests, and no limit")
}

// status returns the status of the response, or fails the test and returns 0. It may be called by any goroutine of the
// test.
func (s *shop) status(method, path, bearer, body string) int {
	s.t.Helper()
	req, err := http.NewRequest(method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Error(err)
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
