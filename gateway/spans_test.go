package gateway

import (
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"sluice/internal/edgetrace"
	"sluice/internal/tracing"
	"sluice/test/testenv"
)

// traced makes a gateway export spans to the returned recorder.
func traced(t *testing.T, sampling tracing.Sampling) (*tracetest.SpanRecorder, func(*Config)) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := tracing.New(spans, sampling, "1", nil)
	t.Cleanup(provider.Close)
	return spans, func(c *Config) { c.Spans = edgetrace.New(provider) }
}

func spanText(s sdk.ReadOnlySpan, key string) string {
	for _, a := range s.Attributes() {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

func TestSpansOfRefusals(t *testing.T) {
	b := newBackend(t, nil)
	spans, config := traced(t, tracing.Sampling{Ratio: 1})
	e := serve(t, shop, []string{b.address()}, config)
	const order = "/v1/sales/42/orders"
	e.send(t, "POST", order, "", bearerOf(t, "ann"))
	e.send(t, "POST", order, "", bearerOf(t, "ann"))
	e.send(t, "POST", order, "", bearerOf(t, "ann"))
	e.send(t, "POST", order, "", "token: forged")
	e.send(t, "GET", "/admin/v1", "")
	e.send(t, "GET", "/healthz", "")
	e.send(t, "GET", "/a/../b", "")
	var got []string
	for _, s := range spans.Ended() {
		got = append(got, strings.Join([]string{s.SpanKind().String(), s.Name(), spanText(s, "http.response.status_code"),
			spanText(s, "sluice.verdict"), spanText(s, "sluice.rule"), spanText(s, "error.type")}, "|"))
	}
	want := []string{
		"client|POST|200|||", "server|POST /v1/sales/{sale}/orders|200|allow||",
		"client|POST|200|||", "server|POST /v1/sales/{sale}/orders|200|allow||",
		"server|POST /v1/sales/{sale}/orders|429|deny|token|",
		"server|POST /v1/sales/{sale}/orders|401|unauthorized||",
		"server|GET|404|||",
		"server|GET|400|||",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("spans\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestSpansOfAFailedBackend(t *testing.T) {
	broken := newBackend(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	b := newBackend(t, nil)
	spans, config := traced(t, tracing.Sampling{Ratio: 1})
	e := serve(t, open, []string{broken.address(), b.address()}, config)
	for range 2 { // one of them tries the broken backend first
		e.send(t, "GET", "/v1/sales", "")
	}
	resent := 0
	for _, s := range spans.Ended() {
		if spanText(s, "http.request.resend_count") == "1" {
			resent++
		}
	}
	if resent != 1 {
		t.Errorf("%d requests were sent again, want 1: %v", resent, spans.Ended())
	}
	e.send(t, "POST", "/v1/payments", "{}") // is not sent again
	e.send(t, "POST", "/v1/payments", "{}")
	failed := 0
	for _, s := range spans.Ended() {
		if spanText(s, "error.type") == "502" || spanText(s, "error.type") == "503" {
			failed++
		}
	}
	if failed != 2 {
		t.Errorf("%d spans failed, want the client's and the server's: %v", failed, spans.Ended())
	}
}

// The spans of an event stream end when the stream does.
func TestSpanOfAStreamEndsWithIt(t *testing.T) {
	s := newEventSource(t)
	spans, config := traced(t, tracing.Sampling{Ratio: 1})
	e := serve(t, open, []string{s.address()}, config)
	_, events, c := e.events(t)
	s.send <- "first"
	if _, err := events.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if all := spans.Ended(); len(all) != 0 {
		t.Errorf("spans %v", all)
	}
	_ = c.Close()
	testenv.Eventually(t, time.Minute, "the spans end", func() bool {
		return len(spans.Ended()) == 2
	})
}
