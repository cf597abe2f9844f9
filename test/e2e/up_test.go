package e2e

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver of the test's own connection

	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

type upProcess struct {
	*process
	data, base, admin string
}

func startUp(t *testing.T, data string, args ...string) *upProcess {
	t.Helper()
	return startUpWith(t, nil, data, args...)
}

// startUpWith starts sluice up with environment variables.
func startUpWith(t *testing.T, env []string, data string, args ...string) *upProcess {
	t.Helper()
	listen, admin := addr(t), addr(t)
	p := launch(t, env, append([]string{"up", "--listen", listen, "--admin", admin, "--data", data}, args...)...)
	u := &upProcess{p, data, "http://" + listen, "http://" + admin}
	testenv.AwaitOK(t, u.base+"/readyz")
	testenv.Eventually(t, time.Minute, "the two curl lines", func() bool { return len(u.curlLines()) == 2 })
	// The relay deletes events that all registered groups have handled: a group that registers later misses them.
	token, err := os.ReadFile(filepath.Join(data, "admin.token"))
	if groups := groupsAt(u.admin, strings.TrimSpace(string(token))); err != nil || len(groups) != len(chaosGroups) {
		t.Errorf("groups %+v are registered, want %q (%v)", groups, chaosGroups, err)
	}
	return u
}

var curlLine = regexp.MustCompile(`(?m)^\s*(\S*\$?\(?curl .*)$`)

func (u *upProcess) curlLines() []string {
	var lines []string
	for _, m := range curlLine.FindAllStringSubmatch(u.output(), -1) {
		lines = append(lines, m[1])
	}
	return lines
}

// The output of `sluice up` works unchanged: two lines pasted into a shell buy a unit and show it created. After a
// restart on the same directory, sold units stay sold.
func TestUpSellsAndRemembers(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	u := startUp(t, data)
	out, err := exec.Command("sh", "-c", strings.Join(u.curlLines(), "\n")).CombinedOutput()
	if err != nil || !regexp.MustCompile(`^order \d{17,}\n`).Match(out) ||
		!strings.Contains(string(out), `"status":"created"`) {
		t.Fatalf("the printed lines\n%s\nfail with %v\n%s", strings.Join(u.curlLines(), "\n"), err, out)
	}
	left := u.left(t)
	for _, secret := range []string{"token.secret", "admin.token"} {
		f, err := os.Stat(filepath.Join(data, secret))
		if err != nil || f.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", secret, f, err)
		}
	}
	if _, errOut, code := sluiceRun(t, nil, "up", "--listen", addr(t), "--admin", addr(t), "--data", data); code == 0 ||
		!strings.Contains(errOut, "in use") {
		t.Errorf("a second sluice up on the same directory: exit %d, %q", code, errOut)
	}
	if code := u.end(syscall.SIGTERM); code != 0 {
		t.Errorf("SIGTERM: exit %d", code)
	}

	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		again := startUp(t, data)
		if now := again.left(t); now != left {
			t.Errorf("after a restart %d are left, want %d", now, left)
		}
		stdout, errOut, code := sluiceRun(t, nil, "sale", "audit", "demo", "--data", data)
		if code != 0 || !strings.Contains(stdout, "balanced") {
			t.Errorf("audit: exit %d, %s%s", code, stdout, errOut)
		}
		buyer, _, _ := sluiceRun(t, nil, "token", "--user", "ann-"+how.String(), "--data", data)
		a := do(t, "POST", again.base+"/v1/sales/demo/orders", strings.TrimSpace(buyer), "")
		if a.Status != 202 {
			t.Fatalf("buying after a restart: %d %s", a.Status, a.Body)
		}
		if o := do(t, "GET", again.base+"/v1/orders/"+a.OrderID+"?wait=10s", strings.TrimSpace(buyer),
			""); o.State != "created" {
			t.Errorf("the order is %s", o.Body)
		}
		left--
		again.end(how)
	}
}

// After a kill during purchases, sluice up has every confirmed order when it starts again: its Redis is lost, its
// journal is not.
func TestUpKilledLosesNoOrder(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	u := startUp(t, data)
	if _, errOut, code := sluiceRun(t, nil, "sale", "create", "--id", "rush", "--title", "Rush", "--stock", "20000",
		"--price", "1EUR", "--data", data); code != 0 {
		t.Fatal(errOut)
	}
	secret, err := os.ReadFile(filepath.Join(data, "token.secret"))
	if err != nil {
		t.Fatal(err)
	}
	key := tokentest.Key(t, strings.TrimSpace(string(secret)))
	confirmed := map[string]string{} // order -> buyer's token
	var mu sync.Mutex
	var hands sync.WaitGroup
	for hand := range 8 {
		hands.Go(func() {
			for i := 0; ; i++ {
				bearer, err := key.Sign(fmt.Sprintf("b%d-%d", hand, i), time.Hour)
				if err != nil {
					t.Error(err)
					return
				}
				a, err := try("POST", u.base+"/v1/sales/rush/orders", bearer, "", "X-Forwarded-For", fmt.Sprintf("10.%d.0.1", hand))
				if err != nil {
					return // it was killed
				}
				if a.Status == 202 {
					mu.Lock()
					confirmed[a.OrderID] = bearer
					mu.Unlock()
				}
			}
		})
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(confirmed) }
	testenv.Eventually(t, time.Minute, "some orders", func() bool { return count() >= 40 })
	u.end(syscall.SIGKILL)
	hands.Wait()

	again := startUp(t, data)
	for order, bearer := range confirmed {
		o := do(t, "GET", again.base+"/v1/orders/"+order+"?wait=10s", bearer, "")
		testenv.Eventually(t, time.Minute, "a request within the limit by address", func() bool {
			if o.Status == 429 {
				o = do(t, "GET", again.base+"/v1/orders/"+order+"?wait=10s", bearer, "")
			}
			return o.Status != 429
		})
		if o.State != "created" {
			t.Errorf("order %s after kill -9: %d %s", order, o.Status, o.Body)
		}
	}
	if stdout, errOut, code := sluiceRun(t, nil, "sale", "audit", "rush", "--data", data); code != 0 {
		t.Errorf("audit: exit %d, %s%s", code, stdout, errOut)
	}
	out, errOut, code := sluiceRun(t, nil, "sale", "rebuild", "rush", "--data", data)
	if code != 0 || !strings.Contains(out, "rush: ") || !strings.Contains(out, "0 without a unit") {
		t.Errorf("rebuild: exit %d, %s%s", code, out, errOut)
	}
	if _, errOut, code := sluiceRun(t, nil, "sale", "rebuild", "--data", data); code != 2 ||
		!strings.Contains(errOut, "--all") {
		t.Errorf("rebuild without a sale: exit %d, %s", code, errOut)
	}
	if out, errOut, code := sluiceRun(t, nil, "sale", "rebuild", "--all", "--data", data); code != 0 ||
		!strings.Contains(out, "demo: ") {
		t.Errorf("rebuild of all: exit %d, %s%s", code, out, errOut)
	}
}

func (u *upProcess) left(t *testing.T) int64 {
	t.Helper()
	a := do(t, "GET", u.base+"/v1/sales/demo", "", "")
	var s struct{ Left int64 }
	if a.Status != 200 || json.Unmarshal(a.Body, &s) != nil {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	return s.Left
}

// After SIGTERM with an order that the database rejects, sluice up has the order when it starts again: its Redis is
// lost, its journal is not.
func TestUpEndedWithAQueuedOrderKeepsIt(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	execute := func(statement string) {
		t.Helper()
		db, err := sql.Open("sqlite", filepath.Join(data, "orders.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	startUp(t, data).end(syscall.SIGTERM)
	execute("CREATE TRIGGER reject BEFORE INSERT ON orders BEGIN SELECT RAISE(ABORT, 'rejected'); END")
	u := startUp(t, data)
	ann, _, _ := sluiceRun(t, nil, "token", "--user", "ann", "--data", data)
	bought := do(t, "POST", u.base+"/v1/sales/demo/orders", strings.TrimSpace(ann), "")
	if bought.Status != 202 {
		t.Fatalf("the purchase: %d %s", bought.Status, bought.Body)
	}
	left := u.left(t)
	if code := u.end(syscall.SIGTERM); code != 0 {
		t.Errorf("SIGTERM: exit %d", code)
	}
	execute("DROP TRIGGER reject")
	u = startUp(t, data)
	defer u.end(syscall.SIGTERM)
	o := do(t, "GET", u.base+"/v1/orders/"+bought.OrderID+"?wait=10s", strings.TrimSpace(ann), "")
	if o.State != "created" || u.left(t) != left {
		t.Errorf("the order is %s; %d are left, want %d", o.Body, u.left(t), left)
	}
}

// --redis and --database swap in real stores.
func TestUpOnRealStores(t *testing.T) {
	t.Parallel()
	r, pg := testenv.StartRedis(t), testenv.SharedPostgres(t)
	u := startUp(t, t.TempDir(), "--redis", r.URL, "--database", pg.URL)
	out, err := exec.Command("sh", "-c", strings.Join(u.curlLines(), "\n")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"status":"created"`) {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Contains(u.output(), "embedded") {
		t.Errorf("with real stores it warns about embedded ones:\n%s", u.output())
	}
}

func TestAdminCommands(t *testing.T) {
	t.Parallel()
	u := startUp(t, t.TempDir())
	at := []string{"--data", u.data}
	steps := []struct {
		args string
		code int
		want string
	}{
		{"sale create --id shoe --title Shoe --stock 5 --price 19.99EUR", 0, "open"},
		{"sale create --id shoe --title Other --stock 5 --price 19.99EUR", 1, ""},
		{"sale show shoe", 0, "19.99 EUR"},
		{"sale show nothing", 1, "there is no sale"},
		{"sale list", 0, "shoe"},
		{"sale pause shoe --json", 0, `"state": "paused"`},
		{"sale resume shoe", 0, "open"},
		{"sale restock shoe --add 3 --key delivery", 0, "8"},
		{"sale restock shoe --add 3 --key delivery", 0, "8"},
		{"sale audit shoe --json", 0, `"balanced": true`},
		{"sale audit nothing", 1, ""},
		{"sale close shoe --yes", 0, "closed"},
		{"sale resume shoe", 1, ""},
		{"dead list", 0, "ORDER"},
		{"dead retry 123456789012345678", 1, ""},
		{"dead cancel 123456789012345678", 1, ""},
		{"sale create --title X --stock 0 --price 1EUR", 2, "stock"},
		{"sale create --title X --stock -1 --price 1EUR", 2, "stock"},
		{"sale create --title X --stock 9223372036854775808 --price 1EUR", 2, "stock"},
		{"sale create --title X --stock 5 --price 1EUR --per-buyer 6", 2, "--per-buyer must"},
		{"sale create --title X --stock 5 --price 1EUR --opens 2h --closes 1h", 2, "--closes must be after --opens"},
		{"sale create --title X --stock 5 --price x", 2, "price"},
		{"sale restock demo --add 0", 2, "--add"},
		{"sale show", 2, "SALE is missing"},
	}
	for _, s := range steps {
		stdout, stderr, code := sluiceRun(t, nil, append(strings.Fields(s.args), at...)...)
		if code != s.code || !strings.Contains(stdout+stderr, s.want) {
			t.Errorf("sluice %s: exit %d, want %d and %q\n%s%s", s.args, code, s.code, s.want, stdout, stderr)
		}
		if code != 0 && strings.Count(strings.TrimSpace(stderr), "\n") != 0 {
			t.Errorf("sluice %s: more than one line on stderr:\n%s", s.args, stderr)
		}
	}
}

// Invalid settings produce one clear line and exit 2 before anything is started.
func TestBadConfigurationIsOneLineAndExitTwo(t *testing.T) {
	t.Parallel()
	good := []string{
		"SLUICE_TOKEN_SECRET=" + tokenSecret,
		"SLUICE_ADMIN_TOKEN=" + adminToken,
		"SLUICE_REDIS_URL=redis://127.0.0.1:1/0",
		"SLUICE_DATABASE_URL=sqlite:x.db",
	}
	badPolicy := filepath.Join(t.TempDir(), "policy.lua")
	if err := os.WriteFile(badPolicy,
		[]byte("return {\n  rules = {\n    { name = \"ip\", key = \"ip\", rate = \"-1r/s\", burst = 1 },\n  },\n}\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args, want string
		env        []string
	}{
		{"nonsense", "unknown command", nil},
		{"up --nonsense", "unknown flag", nil},
		{"backend", "SLUICE_TOKEN_SECRET", nil},
		{"backend", "at least 32", []string{"SLUICE_TOKEN_SECRET=short"}},
		{"worker", "SLUICE_REDIS_URL", nil},
		{"backend --redis http://x", "--redis", good},
		{"backend --database mysql://x", "database", good},
		{"backend --listen nonsense", "--listen", good},
		{"backend --listen unix:run/b.sock", "--listen", good},
		{"backend --listen unix:/run/../b.sock", "without .. and //", good},
		{"backend --listen unix:/run/b;c.sock", "--listen", good},
		{"backend --listen unix:/" + strings.Repeat("a", 107), "107", good},
		{"backend --admin unix:/run/b.sock", "--admin", good},
		{"up --listen unix:/run/b.sock", "want host:port", good},
		{"gateway --listen unix:/run/b.sock --upstream unix:/run/b.sock", "--listen", good},
		{"edge --listen unix:/run/b.sock --upstream unix:/run/b.sock", "--listen", good},
		{"gateway --upstream unix:b.sock", "--upstream", good},
		{"edge -t --upstream unix:/run/b{.sock", "--upstream", good},
		{"edge -t --upstream unix:/" + strings.Repeat("a", 107), "107", good},
		{"backend --redis-wait -1", "--redis-wait", good},
		{"backend", "SLUICE_REDIS_WAIT=many", append([]string{"SLUICE_REDIS_WAIT=many"}, good...)},
		{"up --redis-wait 1", "embedded Redis has no replicas", nil},
		{"worker", "OTEL_EXPORTER_OTLP_ENDPOINT", append([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318"}, good...)},
		{
			"backend", "OTEL_TRACES_SAMPLER_ARG",
			append([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_TRACES_SAMPLER_ARG=2"}, good...),
		},
		{"gateway", "--upstream", good},
		{"gateway --upstream ftp://x", "--upstream", good},
		{"gateway --upstream http://127.0.0.1:1 --policy " + badPolicy, "policy.lua:3", good},
		{"edge --upstream http://127.0.0.1:1 --policy " + badPolicy, "policy.lua:3", good},
		{"policy check " + badPolicy, "policy.lua:3", nil},
		{"policy check /nonexistent/policy.lua", "policy.lua", nil},
		{"token", "--user", []string{"SLUICE_TOKEN_SECRET=" + tokenSecret}},
		{"token --user ann", "SLUICE_TOKEN_SECRET", nil},
		{"sale list", "--server", nil},
		{"sale list --server ftp://x", "--server", good},
	} {
		stdout, stderr, code := sluiceRun(t, c.env, strings.Fields(c.args)...)
		if code != 2 || !strings.Contains(stderr, c.want) || strings.Count(strings.TrimSpace(stderr), "\n") != 0 ||
			stdout != "" {
			t.Errorf("sluice %s: exit %d, want 2 and one line with %q\nstdout: %s\nstderr: %s", c.args, code, c.want, stdout,
				stderr)
		}
	}
}
