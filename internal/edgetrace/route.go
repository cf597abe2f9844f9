package edgetrace

import "strings"

// routes are the public paths of docs/openapi.yaml, without those between edges and backends. A path with a fixed
// segment comes before one with a parameter at its place.
var routes = []string{
	"/", "/s/{sale}", "/assets/{name}", "/openapi.yaml", "/reference", "/healthz", "/readyz",
	"/v1/sales", "/v1/sales/{sale}", "/v1/sales/{sale}/orders", "/v1/sales/{sale}/events",
	"/v1/me/orders", "/v1/me/points", "/v1/me/events", "/v1/me/push/subscriptions",
	"/v1/me/push/subscriptions/{subscription}", "/v1/push/key",
	"/v1/orders/{order}", "/v1/orders/{order}/events", "/v1/payments",
}

// routeOf returns the route of a decoded path, or "". A slash at the end is ignored, as backends do.
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

// covers reports whether the segments of a path are those of a route. A parameter is any segment but an empty one.
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
