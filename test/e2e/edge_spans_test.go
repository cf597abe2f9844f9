package e2e

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"sluice/test/testenv"
)

// tracedEdge is an edge that exports spans, in front of a backend that samples as the edge decides.
type tracedEdge struct {
	*stack
	service       string
	base, metrics string
	process       *process
}

const edgeSpansPolicy = `return { rules = {
	{ name = "ip", key = "ip", rate = "1000r/s", burst = 1000 },
	{ name = "token", key = "token", rate = "1r/h", burst = 0, match = { method = "POST", path = "/v1/sales/*/orders" } },
} }`

// startTracedEdges starts both edges in front of one backend and one worker.
func startTracedEdges(t *testing.T, c *otlpCollector) []*tracedEdge {
	t.Helper()
	export := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_BSP_SCHEDULE_DELAY=50"}
	s := startStack(t, shape{backends: 1, workers: 1, env: append(export, "OTEL_TRACES_SAMPLER_ARG=0")})
	policy := policyFile(t, edgeSpansPolicy)
	var edges []*tracedEdge
	for _, command := range []string{"gateway", "edge"} {
		service := edgeServices[command]
		listen, metrics := addr(t), addr(t)
		env := append(export, "OTEL_TRACES_SAMPLER_ARG=1", "SLUICE_TOKEN_SECRET="+tokenSecret)
		e := &tracedEdge{stack: s, service: service, base: "http://" + listen, metrics: "http://" + metrics + "/metrics"}
		e.process = launch(t, env, command, "--listen", listen, "--metrics", metrics, "--policy", policy, "--upstream",
			strings.TrimPrefix(s.base, "http://"))
		testenv.AwaitOK(t, e.base+"/healthz")
		edges = append(edges, e)
	}
	return edges
}

// form returns the parts of a trace that must be equal at both edges: kinds, names and parents of its spans, and
// attributes that do not depend on the address of the edge.
func (e *tracedEdge) form(all []span) string {
	var lines []string
	for _, s := range all {
		if s.service != e.service {
			continue
		}
		about := attributesOf(s.GetAttributes())
		for _, unequal := range []string{"http.request.header.x-request-id", "server.port"} {
			if about[unequal] != "" {
				about[unequal] = "(present)"
			}
		}
		var pairs []string
		for _, key := range slices.Sorted(maps.Keys(about)) {
			pairs = append(pairs, key+"="+about[key])
		}
		above := "root"
		if len(s.GetParentSpanId()) > 0 {
			above = "below another"
		}
		lines = append(lines, fmt.Sprintf("%s %q %s %s: %s", s.GetKind(), s.GetName(), above, s.GetStatus(),
			strings.Join(pairs, " ")))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// A purchase, refusals and a page have the same spans at both edges. The backend and the worker continue in the trace
// of the edge, below its span.
func TestBothEdgesExportTheSameSpans(t *testing.T) {
	t.Parallel()
	c := newOTLPCollector(t)
	edges := startTracedEdges(t, c)
	edges[0].createSale("night", 10)
	const order, caller = "/v1/sales/night/orders", "00f067aa0ba902b7"
	forms := map[string][]string{}
	for n, e := range edges {
		buyer := e.token("buyer of " + e.service)
		for i, r := range []struct {
			name, method, path, token string
			begins                    bool // without a traceparent
			status, spans             int
		}{
			{"purchase", "POST", order, buyer, false, 202, 2},
			{"repeated purchase", "POST", order, buyer, false, 429, 1},
			{"forged token", "POST", order, "x.y.z", false, 401, 1},
			{"page", "GET", "/s/night", "", false, 200, 2},
			{"no page", "GET", "/v1/nothing", "", false, 404, 2},
			{"purchase that begins a trace", "POST", order, e.token("another of " + e.service), true, 202, 2},
		} {
			id := fmt.Sprintf("4bf92f3577b34da6a3ce929d0e0e%02d%02d", n, i)
			parent := "00-" + id + "-" + caller + "-01"
			if r.begins {
				parent = ""
			}
			a := do(t, r.method, e.base+r.path, r.token, "", "traceparent", parent)
			if a.Status != r.status {
				t.Fatalf("%s, %s: %d %s", e.service, r.name, a.Status, a.Body)
			}
			above := caller
			if r.begins {
				id, above = a.Header.Get("X-Request-Id"), ""
			}
			e.wantSpans(t, c, id, above, r.spans)
			forms[r.name] = append(forms[r.name], e.form(c.trace(id)))
			if r.status == 202 {
				wantContinued(t, c, e, id)
			}
		}
		// The nginx edge omits the metrics of its Go process if that one does not answer in time.
		testenv.Eventually(t, time.Minute, "the metrics of "+e.service, func() bool {
			metrics := string(do(t, "GET", e.metrics, "", "").Body)
			return strings.Contains(metrics, "\nsluice_build_info{") &&
				strings.Contains(metrics, `sluice_spans_total{result="exported"} `)
		})
	}
	for name, both := range forms {
		if both[0] != both[1] {
			t.Errorf("%s has different spans: %s\n%s\n\n%s\n%s", name, edges[0].service, both[0], edges[1].service, both[1])
		}
	}
}

// wantSpans waits for the spans of an edge in a trace, and checks their parents and times. above is the id of the
// caller's span, or "".
func (e *tracedEdge) wantSpans(t *testing.T, c *otlpCollector, id, above string, n int) {
	t.Helper()
	var server, client *span
	testenv.Eventually(t, time.Minute, "the spans of "+e.service+" in "+id, func() bool {
		found := 0
		for _, s := range c.trace(id) {
			switch {
			case s.service != e.service:
				continue
			case s.GetKind() == otlp.Span_SPAN_KIND_SERVER:
				server = &s
			default:
				client = &s
			}
			found++
		}
		return found >= n
	})
	if got := hex.EncodeToString(server.GetParentSpanId()); got != above {
		t.Errorf("%s: the request is below %q, want %q", e.service, got, above)
	}
	if (client != nil) != (n == 2) {
		t.Fatalf("%s: the trace is %v", e.service, c.trace(id))
	}
	if client == nil {
		return
	}
	if string(client.GetParentSpanId()) != string(server.GetSpanId()) {
		t.Errorf("%s: the request to the backend is not below the client's", e.service)
	}
	if client.GetStartTimeUnixNano() < server.GetStartTimeUnixNano() ||
		client.GetEndTimeUnixNano() > server.GetEndTimeUnixNano() {
		t.Errorf("%s: the request to the backend lasts longer than the client's: %v, %v", e.service, client, server)
	}
}

// wantContinued waits until the backend and the worker have continued a trace of an edge.
func wantContinued(t *testing.T, c *otlpCollector, e *tracedEdge, id string) {
	t.Helper()
	const name = "POST /v1/sales/{sale}/orders"
	testenv.Eventually(t, time.Minute, "the trace "+id+" reaches the worker", func() bool {
		return c.find(id, "sluice-backend", name, "") != nil && c.find(id, "sluice-worker", "process orders", "") != nil
	})
	request, sent := c.find(id, "sluice-backend", name, ""), c.find(id, e.service, "POST", "")
	if sent == nil || string(request.GetParentSpanId()) != string(sent.GetSpanId()) {
		t.Errorf("%s: the request at the backend is below %x, want %v", e.service, request.GetParentSpanId(), sent)
	}
}
