package nginx

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"sluice/internal/edgetrace"
	"sluice/internal/tracing"
	"sluice/test/testenv"
)

// startTraced runs an edge that exports spans.
func startTraced(t *testing.T, policy string, sampling tracing.Sampling, change func(*Config), backends ...string,
) (*edge, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := tracing.New(spans, sampling, "1", nil)
	r, err := edgetrace.Listen(edgetrace.New(provider), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	t.Cleanup(func() {
		stop()
		<-done
		r.Close()
		provider.Close()
	})
	return startEdge(t, policy, func(c *Config) {
		c.Spans = &Spans{
			Address:      r.Address(),
			Tag:          r.Tag(),
			Metrics:      r.Metrics(),
			FollowParent: sampling.FollowParent,
			Ratio:        sampling.Ratio,
		}
		if change != nil {
			change(c)
		}
	}, backends...), spans
}

func awaitSpans(t *testing.T, spans *tracetest.SpanRecorder, n int) {
	t.Helper()
	testenv.Eventually(t, time.Minute, "the spans are complete", func() bool { return len(spans.Ended()) >= n })
}

func spanValue(spans *tracetest.SpanRecorder, i int, key string) string {
	for _, a := range spans.Ended()[i].Attributes() {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// Lines with hostile text are read. The order of lines of one connection is that of its requests.
func TestSpansOfHostileRequests(t *testing.T) {
	e, spans := startTraced(t, open, tracing.Sampling{Ratio: 1}, func(c *Config) { c.Workers = 1 })
	const end = "Connection: close\r\n\r\n"
	n := 0
	for _, row := range []struct{ request, path, host string }{
		{"GET /%22%7d,%22status%22:%20200 HTTP/1.1\r\nHost: x\r\n" + end, `/"},"status": 200`, "x"},
		{"GET /\xff\xfe\" HTTP/1.1\r\nHost: x\r\n" + end, "/\ufffd\ufffd\"", "x"},
		{"GET /%e2%80%a8%c3 HTTP/1.1\r\nHost: x\r\n" + end, "/\u2028\ufffd", "x"},
		{"GET /" + strings.Repeat("\"", 7000) + " HTTP/1.1\r\nHost: x\r\n" + end, "/" + strings.Repeat("\"", 1023), "x"},
		{"GET /x HTTP/1.1\r\nHost: x\"y\r\n" + end, "/x", "x\"y"},
	} {
		if answer := e.raw(row.request); !strings.HasPrefix(answer, "HTTP/1.1 ") {
			t.Fatalf("%.80q: %q", row.request, answer)
		}
		n++
		var path, host string
		testenv.Eventually(t, time.Minute, "the span of the request", func() bool {
			for ; n <= len(spans.Ended()); n++ {
				if spanValue(spans, n-1, "url.path") != "" {
					path, host = spanValue(spans, n-1, "url.path"), spanValue(spans, n-1, "server.address")
					return true
				}
			}
			return false
		})
		if path != row.path || host != row.host {
			t.Errorf("%.80q: path %.80q, host %q", row.request, path, host)
		}
	}
}

func TestSpansContinueAfterAReload(t *testing.T) {
	e, spans := startTraced(t, open, tracing.Sampling{Ratio: 1}, nil)
	e.do("GET", "/x")
	awaitSpans(t, spans, 2)
	if err := e.cfg.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "new workers send lines", func() bool {
		e.transport.CloseIdleConnections()
		e.do("GET", "/x")
		return len(spans.Ended()) >= 20
	})
}

// Requests are answered while the process that reads the lines is suspended, and after its socket is closed. It gets
// later lines again.
func TestLinesWithoutAReaderDelayNothing(t *testing.T) {
	listen := func(port int) *net.UDPConn {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	lines := listen(0)
	address := lines.LocalAddr().(*net.UDPAddr)
	e := startEdge(t, open, func(c *Config) {
		c.Spans, c.Workers = &Spans{Address: address.String(), Tag: "abc", Metrics: "/tmp/none.sock", Ratio: 1}, 1
	})
	buffer := make([]byte, 64<<10)
	receive := func(c *net.UDPConn) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := c.Read(buffer)
		if err != nil || !strings.Contains(string(buffer[:n]), ` abc: {"time":`) ||
			!strings.Contains(string(buffer[:n]), `"target":"/x"`) {
			t.Fatalf("%q, %v", buffer[:n], err)
		}
	}
	send := func(n int) {
		t.Helper()
		for range n {
			if a := e.do("GET", "/x"); a.status != 200 {
				t.Fatalf("status %d", a.status)
			}
		}
	}
	send(2000) // more than the socket holds
	receive(lines)
	if strings.Contains(e.log.String(), "syslog") {
		t.Error("nginx logs lines that are lost, which clients can cause")
	}
	lines.Close()
	send(10)
	lines = listen(address.Port)
	defer lines.Close()
	send(10)
	receive(lines)
}

// nginx accepts every share. Without spans, no directive concerns them.
func TestSpanDirectives(t *testing.T) {
	c := Config{Listen: "127.0.0.1:80", Root: "..", Shared: settings("127.0.0.1:81")}
	for _, ratio := range []float64{0, 1e-9, 0.01, 1. / 3, 0.99999, 1} {
		for _, follow := range []bool{false, true} {
			c.Spans = &Spans{Address: "127.0.0.1:514", Tag: "abc", Metrics: "/tmp/y.sock", FollowParent: follow, Ratio: ratio}
			if err := c.Check(t.Context()); err != nil {
				t.Errorf("ratio %v, follow %t: %v", ratio, follow, err)
			}
		}
	}
	c.Spans = nil
	for name, text := range runtimeFiles(c, binary{}, "") {
		if name == "traceparent.map" || name == spansConf || strings.Contains(strings.ToLower(text), "span") ||
			strings.Contains(text, "syslog") {
			t.Errorf("%s: %s", name, text)
		}
	}
}
