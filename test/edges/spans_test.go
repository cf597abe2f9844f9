package edges

import (
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"sluice/internal/tracing"
	"sluice/test/testenv"
)

const callersParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// overTraced runs a test with each edge, which exports its spans to a recorder.
func overTraced(t *testing.T, s tracing.Sampling, test func(t *testing.T, e *edge, spans *tracetest.SpanRecorder)) {
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spans := tracetest.NewSpanRecorder()
			provider := tracing.New(spans, s, "1", nil)
			t.Cleanup(provider.Close)
			test(t, start(t, options{policy: limitless, spans: provider, sampling: s}, play), spans)
		})
	}
}

// parentOf sends a request with lines of headers. It returns the request as the backend gets it, and its id.
func (e *edge) parentOf(t *testing.T, lines ...string) (got seen, id string) {
	t.Helper()
	h := e.send(t, request("GET", "/x", append(lines, "Connection: close")...))
	all := e.backend.take()
	if len(all) != 1 || len(all[0].header["Traceparent"]) != 1 {
		t.Fatalf("%.80q: the backend got %v", lines, all)
	}
	return all[0], h.headers[0].Get("X-Request-Id")
}

// A backend receives exactly one traceparent: that of the edge's span if the request is sampled. A malformed one of
// the client is replaced.
func TestBackendReceivesOneTraceParent(t *testing.T) {
	zeros := strings.Repeat("0", 32)
	overTraced(
		t,
		tracing.Sampling{FollowParent: true, Ratio: 1},
		func(t *testing.T, e *edge, spans *tracetest.SpanRecorder) {
			n := 0
			for parent, begins := range map[string]bool{
				callersParent: false, "01-" + callersParent[3:]: false, "": true, "x": true, callersParent + "-": true,
				callersParent + strings.Repeat("0", 4000): true, callersParent[1:]: true, "ff" + callersParent[2:]: true,
				strings.ToUpper(callersParent): true, "00-" + zeros + callersParent[35:]: true,
				callersParent[:36] + zeros[:16] + "-01": true, callersParent + ", " + callersParent: true,
			} {
				r, _ := e.parentOf(t, "Tracestate: a=b", "Traceparent: "+parent, "traceparent: "+callersParent)
				n += 2
				testenv.Eventually(t, time.Minute, "the spans end", func() bool { return len(spans.Ended()) >= n })
				client, server := spans.Ended()[n-2].SpanContext(), spans.Ended()[n-1]
				want := "00-" + client.TraceID().String() + "-" + client.SpanID().String() + "-01"
				if got := r.header.Get("Traceparent"); got != want {
					t.Errorf("%.80q: the backend got %s, want %s", parent, got, want)
				}
				below := server.Parent().IsValid() && server.Parent().SpanID().String() == callersParent[36:52] &&
					server.SpanContext().TraceID().String() == callersParent[3:35]
				if begins == below || begins != !server.Parent().IsValid() || begins != (len(r.header["Tracestate"]) == 0) {
					t.Errorf("%.80q: the edge's span is below %v, tracestate %q", parent, server.Parent(), r.header["Tracestate"])
				}
			}
		},
	)
}

func TestUnsampledRequestsKeepTheirDecision(t *testing.T) {
	overTraced(t, tracing.Sampling{FollowParent: true}, func(t *testing.T, e *edge, spans *tracetest.SpanRecorder) {
		parent := callersParent[:54] + "0"
		if r, _ := e.parentOf(t, "Traceparent: "+parent); r.header.Get("Traceparent") != parent {
			t.Errorf("the backend got %q", r.header["Traceparent"])
		}
		if r, id := e.parentOf(t); r.header.Get("Traceparent") != "00-"+id+"-"+id[16:]+"-00" {
			t.Errorf("request %s: the backend got %q", id, r.header["Traceparent"])
		}
		e.parentOf(t, "Traceparent: "+callersParent) // its spans follow those of the others
		testenv.Eventually(t, time.Minute, "the spans end", func() bool { return len(spans.Ended()) >= 2 })
		if all := spans.Ended(); len(all) != 2 {
			t.Errorf("%d spans", len(all))
		}
	})
}

// An edge that does not follow its callers decides for the backends as well.
func TestRatioOverrulesTheCaller(t *testing.T) {
	overTraced(t, tracing.Sampling{}, func(t *testing.T, e *edge, spans *tracetest.SpanRecorder) {
		r, id := e.parentOf(t, "Traceparent: "+callersParent)
		if r.header.Get("Traceparent") != "00-"+callersParent[3:35]+"-"+id[16:]+"-00" {
			t.Errorf("request %s: the backend got %q", id, r.header["Traceparent"])
		}
		if all := spans.Ended(); len(all) != 0 {
			t.Errorf("%d spans", len(all))
		}
	})
}
