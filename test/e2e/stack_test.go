// Package e2e runs the real program: its processes, nginx, Redis and PostgreSQL, with real traffic and real signals.
//
// Most of these tests wait most of the time, so they run in parallel. Those that measure, or that need both
// processors, do not.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

var (
	binary string // the program under test
	root   string // of the repository
)

const (
	tokenSecret = "e2e-token-secret-0123456789abcdefghijklmnop"
	adminToken  = "e2e-admin-token-0123456789abcdefghijklmnop"

	paymentSecret = "whsec_ZTJlLXBheW1lbnQtc2VjcmV0LTAxMjM0NTY3ODlhYg=="
)

func TestMain(m *testing.M) {
	root, _ = filepath.Abs("../..")
	code := testenv.MainWithSluice(m, &binary)
	if broken.report(os.Stderr) > 0 && code == 0 {
		code = 1
	}
	os.Exit(code)
}

// process is one running sluice.
type process struct {
	*testenv.Program
	before int // length of the output of earlier, killed processes
}

// launch starts `sluice args...` with only env in its environment, and stops it when the test ends.
func launch(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	return &process{Program: testenv.Launch(t, binary, env, args...)}
}

func (p *process) output() string             { return p.Output() }
func (p *process) end(sig syscall.Signal) int { return p.End(sig) }
func (p *process) crash() {
	p.End(syscall.SIGKILL)
	p.before = len(p.output())
	p.Start()
}

// awaitUp waits until the process that was started last is up. Before that, SIGTERM kills it.
func (p *process) awaitUp(t testing.TB) {
	t.Helper()
	testenv.Eventually(t, time.Minute, "the process is up", func() bool {
		return strings.Contains(p.output()[p.before:], " is up\"")
	})
}

// sluiceRun runs `sluice args...` to its end. Only a command that hangs takes five minutes.
func sluiceRun(t testing.TB, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// stack is the whole deployment: an edge, backends and workers over real stores.
type stack struct {
	t        testing.TB
	redis    *testenv.Redis
	pg       *testenv.Postgres
	backends []*process
	workers  []*process
	edge     *process
	base     string // of the edge
	admin    string // of the first backend's admin API
	admins   []string
	bases    []string // of the backends
	env      []string // of its processes

	edgeMetrics string // base URL of the metrics of the edge
}

type shape struct {
	edge     string // "edge" (nginx), "gateway", or "" for none: base is then the first backend
	backends int
	workers  int
	policy   string            // path; "" is the repository's lua/policy.lua
	journal  bool              // each backend keeps one
	env      []string          // further variables
	redis    *testenv.Redis    // nil: one of its own
	redisURL string            // URL of Redis for the processes; "" is its own
	pg       *testenv.Postgres // nil: a database of its own on the server that all tests share
	pooled   bool              // the processes reach it through PgBouncer
	socket   string            // path at which the first backend listens; "" is TCP
	sockets  bool              // the processes reach Redis and PostgreSQL through Unix sockets
}

func startStack(t testing.TB, s shape) *stack {
	t.Helper()
	st := &stack{t: t, redis: s.redis, pg: s.pg}
	if st.pg == nil {
		st.pg = testenv.SharedPostgres(t)
	}
	redisArgs, redisSocket := []string{"--appendonly", "yes", "--appendfsync", "everysec"}, ""
	if s.sockets {
		redisSocket = filepath.Join(filepath.Dir(testenv.SocketPath(t)), "redis.sock")
		redisArgs = append(redisArgs, "--unixsocket", redisSocket)
	}
	if st.redis == nil {
		st.redis = testenv.StartRedis(t, redisArgs...)
	}
	if s.redisURL == "" {
		s.redisURL = st.redis.URL
	}
	database := st.pg.URL
	if s.pooled {
		database = testenv.PooledURL(t, st.pg)
	}
	if s.sockets {
		s.redisURL, database = testenv.SocketURL(redisSocket), st.pg.SocketURL()
	}
	env := []string{
		"SLUICE_TOKEN_SECRET=" + tokenSecret, "SLUICE_ADMIN_TOKEN=" + adminToken, "SLUICE_USER_RATE=1000-S",
		"SLUICE_PAYMENT_SECRET=whsec_YW5vdGhlciBzZWNyZXQsIG5ldmVyIHVzZWQgaGVyZQ== " + paymentSecret,
		"SLUICE_REDIS_URL=" + s.redisURL, "SLUICE_DATABASE_URL=" + database,
	}
	env = append(env, s.env...)
	st.env = env
	var upstreams []string
	for i := range s.backends {
		listen, admin := addr(t), addr(t)
		if i == 0 && s.socket != "" {
			listen = "unix:" + s.socket
		}
		args := []string{"backend", "--listen", listen, "--admin", admin}
		if s.journal {
			args = append(args, "--journal", t.TempDir())
		}
		st.backends = append(st.backends, launch(t, env, args...))
		st.bases = append(st.bases, "http://"+listen) // not for a socket
		st.admins = append(st.admins, "http://"+admin)
		upstreams = append(upstreams, "--upstream", listen)
		st.base = "http://" + listen
	}
	st.admin = st.admins[0]
	for _, b := range st.admins {
		testenv.AwaitOK(t, b+"/readyz")
		awaitVerified(t, b)
	}
	for range s.workers {
		st.workers = append(st.workers, launch(t, env, "worker"))
	}
	if s.edge != "" {
		if s.policy == "" {
			s.policy = filepath.Join(root, "lua/policy.lua")
		}
		listen, metrics := addr(t), addr(t)
		args := append([]string{s.edge, "--listen", listen, "--metrics", metrics, "--policy", s.policy}, upstreams...)
		if s.edge == "edge" {
			args = append(args, "--workers", "2")
		}
		st.edge = launch(t, env, args...)
		st.base, st.edgeMetrics = "http://"+listen, "http://"+metrics
	}
	testenv.AwaitOK(t, st.base+"/healthz")
	for _, w := range st.workers {
		testenv.Eventually(t, time.Minute, "a worker is up",
			func() bool { return strings.Contains(w.output(), "worker is up") })
	}
	return st
}

// policyFile writes a policy to a file and returns its path.
func policyFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.lua")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func addr(t testing.TB) string { return testenv.FreeAddress(t) }

// awaitVerified waits until a backend uses all shards. It is ready as soon as it can use one.
func awaitVerified(t testing.TB, admin string) {
	t.Helper()
	testenv.Eventually(t, time.Minute, "all shards are verified", func() bool {
		metrics := string(do(t, "GET", admin+"/metrics", adminToken, "").Body)
		return strings.Contains(metrics, "\nsluice_redis_verified{") && !unverified.MatchString(metrics)
	})
}

var unverified = regexp.MustCompile(`(?m)^sluice_redis_verified\{.*\} 0$`)

func (s *stack) token(buyer string) string {
	s.t.Helper()
	return tokentest.Sign(s.t, tokenSecret, buyer, time.Hour)
}

// answer is a response, with the fields that tests read.
type answer struct {
	Status int
	Header http.Header
	Body   []byte

	OrderID string `json:"order_id"`
	State   string `json:"status"`
	Code    string `json:"code"`
}

func do(t testing.TB, method, url, bearer, body string, header ...string) answer {
	t.Helper()
	a, err := try(method, url, bearer, body, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return a
}

var client = &http.Client{Timeout: time.Minute, Transport: checked(&http.Transport{MaxIdleConnsPerHost: 64})}

func try(method, url, bearer, body string, header ...string) (answer, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{Body: b}
	var probe struct {
		OrderID string          `json:"order_id"`
		Status  json.RawMessage `json:"status"`
		Code    string          `json:"code"`
	}
	if json.Unmarshal(b, &probe) == nil {
		a.OrderID, a.Code = probe.OrderID, probe.Code
		a.State = strings.Trim(string(probe.Status), `"`)
	}
	a.Status, a.Header = resp.StatusCode, resp.Header
	return a, nil
}

func (s *stack) buy(saleID, buyer string, header ...string) answer {
	s.t.Helper()
	return do(s.t, "POST", s.base+"/v1/sales/"+saleID+"/orders", s.token(buyer), "", header...)
}

func (s *stack) adminAPI(method, path, body string) answer {
	s.t.Helper()
	return do(s.t, method, s.admin+path, adminToken, body, "Content-Type", "application/json")
}

func (s *stack) createSale(id string, stock int) {
	s.t.Helper()
	body := fmt.Sprintf(
		`{"id":%q,"title":"Thing","stock":%d,"price":{"amount":1999,"currency":"EUR"},"per_buyer":1,"opens_at":%q}`,
		id,
		stock,
		time.Now().Add(-time.Minute).UTC().Format(time.RFC3339),
	)
	s.create(body)
}

// create creates a sale. A slow Redis may not have it in time.
func (s *stack) create(body string) {
	s.t.Helper()
	testenv.Eventually(s.t, time.Minute, "the sale is created", func() bool {
		a := s.adminAPI("POST", "/admin/v1/sales", body) // repeated, it returns the sale
		if a.Status != 201 && a.Status != 503 {
			s.t.Fatalf("create sale: %d %s", a.Status, a.Body)
		}
		return a.Status == 201
	})
}

type audit struct {
	Stock, Left, Ready, Delayed, Leased, Ordered, Dead, Returning, Unbacked int64
	Balanced                                                                bool
	Differences                                                             []string
}

func (s *stack) audit(saleID string) audit {
	s.t.Helper()
	r, a := s.tryAudit(saleID)
	if a.Status != 200 {
		s.t.Fatalf("audit: %d %s", a.Status, a.Body)
	}
	return r
}

func (s *stack) tryAudit(saleID string) (r audit, a answer) {
	s.t.Helper()
	a = s.adminAPI("GET", "/admin/v1/sales/"+saleID+"/audit", "")
	if a.Status == 200 && json.Unmarshal(a.Body, &r) != nil {
		s.t.Fatalf("audit: %s", a.Body)
	}
	return r, a
}

// settle waits until every accepted order of the sale is a row, and Redis is rebuilt if it has lost data.
func (s *stack) settle(saleID string, ordered int64) audit {
	s.t.Helper()
	var last audit
	testenv.Eventually(s.t, 60*time.Second, fmt.Sprintf("%d rows and nothing in between", ordered), func() bool {
		var a answer
		if last, a = s.tryAudit(saleID); a.Status != 200 && a.Status != 503 {
			s.t.Fatalf("audit: %d %s", a.Status, a.Body)
		}
		return a.Status == 200 && last.Ordered == ordered && last.Ready+last.Delayed+last.Leased == 0
	})
	return last
}
