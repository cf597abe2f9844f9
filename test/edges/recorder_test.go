package edges

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"sluice/internal/unixsocket"
	"sluice/test/testenv"
)

// seen is a request as a backend got it.
type seen struct {
	method, target, host, body string
	header                     http.Header
}

// String returns the parts of the request that must be the same through both edges. The request's id must be valid, and
// may differ.
func (s seen) String() string {
	var lines []string
	for name, values := range s.header {
		for _, v := range values {
			if name == "X-Request-Id" && hex32.MatchString(v) {
				v = "(an id)"
			}
			if name != "Content-Length" || v != "0" { // the same as no header
				lines = append(lines, name+": "+v)
			}
		}
	}
	slices.Sort(lines)
	return fmt.Sprintf("%s %s for %s\n%s\n%q", s.method, s.target, s.host, strings.Join(lines, "\n"), s.body)
}

var hex32 = regexp.MustCompile(`^[0-9a-f]{32}$`)

// backend records the requests it gets and answers as the test specifies.
type backend struct {
	*httptest.Server
	address string // as edges name it
	mu      sync.Mutex
	got     []seen
}

func startBackend(t *testing.T, o options, answer http.HandlerFunc) *backend {
	t.Helper()
	b := &backend{address: o.upstream}
	if o.upstream != "" {
		return b
	}
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.got = append(b.got, seen{r.Method, r.RequestURI, r.Host, string(body), r.Header.Clone()})
		b.mu.Unlock()
		answer(w, r)
	}))
	b.address = b.Listener.Addr().String()
	if o.socket {
		b.Listener.Close()
		path := testenv.SocketPath(t)
		var err error
		if b.Listener, err = unixsocket.Claim(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		b.address = "unix:" + path
	}
	b.Start()
	t.Cleanup(b.Close)
	return b
}

// take returns the requests since its last call.
func (b *backend) take() []seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	got := b.got
	b.got = nil
	return got
}
