package gateway

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttputil"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"sluice/internal/edgetrace"
	"sluice/internal/problem"
	"sluice/internal/tracing"
)

const generous = `return { rules = {
	{ name = "ip", key = "ip", rate = "1000000r/s", burst = 1000000 },
	{
		name = "token", key = "token", rate = "1000000r/s", burst = 1000000,
		match = { method = "POST", path = "/v1/sales/*/orders" },
	},
} }`

const exhausted = `return { rules = { { name = "ip", key = "ip", rate = "1r/h" } } }`

// hello starts a fasthttp backend on an in-memory listener.
func hello(b *testing.B) *fasthttputil.InmemoryListener {
	behind := fasthttputil.NewInmemoryListener()
	server := &fasthttp.Server{NoDefaultServerHeader: true, Handler: func(ctx *fasthttp.RequestCtx) {
		ctx.SetContentType("application/json")
		ctx.SetBodyString(`{"order_id":"1","sale_id":"42","status":"queued"}`)
	}}
	go func() { _ = server.Serve(behind) }()
	b.Cleanup(func() { _ = behind.Close() })
	return behind
}

// benchEdge starts a gateway on an in-memory listener.
func benchEdge(
	b *testing.B, source string, behind *fasthttputil.InmemoryListener, spans *edgetrace.Recorder,
) *fasthttputil.InmemoryListener {
	b.Helper()
	g, err := New(Config{Shared: shared("backend:80"), PolicySource: []byte(source), Spans: spans,
		dial: func(context.Context, string) (net.Conn, error) { return behind.Dial() }})
	if err != nil {
		b.Fatal(err)
	}
	front := fasthttputil.NewInmemoryListener()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- g.Serve(ctx, front) }()
	b.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return front
}

func benchmark(b *testing.B, source, request string, status int) {
	benchmarkOn(b, source, hello(b), request, status)
}

func benchmarkOn(b *testing.B, source string, behind *fasthttputil.InmemoryListener, request string, status int) {
	raw := []byte(request)
	benchmarkEach(b, source, behind, nil, 1, func(int) []byte { return raw }, status)
}

// benchmarkEach sends n requests in turn, repeatedly. Each is sent once before the measurement begins.
func benchmarkEach(
	b *testing.B,
	source string,
	behind *fasthttputil.InmemoryListener,
	spans *edgetrace.Recorder,
	n int,
	request func(i int) []byte,
	status int,
) {
	front := benchEdge(b, source, behind, spans)
	c, err := front.Dial()
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	r, turn := bufio.NewReader(c), 0
	var resp fasthttp.Response
	one := func() int {
		raw := request(turn % n)
		turn++
		if _, err := c.Write(raw); err != nil {
			b.Fatal(err)
		}
		if err := resp.Read(r); err != nil {
			b.Fatal(err)
		}
		return resp.StatusCode()
	}
	for range n {
		one()
	}
	b.ReportAllocs()
	before := cpu(b)
	for b.Loop() {
		if got := one(); got != status {
			b.Fatalf("status %d, want %d", got, status)
		}
	}
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
}

// cpu returns the processor time of this process in ns, which other processes affect less than the elapsed time.
func cpu(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

const browser = "Host: shop.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 " +
	"Firefox/140.0\r\nAccept: */*\r\n" +
	"Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\nReferer: https://shop.example/sale/42\r\n"

// The results include the client, the backend and both listeners.
func BenchmarkProxiedGet(b *testing.B) {
	benchmark(b, generous, "GET /v1/sales/42 HTTP/1.1\r\n"+browser+"\r\n", 200)
}

func BenchmarkProxiedPurchase(b *testing.B) {
	benchmark(b, generous,
		"POST /v1/sales/42/orders HTTP/1.1\r\n"+browser+bearerOf(b, "ann")+"\r\nContent-Length: 2\r\n\r\n{}", 200)
}

// Every request comes from a different buyer and address, as when a sale opens. All tokens are cached.
func BenchmarkProxiedManyBuyers(b *testing.B) {
	const buyers = 20_000
	requests := make([][]byte, buyers)
	for i := range requests {
		requests[i] = fmt.Appendf(nil,
			"POST /v1/sales/42/orders HTTP/1.1\r\n%sX-Forwarded-For: 10.0.%d.%d\r\n%s\r\nContent-Length: 2\r\n\r\n{}", browser,
			i/256, i%256, bearerOf(b, fmt.Sprint("buyer-", i)))
	}
	const trusting = `return { trusted_proxies = { "0.0.0.0/32" }, rules = {
		{ name = "ip", key = "ip", rate = "20r/s", burst = 40 },
		{ name = "token", key = "token", rate = "2r/s", burst = 4, match = { method = "POST", path = "/v1/sales/*/orders" } },
	} }`
	benchmarkEach(b, trusting, hello(b), nil, buyers, func(i int) []byte { return requests[i] }, 200)
}

func BenchmarkRefused(b *testing.B) {
	benchmark(b, exhausted, "GET /v1/sales/42 HTTP/1.1\r\n"+browser+"\r\n", 429)
}

// The gateway exports spans, and samples none of these requests.
func BenchmarkRefusedUnsampled(b *testing.B) {
	provider := tracing.New(tracetest.NewSpanRecorder(), tracing.Sampling{FollowParent: true}, "1", nil)
	b.Cleanup(provider.Close)
	raw := []byte("GET /v1/sales/42 HTTP/1.1\r\n" + browser + "\r\n")
	benchmarkEach(b, exhausted, hello(b), edgetrace.New(provider), 1, func(int) []byte { return raw }, 429)
}

// All responses except the first come from the refusal cache.
func BenchmarkCachedRefusal(b *testing.B) {
	behind := fasthttputil.NewInmemoryListener()
	received := 0
	server := &fasthttp.Server{NoDefaultServerHeader: true, Handler: func(ctx *fasthttp.RequestCtx) {
		received++
		ctx.Response.Header.Set("Sluice-Sale", "42;state=sold_out;version=1;ttl=1000;holders=0")
		ctx.Response.Header.Set("Cache-Control", "no-store")
		ctx.SetContentType(problem.ContentType)
		ctx.SetStatusCode(409)
		ctx.SetBody(problem.New(problem.SoldOut, "Everything is sold.").Body())
	}}
	go func() { _ = server.Serve(behind) }()
	b.Cleanup(func() { _ = behind.Close() })
	benchmarkOn(b, generous, behind,
		"POST /v1/sales/42/orders HTTP/1.1\r\n"+browser+bearerOf(b, "ann")+"\r\nContent-Length: 2\r\n\r\n{}", 409)
	if received > 3+b.N/100 {
		b.Errorf("the backend received %d of %d requests", received, b.N)
	}
}

func BenchmarkHealth(b *testing.B) {
	benchmark(b, exhausted, "GET /healthz HTTP/1.1\r\n"+browser+"\r\n", 200)
}
