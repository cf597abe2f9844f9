package edges

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/internal/token/tokentest"
)

// received is the output of an edge on one connection.
type received struct {
	answers []string // in a form that must be the same from both edges
	codes   []int
	headers []http.Header
	closed  bool // the edge closed the connection
	interim int  // answers "100 Continue", which an edge may leave out
}

// The headers of a connection, or of the program at its other end, which may differ.
var ofConnection = []string{"Server", "Date", "Connection", "Keep-Alive", "Transfer-Encoding"}

// send sends bytes unchanged and reads until the edge closes the connection or a timeout. methods are those of the
// requests if they are not GET, because responses to HEAD have no body.
func (e *edge) send(t *testing.T, raw string, methods ...string) received {
	t.Helper()
	c, err := e.dial("http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * timeout)) // the machine may be slow
	_, _ = io.WriteString(c, raw)                   // the edge may close before it has read all
	var h received
	r := bufio.NewReader(c)
	for {
		if _, err := r.Peek(1); err != nil {
			var timeout net.Error
			h.closed = !errors.As(err, &timeout) || !timeout.Timeout()
			return h
		}
		method := http.MethodGet
		if i := len(h.answers); i < len(methods) {
			method = methods[i]
		}
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			rest, _ := io.ReadAll(r)
			h.answers = append(h.answers, fmt.Sprintf("not HTTP: %v %q", err, rest))
			return h
		}
		if resp.StatusCode == http.StatusContinue {
			h.interim++
			continue
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			body = append(body, " (broken off)"...)
		}
		h.headers, h.codes = append(h.headers, resp.Header), append(h.codes, resp.StatusCode)
		h.answers = append(h.answers, spelled(t, resp, body))
	}
}

const timeout = 2 * time.Second

// spelled returns a response without the parts that may differ: the id, which must be valid, the jitter of Retry-After
// of up to a tenth, or a second, and the seconds of a long wait that have passed.
func spelled(t *testing.T, resp *http.Response, body []byte) string {
	t.Helper()
	var lines []string
	for name, values := range resp.Header {
		if slices.Contains(ofConnection, name) {
			continue
		}
		for _, v := range values {
			switch {
			case name == "X-Request-Id" && hex32.MatchString(v):
				v = "(an id)"
			case name == "Retry-After" && resp.StatusCode == http.StatusTooManyRequests:
				v = soon(t, v, resp.Header.Get("RateLimit"))
			case name == "Ratelimit":
				v = inMinutes(v)
			}
			lines = append(lines, name+": "+v)
		}
	}
	slices.Sort(lines)
	status := resp.Status
	if resp.StatusCode == http.StatusRequestHeaderFieldsTooLarge {
		status = "431" // nginx sends no reason phrase, and fasthttp always sends one
	}
	return fmt.Sprintf("%s\n%s\n%s", status, strings.Join(lines, "\n"), body)
}

var longWait = regexp.MustCompile(`;t=\d{3,}`)

// inMinutes rounds each wait of 100 s or more in a RateLimit header up to whole minutes.
func inMinutes(quota string) string {
	return longWait.ReplaceAllStringFunc(quota, func(t string) string {
		seconds, _ := strconv.Atoi(t[len(";t="):])
		return fmt.Sprintf(";t=%dmin", (seconds+59)/60)
	})
}

var nextToken = regexp.MustCompile(`;t=(\d+)$`)

// soon verifies that Retry-After is the time of the next token, or up to a tenth more.
func soon(t *testing.T, after, quota string) string {
	t.Helper()
	var wait, least int
	if _, err := fmt.Sscanf(after, "%d", &wait); err != nil {
		return after
	}
	if m := nextToken.FindStringSubmatch(quota); m != nil {
		_, _ = fmt.Sscanf(m[1], "%d", &least)
	}
	if least = max(least, 1); wait < least || wait > least+max(1, least/10) {
		t.Errorf("Retry-After %s with RateLimit %q: want %d, or up to a tenth more", after, quota, least)
	}
	return "(soon)"
}

func bearer(t *testing.T, sub string) string {
	t.Helper()
	return "Authorization: Bearer " + tokentest.Sign(t, secret, sub, time.Hour)
}
