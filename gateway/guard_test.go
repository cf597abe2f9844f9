package gateway

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// hostile are heads that parsers disagree about, each with what it is about. All must be refused with a 400, the connection closed, and nothing
// of them must reach a backend.
var hostile = map[string]string{
	"length and encoding":           "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"encoding and length":           "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
	"two lengths":                   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
	"the same length twice":         "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
	"two lengths in one":            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3, 3\r\n\r\nabc",
	"signed length":                 "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc",
	"negative length":               "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -3\r\n\r\nabc",
	"hexadecimal length":            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x3\r\n\r\nabc",
	"length with a space":           "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1 0\r\n\r\nabcdefghij",
	"empty length":                  "POST / HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n",
	"length beyond 64 bits":         "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551619\r\n\r\nabc",
	"unknown encoding":              "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
	"two encodings in one":          "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"two encodings":                 "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
	"chunked twice":                 "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"identity":                      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc",
	"quoted chunked":                "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
	"chunked with a tab inside":     "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chun\tked\r\n\r\n0\r\n\r\n",
	"encoding in HTTP/1.0":          "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"bare line feeds":               "GET / HTTP/1.1\nHost: x\n\n",
	"bare line feed after the line": "GET / HTTP/1.1\nHost: x\r\n\r\n",
	"bare line feed in the headers": "GET / HTTP/1.1\r\nHost: x\nSluice-Admin: 1\r\n\r\n",
	"bare line feed at the end":     "GET / HTTP/1.1\r\nHost: x\r\n\n",
	"bare carriage return":          "GET / HTTP/1.1\r\nHost: x\rSluice-Admin: 1\r\n\r\n",
	"two carriage returns":          "GET / HTTP/1.1\r\r\nHost: x\r\n\r\n",
	"folded line":                   "GET / HTTP/1.1\r\nHost: x\r\nAccept: a\r\n b\r\n\r\n",
	"folded line with a tab":        "GET / HTTP/1.1\r\nHost: x\r\nAccept: a\r\n\tb\r\n\r\n",
	"folded line with a colon":      "GET / HTTP/1.1\r\nHost: x\r\nAccept: a\r\n Sluice-Admin: 1\r\n\r\n",
	"space before the first header": "GET / HTTP/1.1\r\n Host: x\r\n\r\n",
	"space before the colon":        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc",
	"tab before the colon":          "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
	"space in a name":               "GET / HTTP/1.1\r\nHost: x\r\nX Real IP: 1.2.3.4\r\n\r\n",
	"no colon":                      "GET / HTTP/1.1\r\nHost: x\r\nNonsense\r\n\r\n",
	"no name":                       "GET / HTTP/1.1\r\nHost: x\r\n: value\r\n\r\n",
	"zero byte in a name":           "GET / HTTP/1.1\r\nHost: x\r\nA\x00b: c\r\n\r\n",
	"zero byte in a value":          "GET / HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n",
	"control byte in a value":       "GET / HTTP/1.1\r\nHost: x\r\nA: b\x0bc\r\n\r\n",
	"zero byte in the target":       "GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
	"tab in the target":             "GET /a\tb HTTP/1.1\r\nHost: x\r\n\r\n",
	"space in the target":           "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
	"fragment":                      "GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n",
	"absolute target":               "GET http://x/v1/sales HTTP/1.1\r\nHost: y\r\n\r\n",
	"asterisk":                      "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
	"tunnel":                        "CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n",
	"two spaces":                    "GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
	"tab for a space":               "GET\t/ HTTP/1.1\r\nHost: x\r\n\r\n",
	"no version":                    "GET /\r\nHost: x\r\n\r\n",
	"space after the version":       "GET / HTTP/1.1 \r\nHost: x\r\n\r\n",
	"HTTP/2":                        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"HTTP/1.2":                      "GET / HTTP/1.2\r\nHost: x\r\n\r\n",
	"small http":                    "GET / http/1.1\r\nHost: x\r\n\r\n",
	"bad method":                    "G(T / HTTP/1.1\r\nHost: x\r\n\r\n",
	"TLS":                           "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	"space first":                   " GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	"no host":                       "GET / HTTP/1.1\r\nAccept: a\r\n\r\n",
	"two hosts":                     "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
	"two hosts in one":              "GET / HTTP/1.1\r\nHost: x, y\r\n\r\n",
	"host with a path":              "GET / HTTP/1.1\r\nHost: x/y\r\n\r\n",
	"host with a user":              "GET / HTTP/1.1\r\nHost: u@x\r\n\r\n",
	"host with a space":             "GET / HTTP/1.1\r\nHost: x y\r\n\r\n",
	"tab before the host":           "GET / HTTP/1.1\r\nHost:\tx\r\n\r\n",
	"tab before a length":           "POST / HTTP/1.1\r\nHost: x\r\nContent-Length:\t3\r\n\r\nabc",
	"tab before an encoding":        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n",
	"small method":                  "get / HTTP/1.1\r\nHost: x\r\n\r\n",
}

func TestHostileHeadsAreRefused(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	for name, raw := range hostile {
		t.Run(name, func(t *testing.T) {
			// A request behind it: if the edge went on reading, this one would be answered, or worse.
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
	if n := e.count(t, "sluice_edge_malformed_total"); n != float64(len(hostile)) {
		t.Errorf("%v were counted, want %d", n, len(hostile))
	}
}

// A good request in front of a bad one on the same connection is answered, and the bad one is refused all the same.
func TestHostileHeadAfterAGoodRequestIsRefused(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	for name, raw := range hostile {
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

// The answer must not depend on how the bytes happen to be cut on the way.
func TestGuardSeesTheSameHoweverItsInputIsCut(t *testing.T) {
	good := []string{
		"GET /a?b=c HTTP/1.1\r\nHost: x\r\nAccept:  a b \r\n\r\n",
		"\r\n\r\nPOST /a HTTP/1.1\r\nHost: x\r\nContent-Length:   3 \r\n\r\nabcGET / HTTP/1.0\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: [::1]:80\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n",
		"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\nHost: [::1]\r\n\r\n",
	}
	pass := func(g *guard, raw string) int {
		_, good := g.take([]byte(raw))
		return good
	}
	check := func(raw string, want fault) {
		t.Helper()
		var whole guard
		passed := pass(&whole, raw)
		if whole.fault != want {
			t.Fatalf("%q: fault %d, want %d", raw, whole.fault, want)
		}
		for cut := 1; cut < len(raw); cut++ {
			var g guard
			n := pass(&g, raw[:cut])
			if g.fault == noFault {
				n += pass(&g, raw[cut:])
			}
			if n != passed || g.fault != whole.fault || g.state != whole.state || g.left != whole.left {
				t.Fatalf("%q cut at %d: %d bytes pass with fault %d, want %d with %d", raw, cut, n, g.fault, passed, whole.fault)
			}
		}
		var bytewise guard
		n := 0
		for i := 0; i < len(raw) && bytewise.fault == noFault; i++ {
			n += pass(&bytewise, raw[i:i+1])
		}
		if n != passed || bytewise.fault != whole.fault {
			t.Fatalf("%q byte by byte: %d pass with fault %d, want %d with %d", raw, n, bytewise.fault, passed, whole.fault)
		}
	}
	for _, raw := range good {
		check(raw, noFault)
	}
	for _, raw := range hostile {
		check(raw, badHead)
	}
}

func TestHeadsOfUnusualFormThatAreGoodPass(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	for name, raw := range map[string]string{
		"blank line first":          "\r\nGET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"blank lines of all kinds":  "\r\n\n\r" + strings.Repeat("\r", 40000) + "GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
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

func TestHeadOfMoreThan16KiBIsRefused(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	head := func(size int) string {
		start, end := "GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nA: "+strings.Repeat("b", 8000)+"\r\nA: "+strings.Repeat("c", 8000)+"\r\nA: ", "\r\n\r\n"
		return start + strings.Repeat("a", size-len(start)-len(end)) + end
	}
	if answers := e.raw(t, head(maxHead)); len(answers) != 1 || answers[0].status != 200 {
		t.Errorf("a head of 16 KiB: %+v, want 200", answers)
	}
	for name, raw := range map[string]string{
		"one byte more": head(maxHead + 1),
		"a megabyte":    head(1 << 20),
		"a line":        "GET /x HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", maxLine-len("A: \r\n")+1) + "\r\n\r\n",
		"a long line":   "GET /" + strings.Repeat("a", 1<<17),
		"many lines":    "GET /x HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", maxLines) + "\r\n",
	} {
		answers := e.raw(t, raw)
		if len(answers) != 1 || answers[0].status != 431 {
			t.Fatalf("%s: %+v, want one 431", name, answers)
		}
		mustContain(t, name, answers[0].body, `"code":"too-large"`)
	}
}

func TestBodyOfMoreThan16KiBIsRefused(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	body := strings.Repeat("b", MaxBody)
	if got := e.ask(t, "POST", "/x", body); got.status != 200 {
		t.Errorf("a body of 16 KiB: %+v, want 200", got)
	}
	if r := b.last(t); r.body != body {
		t.Errorf("the backend got %d bytes, want %d", len(r.body), len(body))
	}
	for name, raw := range map[string]string{
		"one byte more":     "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 16385\r\n\r\n" + body + "b",
		"a gigabyte to be":  "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n" + strings.Repeat("b", 1<<17),
		"nothing yet":       "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 16385\r\n\r\n",
		"in one chunk":      "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4001\r\n" + body + "b\r\n0\r\n\r\n",
		"in chunks":         "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1000\r\n"+body[:0x1000]+"\r\n", 5) + "0\r\n\r\n",
		"chunk beyond ints": "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7fffffff\r\n" + body,
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

func TestChunkedBodyReachesTheBackendAndEndsTheConnection(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	answers := e.raw(t, "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: Sluice-Late\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nSluice-Late: 1\r\n\r\nGET /next HTTP/1.1\r\nHost: x\r\n\r\n")
	if len(answers) != 1 || answers[0].status != 200 {
		t.Fatalf("answers %+v, want one, and the connection closed", answers)
	}
	r := b.last(t)
	if r.target != "/x" || r.body != "abcde" || r.header.Get("Content-Length") != "5" || r.header.Get("Sluice-Late") != "" || r.header.Get("Trailer") != "" {
		t.Errorf("the backend got %+v, want the whole body with its length and no trailer", r)
	}
}

func TestBrokenChunksAreRefused(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	for _, chunks := range []string{"x\r\n", "3\r\nabcd\r\n0\r\n\r\n", "-1\r\n\r\n", "3 3\r\nabc\r\n0\r\n\r\n", "\r\n\r\n"} {
		answers := e.raw(t, "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"+chunks+"GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
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
	answers := e.raw(t, "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nPOST /2 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}GET /3 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nxxGET /4 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	got := ""
	for _, a := range answers {
		got += a.body
	}
	if got != "/1/2/3/4" {
		t.Errorf("answered %q, want /1/2/3/4", got)
	}
}

// Some clients send a line end too many, and nobody need have sent the next request whole to get the answer to this one.
func TestTheBeginningOfTheNextRequestDoesNotHoldUpThisOne(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()}, func(c *Config) { c.RequestTimeout = time.Minute })
	for _, more := range []string{"\r\n", "\r", "G", "GET /y HTTP/1.1\r\nHo", "POST /y HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na"} {
		c := e.connect(t)
		_, _ = io.WriteString(c, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"+more)
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if got := readOne(t, bufio.NewReader(c), "POST"); got.status != 200 {
			t.Errorf("with %q behind it: %+v", more, got)
		}
		c.Close()
	}
}

func TestExpectContinueIsAnsweredByTheEdge(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()})
	c := e.connect(t)
	defer c.Close()
	r := bufio.NewReader(c)
	_, _ = io.WriteString(c, "POST /x HTTP/1.1\r\nHost: x\r\nexpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
	if line, err := r.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("the edge says %q, %v", line, err)
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

// Whoever is told to go on sends a body that nobody reads.
func TestNobodyIsToldToGoOnWithABodyThatIsTooLarge(t *testing.T) {
	e := serve(t, open, []string{"127.0.0.1:1"})
	c := e.connect(t)
	defer c.Close()
	_, _ = io.WriteString(c, "POST /x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: "+strconv.Itoa(MaxBody+1)+"\r\n\r\n")
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 413 ") {
		t.Fatalf("the edge says %q, %v", line, err)
	}
}

func TestSlowClientsAreLetGoWithoutAWord(t *testing.T) {
	b := newBackend(t, nil)
	log := &syncBuffer{}
	e := serve(t, open, []string{b.address()}, func(c *Config) { c.RequestTimeout, c.AccessLog = 100*time.Millisecond, log })
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
	// A byte now and then does not help.
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
		t.Errorf("a trickle got %q, %v, want no answer", got, err)
	}
	if d := time.Since(start); d > 20*time.Second { // it would go on for fifty
		t.Errorf("a trickle was listened to for %v", d)
	}
	e.access.flush()
	if n := strings.Count(log.String(), `"status":408,`); n != 4 {
		t.Errorf("%d are logged with 408, want 4:\n%s", n, log)
	}
}

func TestIdleConnectionIsClosedWithoutAWord(t *testing.T) {
	b := newBackend(t, nil)
	e := serve(t, open, []string{b.address()}, func(c *Config) { c.IdleTimeout = 100 * time.Millisecond })
	c := e.connect(t)
	defer c.Close()
	_, _ = io.WriteString(c, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
	if answers := readAll(t, c, ""); len(answers) != 1 {
		t.Errorf("%d answers, want the one that was asked for", len(answers))
	}
}

// What the guard lets pass, a strict reader reads the same way: method, target, framing.
func FuzzGuardAgreesWithAStrictReader(f *testing.F) {
	for _, raw := range hostile {
		f.Add([]byte(raw))
	}
	f.Add([]byte("GET /a HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: y\r\n\r\n"))
	f.Add([]byte("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var g guard
		taken := bytes.Clone(raw)
		left, good := g.take(taken)
		passed := taken[:good]
		if g.fault == noFault && good != left {
			t.Fatalf("%d of %d bytes pass without a fault", good, left)
		}
		// Walk the requests in what has passed with net/http, and the guard along.
		var again guard
		r := bufio.NewReader(bytes.NewReader(passed))
		for at := 0; ; {
			req, err := http.ReadRequest(r)
			if err != nil {
				return // unfinished, or stricter than we are
			}
			start := at
			for again.start(); at < len(passed) && (again.inHead()); at++ {
				again.take(passed[at : at+1])
				if at > start && again.idle() {
					at++
					break
				}
			}
			switch {
			case req.ContentLength < 0 && again.state != unframed:
				t.Fatalf("%q: net/http sees chunks, the guard does not", raw)
			case req.ContentLength > 0 && again.left != req.ContentLength:
				t.Fatalf("%q: net/http sees %d bytes of body, the guard %d", raw, req.ContentLength, again.left)
			case req.ContentLength == 0 && again.state == inBody:
				t.Fatalf("%q: net/http sees no body, the guard %d bytes", raw, again.left)
			}
			if again.state == unframed {
				return
			}
			n, _ := io.Copy(io.Discard, req.Body)
			if n < req.ContentLength {
				return
			}
			at += int(n)
			again.start()
		}
	})
}

// Eight bytes at once must never pass what one by one would not, and should pass what browsers send.
func TestEightBytesAtOnceAreAsStrictAsOneByOne(t *testing.T) {
	var text [8]byte
	for place := range text {
		for c := range 256 {
			for _, other := range []byte{' ', 'a', '~', 0x80, 0xff, 0, '\t', 0x1f, 0x7f} {
				for i := range text {
					text[i] = other
				}
				text[place] = byte(c)
				good := isText[other] && isText[c]
				if got := allText(binary.LittleEndian.Uint64(text[:])); got && !good {
					t.Fatalf("%q passes", text)
				} else if !got && good && c != '\t' && other != '\t' {
					t.Fatalf("%q does not pass", text)
				}
			}
		}
	}
}
