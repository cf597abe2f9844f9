package e2e

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

type otlpLink = otlp.Span_Link

// span is a span that the collector received.
type span struct {
	*otlp.Span
	service string
}

// otlpCollector receives traces over OTLP/HTTP, as an OpenTelemetry collector does.
type otlpCollector struct {
	*httptest.Server

	mu    sync.Mutex
	spans []span
}

func newOTLPCollector(t *testing.T) *otlpCollector {
	c := &otlpCollector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" ||
			proto.Unmarshal(body, &request) != nil {
			t.Errorf("no export of traces: %s %s, %v", r.URL.Path, r.Header.Get("Content-Type"), err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range request.GetResourceSpans() {
			about := attributesOf(resource.GetResource().GetAttributes())
			service := about["service.name"]
			wantAttributes(t, service, about, "service.name", "service.version", "service.instance.id",
				"telemetry.sdk.name", "telemetry.sdk.language", "telemetry.sdk.version")
			for _, scope := range resource.GetScopeSpans() {
				if scope.GetScope().GetName() != "sluice" || scope.GetScope().GetVersion() == "" {
					t.Errorf("%s exports spans of the scope %v", service, scope.GetScope())
				}
				for _, s := range scope.GetSpans() {
					checkSpan(t, service, s)
					c.spans = append(c.spans, span{s, service})
				}
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

// checkSpan compares a span with the protocol and with OpenTelemetry's semantic conventions for HTTP, messaging and
// databases.
func checkSpan(t *testing.T, service string, s *otlp.Span) {
	t.Helper()
	name := service + ": " + s.GetName()
	if len(s.GetTraceId()) != 16 || len(s.GetSpanId()) != 8 || len(s.GetParentSpanId())%8 != 0 ||
		s.GetStartTimeUnixNano() == 0 || s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() || s.GetName() == "" {
		t.Errorf("%s violates the protocol: %v", name, s)
	}
	about := attributesOf(s.GetAttributes())
	if len(about) != len(s.GetAttributes()) {
		t.Errorf("%s has an attribute twice: %v", name, s.GetAttributes())
	}
	if s.GetStatus().GetCode() == otlp.Status_STATUS_CODE_ERROR {
		wantAttributes(t, name, about, "error.type")
	}
	switch {
	case s.GetKind() == otlp.Span_SPAN_KIND_SERVER:
		wantAttributes(t, name, about, "http.request.method", "http.response.status_code", "url.path", "url.scheme",
			"server.address", "server.port")
		if isEdge(service) {
			wantAttributes(t, name, about, "client.address", "http.request.header.x-request-id")
		} else {
			wantAttributes(t, name, about, "http.route")
		}
		if want := strings.TrimSpace(about["http.request.method"] + " " + about["http.route"]); s.GetName() != want {
			t.Errorf("%s: the name is not %s", name, want)
		}
	case s.GetKind() == otlp.Span_SPAN_KIND_CLIENT && about["db.system.name"] != "":
		wantAttributes(t, name, about, "db.operation.name")
	case s.GetKind() == otlp.Span_SPAN_KIND_CLIENT:
		wantAttributes(t, name, about, "http.request.method", "server.address")
		if isEdge(service) {
			wantAttributes(t, name, about, "server.port")
		}
	case s.GetKind() == otlp.Span_SPAN_KIND_PRODUCER, s.GetKind() == otlp.Span_SPAN_KIND_CONSUMER:
		wantAttributes(t, name, about, "messaging.system", "messaging.operation.name", "messaging.operation.type",
			"messaging.destination.name")
		if about["messaging.batch.message_count"] == "" {
			wantAttributes(t, name, about, "messaging.message.id")
		}
	default:
		t.Errorf("%s has the kind %v", name, s.GetKind())
	}
}

// isEdge reports whether a service is an edge, which also answers requests without a route.
func isEdge(service string) bool { return service == "sluice-gateway" || service == "sluice-edge" }

func attributesOf(all []*common.KeyValue) map[string]string {
	values := map[string]string{}
	for _, a := range all {
		values[a.GetKey()] = fmt.Sprint(cmp.Or(a.GetValue().GetStringValue(), a.GetValue().String()))
	}
	return values
}

func wantAttributes(t *testing.T, of string, have map[string]string, names ...string) {
	t.Helper()
	for _, name := range names {
		if have[name] == "" {
			t.Errorf("%s has no attribute %s: %v", of, name, have)
		}
	}
}

// trace returns all spans of a trace that have arrived.
func (c *otlpCollector) trace(id string) (all []span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if hex.EncodeToString(s.GetTraceId()) == id {
			all = append(all, s)
		}
	}
	return all
}

// find returns the span of a service in a trace, by its name and, for a consumer, its group; nil if it has not arrived
// yet.
func (c *otlpCollector) find(trace, service, name, group string) *span {
	for _, s := range c.trace(trace) {
		if s.service == service && s.GetName() == name && s.attribute("messaging.consumer.group.name") == group {
			return &s
		}
	}
	return nil
}

func (s *span) attribute(key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}
