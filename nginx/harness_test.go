package nginx

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/edgeconfig"
	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

const secret = "an edge's secret for tests, 32 bytes or more"

// open limits nothing.
const open = `return { rules = {} }`

// testBinary finds the nginx that the tests run, once.
var testBinary = sync.OnceValues(func() (binary, error) { return findBinary(context.Background(), "") })

func requireBinary(t testing.TB) binary {
	t.Helper()
	bin, err := testBinary()
	if err != nil {
		t.Fatalf("these tests need nginx with Lua: %v", err)
	}
	return bin
}

// edge is a running edge with its policy file.
type edge struct {
	t      *testing.T
	cfg    Config
	log    *testenv.Buffer
	policy string // path
	stop   func() error

	// Another test's httptest.Server closes the idle connections of http.DefaultTransport.
	transport *http.Transport
}

// settings returns the settings of an edge with these backends.
func settings(backends ...string) edgeconfig.Shared {
	return edgeconfig.Shared{Upstreams: backends, Secret: secret}
}

// startEdge runs the working tree's edge with this policy in front of backends until the test ends. change may alter
// its configuration.
func startEdge(t *testing.T, policy string, change func(*Config), backends ...string) *edge {
	t.Helper()
	return startEdgeThat(t, policy, change, func(address string) bool {
		response, err := http.Get("http://" + address + "/healthz")
		if err == nil {
			response.Body.Close()
		}
		return err == nil && response.StatusCode == 200
	}, backends...)
}

// startEdgeThat is startEdge for an edge without plain HTTP: answers reports whether it is up.
func startEdgeThat(
	t *testing.T,
	policy string,
	change func(*Config),
	answers func(address string) bool,
	backends ...string,
) *edge {
	t.Helper()
	requireBinary(t)
	dir := t.TempDir()
	e := &edge{
		t: t, log: &testenv.Buffer{}, policy: filepath.Join(dir, "policy.lua"),
		transport: http.DefaultTransport.(*http.Transport).Clone(),
	}
	t.Cleanup(e.transport.CloseIdleConnections)
	e.writePolicy(policy)
	if len(backends) == 0 {
		backends = []string{echo(t).addr}
	}
	e.cfg = Config{
		Shared: settings(backends...), Listen: testenv.FreeAddress(t), Policy: e.policy,
		Workers: 2, Root: "..", Prefix: filepath.Join(dir, "edge"), Log: e.log, Grace: 2 * time.Second,
	}
	if change != nil {
		change(&e.cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.cfg.Run(ctx) }()
	stopped := sync.OnceValue(func() error { cancel(); return <-done })
	e.stop = stopped
	t.Cleanup(func() {
		if err := stopped(); err != nil {
			t.Errorf("the edge ended with: %v", err)
		}
		if t.Failed() {
			t.Logf("the error log:\n%s", e.log)
		}
	})
	testenv.Eventually(t, time.Minute, "the edge answers", func() bool {
		select {
		case err := <-done:
			done <- err
			t.Fatalf("the edge did not start: %v", err)
		default:
		}
		return answers(e.cfg.Listen)
	})
	return e
}

const workerTitle = "nginx: worker process"

// master returns the master process.
func (e *edge) master() *os.Process {
	e.t.Helper()
	_, master, err := running(e.cfg.Prefix)
	if err != nil {
		e.t.Fatal(err)
	}
	return master
}

// workers returns the process ids of the workers that run now, also of old ones that shut down.
func (e *edge) workers() []int {
	e.t.Helper()
	return workersOf(e.t, e.master().Pid)
}

// allWorkers waits until there are as many workers as the configuration has, and returns their process ids.
func (e *edge) allWorkers() (pids []int) {
	e.t.Helper()
	testenv.Eventually(e.t, time.Minute, "all workers run", func() bool {
		pids = e.workers()
		return len(pids) == e.cfg.Workers
	})
	return pids
}

// title returns the title that nginx gave one of its processes, "" if it has ended.
func title(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(text)
}

// ending reports whether a worker shuts down or has ended.
func ending(pid int) bool {
	return !strings.HasPrefix(title(pid), workerTitle) || strings.Contains(title(pid), "shutting down")
}

// workersOf returns the process ids of a master's workers that have started.
func workersOf(t testing.TB, master int) (pids []int) {
	t.Helper()
	children, err := testenv.Children(master)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range children {
		if strings.HasPrefix(title(pid), workerTitle) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// workerOf returns the process id of one of a master's workers. It waits for one.
func workerOf(t testing.TB, master int) (worker int) {
	t.Helper()
	testenv.Eventually(t, time.Minute, "the master has a worker", func() bool {
		pids := workersOf(t, master)
		if len(pids) > 0 {
			worker = pids[0]
		}
		return len(pids) > 0
	})
	return worker
}

func (e *edge) writePolicy(policy string) {
	e.t.Helper()
	if err := os.WriteFile(e.policy, []byte(policy), 0o644); err != nil {
		e.t.Fatal(err)
	}
}

func (e *edge) url(path string) string { return "http://" + e.cfg.Listen + path }

// answer is a response as a client sees it.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends one request; headers are name, value pairs.
func (e *edge) do(method, path string, headers ...string) answer {
	e.t.Helper()
	return e.send(method, path, "", headers...)
}

func (e *edge) send(method, path, body string, headers ...string) answer {
	e.t.Helper()
	request, err := http.NewRequest(method, e.url(path), strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	response, err := e.transport.RoundTrip(request.WithContext(ctx))
	if err != nil {
		e.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		e.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{response.StatusCode, response.Header, string(text)}
}

// raw sends bytes and returns what the edge sends until it closes the connection.
func (e *edge) raw(request string) string {
	e.t.Helper()
	conn, err := net.Dial("tcp", e.cfg.Listen)
	if err != nil {
		e.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		e.t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	out, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		e.t.Errorf("the edge does not close the connection after %q: %q", request, out)
	}
	return string(out)
}

// metrics returns the metrics of the edge, which Config.Status names; empty while it does not answer.
func (e *edge) metrics() string {
	response, err := http.Get("http://" + e.cfg.Status + "/metrics")
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return string(text)
}

// logged returns the entries of the access log with this status. It waits until there are at least n. The last line may
// be incomplete while nginx writes it.
func (e *edge) logged(n, status int) []map[string]any {
	e.t.Helper()
	var found []map[string]any
	testenv.Eventually(
		e.t,
		time.Minute,
		fmt.Sprintf("%d entries with status %d in the access log", n, status),
		func() bool {
			text, _ := os.ReadFile(filepath.Join(e.cfg.Prefix, "logs/access.log"))
			found = nil
			for line := range strings.Lines(string(text)) {
				if !strings.HasSuffix(line, "\n") {
					break // nginx is writing it
				}
				var entry map[string]any
				if err := json.Unmarshal([]byte(line), &entry); err != nil {
					e.t.Fatalf("the access log has a line that is not JSON: %v\n%s", err, line)
				}
				if entry["status"] == float64(status) {
					found = append(found, entry)
				}
			}
			return len(found) >= n
		},
	)
	return found
}

// complete waits until the access log has n complete lines.
func (e *edge) complete(n int) {
	e.t.Helper()
	testenv.Eventually(e.t, time.Minute, fmt.Sprintf("the access log has %d lines", n), func() bool {
		text, _ := os.ReadFile(filepath.Join(e.cfg.Prefix, "logs/access.log"))
		return bytes.Count(text, []byte("\n")) >= n
	})
}

// seen is a request as a backend receives it.
type seen struct {
	method, path, body string
	host               string
	header             http.Header
}

// backendServer is a backend of the test's own.
type backendServer struct {
	addr string
	stop func()
	mu   sync.Mutex
	got  []seen
}

func (b *backendServer) requests() []seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]seen(nil), b.got...)
}

// echo answers every request with 200 "ok".
func echo(t *testing.T) *backendServer {
	return startBackend(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
}

func startBackend(t *testing.T, answer http.HandlerFunc) *backendServer {
	t.Helper()
	b := &backendServer{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.got = append(b.got, seen{r.Method, r.RequestURI, string(body), r.Host, r.Header.Clone()})
		b.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	b.addr, b.stop = server.Listener.Addr().String(), server.Close
	return b
}

// signed is an Authorization header for the buyer sub.
func signed(t *testing.T, sub string) string {
	t.Helper()
	return "Bearer " + tokentest.Sign(t, secret, sub, time.Hour)
}
