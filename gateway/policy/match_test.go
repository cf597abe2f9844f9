package policy_test

import (
	"testing"

	"sluice/gateway/policy"
)

func TestMatchCovers(t *testing.T) {
	orders := policy.Match{Method: "POST", Path: "/v1/sales/*/orders"}
	for _, c := range []struct {
		match        policy.Match
		method, path string
		want         bool
	}{
		{policy.Match{}, "GET", "/", true},
		{policy.Match{}, "POST", "/v1/sales/42/orders", true},
		{policy.Match{Method: "GET"}, "GET", "/x", true},
		{policy.Match{Method: "GET"}, "HEAD", "/x", false},
		{orders, "POST", "/v1/sales/42/orders", true},
		{orders, "POST", "/v1/sales/42/orders/", true},
		{orders, "POST", "/V1/Sales/42/ORDERS", true},
		{orders, "POST", "/v1/sales/-/orders", true},
		{orders, "GET", "/v1/sales/42/orders", false},
		{orders, "post", "/v1/sales/42/orders", false},
		{orders, "POST", "/v1/sales//orders", false},
		{orders, "POST", "/v1/sales/orders", false},
		{orders, "POST", "/v1/sales/42/43/orders", false},
		{orders, "POST", "/v1/sales/42/orders/1", false},
		{orders, "POST", "/v1/sales/42/ordersx", false},
		{orders, "POST", "/v1/sales/42/order", false},
		{orders, "POST", "/", false},
		{policy.Match{Path: "/"}, "GET", "/", true},
		{policy.Match{Path: "/"}, "GET", "/x", false},
		{policy.Match{Path: "/*"}, "GET", "/", false},
		{policy.Match{Path: "/*"}, "GET", "/x", true},
		{policy.Match{Path: "/*"}, "GET", "/x/y", false},
		{policy.Match{Path: "/*/y"}, "GET", "/x/y", true},
		{policy.Match{Path: "/x/*"}, "GET", "/x", false},
		{policy.Match{Path: "/x/*"}, "GET", "/x/", false},
	} {
		if got := c.match.Covers([]byte(c.method), []byte(c.path)); got != c.want {
			t.Errorf("%+v covers %s %s: %v, want %v", c.match, c.method, c.path, got, c.want)
		}
	}
}
