// Package servertest runs an httpserver.Server for tests and sends requests to it. It verifies every response against
// docs/openapi.yaml.
package servertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/backend/web/httpserver"
	"sluice/test/contract"
	"sluice/test/testenv"
)

// Site is a server that listens on a free port until the test ends.
type Site struct {
	T      testing.TB
	Server *httpserver.Server
	Addr   string
	Stop   func()     // ends the context of Serve
	Done   chan error // receives the result of Serve once; tests that receive it must send nil afterwards
}

// Serve starts a server.
func Serve(t testing.TB, server *httpserver.Server) *Site {
	t.Helper()
	ln := testenv.Listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	s := &Site{T: t, Server: server, Addr: ln.Addr().String(), Stop: cancel, Done: make(chan error, 1)}
	go func() { s.Done <- server.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		http.DefaultClient.CloseIdleConnections()
		<-s.Done
		s.Done <- nil
	})
	return s
}

// Config returns a configuration without log output and jitter.
func Config() httpserver.Config {
	return httpserver.Config{Log: Quiet(), Jitter: func() float64 { return 0 }, Drain: 5 * time.Second}
}

// Quiet returns a logger that discards its output.
func Quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Answer is a whole response.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Field returns a member of a JSON body as text.
func (a Answer) Field(t testing.TB, name string) string {
	t.Helper()
	var m map[string]any
	a.Decode(t, &m)
	if v, ok := m[name]; ok {
		return fmt.Sprint(v)
	}
	return ""
}

// Decode decodes a JSON body.
func (a Answer) Decode(t testing.TB, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.Body), into); err != nil {
		t.Fatalf("%v: %s", err, a.Body)
	}
}

// client does not follow redirects. Its timeout ends streams that should have been rejected.
var client = &http.Client{
	Timeout:       time.Minute,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Do sends a request with headers such as "Name: value".
func (s *Site) Do(method, path, body string, headers ...string) Answer {
	s.T.Helper()
	req, err := http.NewRequestWithContext(s.T.Context(), method, "http://"+s.Addr+path, strings.NewReader(body))
	if err != nil {
		s.T.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		s.T.Fatal(err)
	}
	a := read(s.T, resp)
	Documented(s.T, method, path, body, req.Header, a)
	return a
}

// Contract returns docs/openapi.yaml.
func Contract(t testing.TB) *contract.Contract {
	t.Helper()
	c, err := contract.Load()
	if err != nil {
		t.Fatalf("docs/openapi.yaml: %v", err)
	}
	return c
}

// Documented verifies an exchange against docs/openapi.yaml.
func Documented(t testing.TB, method, path, body string, sent http.Header, got Answer) {
	t.Helper()
	if err := Contract(t).Check(contract.Exchange{
		Method: method, Path: path, RequestHeader: sent, RequestBody: []byte(body),
		Status: got.Status, ResponseHeader: got.Header, ResponseBody: []byte(got.Body),
	}); err != nil {
		t.Error(err)
	}
}

func read(t testing.TB, resp *http.Response) Answer {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return Answer{resp.StatusCode, resp.Header, string(b)}
}

// Raw sends bytes and reads one response.
func (s *Site) Raw(request string) Answer {
	s.T.Helper()
	a, c, _ := s.dial(request)
	c.Close()
	return a
}

// RawClosed is Raw for requests after which the server must close the connection.
func (s *Site) RawClosed(request string) Answer {
	s.T.Helper()
	a, c, r := s.dial(request)
	defer c.Close()
	_, err := r.ReadByte()
	var late net.Error
	if err == nil || errors.As(err, &late) && late.Timeout() {
		s.T.Errorf("the connection stayed open after %.100q", request)
	}
	return a
}

func (s *Site) dial(request string) (Answer, net.Conn, *bufio.Reader) {
	s.T.Helper()
	c, err := net.Dial("tcp", s.Addr)
	if err != nil {
		s.T.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		s.T.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		s.T.Fatal(err)
	}
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		s.T.Fatalf("no response to %.200q: %v", request, err)
	}
	return read(s.T, resp), c, r
}

// WantProblem verifies that a response is a complete problem that must not be cached.
func WantProblem(t testing.TB, a Answer, status int, code string) {
	t.Helper()
	if a.Status != status {
		t.Fatalf("status %d, want %d: %s", a.Status, status, a.Body)
	}
	if got := a.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q, want application/problem+json", got)
	}
	if got := a.Field(t, "code"); got != code {
		t.Errorf("code %q, want %q", got, code)
	}
	if got := a.Field(t, "status"); got != fmt.Sprint(status) {
		t.Errorf("status %s in the body, want %d", got, status)
	}
	for _, member := range []string{"type", "title", "detail"} {
		if a.Field(t, member) == "" {
			t.Errorf("no %s in %s", member, a.Body)
		}
	}
	if a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control %q, want no-store", a.Header.Get("Cache-Control"))
	}
}
