package edges

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// Many requests in one go are answered each, in their order; the body of one of them is no request.
func TestPipelinedRequestsAreAnsweredInTheirOrder(t *testing.T) {
	both := startBoth(t, options{policy: limitless}, play)
	var raw, codes strings.Builder
	for i := range 60 {
		switch i % 4 {
		case 0:
			raw.WriteString(request("GET", fmt.Sprintf("/%d", i)))
			codes.WriteString("200 ")
		case 1:
			raw.WriteString(post(fmt.Sprintf("Content-Length: %d", len(smuggled))) + smuggled)
			codes.WriteString("202 ")
		case 2:
			raw.WriteString(request("GET", "/admin"))
			codes.WriteString("404 ")
		default:
			raw.WriteString("\r\n" + request("GET", "/v1/orders/none"))
			codes.WriteString("404 ")
		}
	}
	raw.WriteString(request("GET", "/last", "Connection: close") + smuggled)
	compare(t, both, exchange{name: "sixty and one", raw: raw.String(), codes: codes.String() + "200"})
}

// Of a thousand hops, in one line or in many, an edge uses at most the address of the peer.
func TestThousandForwardedHopsAreIgnored(t *testing.T) {
	for _, e := range startBoth(t, options{policy: trusting}, play) {
		for name, chain := range map[string]string{
			"untrusted": "X-Forwarded-For: " + repeat("1.1.1.1", 1000),
			"trusted":   "X-Forwarded-For: " + repeat("10.1.1.1", 900),
			"empty":     "X-Forwarded-For: " + strings.Repeat(",", 8000),
			"lines":     strings.TrimSuffix(strings.Repeat("X-Forwarded-For: "+repeat("10.1.1.1", 12)+"\r\n", 90), "\r\n"),
			"zones":     "X-Forwarded-For: 192.0.2.1, fe80::1%" + strings.Repeat("e", 900),
		} {
			wantClient(t, e, name, request("GET", "/", "Connection: close", chain), "127.0.0.1")
		}
	}
}

// slowly sends the pieces with pauses, and returns the response, and the time until the edge closed the connection. It
// returns os.ErrDeadlineExceeded if the edge does not.
func slowly(t *testing.T, e *edge, apart time.Duration, pieces ...string) (got string, took time.Duration, err error) {
	t.Helper()
	start := time.Now() // before the edge's clock runs
	c, err := net.Dial("tcp", e.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(start.Add(hangTimeout))
	tick := time.NewTicker(apart)
	defer tick.Stop()
	go func() {
		for _, piece := range pieces {
			if _, err := io.WriteString(c, piece); err != nil {
				return
			}
			<-tick.C
		}
	}()
	all, err := io.ReadAll(c)
	return string(all), time.Since(start), err
}

// hangTimeout is the time after which a connection that an edge must close counts as open.
const hangTimeout = time.Minute

// Both edges close the connection without an answer when a client is too slow with a head or stops within a body.
func TestSlowClientsAreDisconnected(t *testing.T) {
	t.Parallel()
	type result struct {
		name, received string
		took           time.Duration
		err            error
	}
	results := make(chan result)
	n := 0
	for _, e := range startBoth(t, options{policy: limitless}, play) {
		for name, pieces := range map[string][]string{
			"a head, half": {"GET / HTTP/1.1\r\nHost: x\r\n"},
			"a head, trickle": append(
				[]string{"GET / HTTP/1.1\r\nHost: x\r\nA: "}, strings.Split(strings.Repeat("a", 100), "")...,
			),
			"blank lines":  strings.SplitAfter(strings.Repeat("\r\n", 100), "\n"),
			"a body, half": {post("Content-Length: 3") + "a"},
			"chunks, half": {post("Transfer-Encoding: chunked") + "3\r\na"},
		} {
			n++
			go func() {
				received, took, err := slowly(t, e, 100*time.Millisecond, pieces...)
				results <- result{e.name + ": " + name, received, took, err}
			}()
		}
	}
	for range n {
		r := <-results
		if r.received != "" || r.took < 4*time.Second || errors.Is(r.err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: received %q after %v, %v; want nothing, after five seconds", r.name, short(r.received), r.took, r.err)
		}
	}
}

// A client that sends its request and closes its side gets a complete answer, and no connection hangs.
func TestHalfClosedConnectionsEnd(t *testing.T) {
	for _, e := range startBoth(t, options{policy: limitless}, play) {
		for name, raw := range map[string]string{
			"a request":   request("GET", "/much"),
			"a purchase":  post("Content-Length: 2") + "{}",
			"half a head": "GET / HTTP/1.1\r\nHo",
			"half a body": post("Content-Length: 3") + "a",
			"half chunks": post("Transfer-Encoding: chunked") + "3\r\na",
			"nothing":     "",
		} {
			c, err := net.Dial("tcp", e.address)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(hangTimeout))
			_, _ = io.WriteString(c, raw)
			_ = c.(*net.TCPConn).CloseWrite()
			got, err := io.ReadAll(c)
			c.Close()
			if err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("%s: %s: %v", e.name, name, err)
			}
			if (name == "nothing" || name[:4] == "half") && len(got) > 0 {
				t.Errorf("%s: %s: %q", e.name, name, got)
			}
			// nginx treats such a client as disconnected.
			if name == "a request" && e.name == "gateway" && len(got) < 200_000 {
				t.Errorf("%s: %s: %d bytes, want the whole response", e.name, name, len(got))
			}
		}
		for _, s := range e.backend.take() {
			if s.method == "POST" && s.body != "{}" {
				t.Errorf("the backend of %s got %s", e.name, s)
			}
		}
	}
}
