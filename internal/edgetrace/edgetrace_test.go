package edgetrace

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"sluice/docs"
	"sluice/internal/openapi"
	"sluice/internal/tracing"
)

const (
	id     = "0123456789abcdef0123456789abcdee"
	parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)

func recorded(t *testing.T, sampling tracing.Sampling) (*Recorder, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	p := tracing.New(spans, sampling, "1", nil)
	t.Cleanup(p.Close)
	return New(p), spans
}

func attributes(s sdk.ReadOnlySpan) map[string]string {
	values := map[string]string{}
	for _, a := range s.Attributes() {
		values[string(a.Key)] = a.Value.String()
	}
	return values
}

func idOf(text string) *[IDSize]byte { return (*[IDSize]byte)([]byte(text)) }

func TestCallerOrRatioDecidesSampling(t *testing.T) {
	unsampled := parent[:54] + "0"
	for _, row := range []struct {
		sampling tracing.Sampling
		parent   string
		want     bool
	}{
		{tracing.Sampling{FollowParent: true}, "", false},
		{tracing.Sampling{FollowParent: true}, parent, true},
		{tracing.Sampling{FollowParent: true}, parent[:54] + "3", true},
		{tracing.Sampling{FollowParent: true}, parent[:54] + "b", true},
		{tracing.Sampling{FollowParent: true}, parent[:54] + "a", false},
		{tracing.Sampling{FollowParent: true, Ratio: 1}, "", true},
		{tracing.Sampling{FollowParent: true, Ratio: 1}, unsampled, false},
		{tracing.Sampling{}, parent, false},
		{tracing.Sampling{Ratio: 1}, unsampled, true},
	} {
		r, _ := recorded(t, row.sampling)
		if got := r.Sampled(idOf(id), []byte(row.parent)); got != row.want {
			t.Errorf("%+v, parent %q: sampled %t", row.sampling, row.parent, got)
		}
	}
	r, _ := recorded(t, tracing.Sampling{FollowParent: true, Ratio: 0.5})
	line := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() {
		r.Sampled(idOf(id), nil)
		AppendParent(line, idOf(id), nil, false)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A backend continues below the span that is exported for the request to it.
func TestParentOfTheBackendIsTheClientSpan(t *testing.T) {
	for _, row := range []struct{ parent, trace, above string }{
		{"", id, ""},
		{parent, "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"},
	} {
		r, spans := recorded(t, tracing.Sampling{})
		sent := string(AppendParent(nil, idOf(id), []byte(row.parent), true))
		end := time.Now()
		r.Record(&Request{
			ID:        id,
			Parent:    row.parent,
			Begin:     end.Add(-2 * time.Second),
			End:       end,
			Method:    "POST",
			Target:    "/v1/sales/sh%6fe/orders?token=x",
			Scheme:    "https",
			Host:      "shop.example:8443",
			Client:    "192.0.2.1",
			Status:    202,
			Verdict:   "allow",
			Rule:      "ip",
			Upstreams: "10.0.0.1:80, 10.0.0.2:8080",
			Statuses:  "504, 202",
			Seconds:   "1.000, 0.250",
		})
		all := spans.Ended()
		if len(all) != 2 {
			t.Fatalf("%d spans", len(all))
		}
		client, server := all[0], all[1]
		if got := "00-" + client.SpanContext().
			TraceID().
			String() +
			"-" + client.SpanContext().
			SpanID().
			String() +
			"-01"; got !=
			sent ||
			client.SpanContext().TraceID().String() != row.trace {
			t.Errorf("the client span is %s, and the backend gets %s", got, sent)
		}
		if client.Parent().SpanID() != server.SpanContext().SpanID() ||
			client.Parent().TraceID() != server.SpanContext().TraceID() {
			t.Errorf("the client span is below %v", client.Parent())
		}
		if above := server.Parent(); above.IsValid() != (row.above != "") ||
			above.IsValid() && above.SpanID().String() != row.above {
			t.Errorf("the server span is below %v", server.Parent())
		}
		if server.SpanKind() != trace.SpanKindServer || client.SpanKind() != trace.SpanKindClient ||
			server.Name() != "POST /v1/sales/{sale}/orders" || client.Name() != "POST" {
			t.Errorf("spans %v and %v", server, client)
		}
		if got := end.Sub(client.StartTime()); got != 1250*time.Millisecond {
			t.Errorf("the client span began %v before the end", got)
		}
		want := map[string]string{"http.request.method": "POST", "http.route": "/v1/sales/{sale}/orders",
			"url.path": "/v1/sales/shoe/orders", "url.scheme": "https", "server.address": "shop.example",
			"server.port": "8443", "client.address": "192.0.2.1", "http.response.status_code": "202",
			"http.request.header.x-request-id": `["` + id + `"]`, "sluice.verdict": "allow"}
		if got := attributes(server); !maps.Equal(got, want) {
			t.Errorf("the server span has %v", got)
		}
		want = map[string]string{"http.request.method": "POST", "url.scheme": "http", "server.address": "10.0.0.2",
			"server.port": "8080", "http.response.status_code": "202", "http.request.resend_count": "1"}
		if got := attributes(client); !maps.Equal(got, want) {
			t.Errorf("the client span has %v", got)
		}
	}
}

// A backend behind a Unix socket is named by its path. The name of an nginx upstream does not count as an attempt.
func TestSpanOfABackendBehindASocket(t *testing.T) {
	r, spans := recorded(t, tracing.Sampling{})
	r.Record(&Request{ID: id, Method: "GET", Target: "/", Status: 200, Upstreams: "10.0.0.1:80, unix:/run/b.sock",
		Statuses: "502, 200", Seconds: "0.001, 0.001"})
	r.Record(&Request{ID: id, Method: "GET", Target: "/", Status: 502, Upstreams: "unix:/run/b.sock, sluice_backend",
		Statuses: "502, 502", Seconds: "0.001, 0.000"})
	all := spans.Ended()
	if len(all) != 4 {
		t.Fatalf("%d spans", len(all))
	}
	for i, want := range []map[string]string{
		{"http.response.status_code": "200", "http.request.resend_count": "1"},
		{"http.response.status_code": "502", "error.type": "502"},
	} {
		maps.Copy(want, map[string]string{"http.request.method": "GET", "url.scheme": "http",
			"server.address": "/run/b.sock", "network.transport": "unix"})
		if got := attributes(all[2*i]); !maps.Equal(got, want) {
			t.Errorf("the client span has %v, want %v", got, want)
		}
	}
}

// A client cannot name a socket as the server of its request.
func TestHostHeaderCannotNameASocket(t *testing.T) {
	r, spans := recorded(t, tracing.Sampling{})
	r.Record(&Request{ID: id, Method: "GET", Target: "/", Status: 429, Host: "unix:/run/b.sock"})
	for _, s := range spans.Ended() {
		if got := attributes(s); got["network.transport"] != "" {
			t.Errorf("the span has %v", got)
		}
	}
}

func TestRefusalHasNoClientSpan(t *testing.T) {
	r, spans := recorded(t, tracing.Sampling{})
	r.Record(&Request{ID: id, Method: "GET", Target: "/nowhere", Status: 429, Verdict: "deny", Rule: "ip"})
	r.Record(&Request{ID: id, Method: "GET", Target: "/", Status: 503, Verdict: "allow", Upstreams: "sluice_backend",
		Statuses: "502", Seconds: "0.000"})
	all := spans.Ended()
	if len(all) != 2 {
		t.Fatalf("%d spans", len(all))
	}
	if got := attributes(all[0]); got["sluice.rule"] != "ip" || got["error.type"] != "" || all[0].Name() != "GET" {
		t.Errorf("%s: %v", all[0].Name(), got)
	}
	if got := attributes(all[1]); got["error.type"] != "503" || all[1].Name() != "GET /" {
		t.Errorf("%s: %v", all[1].Name(), got)
	}
}

// Text from a client is bounded and valid UTF-8. A collector rejects a whole batch for one invalid text.
func TestHostileTextIsBounded(t *testing.T) {
	r, spans := recorded(t, tracing.Sampling{})
	r.Record(
		&Request{ID: id, Method: "BREW\xff", Target: strings.Repeat("\xff\"\x00é", 64<<10), Host: "\xfe:x", Status: 400},
	)
	s := spans.Ended()[0]
	if s.Name() != "HTTP" || attributes(s)["http.request.method"] != "_OTHER" {
		t.Errorf("span %s: %v", s.Name(), attributes(s))
	}
	for _, a := range s.Attributes() {
		if text := a.Value.String(); !utf8.ValidString(text) || len(text) > tracing.MaxText+utf8.UTFMax {
			t.Errorf("%s has %d bytes: %.20q", a.Key, len(text), text)
		}
	}
}

func TestMalformedIDsAreIgnored(t *testing.T) {
	r, spans := recorded(t, tracing.Sampling{Ratio: 1})
	for _, q := range []Request{
		{}, {ID: "x"}, {ID: strings.Repeat("0", 32)}, {ID: strings.Repeat("g", 32)}, {ID: id + id},
		{ID: id, Parent: "x"}, {ID: id, Parent: strings.ReplaceAll(parent, "4", "g")},
		{ID: id, Parent: "00-" + strings.Repeat("0", 32) + parent[35:]}, {ID: id, Parent: parent + "-00"},
	} {
		r.Record(&q)
	}
	if all := spans.Ended(); len(all) != 0 {
		t.Errorf("spans %v", all)
	}
	(*Recorder)(nil).Record(&Request{})
	if New(nil) != nil {
		t.Error("a recorder without a provider")
	}
}

// The routes are those of the document.
func TestRoutesAreDocumented(t *testing.T) {
	document, err := openapi.Parse(docs.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for path := range document.At("paths").Fields() {
		if !strings.HasPrefix(path, "/admin") && !strings.HasPrefix(path, "/.sluice") && !strings.HasPrefix(path, "/debug") &&
			path != "/metrics" {
			want = append(want, path)
		}
	}
	if got := slices.Sorted(slices.Values(routes)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("routes %v, want %v", got, want)
	}
	for path, route := range map[string]string{
		"/": "/", "": "", "//": "", "/v1/sales/": "/v1/sales", "/v1/sales/a": "/v1/sales/{sale}",
		"/v1/sales/a/orders/": "/v1/sales/{sale}/orders", "/v1/sales//orders": "", "/v1/me/orders": "/v1/me/orders",
		"/v1/sales/a/b/c": "", "x": "", "/healthz": "/healthz",
	} {
		if got := routeOf(path); got != route {
			t.Errorf("the route of %q is %q, want %q", path, got, route)
		}
	}
}
