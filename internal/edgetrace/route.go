package edgetrace

import "strings"

// routes are the public paths of docs/openapi.yaml, without those between edges and backends. A path with a fixed
// segment precedes one with a parameter in the same position.
var routes = []string{
	"/", "/s/{sale}", "/assets/{name}", "/openapi.yaml", "/reference", "/healthz", "/readyz",
	"/v1/sales", "/v1/sales/{sale}", "/v1/sales/{sale}/orders", "/v1/sales/{sale}/events",
	"/v1/me/orders", "/v1/me/points", "/v1/me/events", "/v1/me/push/subscriptions",
	"/v1/me/push/subscriptions/{subscription}", "/v1/push/key",
	"/v1/orders/{order}", "/v1/orders/{order}/events", "/v1/payments",
}

// routeOf returns the route of a decoded path, or "". Like backends, it ignores a trailing slash.
func routeOf(path string) string {
	if len(path) > 2 {
		path = strings.TrimSuffix(path, "/")
	}
	for _, route := range routes {
		if covers(route, path) {
			return route
		}
	}
	return ""
}

// covers reports whether a route matches the segments of a path. A parameter matches any segment that is not empty.
func covers(route, path string) bool {
	for {
		want, restOfRoute, more := strings.Cut(route, "/")
		have, restOfPath, longer := strings.Cut(path, "/")
		if more != longer || want != have && (have == "" || !strings.HasPrefix(want, "{")) {
			return false
		}
		if !more {
			return true
		}
		route, path = restOfRoute, restOfPath
	}
}
