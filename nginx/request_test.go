package nginx

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

var hex32 = regexp.MustCompile(`^[0-9a-f]{32}$`)

// nginx hides response headers by name only, so snippets/proxy.conf names each header from backend to edge. Headers of
// the admin API pass no edge.
func TestEveryHeaderFromBackendToEdgeIsHidden(t *testing.T) {
	conf, err := os.ReadFile("snippets/proxy.conf")
	if err != nil {
		t.Fatal(err)
	}
	// with a hyphen at its end it begins the name of a temporary file
	names := regexp.MustCompile(`"(?i:sluice)-[A-Za-z-]*[A-Za-z]"`)
	agent := regexp.MustCompile(`"User-Agent", "[^"]*"`) // the backend's own User-Agent is not the name of a header
	found := 0
	err = filepath.WalkDir("../backend", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") ||
			strings.Contains(path, "backend/admin/") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, quoted := range names.FindAllString(agent.ReplaceAllString(string(text), ""), -1) {
			found++
			if name := strings.Trim(quoted, `"`); !strings.Contains(string(conf), "\nproxy_hide_header "+name+";") {
				t.Errorf("%s has the header %s, which snippets/proxy.conf does not hide from clients", path, name)
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("found %d such headers in the backend, %v", found, err)
	}
}

// Every request that could be read in two ways is refused, and one that could not reaches the backend as one request.
func TestMalformedRequestsAreRefused(t *testing.T) {
	variants(t, malformedRequestsAreRefused)
}

func malformedRequestsAreRefused(t *testing.T, f *variant) {
	backend := echo(t)
	e := startEdge(t, open, f.on(t), backend.addr)
	for _, c := range []struct {
		name, request string
		status        int
	}{
		{
			"length and chunked",
			"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
		},
		{
			"chunked and length",
			"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400,
		},
		{"two lengths", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", 400},
		{"a list of lengths", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\nabcde", 400},
		{"a negative length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400},
		{"a signed length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\na", 400},
		{"an unknown encoding", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
		{"a disguised encoding", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400},
		{"a bad chunk", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
		{"no host", "GET / HTTP/1.1\r\n\r\n", 400},
		{"two hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400},
		{"a bad host", "GET / HTTP/1.1\r\nHost: x/y\r\n\r\n", 400},
		{"space before the colon", "GET / HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\n", 400},
		{"a zero byte in a header", "GET / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n", 400},
		{"a bare CR in a header", "GET / HTTP/1.1\r\nHost: x\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n", 400},
		{
			"bare line feeds",
			"POST / HTTP/1.1\nHost: x\nContent-Length: 3\n\nabcGET /smuggled HTTP/1.1\nHost: x\nConnection: close\n\n", 400,
		},
		{"a bare line feed and no colon", "GET / HTTP/1.1\r\nHost: x\r\nabc\ndef\r\nX: y\r\n\r\n", 400},
		{"no request line", "hello\r\n\r\n", 400},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400},
		{"HTTP/3.0 in words", "GET / HTTP/3.0\r\nHost: x\r\n\r\n", 400},
		{"CONNECT", "CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"TRACE", "TRACE / HTTP/1.1\r\nHost: x\r\n\r\n", 405},
		{"a header line of 9000 bytes", "GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 9000) + "\r\n\r\n", 431},
		{
			"headers of 40000 bytes",
			"GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: "+strings.Repeat("a", 4000)+"\r\n", 10) + "\r\n", 431,
		},
		{"a request line of 9000 bytes", "GET /" + strings.Repeat("a", 9000) + " HTTP/1.1\r\nHost: x\r\n\r\n", 431},
		{"a body of 17000 bytes", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 17000\r\n\r\n", 413},
		{
			"a chunked body of 17000 bytes",
			"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4268\r\n" + strings.Repeat("a", 17000) + "\r\n0\r\n\r\n",
			413,
		},
	} {
		got := e.raw(c.request)
		response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(got)), nil)
		if err != nil {
			t.Errorf("%s: %v in %q", c.name, err, got)
			continue
		}
		body, _ := io.ReadAll(response.Body)
		if response.StatusCode != c.status || string(body) != problemBody(c.status, "") ||
			response.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: status %d, %s, want the problem for %d", c.name, response.StatusCode, body, c.status)
		}
	}
	if got := backend.requests(); len(got) != 0 {
		t.Errorf("%d of them reached the backend: %+v", len(got), got)
	}
	// HTTP/1.0 requires no Host; HTTP/1.1, in which the edge calls the backend, does.
	if got := e.raw("GET /readyz HTTP/1.0\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200 OK") ||
		backend.requests()[0].host != "localhost" {
		t.Errorf("HTTP/1.0 without a host: %q", got)
	}
}

// The body of a refused request must not be read as the next request on the connection.
func TestRefusedBodyIsNotTheNextRequest(t *testing.T) {
	variants(t, refusedBodyIsNotTheNextRequest)
}

func refusedBodyIsNotTheNextRequest(t *testing.T, f *variant) {
	backend := echo(t)
	e := startEdge(t,
		`return { rules = { { name = "ip", key = "ip", rate = "1r/h" }, { name = "token", key = "token", rate = "1r/h" } } }`,
		f.on(t), backend.addr)
	inner := "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	post := fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(inner), inner)
	got := e.raw(post + post + "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	var seen []string
	for _, m := range regexp.MustCompile(`HTTP/1\.1 (\d+)`).FindAllStringSubmatch(got, -1) {
		seen = append(seen, m[1])
	}
	if strings.Join(seen, " ") != "401 429 200" {
		t.Errorf("answers %v, want 401 429 200", seen)
	}
	if n := len(backend.requests()); n != 0 {
		t.Errorf("%d requests reached the backend", n)
	}
}

func TestNoBackendAnswers503(t *testing.T) {
	e := startEdge(t, open, nil, testenv.FreeAddress(t),
		testenv.FreeAddress(t))
	quickest := time.Hour // of all: a machine may stand still meanwhile
	for range 6 {
		start := time.Now()
		got := e.send("POST", "/v1/sales/1/orders", "{}")
		if got.status != 503 || got.body != problemBody(503, "") || got.header.Get("Retry-After") != "1" ||
			got.header.Get("Cache-Control") != "no-store" {
			t.Fatalf("status %d, %v, %s", got.status, got.header, got.body)
		}
		quickest = min(quickest, time.Since(start))
	}
	if quickest > 2*time.Second {
		t.Errorf("each took %s at least", quickest)
	}
}

// ?wait is 30 s at most, and the backend may take some seconds more to look for the order. This reads the file, because
// 30 s are too long for a test.
func TestNginxWaitsLongEnoughForAnOrder(t *testing.T) {
	conf, err := os.ReadFile("snippets/server.conf")
	if err != nil {
		t.Fatal(err)
	}
	_, everything, _ := strings.Cut(string(conf), "\nlocation ~* ^/v1/orders/[^/]+/?$ {")
	_, after, _ := strings.Cut(everything, "proxy_read_timeout ")
	value, _, _ := strings.Cut(after, ";")
	if timeout, err := time.ParseDuration(value); err != nil || timeout < 36*time.Second {
		t.Errorf("nginx waits %q for an order, %v", value, err)
	}
}

// If a backend closes the connection without a response, the edge sends the same request to another one, also a POST.
func TestRetryKeepsRequestID(t *testing.T) {
	first := startBackend(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	second := echo(t)
	e := startEdge(t, open, nil, first.addr, second.addr)
	for range 4 { // the balancer begins with either
		if got := e.send("POST", "/v1/sales/1/orders", `{"n":1}`); got.status != 200 {
			t.Fatalf("status %d", got.status)
		}
	}
	failed, served := first.requests(), second.requests()
	if len(failed) == 0 || len(served) != 4 {
		t.Fatalf("%d requests failed and %d were served", len(failed), len(served))
	}
	for _, f := range failed {
		found := false
		for _, s := range served {
			found = found || s.header.Get("X-Request-Id") == f.header.Get("X-Request-Id") && s.body == f.body
		}
		if !found {
			t.Errorf("request %s failed and was not repeated under its id", f.header.Get("X-Request-Id"))
		}
	}
}

// The first event must be seen while the backend still holds the answer open.
func TestEventsAreNotBuffered(t *testing.T) {
	release := make(chan struct{})
	backend := startBackend(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: left\ndata: 5\n\n")
		w.(http.Flusher).Flush()
		<-release
	})
	defer close(release)
	e := startEdge(t, open, nil, backend.addr)
	client := http.Client{Timeout: time.Minute}
	response, err := client.Get(e.url("/v1/sales/1/events"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	if err != nil || line != "event: left\n" {
		t.Errorf("read %q, %v", line, err)
	}
}

// Connections to the backend are kept: a new one for every request would use up the machine's ports in a flood.
func TestConnectionsToTheBackendAreKept(t *testing.T) {
	opened := make(chan struct{}, 1000)
	e := startEdge(t, open, nil, testenv.ProxyTCP(t, echo(t).addr, func(client, server net.Conn) {
		opened <- struct{}{}
		_, _ = io.Copy(client, server)
	}))
	for range 50 {
		e.do("GET", "/")
	}
	if n := len(opened); n > 4 {
		t.Errorf("50 requests in a row opened %d connections", n)
	}
}
