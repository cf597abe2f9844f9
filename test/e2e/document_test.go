package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sluice/backend/events"
	"sluice/backend/redis/keyspace"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/docs"
	"sluice/internal/openapi"
	"sluice/test/contract"
	"sluice/test/testenv"
)

// Ids and times in the examples of docs/openapi.yaml, which the test replaces by real ones.
const (
	exampleOrder    = "932718348271616001"
	exampleEndpoint = "ep_k3jx5"
	exampleDelivery = "923417600000000123_paid_ep_k3jx5"
	exampleEvent    = "923417600000000123.created"
	exampleNumber   = "17" // of a payment, and of a subscription
	exampleEnd      = "2026-11-27T10:30:00Z"
	exampleCopy     = "rehearsal-drop-mzxw6ytboi"
)

func inHalfAnHour() string { return time.Now().Add(30 * time.Minute).UTC().Format(time.RFC3339) }

// shown is a server for the requests of the document's examples.
type shown struct {
	*stack
	store    *store.Store
	endpoint string
}

// before prepares an example and returns the replacements in its request. Operations without a preparation are not
// listed.
func (s *shown) before(t *testing.T, id string) map[string]string {
	switch id {
	case "getOrder", "streamOrder", "receivePaymentCallback", "getAdminOrder":
		return map[string]string{exampleOrder: s.written("ann-" + id)}
	case "cancelOrder":
		return map[string]string{exampleOrder: s.written("eve")}
	case "createRehearsal":
		return map[string]string{exampleEnd: inHalfAnHour()}
	case "deleteRehearsal":
		var made struct{ ID string }
		a := s.adminAPI("POST", "/admin/v1/rehearsals",
			`{"sale":"drop","stock":5,"beside_real_sales":true,"closes_at":"`+inHalfAnHour()+`"}`)
		if a.Status != 201 || json.Unmarshal(a.Body, &made) != nil {
			t.Fatalf("a rehearsal: %d %s", a.Status, a.Body)
		}
		return map[string]string{exampleCopy: made.ID}
	case "closeSale":
		s.createSale("closing", 5)
		return map[string]string{"drop": "closing"}
	case "settlePayment":
		return map[string]string{exampleNumber: s.refund()}
	case "getDeadOrder", "retryDeadOrder", "cancelDeadOrder":
		return map[string]string{exampleOrder: s.deadOrder(id)}
	case "deletePushSubscription":
		var list struct{ Subscriptions []struct{ ID string } }
		a := do(s.t, "GET", s.base+"/v1/me/push/subscriptions", s.token("ann"), "")
		if json.Unmarshal(a.Body, &list) != nil || len(list.Subscriptions) == 0 {
			t.Fatalf("subscriptions: %s", a.Body)
		}
		return map[string]string{exampleNumber: list.Subscriptions[0].ID}
	case "listDeadEvents":
		if _, err := events.NewStore(s.store.DB).AddGroup(t.Context(), "points", true); err != nil {
			t.Fatal(err)
		}
	case "deleteGroup":
		if err := s.redis.Client().
			XGroupCreateMkStream(t.Context(), keyspace.Space{}.Events(), "by-hand", "0").
			Err(); err != nil {
			t.Fatal(err)
		}
		return map[string]string{"points": "by-hand"}
	case "retryDeadEvent", "discardDeadEvent":
		event := id + ".created"
		if err := events.NewStore(s.store.DB).
			AddDeadLetter(
				t.Context(),
				events.DeadLetter{Group: "points", EventID: event, Body: "{}", Reason: "for an example", DiedAt: time.Now()},
			); err != nil {
			t.Fatal(err)
		}
		return map[string]string{exampleEvent: event}
	case "deleteWebhook":
		return map[string]string{exampleEndpoint: s.newEndpoint()}
	case "getDelivery", "redeliverDelivery":
		var sent struct{ Delivery string }
		a := s.adminAPI("POST", "/admin/v1/webhooks/"+s.endpoint+"/ping", "")
		if json.Unmarshal(a.Body, &sent) != nil || sent.Delivery == "" {
			t.Fatalf("ping: %s", a.Body)
		}
		return map[string]string{exampleDelivery: sent.Delivery}
	}
	return nil
}

// after waits until the next example can be run.
func (s *shown) after(id string) {
	if id != "startRebuild" {
		return
	}
	testenv.Eventually(s.t, time.Minute, "the rebuild is over", func() bool {
		return strings.Contains(string(s.adminAPI("GET", "/admin/v1/rebuild", "").Body), `"running":false`) &&
			do(s.t, "GET", s.base+"/v1/sales/drop", "", "").Status == 200
	})
}

// written returns a new order of the buyer that is in the database.
func (s *shown) written(buyer string) string {
	id := s.buyUnit("drop", buyer)
	if got := s.status(buyer, id); got != "created" {
		s.t.Fatalf("the order of %s is %s", buyer, got)
	}
	return id
}

// refund returns a payment for an order that was cancelled before.
func (s *shown) refund() string {
	id := s.written("zoe")
	s.adminAPI("POST", "/admin/v1/orders/"+id+"/cancel", "")
	s.callback("msg_refund", "payment.succeeded", id, "ref")
	var list struct{ Payments []struct{ Payment string } }
	a := s.adminAPI("GET", "/admin/v1/payments?refund=open", "")
	if json.Unmarshal(a.Body, &list) != nil || len(list.Payments) == 0 {
		s.t.Fatalf("refunds: %s", a.Body)
	}
	return list.Payments[0].Payment
}

// deadOrder returns an order that SQL rejects because another has its slot.
func (s *shown) deadOrder(buyer string) string {
	ctx := context.Background()
	conn := s.sql()
	defer conn.Close(ctx)
	for _, sql := range []string{
		`INSERT INTO orders (id, sale_id, buyer, slot, serial) VALUES ((SELECT count(*) + 1 FROM orders), 'drop', '` + buyer + `', 1, (SELECT count(*) + 1000000 FROM orders))`,
		`UPDATE sales SET sold = sold + 1 WHERE id = 'drop'`,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			s.t.Fatal(err)
		}
	}
	id := s.buyUnit("drop", buyer)
	testenv.Eventually(s.t, time.Minute, "the order is dead", func() bool {
		return do(s.t, "GET", s.base+"/v1/orders/"+id, s.token(buyer), "").State == "dead"
	})
	return id
}

func (s *shown) newEndpoint() string {
	var made struct{ ID string }
	a := s.adminAPI("POST", "/admin/v1/webhooks", `{"url":"https://other.example/"}`)
	if a.Status != 201 || json.Unmarshal(a.Body, &made) != nil {
		s.t.Fatalf("an endpoint: %d %s", a.Status, a.Body)
	}
	return made.ID
}

// Every example request of docs/openapi.yaml is sent to a real server and gets the documented answer. The operations
// run in the order of the document, so that an example can use what an earlier one created.
func TestExamplesOfTheDocument(t *testing.T) {
	t.Parallel()
	vapid, errOut, code := sluiceRun(t, nil, "group", "vapid", "--json")
	var key struct{ Private string }
	if code != 0 || json.Unmarshal([]byte(vapid), &key) != nil {
		t.Fatal(vapid, errOut)
	}
	s := &shown{stack: startStack(t, shape{backends: 1, workers: 1, env: []string{"SLUICE_VAPID_KEY=" + key.Private}})}
	s.store = storetest.Open(t, s.pg.URL)
	s.createSale("drop", 50)
	s.endpoint = s.newEndpoint()
	d, err := openapi.Parse(docs.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	for op := range d.Operations() {
		id := op.Get("operationId").String()
		if op.Get("tags").Strings()[0] == "pages" && strings.HasPrefix(op.Path, "/admin") {
			continue // behind a sign-in; other tests open them in a browser
		}
		t.Run(id, func(t *testing.T) {
			r, err := op.Request()
			if err != nil {
				t.Fatal(err)
			}
			real := s.before(t, id)
			swap := func(text string) string {
				for example, is := range real {
					text = strings.ReplaceAll(text, example, is)
				}
				return strings.ReplaceAll(text, exampleEndpoint, s.endpoint)
			}
			s.run(t, op, id, r, swap)
			s.after(id)
		})
	}
}

func (s *shown) run(t *testing.T, op openapi.Operation, id string, r openapi.Request, swap func(string) string) {
	base, bearer := s.base, ""
	for requirement := range op.Get("security").Items() {
		for scheme := range requirement.Fields() {
			switch scheme {
			case "buyer":
				bearer = s.token(map[bool]string{true: "ann-" + id, false: "ann"}[id == "getOrder" || id == "streamOrder"])
			case "admin":
				base, bearer = s.admin, adminToken
			}
		}
	}
	if r.Path == "/metrics" {
		base = s.admin
	}
	body := swap(string(r.Body))
	req, err := http.NewRequestWithContext(t.Context(), r.Method, base+swap(r.Path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range r.Header {
		req.Header.Set(h[0], swap(h[1]))
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	if id == "receivePaymentCallback" { // a signature is valid for its time and text only
		hook, err := standardwebhooks.NewWebhook(paymentSecret)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		signature, err := hook.Sign(req.Header.Get("webhook-id"), now, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
		req.Header.Set("webhook-signature", signature)
	}
	var problems []string
	c, err := contract.Load()
	if err != nil {
		t.Fatal(err)
	}
	asker := &http.Client{
		Timeout:   30 * time.Second,
		Transport: &contract.Transport{Contract: c, Report: func(err error) { problems = append(problems, err.Error()) }},
	}
	resp, err := asker.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text := bufio.NewReader(resp.Body)
	var got strings.Builder
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") { // it has no end
		line, _ := text.ReadString('\n')
		got.WriteString(line)
	} else if _, err := text.WriteTo(&got); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode >= 300 {
		t.Errorf("%s %s %s: %d %s", r.Method, swap(r.Path), body, resp.StatusCode, got.String())
	}
	for _, p := range problems {
		t.Error(p)
	}
}

// wantReference checks that the edge passes on the backend's API reference.
func (s *stack) wantReference() {
	s.t.Helper()
	for _, path := range []string{"/openapi.yaml", "/reference"} {
		through, direct := do(s.t, "GET", s.base+path, "", ""), do(s.t, "GET", s.bases[0]+path, "", "")
		if through.Status != 200 || len(through.Body) == 0 || string(through.Body) != string(direct.Body) ||
			through.Header.Get("Content-Security-Policy") != direct.Header.Get(
				"Content-Security-Policy",
			) || through.Header.Get("Content-Type") != direct.Header.Get("Content-Type") {
			s.t.Errorf("%s through the edge: %d, %d bytes, %v", path, through.Status, len(through.Body), through.Header)
		}
	}
}

// For every example of a refusal in docs/openapi.yaml, a real server returns the same response, except for ids and
// times.
func TestErrorsOfTheDocument(t *testing.T) {
	t.Parallel()
	s := startStack(t, shape{backends: 1, workers: 1})
	s.createSale("drop", 2)
	s.createSale("few", 1)
	later := fmt.Sprintf(`{"id":"later","title":"Thing","stock":1,"price":{"amount":1999,"currency":"EUR"},"opens_at":%q}`,
		time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	if a := s.adminAPI("POST", "/admin/v1/sales", later); a.Status != 201 {
		t.Fatal(string(a.Body))
	}
	s.buyUnit("few", "eve")
	s.buyUnit("drop", "ann")
	recipes := map[string]func() answer{
		"sold-out":       func() answer { return s.buy("few", "ann") },
		"already-bought": func() answer { return s.buy("drop", "ann") },
		"sale-not-open":  func() answer { return s.buy("later", "ann") },
		"stock": func() answer {
			return s.adminAPI("POST", "/admin/v1/sales", strings.Replace(later, `"stock":1`, `"stock":0`, 1))
		},
		"order-cancelled": func() answer {
			id := s.buyUnit("drop", "bob")
			s.status("bob", id)
			s.adminAPI("POST", "/admin/v1/orders/"+id+"/cancel", "")
			return s.callback("msg_cancelled", "payment.succeeded", id, "ref")
		},
	}
	d, err := openapi.Parse(docs.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string]bool{}
	for op := range d.Operations() {
		for status, response := range op.Get("responses").Fields() {
			for name, e := range response.Get("content").Get("application/problem+json").Get("examples").Fields() {
				if ran[name] {
					continue
				}
				ran[name] = true
				recipe, known := recipes[name]
				if !known {
					t.Errorf("the test has no request for the error %q of %s", name, op.Get("operationId").String())
					continue
				}
				a := recipe()
				var want, got map[string]any
				if json.Unmarshal(e.Get("value").JSON(), &want) != nil || json.Unmarshal(a.Body, &got) != nil {
					t.Fatalf("%s: %s", name, a.Body)
				}
				for _, varies := range []string{"order_id", "opens_at"} {
					if _, has := want[varies]; has && got[varies] != nil {
						got[varies] = want[varies]
					}
				}
				if strconv.Itoa(a.Status) != status || !reflect.DeepEqual(want, got) {
					t.Errorf("%s: the server returned %d %s, the document has %s %s", name, a.Status, a.Body, status,
						e.Get("value").JSON())
				}
			}
		}
	}
	if len(ran) != len(recipes) {
		t.Errorf("the document has the refusals %v", ran)
	}
}
