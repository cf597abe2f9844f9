package proxy

import (
	"bufio"
	"bytes"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// For every valid head, the backend must receive only known headers, each once, and the edge's own description of the
// client.
func FuzzOnlyKnownHeadersPass(f *testing.F) {
	for _, lines := range []string{
		"Host: x\r\n",
		"Host: x\r\nX-Real-IP: 1.2.3.4\r\nx-request-id: a\r\n",
		"Authorization: a\r\nToken: b\r\n",
		"Connection: close, x\r\nSluice-Sale: a\r\n",
		"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\ntracestate: a\r\n",
		"Accept: a\r\naccept: b\r\nIdempotency-Key:\r\n",
		"Content-Length: 0\r\nWebhook-Id: x\r\n",
	} {
		f.Add([]byte(lines))
	}
	known := map[string]bool{}
	for name := range strings.FieldsSeq("Host X-Request-Id X-Real-Ip X-Forwarded-For X-Forwarded-Proto Content-Length " +
		"Authorization Token Idempotency-Key Accept Accept-Encoding Accept-Language If-None-Match If-Modified-Since Range " +
		"Last-Event-Id Content-Type Origin Access-Control-Request-Method Access-Control-Request-Headers User-Agent " +
		"Traceparent Tracestate Webhook-Id Webhook-Timestamp Webhook-Signature") {
		known[name] = true
	}
	f.Fuzz(func(t *testing.T, lines []byte) {
		raw := append(append([]byte("GET / HTTP/1.1\r\n"), lines...), "\r\n"...)
		var v validator
		if n := v.scan(raw); v.fault != NoFault || v.requests != 1 || n < len(raw) {
			return // invalid, or more than one request
		}
		req := &Request{Client: netip.MustParseAddr("192.0.2.7")}
		req.NewID()
		ctx := &fasthttp.RequestCtx{}
		err := ctx.Request.Header.Read(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil || !req.ReadHeaders(ctx) {
			return
		}
		req.compose(ctx, false)
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(req.head)))
		if err != nil {
			t.Fatalf("%q becomes %q, which is not a request: %v", lines, req.head, err)
		}
		for name, values := range r.Header {
			if !known[name] || len(values) != 1 {
				t.Fatalf("%q: the backend receives %s: %q", lines, name, values)
			}
		}
		h := r.Header
		if h.Get("X-Real-Ip") != "192.0.2.7" || h.Get("X-Forwarded-For") != "192.0.2.7" ||
			h.Get("X-Request-Id") != string(req.ID[:]) || h.Get("Authorization") != "" && h.Get("Token") != "" {
			t.Fatalf("%q becomes %q", lines, req.head)
		}
	})
}

func TestKnownHeadersPass(t *testing.T) {
	names := strings.Fields("Accept Accept-Encoding Accept-Language If-None-Match If-Modified-Since Range Last-Event-Id " +
		"Content-Type Origin Access-Control-Request-Method Access-Control-Request-Headers User-Agent Idempotency-Key " +
		"Webhook-Id Webhook-Timestamp Webhook-Signature Authorization")
	head := "GET / HTTP/1.1\r\nHost: x\r\n"
	for _, name := range names {
		head += strings.ToLower(name) + ": first\r\n"
	}
	ctx, req := &fasthttp.RequestCtx{}, &Request{}
	if err := ctx.Request.Header.Read(bufio.NewReader(strings.NewReader(head + "\r\n"))); err != nil {
		t.Fatal(err)
	}
	if !req.ReadHeaders(ctx) {
		t.Fatal("the request is rejected")
	}
	req.NewID()
	req.compose(ctx, false)
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(req.head)))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if got := r.Header.Values(name); len(got) != 1 || got[0] != "first" {
			t.Errorf("the backend receives %s: %q", name, got)
		}
	}
}
