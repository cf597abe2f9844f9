package nginx

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A request of HTTP/2 with a header of an HTTP/1 connection is malformed (RFC 9113, section 8.2.2): a backend that
// reads it in HTTP/1 could find another end of the body.
func TestHTTP2HasNoHeadersOfAConnection(t *testing.T) {
	variants(t, http2HasNoHeadersOfAConnection)
}

func http2HasNoHeadersOfAConnection(t *testing.T, f *variant) {
	cert, key, roots := certificate(t)
	backend := echo(t)
	config := &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}, ServerName: "127.0.0.1"}
	e := startEdgeThat(t, open, func(c *Config) {
		c.TLSCert, c.TLSKey = cert, key
		f.on(t)(c)
	}, func(address string) bool {
		conn, err := tls.Dial("tcp", address, config)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}, backend.addr)
	for _, c := range []struct{ name, value, status string }{
		{"accept", "text/html", "200"},
		{"te", "trailers", "200"},
		{"transfer-encoding", "chunked", "400"},
		{"transfer-encoding", "identity", "400"},
		{"transfer-encoding", "", "400"},
		{"connection", "close", "400"},
		{"keep-alive", "5", "400"},
		{"proxy-connection", "keep-alive", "400"},
		{"upgrade", "h2c", "400"},
		{"te", "gzip", "400"},
	} {
		for _, method := range []string{"GET", "POST"} {
			for _, path := range []string{"/", "/v1/sales/1/orders", "/healthz", "/admin"} {
				want := c.status
				if want == "200" && path == "/healthz" && method == "POST" {
					want = "405"
				} else if want == "200" && path == "/admin" {
					want = "404"
				}
				fields := []string{":method", method, ":scheme", "https", ":authority", "x", ":path", path, c.name, c.value}
				if got := http2Status(t, e.cfg.Listen, config, fields...); got != want {
					t.Errorf("%s %s with %s %q: %s, want %s", method, path, c.name, c.value, got, want)
				}
			}
		}
	}
	for _, r := range backend.requests() {
		for _, name := range []string{"Transfer-Encoding", "Te", "Upgrade", "Keep-Alive", "Proxy-Connection"} {
			if r.header.Get(name) != "" {
				t.Errorf("the backend got %s %q", name, r.header.Get(name))
			}
		}
	}
}

// nginx writes some bodies of unknown length to temporary files, also where its workers cannot enter the prefix.
func TestBodyOfUnknownLength(t *testing.T) {
	cert, key, roots := certificate(t)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	backend := echo(t)
	post := func(address string, size int) int {
		request, err := http.NewRequest("POST", "https://"+address+"/", io.MultiReader(bytes.NewReader(make([]byte, size))))
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			return 0
		}
		response.Body.Close()
		return response.StatusCode
	}
	e := startEdgeThat(t, open, func(c *Config) { c.TLSCert, c.TLSKey = cert, key },
		func(address string) bool { return post(address, 1) > 0 }, backend.addr)
	for size, want := range map[int]int{1: 200, 16383: 200, 16384: 200, 16385: 413, 100_000: 413} {
		if got := post(e.cfg.Listen, size); got != want {
			t.Errorf("%d bytes over HTTP/2: %d, want %d", size, got, want)
		}
	}
	plain := startEdge(t, open, nil, backend.addr)
	got := plain.raw("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" +
		strings.Repeat("1\r\na\r\n", 16384) + "0\r\n\r\n")
	all := backend.requests()
	if last := all[len(all)-1]; !strings.HasPrefix(got, "HTTP/1.1 200 ") || last.body != strings.Repeat("a", 16384) {
		t.Errorf("16384 chunks: %.20q, and the backend gets %d bytes", got, len(last.body))
	}
}

// In HTTP/2, which browsers use, refusals are cached like in HTTP/1, and no purchase fails because of the bypass list.
func TestRefusalsAreCachedInHTTP2(t *testing.T) {
	cert, key, roots := certificate(t)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	s := &madeShop{header: "drop;state=sold_out;version=7;ttl=1000;holders=1"}
	s.hold("ann")
	backend := startBackend(t, s.answer)
	buy := func(address, buyer string) int {
		request, err := http.NewRequest("POST", "https://"+address+dropOrders, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", signed(t, buyer))
		response, err := transport.RoundTrip(request)
		if err != nil {
			return 0
		}
		response.Body.Close()
		if response.ProtoMajor != 2 {
			t.Fatalf("the response is in %s", response.Proto)
		}
		return response.StatusCode
	}
	e := startEdgeThat(t, open, func(c *Config) { c.TLSCert, c.TLSKey = cert, key },
		func(address string) bool { return buy(address, "ann") > 0 }, backend.addr)
	s.shop = &shop{backend, e}
	for cached := false; !cached; {
		var a answer
		a, cached = s.fromMemory(func() answer { return answer{status: buy(e.cfg.Listen, "dan")} })
		if a.status != http.StatusConflict {
			t.Fatalf("a purchase is answered with %d, want 409", a.status)
		}
	}
	if _, cached := s.fromMemory(func() answer { return answer{status: buy(e.cfg.Listen, "ann")} }); cached {
		t.Error("a holder is refused from memory")
	}
}

// http2Status sends one request without a body, with these fields as they are, and returns the status of the response.
func http2Status(t *testing.T, address string, config *tls.Config, fields ...string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var head bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	for i := 0; i < len(fields); i += 2 {
		if err := encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			t.Fatal(err)
		}
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err = io.WriteString(conn, http2.ClientPreface)
	for _, write := range []func() error{
		func() error { return framer.WriteSettings() },
		func() error {
			return framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID: 1, BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true,
			})
		},
	} {
		if err == nil {
			err = write()
		}
	}
	for err == nil {
		var frame http2.Frame
		frame, err = framer.ReadFrame()
		if answer, ok := frame.(*http2.MetaHeadersFrame); ok && err == nil {
			return answer.PseudoValue("status")
		}
		if reset, ok := frame.(*http2.RSTStreamFrame); ok && err == nil {
			return strings.ToLower(reset.ErrCode.String())
		}
	}
	t.Fatal(err)
	return ""
}
