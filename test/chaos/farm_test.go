package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/internal/token"
	"sluice/test/testenv"
)

// farm is a deployment on several machines as docs/deploy.md describes it.
type farm struct {
	*lan

	t      *testing.T
	env    []string // of every process of sluice
	shards int      // how many queues the sales are spread over

	backends, workers []*testenv.Program
	edges, sentinels  []*testenv.Program
	postgres          *testenv.Program
	journals          []string
	database          string // URL
	key               *token.Key
}

// The ports. The balancer has the edges behind it four times: both, and each alone, as one that passes TCP on and as
// one that speaks HTTP.
const (
	overTCP, overHTTP                     = 8080, 8090
	nginxTCP, gatewayTCP                  = 8081, 8082
	nginxHTTP, gatewayHTTP                = 8091, 8092
	edgeTCP, edgeHTTP                     = 8080, 8090 // of an edge
	edgeTCPMetrics, edgeHTTPMetrics       = 9101, 9102
	backendPort, adminPort, workerMetrics = 8080, 8081, 9102
	redisPort, sentinelPort, postgresPort = 6379, 26379, 5432
)

var (
	redisHosts   = []string{"redis-1", "redis-2", "redis-3"}
	backendHosts = []string{"backend-1", "backend-2"}
	workerHosts  = []string{"worker-1", "worker-2"}
)

// newFarm starts a farm over a Redis with two replicas and Sentinels.
func newFarm(t *testing.T) *farm {
	t.Helper()
	return startFarm(t, 2, redisHosts, func(f *farm) []string {
		f.startSentinels()
		return []string{
			"SLUICE_REDIS_WAIT=1",
			fmt.Sprintf("SLUICE_REDIS_URL=redis://%s/0?master_name=shop&addr=%s&addr=%s", f.sentinel(0),
				f.sentinel(1), f.sentinel(2)),
		}
	})
}

// startFarm starts a farm. startRedis starts Redis on its hosts, and returns the settings by which processes find it.
func startFarm(t *testing.T, shards int, hosts []string, startRedis func(*farm) []string) *farm {
	t.Helper()
	f := &farm{t: t, shards: shards}
	var err error
	if f.key, err = token.NewKey(tokenSecret); err != nil {
		t.Fatal(err)
	}
	f.lan = newLAN(t, append([]string{
		"balancer", "edge-1", "edge-2", "backend-1", "backend-2", "worker-1", "worker-2", "limits", "sql",
	}, hosts...)...)
	f.startPostgres()
	f.startServer("limits")
	f.env = append(startRedis(f),
		"SLUICE_TOKEN_SECRET="+tokenSecret,
		"SLUICE_ADMIN_TOKEN="+adminToken,
		"SLUICE_USER_RATE=1000-S",
		fmt.Sprint("SLUICE_SHARDS=", shards),
		"SLUICE_LIMIT_REDIS_URL=redis://"+f.host("limits").at(redisPort)+"/0",
	)
	f.useDatabase("sluice")
	f.startBackends()
	f.startWorkers()
	f.startEdges()
	f.startBalancer()
	return f
}

// startPostgres starts PostgreSQL with its defaults, under an account of its own, because it refuses to run as root.
func (f *farm) startPostgres() {
	h, t := f.host("sql"), f.t
	account := []string{"setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"}
	initdb := testenv.Find(t, "initdb", "postgresql", "/usr/lib/postgresql/*/bin/initdb")
	dir, err := os.MkdirTemp("", "sluice-pg-") // the postgres account cannot read the test's directories
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	command(t, "chown", "postgres", dir)
	data := filepath.Join(dir, "data")
	command(
		t,
		append(account, initdb, "-D", data, "-U", "sluice", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")...)
	hba, err := os.OpenFile(filepath.Join(data, "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hba.WriteString("host all all 10.77.0.0" + network + " trust\n"); err != nil {
		t.Fatal(err)
	}
	hba.Close()
	f.postgres = h.launch(silent{t}, nil, append(account, filepath.Join(filepath.Dir(initdb), "postgres"), "-D", data,
		"-c", "listen_addresses="+h.ip, "-c", "unix_socket_directories="+dir, "-c", "max_connections=200")...)
	testenv.Eventually(t, 60*time.Second, "PostgreSQL answers",
		func() bool { return f.psql("postgres", "CREATE DATABASE sluice") == nil })
}

// psql runs one statement in a database, from the network of the buyers.
func (f *farm) psql(database, statement string) error {
	out, err := exec.Command("psql", "-X", "-v", "ON_ERROR_STOP=1", "-d", f.databaseURL(database), "-c", statement).
		CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (f *farm) databaseURL(database string) string {
	return fmt.Sprintf("postgres://sluice@%s/%s?sslmode=disable", f.host("sql").at(postgresPort), database)
}

// useDatabase sets the database of processes that start from now on.
func (f *farm) useDatabase(name string) {
	f.database = f.databaseURL(name)
	for i, pair := range f.env {
		if strings.HasPrefix(pair, "SLUICE_DATABASE_URL=") {
			f.env[i] = "SLUICE_DATABASE_URL=" + f.database
			return
		}
	}
	f.env = append(f.env, "SLUICE_DATABASE_URL="+f.database)
}

func (f *farm) startBackends() {
	var sources []string
	for _, edge := range []string{"edge-1", "edge-2"} {
		for _, port := range []int{edgeTCPMetrics, edgeHTTPMetrics} {
			sources = append(sources, "http://"+f.host(edge).at(port)+"/metrics")
		}
	}
	for _, name := range backendHosts {
		sources = append(sources, "http://"+f.host(name).at(adminPort)+"/metrics")
	}
	f.env = append(f.env, "SLUICE_EDGE_METRICS="+strings.Join(sources, ","))
	for i, name := range backendHosts {
		f.journals = append(f.journals, filepath.Join(f.host(name).dir, "journal"))
		f.startBackend(i)
	}
	f.awaitReady(backendHosts...)
}

func (f *farm) startBackend(i int) {
	h := f.host(backendHosts[i])
	f.backends = append(
		f.backends,
		h.launch(f.t, f.env, binary, "backend", "--listen", h.at(backendPort), "--admin", h.at(adminPort),
			"--journal", f.journals[i]),
	)
}

func (f *farm) awaitReady(names ...string) {
	f.t.Helper()
	for _, name := range names {
		testenv.Eventually(f.t, 60*time.Second, name+" is ready",
			func() bool { return ready("http://" + f.host(name).at(backendPort)) })
	}
}

func (f *farm) startWorkers() {
	for _, name := range workerHosts {
		h := f.host(name)
		f.workers = append(f.workers, h.launch(f.t, f.env, binary, "worker", "--metrics", h.at(workerMetrics)))
	}
}

// narrow is a path with its own limit by address. A test detects with it which address an edge counts.
const narrow = "/v1/sales/narrow"

func (f *farm) startEdges() {
	policy := filepath.Join(f.t.TempDir(), "policy.lua")
	if err := os.WriteFile(policy, fmt.Appendf(nil, `return {
  trusted_proxies = { "%s/32" },
  rules = {
    { name = "ip", key = "ip", rate = "5000r/s", burst = 5000 },
    { name = "narrow", key = "ip", rate = "1r/m", burst = 3, match = { method = "GET", path = "%s" } },
  },
}
`, f.host("balancer").ip, narrow), 0o600); err != nil {
		f.t.Fatal(err)
	}
	for i, kind := range []string{"edge", "gateway"} {
		h := f.host([]string{"edge-1", "edge-2"}[i])
		args := []string{binary, kind, "--policy", policy, "--per-client", "5000"}
		for _, name := range backendHosts {
			args = append(args, "--upstream", "http://"+f.host(name).at(backendPort))
		}
		f.edges = append(
			f.edges,
			h.launch(
				f.t,
				f.env,
				append(args, "--listen", h.at(edgeTCP), "--metrics", h.at(edgeTCPMetrics), "--proxy-protocol")...),
			h.launch(f.t, f.env, append(args, "--listen", h.at(edgeHTTP), "--metrics", h.at(edgeHTTPMetrics))...),
		)
	}
}

// shop returns the URL at which buyers reach a listener of the balancer.
func (f *farm) shop(port int) string { return "http://" + f.host("balancer").at(port) }

// stage returns the farm as the crowd and the admin use it: two entrances, and two admin consoles.
func (f *farm) stage() *stage {
	s := &stage{key: f.key, journals: f.journals}
	for i, port := range []int{overTCP, overHTTP} {
		s.backends = append(s.backends, &actor{base: f.shop(port), admin: "http://" + f.host(backendHosts[i]).at(adminPort)})
	}
	return s
}

// sluice runs a command on the admin's machine, as in the documents.
func (f *farm) sluice(admin string, args ...string) (string, error) {
	cmd := exec.Command(binary, args...)
	cmd.Dir = f.t.TempDir()
	cmd.Env = slices.Concat(f.env,
		[]string{"PATH=" + os.Getenv("PATH"), "SLUICE_SERVER=http://" + f.host(admin).at(adminPort)})
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("sluice %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
