package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"sluice/test/testenv"
)

func TestHopByHopHeadersAreRemoved(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		_, _ = io.WriteString(
			rw,
			"HTTP/1.1 200 OK\r\nConnection: x-own, Keep-Alive\r\nX-OWN: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: "+
				"Basic\r\nTE: x\r\nTrailer: A\r\n"+
				"Upgrade: h2c\r\nproxy-connection: keep-alive\r\nSluice-Sale: 42;state=sold_out\r\nsluice-other: 1\r\n"+
				"Set-Cookie: a=b\r\nSet-Cookie: c=d\r\nX-Kept: yes\r\nServer: shop\r\nContent-Length: 2\r\n\r\nok",
		)
		_ = rw.Flush()
	})
	e := serve(t, open, []string{b.address()})
	answers := e.raw(
		t,
		"POST /x HTTP/1.1\r\nHost: x\r\nConnection: x-mine , close,X-Other\r\nX-Mine: 1\r\nX-OTHER: 2\r\nKeep-Alive: "+
			"5\r\nProxy-Connection: keep-alive\r\n"+
			"Proxy-Authorization: Basic eA==\r\nTE: trailers\r\nTrailer: A\r\nUpgrade: websocket\r\nHTTP2-Settings: x\r\n"+
			"X-Kept: yes\r\nCookie: a=b\r\nAccept-Language: de\r\nContent-Length: 0\r\n\r\n",
	)
	if len(answers) != 1 {
		t.Fatalf("%d answers", len(answers))
	}
	mustHave(t, answers[0], 200, "X-Kept", "yes", "Server", "shop")
	r := b.last(t)
	for _, name := range []string{
		"Connection", "X-Mine", "X-Other", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Te", "Trailer",
		"Upgrade", "Http2-Settings",
	} {
		if v := r.header.Values(name); len(v) > 0 {
			t.Errorf("%s: %q was passed to the backend", name, v)
		}
	}
	if r.header.Get("X-Kept") != "" || r.header.Get("Cookie") != "" || r.header.Get("Accept-Language") != "de" {
		t.Errorf("the backend got %v, want only known headers", r.header)
	}
	for _, name := range []string{
		"X-Own", "Keep-Alive", "Proxy-Authenticate", "Te", "Trailer", "Upgrade", "Proxy-Connection", "Sluice-Sale",
		"Sluice-Other",
	} {
		if v := answers[0].header.Values(name); len(v) > 0 {
			t.Errorf("%s: %q was passed to the client", name, v)
		}
	}
	if c := answers[0].header.Values("Set-Cookie"); len(c) != 2 {
		t.Errorf("Set-Cookie is %q, want both", c)
	}
	if d := answers[0].header.Values("Date"); len(d) != 1 {
		t.Errorf("Date is %q, want one", d)
	}
}

// traceparent and tracestate pass together, or neither does.
func TestOnlyValidTraceHeadersPass(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for parent, passes := range map[string]bool{
		good: true, "cc" + good[2:]: true, "": false, "x": false, good + "-": false, good[1:]: false,
		"ff" + good[2:]: false, strings.ToUpper(good): false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01": false,
		"00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01": false, "0g" + good[2:]: false,
	} {
		e.send(t, "GET", "/x", "", "tracestate: a=b", "Traceparent: "+parent)
		r := b.last(t)
		if (r.header.Get("Traceparent") == parent && r.header.Get("Tracestate") == "a=b") != passes ||
			!passes && (len(r.header["Traceparent"]) > 0 || len(r.header["Tracestate"]) > 0) {
			t.Errorf("%q: the backend got %q and %q, want it to pass: %v", parent, r.header["Traceparent"],
				r.header["Tracestate"], passes)
		}
	}
}

func TestPathAndQueryAreNotChanged(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	for _, target := range []string{
		"/", "/?", "/a?b?c", "/a%20b/%C3%A9", "/A/b/", "/a+b?c+d=%2F../%00", "/a;b=c,d", "/~x/-_.!*'()", "/x?wait=10s&&=",
		"/caf\xc3\xa9",
	} {
		if got := e.send(t, "GET", target, ""); got.status != 200 {
			t.Errorf("%s: %+v", target, got)
			continue
		}
		if r := b.last(t); r.target != target {
			t.Errorf("%q reached the backend as %q", target, r.target)
		}
	}
}

func TestResponsesWithoutBodyAreFramed(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/head":
			w.Header().Set("Content-Length", "1234")
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		case "/same":
			w.Header().Set("ETag", `"x"`)
			w.WriteHeader(http.StatusNotModified)
		}
	})
	e := serve(t, open, []string{b.address()})
	c := e.connect(t)
	defer c.Close()
	_, _ = io.WriteString(c, "HEAD /head HTTP/1.1\r\nHost: x\r\n\r\n")
	r := bufio.NewReader(c)
	if got := readOne(t, r, "HEAD"); got.status != 200 || got.header.Get("Content-Length") != "1234" {
		t.Errorf("HEAD: %+v", got)
	}
	_, _ = io.WriteString(c, "GET /none HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := readOne(t, r, "GET"); got.status != 204 {
		t.Errorf("204: %+v", got)
	}
	_, _ = io.WriteString(c, "GET /same HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := readOne(t, r, "GET"); got.status != 304 || got.header.Get("Etag") != `"x"` {
		t.Errorf("304: %+v", got)
	}
	_, _ = io.WriteString(c, "GET /empty HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if got := readOne(t, r, "GET"); got.status != 200 || got.body != "" {
		t.Errorf("an empty 200: %+v", got)
	}
}

func TestHEADWithMalformedChunksIsAnsweredWithoutBody(t *testing.T) {
	e := serve(t, open, []string{newBackend(t, nil).address()})
	for _, before := range []string{"", "GET /x HTTP/1.1\r\nHost: x\r\n\r\n"} {
		c := e.connect(t)
		defer c.Close()
		_, _ = io.WriteString(c, before+"HEAD /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
		r := bufio.NewReader(c)
		if before != "" {
			if got := readOne(t, r, "GET"); got.status != 200 {
				t.Errorf("the request before: %+v", got)
			}
		}
		if got := readOne(t, r, "HEAD"); got.status != 400 || got.header.Get("Content-Length") == "" {
			t.Errorf("%q before: %+v", before, got)
		}
		if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
			t.Errorf("%q before: %q follows the response, %v", before, rest, err)
		}
	}
}

// accepting starts a TCP server that passes each connection to handle, and closes it afterwards. It returns its
// address.
func accepting(t *testing.T, handle func(r *bufio.Reader, w io.Writer)) string {
	t.Helper()
	return testenv.ServeTCP(t, func(c net.Conn) { handle(bufio.NewReader(c), c) })
}

// answering starts a backend that responds to the first request of every connection with the given bytes.
func answering(t *testing.T, answer string) string {
	t.Helper()
	return accepting(t, func(r *bufio.Reader, w io.Writer) {
		if _, err := http.ReadRequest(r); err == nil {
			_, _ = io.WriteString(w, answer)
		}
	})
}

func TestInterimResponsesAreNotPassedOn(t *testing.T) {
	address := answering(
		t,
		"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\n"+
			"Content-Length: 2\r\n\r\nok",
	)
	e := serve(t, open, []string{address})
	got := e.send(t, "GET", "/x", "")
	mustHave(t, got, 202, "Link", "")
	if got.body != "ok" {
		t.Errorf("the body is %q", got.body)
	}
}

func TestInvalidResponsesAre503(t *testing.T) {
	for name, answer := range map[string]string{
		"garbage":            "SSH-2.0-OpenSSH_9.2\r\n\r\n",
		"switched protocols": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
		"many interims":      strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 20),
		"a huge head":        "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 20<<10) + "\r\n\r\n",
		"two lengths":        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk",
		"a short body":       "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok",
		"nothing":            "",
	} {
		e := serve(t, open, []string{answering(t, answer)})
		got := e.send(t, "GET", "/x", "")
		if got.status != 503 || got.header.Get("Retry-After") != "1" ||
			!strings.Contains(got.body, `"code":"temporarily-unavailable"`) {
			t.Errorf("%s: %+v, want a 503", name, got)
		}
	}
}

func TestResponseUntilEndOfConnectionIsPassedOn(t *testing.T) {
	e := serve(t, open, []string{answering(t, "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nas long as it lasts")})
	got := e.send(t, "GET", "/x", "")
	mustHave(t, got, 200, "Content-Type", "text/plain")
	if got.body != "as long as it lasts" {
		t.Errorf("the body is %q", got.body)
	}
}
