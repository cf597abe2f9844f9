package tracing

import (
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Fail sets the status of a span to an error, with the Text of the reason. kind is its error.type, which has few
// values.
func Fail(span trace.Span, kind, reason string) {
	span.SetStatus(codes.Error, Text(reason))
	span.SetAttributes(attribute.String("error.type", kind))
}

// MaxText bounds recorded text from a client or a server, in bytes.
const MaxText = 1 << 10

// Text returns a copy of s that is valid UTF-8 and of bounded length. Use it for text from a client or a server: one
// invalid byte prevents the export of the whole batch.
func Text(s string) string {
	var b strings.Builder
	for _, r := range s {
		if b.WriteRune(r); b.Len() >= MaxText { // an invalid byte is U+FFFD
			break
		}
	}
	return b.String()
}

// Addressed returns the attributes of the scheme and the server that a client used. host is the header Host. Every
// scheme except https counts as http.
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
