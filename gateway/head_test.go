package gateway

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

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
		_ = c.SetReadDeadline(time.Now().Add(time.Minute / 2))
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
