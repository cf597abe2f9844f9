package e2e

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

type otlpLink = otlp.Span_Link

// span is what came to the collector of one span.
type span struct {
	*otlp.Span
	service string
}

// otlpCollector takes traces over OTLP/HTTP, as an OpenTelemetry collector does.
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
			service := ""
			for _, a := range resource.GetResource().GetAttributes() {
				if a.GetKey() == "service.name" {
					service = a.GetValue().GetStringValue()
				}
			}
			for _, scope := range resource.GetScopeSpans() {
				for _, s := range scope.GetSpans() {
					c.spans = append(c.spans, span{s, service})
				}
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

// trace is all that is known of a trace.
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

// find is the span of a service in a trace, by its name and, for a consumer, its group; nil while it is not there.
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
