package nginx

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

// documented returns the nginx configuration in a document that contains a text.
func documented(t *testing.T, path, contains string) string {
	t.Helper()
	document, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(document), "\n```nginx\n")[1:] {
		if block, _, _ := strings.Cut(part, "\n```"); strings.Contains(block, contains) {
			return block + "\n"
		}
	}
	t.Fatalf("%s has no nginx configuration with %q", path, contains)
	return ""
}

// The README names every file of the configuration.
func TestREADMENamesEveryFile(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && !strings.Contains(string(readme), "`"+path+"`") {
			t.Errorf("README.md does not list %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// withOwn is a copy of nginx/ and lua/ with another file in conf.d/.
func withOwn(t *testing.T, text string) string {
	t.Helper()
	root := copied(t)
	if err := os.WriteFile(filepath.Join(root, "nginx/conf.d/90-own.conf"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}

// The directives that nginx/README.md shows block addresses, and write a second access log.
func TestOwnDirectivesBlockAddresses(t *testing.T) {
	t.Parallel()
	root := withOwn(t, documented(t, "README.md", "own_blocked"))
	e := startEdge(t, `return { trusted_proxies = { "127.0.0.1" }, rules = {
		{ name = "ip", key = "ip", rate = "1r/h" },
	} }`, func(c *Config) { c.Root = root })
	via := func(client string) answer { return e.do("GET", "/v1/sales", "X-Forwarded-For", client) }
	if got := statuses(via("203.0.113.7"), via("198.51.100.9"), via("203.0.113.8"), via("203.0.113.8")); got !=
		"404 404 200 429" {
		t.Errorf("the statuses are %s", got)
	}
	if got := via("203.0.113.7"); !strings.Contains(got.body, `"code":"not-found"`) {
		t.Errorf("a blocked client gets %s", got.body)
	}
	e.logged(1, http.StatusTooManyRequests)
	const want = "203.0.113.8 429 deny ip \"GET /v1/sales HTTP/1.1\"\n"
	testenv.Eventually(t, time.Minute, "the second log has the requests", func() bool {
		text, _ := os.ReadFile(filepath.Join(e.cfg.Prefix, "logs/own.log"))
		return strings.Contains(string(text), want) && strings.Contains(string(text), "203.0.113.7 404 ")
	})
}

// An nginx in front of the edge, configured as docs/edge.md shows, names the client. Here it is another server of the
// same process.
func TestExistingNginxNamesItsClients(t *testing.T) {
	t.Parallel()
	front, behind := testenv.FreePort(t), testenv.FreePort(t)
	text := documented(t, "../docs/edge.md", "upstream sluice {")
	text = strings.Replace(text, "127.0.0.1:8090", fmt.Sprintf("127.0.0.1:%d", behind), 1)
	text = strings.Replace(text, "listen 8000", fmt.Sprintf("listen 127.0.0.1:%d", front), 1)
	backend := echo(t)
	e := startEdge(t, `return { trusted_proxies = { "127.0.0.1" }, rules = {
		{ name = "ip", key = "ip", rate = "1r/h" },
	} }`, func(c *Config) { c.Root, c.Listen = withOwn(t, text), fmt.Sprintf("127.0.0.1:%d", behind) }, backend.addr)
	get := func(client string) int {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
		transport := &http.Transport{DialContext: dialer.DialContext}
		defer transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		url := fmt.Sprintf("http://127.0.0.1:%d/v1/sales", front)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Forwarded-For", "192.0.2.1") // the client's own claim
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	if a, b, c := get("127.0.0.2"), get("127.0.0.2"), get("127.0.0.3"); a != 200 || b != 429 || c != 200 {
		t.Errorf("the statuses are %d, %d for one client and %d for another\n%s", a, b, c, e.log)
	}
	for i, client := range []string{"127.0.0.2", "127.0.0.3"} {
		if got := backend.requests()[i].header.Get("X-Forwarded-For"); got != client {
			t.Errorf("the backend got the client %q, want %q", got, client)
		}
	}
}
