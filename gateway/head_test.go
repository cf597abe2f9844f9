package gateway

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/test/edgetest"
	"sluice/test/testenv"
)

// Limits of package proxy.
const (
	headLimit  = 16 << 10
	lineLimit  = 8 << 10
	linesLimit = 100
)

func TestHostileHeadsAreRejected(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	heads := edgetest.HostileHeads()
	for name, raw := range heads {
		t.Run(name, func(t *testing.T) {
			// The second request must never be processed.
			answers := e.raw(t, raw+"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
			if len(answers) != 1 || answers[0].status != 400 {
				t.Fatalf("%d answers, first %+v, want one 400", len(answers), answers)
			}
			mustContain(t, "the answer", answers[0].body, `"code":"bad-request"`)
			if got := answers[0].header.Get("Content-Type"); got != "application/problem+json" {
				t.Errorf("Content-Type is %q", got)
			}
		})
	}
	if seen := b.requests(); len(seen) > 0 {
		t.Fatalf("%d requests reached the backend, first %+v", len(seen), seen[0])
	}
	if n := e.count(t, "sluice_edge_malformed_total"); n != float64(len(heads)) {
		t.Errorf("counted %v, want %d", n, len(heads))
	}
}

// A valid request before a malformed one on the same connection is answered.
func TestHostileHeadAfterAValidRequestIsRejected(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	for name, raw := range edgetest.HostileHeads() {
		t.Run(name, func(t *testing.T) {
			answers := e.raw(t, "POST /first HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{\n\n}\n"+raw)
			if len(answers) != 2 || answers[0].status != 200 || answers[1].status != 400 {
				t.Fatalf("answers %+v, want a 200 and a 400", answers)
			}
		})
	}
	for _, r := range b.requests() {
		if r.target != "/first" || r.body != "{\n\n}\n" {
			t.Fatalf("the backend got %+v", r)
		}
	}
}

func TestUnusualButValidHeadsPass(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	for name, raw := range map[string]string{
		"blank line first": "\r\nGET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"blank lines of all kinds": "\r\n\n\r" + strings.Repeat("\r", 40000) + "GET /x HTTP/1.1\r\nHost: x\r\n" +
			"Connection: close\r\n\r\n",
		"no space after the colon":  "GET /x HTTP/1.1\r\nHost:x\r\nConnection:close\r\n\r\n",
		"tabs around a value":       "GET /x HTTP/1.1\r\nHost: x\r\nConnection:\tclose\t\r\n\r\n",
		"empty value":               "GET /x HTTP/1.1\r\nHost: x\r\nA:\r\nConnection: close\r\n\r\n",
		"small letters":             "GET /x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
		"HTTP/1.0 without host":     "GET /x HTTP/1.0\r\n\r\n",
		"unusual bytes in a target": "GET /x?q=\"<>[]{}|^` HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	} {
		if answers := e.raw(t, raw); len(answers) != 1 || answers[0].status != 200 {
			t.Errorf("%s: answers %+v, want a 200", name, answers)
		}
	}
}

func TestHeadOfMoreThan16KiBIsRejected(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	head := func(size int) string {
		start, end := "GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nA: "+strings.Repeat("b",
			8000)+"\r\nA: "+strings.Repeat(
			"c",
			8000,
		)+"\r\nA: ", "\r\n\r\n"
		return start + strings.Repeat("a", size-len(start)-len(end)) + end
	}
	if answers := e.raw(t, head(headLimit)); len(answers) != 1 || answers[0].status != 200 {
		t.Errorf("a head of 16 KiB: %+v, want 200", answers)
	}
	for name, raw := range map[string]string{
		"one byte more": head(headLimit + 1),
		"a megabyte":    head(1 << 20),
		"a line":        "GET /x HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", lineLimit-len("A: \r\n")+1) + "\r\n\r\n",
		"a long line":   "GET /" + strings.Repeat("a", 1<<17),
		"many lines":    "GET /x HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", linesLimit) + "\r\n",
	} {
		answers := e.raw(t, raw)
		if len(answers) != 1 || answers[0].status != 431 {
			t.Fatalf("%s: %+v, want one 431", name, answers)
		}
		mustContain(t, name, answers[0].body, `"code":"too-large"`)
	}
}

func TestBodyOfMoreThan16KiBIsRejected(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	body := strings.Repeat("b", maxBody)
	if got := e.send(t, "POST", "/x", body); got.status != 200 {
		t.Errorf("a body of 16 KiB: %+v, want 200", got)
	}
	if r := b.last(t); r.body != body {
		t.Errorf("the backend got %d bytes, want %d", len(r.body), len(body))
	}
	const sized, chunked = "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: ", "POST /x HTTP/1.1\r\nHost: x\r\n" +
		"Transfer-Encoding: chunked\r\n\r\n"
	for name, raw := range map[string]string{
		"one byte more":        sized + "16385\r\n\r\n" + body + "b",
		"a gigabyte announced": sized + "1073741824\r\n\r\n" + strings.Repeat("b", 1<<17),
		"nothing yet":          sized + "16385\r\n\r\n",
		"in one chunk":         chunked + "4001\r\n" + body + "b\r\n0\r\n\r\n",
		"in chunks":            chunked + strings.Repeat("1000\r\n"+body[:0x1000]+"\r\n", 5) + "0\r\n\r\n",
		"chunk beyond ints":    chunked + "7fffffff\r\n" + body,
	} {
		answers := e.raw(t, raw)
		if len(answers) != 1 || answers[0].status != 413 {
			t.Fatalf("%s: %+v, want one 413", name, answers)
		}
		mustContain(t, name, answers[0].body, `"code":"too-large"`)
	}
	if n := len(b.requests()); n != 1 {
		t.Errorf("%d requests reached the backend, want 1", n)
	}
}

func TestChunkedBodyIsForwardedAndClosesTheConnection(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	answers := e.raw(
		t,
		"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: Sluice-Late\r\n\r\n3\r\nabc\r\n2\r\n"+
			"de\r\n0\r\nSluice-Late: 1\r\n\r\nGET /next HTTP/1.1\r\nHost: x\r\n\r\n",
	)
	if len(answers) != 1 || answers[0].status != 200 {
		t.Fatalf("answers %+v, want one, and the connection closed", answers)
	}
	r := b.last(t)
	if r.target != "/x" || r.body != "abcde" || r.header.Get("Content-Length") != "5" ||
		r.header.Get("Sluice-Late") != "" ||
		r.header.Get("Trailer") != "" {
		t.Errorf("the backend got %+v, want the whole body with its length and no trailer", r)
	}
}

// A Trailer header has no effect, whatever its value. fasthttp rejects names that must not be in trailers.
func TestTrailerHeaderIsIgnored(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	for _, value := range []string{"Host", "host, Content-Length", "a b", "\x80", "", ","} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			c := e.connect(t)
			_, err := io.WriteString(c,
				method+" /x HTTP/1.1\r\nHost: x\r\nTRAILER: "+value+"\r\nConnection: close\r\n\r\n")
			if err != nil {
				t.Fatal(err)
			}
			answers := readAll(t, c, method)
			_ = c.Close()
			if len(answers) != 1 || answers[0].status != 200 {
				t.Errorf("%s with Trailer %q: %+v, want a 200", method, value, answers)
			} else if r := b.last(t); r.method != method || r.header["Trailer"] != nil {
				t.Errorf("%s with Trailer %q: the backend got %+v", method, value, r)
			}
		}
	}
}

func TestInvalidChunksAreRejected(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	for _, chunks := range []string{
		"x\r\n", "3\r\nabcd\r\n0\r\n\r\n", "-1\r\n\r\n", "3 3\r\nabc\r\n0\r\n\r\n", "\r\n\r\n",
	} {
		answers := e.raw(t,
			"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"+chunks+"GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
		if len(answers) != 1 || answers[0].status != 400 {
			t.Errorf("%q: %+v, want one 400", chunks, answers)
		}
	}
	if n := len(b.requests()); n != 0 {
		t.Errorf("%d requests reached the backend", n)
	}
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) })
	e := serve(t, open, []string{b.address()})
	answers := e.raw(
		t,
		"GET /1 HTTP/1.1\r\nHost: x\r\n\r\nPOST /2 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}GET /3 HTTP/1.1\r\n"+
			"Host: x\r\nContent-Length: 2\r\n\r\nxxGET /4 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	)
	got := ""
	for _, a := range answers {
		got += a.body
	}
	if got != "/1/2/3/4" {
		t.Errorf("response %q, want /1/2/3/4", got)
	}
}

// A request that waits does not delay the response to the one before it.
func TestPipelinedRequestDoesNotDelayTheResponse(t *testing.T) {
	release := make(chan struct{})
	b := newBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/waits" {
			<-release
		}
	})
	e := serve(t, open, []string{b.address()})
	c := e.connect(t)
	defer c.Close()
	_, _ = io.WriteString(c, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"+
		"GET /waits HTTP/1.1\r\nHost: x\r\n\r\n\r\nGET /y HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	r := bufio.NewReader(c)
	first := readOne(t, r, "POST")
	close(release)
	if rest := []int{readOne(t, r, "GET").status, readOne(t, r, "GET").status}; first.status != 200 ||
		rest[0] != 200 || rest[1] != 200 {
		t.Errorf("status %d, then %v", first.status, rest)
	}
}

// Some clients send an extra line end, or the beginning of the next request.
func TestBeginningOfTheNextRequestDoesNotDelayTheResponse(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()}, func(c *Config) { c.RequestTimeout = time.Minute })
	for _, more := range []string{
		"\r\n", "\r", "G", "GET /y HTTP/1.1\r\nHo", "POST /y HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na",
	} {
		c := e.connect(t)
		_, _ = io.WriteString(c, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"+more)
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if got := readOne(t, bufio.NewReader(c), "POST"); got.status != 200 {
			t.Errorf("with %q behind it: %+v", more, got)
		}
		c.Close()
	}
}

func TestExpectContinue(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	c := e.connect(t)
	defer c.Close()
	r := bufio.NewReader(c)
	_, _ = io.WriteString(c, "POST /x HTTP/1.1\r\nHost: x\r\nexpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
	if line, err := r.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("the edge sent %q, %v", line, err)
	}
	_, _ = r.ReadString('\n')
	_, _ = io.WriteString(c, "abc")
	if got := readOne(t, r, "POST"); got.status != 200 {
		t.Fatalf("answer %+v", got)
	}
	if got := b.last(t); got.body != "abc" || got.header.Get("Expect") != "" {
		t.Errorf("the backend got %+v, want the body and no Expect", got)
	}
}

func TestNoContinueForATooLargeBody(t *testing.T) {
	e := serve(t, open, []string{"127.0.0.1:1"})
	c := e.connect(t)
	defer c.Close()
	_, _ = io.WriteString(c,
		"POST /x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: "+strconv.Itoa(maxBody+1)+"\r\n\r\n")
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 413 ") {
		t.Fatalf("the edge sent %q, %v", line, err)
	}
}

func TestSlowClientsAreDisconnectedWithoutResponse(t *testing.T) {
	b := newBackend(t, nil)
	log := &testenv.Buffer{}
	e := serve(t, open, []string{b.address()},
		func(c *Config) { c.RequestTimeout, c.AccessLog = 100*time.Millisecond, log })
	for name, raw := range map[string]string{
		"in the head":    "GET /x HTTP/1.1\r\nHos",
		"in the body":    "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na",
		"in a chunk":     "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na",
		"from the start": "",
	} {
		if answers := e.raw(t, raw); len(answers) != 0 {
			t.Errorf("%s: %+v, want no answer", name, answers)
		}
	}
	// Single bytes do not extend the time.
	c := e.connect(t)
	defer c.Close()
	go func() {
		for _, b := range []byte("GET /x HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("b", 1000)) {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
			<-time.After(50 * time.Millisecond)
		}
	}()
	start := time.Now()
	if got, err := io.ReadAll(c); len(got) > 0 {
		t.Errorf("single bytes got %q, %v, want no response", got, err)
	}
	if d := time.Since(start); d > 20*time.Second { // all bytes would take 50 s
		t.Errorf("disconnected after %v", d)
	}
	e.access.flush()
	if n := strings.Count(log.String(), `"status":408,`); n != 4 {
		t.Errorf("logged %d times with 408, want 4:\n%s", n, log)
	}
}

func TestIdleConnectionIsClosedWithoutResponse(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()}, func(c *Config) { c.IdleTimeout = 100 * time.Millisecond })
	c := e.connect(t)
	defer c.Close()
	_, _ = io.WriteString(c, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
	if answers := readAll(t, c, ""); len(answers) != 1 {
		t.Errorf("%d responses, want 1", len(answers))
	}
}
