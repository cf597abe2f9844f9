//go:build generated

package clients

import (
	"context"
	"net/http"
	"testing"

	"sluice/test/clients/generated/api"
)

// bearer returns an option that authenticates each request of a client.
func bearer(token string) api.ClientOption {
	return api.WithRequestEditorFn(func(_ context.Context, req *http.Request) error {
		req.Header.Set("Authorization", "Bearer "+token)
		return nil
	})
}

func newClient(t *testing.T, base string, options ...api.ClientOption) *api.ClientWithResponses {
	t.Helper()
	c, err := api.NewClientWithResponses(base, options...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestGoClientBuys(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	buyer, stranger := newClient(t, s.base, bearer(s.buyer)), newClient(t, s.base)
	buy := func(c *api.ClientWithResponses, key string) *api.CreateOrderResponse {
		t.Helper()
		params := &api.CreateOrderParams{IdempotencyKey: &key}
		a, err := c.CreateOrderWithResponse(t.Context(), s.sale, params, api.CreateOrderJSONRequestBody{})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}

	sale, err := buyer.GetSaleWithResponse(t.Context(), s.sale)
	if err != nil || sale.JSON200 == nil || sale.JSON200.State != api.StateOpen || sale.JSON200.ClosesAt != nil {
		t.Fatalf("the sale: %+v, %v", sale, err)
	}
	bought := buy(buyer, "first")
	if bought.JSON202 == nil || bought.JSON202.Status != api.AcceptedStatusQueued ||
		bought.Headers202.Location != "/v1/orders/"+bought.JSON202.OrderId {
		t.Fatalf("a purchase: %s %s", bought.Status(), bought.Body)
	}
	id := bought.JSON202.OrderId
	replayed := buy(buyer, "first")
	if replayed.JSON202 == nil || replayed.JSON202.OrderId != id || replayed.Headers202.IdempotencyReplayed == nil {
		t.Errorf("the same request again: %s %s", replayed.Status(), replayed.Body)
	}
	wait := "30s"
	order, err := buyer.GetOrderWithResponse(t.Context(), id, &api.GetOrderParams{Wait: &wait})
	if err != nil || order.JSON200 == nil || order.JSON200.Status != api.StatusCreated {
		t.Fatalf("the order: %+v, %v", order, err)
	}
	second := buy(buyer, "second")
	if p := second.ApplicationproblemJSON409; p == nil || p.Code != api.ProblemCodeAlreadyBought || p.OrderId == nil ||
		*p.OrderId != id {
		t.Errorf("a second unit: %s %s", second.Status(), second.Body)
	}
	rejected := buy(stranger, "third")
	if p := rejected.ApplicationproblemJSON401; p == nil || p.Code != api.ProblemCodeUnauthorized ||
		rejected.Headers401.WWWAuthenticate == "" {
		t.Errorf("without a token: %s %s", rejected.Status(), rejected.Body)
	}

	admin := newClient(t, s.admin, bearer(adminToken))
	audit, err := admin.AuditSaleWithResponse(t.Context(), s.sale)
	if err != nil || audit.JSON200 == nil || !audit.JSON200.Balanced || audit.JSON200.Ordered != 1 {
		t.Errorf("the audit: %+v, %v", audit, err)
	}
}
