package tracing

import (
	"net/url"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Fail sets the status of a span to an error. kind is its error.type, which has few values.
func Fail(span trace.Span, kind, reason string) {
	span.SetStatus(codes.Error, reason)
	span.SetAttributes(attribute.String("error.type", kind))
}

// Addressed returns the attributes of the scheme and the server that a client used. host is the header Host. Every
// scheme but https counts as http.
func Addressed(scheme, host string) []attribute.KeyValue {
	if scheme != "https" {
		scheme = "http"
	}
	return append([]attribute.KeyValue{attribute.String("url.scheme", scheme)}, Server(host)...)
}

// Server returns the attributes of the server at host or host:port. It returns nil without a host.
func Server(address string) []attribute.KeyValue {
	u := url.URL{Host: address}
	name := u.Hostname()
	if name == "" {
		return nil
	}
	all := []attribute.KeyValue{attribute.String("server.address", name)}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		all = append(all, attribute.Int("server.port", int(port)))
	}
	return all
}
