// Package loadtest_test verifies that the load tests pass against a correct server and fail against servers with
// known faults.
package loadtest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"sluice/loadtest/fake"
)

const (
	tokenSecret = "token-secret-of-the-load-test-suite"
	adminToken  = "admin-token-of-the-load-test-suite"
)

type verdict struct {
	Verdict  string
	Failures []string
	Outcomes []struct {
		Outcome string
		Count   int
	}
	Units map[string]int
}

func (v verdict) count(outcome string) int {
	for _, o := range v.Outcomes {
		if o.Outcome == outcome {
			return o.Count
		}
	}
	return -1
}

// k6 returns the path of the k6 binary. It also reads the scripts, so that go test does not use a cached result after
// a script has changed.
var k6 = sync.OnceValues(func() (string, error) {
	for _, pattern := range []string{"*.js", "lib/*.js"} {
		scripts, err := filepath.Glob(pattern)
		if err != nil || len(scripts) == 0 {
			return "", fmt.Errorf("no scripts at %s: %v", pattern, err)
		}
		for _, script := range scripts {
			if _, err := os.ReadFile(script); err != nil {
				return "", err
			}
		}
	}
	out, err := exec.Command("go", "tool", "-n", "k6").Output()
	return strings.TrimSpace(string(out)), err
})

// run executes a script and returns the verdict, the exit code and the output of k6.
func run(t *testing.T, script string, server *fake.Server, env ...string) (verdict, int, string) {
	t.Helper()
	return runThat(t, func(*os.Process) {}, script, server, env...)
}

// runThat is run, with a function that runs beside k6.
func runThat(t *testing.T, beside func(*os.Process), script string, server *fake.Server,
	env ...string) (verdict, int, string) {
	t.Helper()
	bin, err := k6()
	if err != nil {
		t.Fatalf("go tool -n k6: %v", err)
	}
	out := t.TempDir()
	cmd := exec.Command(bin, "run", "--quiet", "--address", "", script+".js")
	cmd.Env = append(os.Environ(), "K6_NO_USAGE_REPORT=true", "OUT="+out,
		"TARGET="+server.Public.URL, "ADMIN="+server.Admin.URL,
		"SLUICE_TOKEN_SECRET="+tokenSecret, "SLUICE_ADMIN_TOKEN="+adminToken, "SETTLE=2s")
	cmd.Env = append(cmd.Env, env...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatalf("k6: %v", err)
	}
	go beside(cmd.Process)
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("k6: %v", err)
	}
	printed := output.String()
	var v verdict
	text, err := os.ReadFile(filepath.Join(out, script+".verdict.json"))
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		t.Fatalf("read verdict: %v\n%s", err, printed)
	}
	return v, cmd.ProcessState.ExitCode(), printed
}

func start(t *testing.T, fault fake.Fault) *fake.Server {
	s := fake.New(fault, tokenSecret, adminToken)
	t.Cleanup(s.Close)
	return s
}

func TestCorrectServerPasses(t *testing.T) {
	const slow = "60000" // ms; the test must pass on a slow machine
	for script, env := range map[string][]string{
		"smoke": {"RATE=6", "DURATION=4s", "DOUBLE_KEYED=0.3", "DOUBLE_BARE=0.3"},
		"spike": {"RATE=60", "DURATION=2s", "STOCK=40", "OPENS_IN=8", "MAX_VUS=60", "AUDIT_EVERY=1", "AGAIN=1", "FOLLOW=1"},
		"soak":  {"RATE=10", "DURATION=5s", "STOCK=12", "RESTOCK_EVERY=2", "RESTOCK=3", "MAX_VUS=30"},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			env = append(env, "P95_ACCEPTED="+slow, "P95_SOLD_OUT="+slow, "SETTLE=1m", "PATIENCE=1m", "MAX_DROPPED=1")
			server := start(t, "")
			v, exit, printed := run(t, script, server, env...)
			if v.Verdict != "PASS" || exit != 0 {
				t.Fatalf("verdict %s, exit %d, want a pass\n%s", v.Verdict, exit, printed)
			}
			if !server.Closed() {
				t.Error("the sale of the run is open")
			}
			if sold := v.Units["ordered"]; sold < 12 || v.count("accepted") != sold || v.Units["left"] != 0 {
				t.Errorf("%d accepted, %d rows, %d left: want the whole stock sold\n%s",
					v.count("accepted"), sold, v.Units["left"], printed)
			}
			if v.count("sold_out") == 0 || v.count("replayed")+v.count("already_bought") == 0 || v.count("failed") != 0 {
				t.Errorf("an outcome is missing\n%s", printed)
			}
			if script == "spike" && v.count("not_open") == 0 {
				t.Errorf("no request was sent before the sale opened\n%s", printed)
			}
		})
	}
}

// A passed run of too few buyers has not tested the refusals of a sold-out sale.
func TestSaleThatDoesNotSellOutIsNoted(t *testing.T) {
	t.Parallel()
	v, _, printed := run(t, "smoke", start(t, ""), "RATE=2", "DURATION=2s", "STOCK=500", "DOUBLE_BARE=0")
	want := fmt.Sprintf("The sale did not sell out: %d of 500 units are left", v.Units["left"])
	if !strings.Contains(printed, want) {
		t.Errorf("the verdict lacks %q\n%s", want, printed)
	}
}

func TestRejectedAdminTokenIsNamed(t *testing.T) {
	t.Parallel()
	_, exit, printed := run(t, "smoke", start(t, ""), "SLUICE_ADMIN_TOKEN=another-token-of-the-load-test-suite")
	if exit != 107 || !strings.Contains(printed, "SLUICE_ADMIN_TOKEN is not that of the server") {
		t.Errorf("exit %d\n%s", exit, printed)
	}
}

// Units of orders that were cancelled during the run may be left, although buyers were refused before.
func TestReturnedUnitsAreNotUndersold(t *testing.T) {
	t.Parallel()
	v, exit, printed := run(t, "smoke", start(t, fake.EndsHolds), "RATE=6", "DURATION=4s", "SETTLE=1m", "PATIENCE=1m",
		"P95_ACCEPTED=60000", "P95_SOLD_OUT=60000", "MAX_DROPPED=1")
	if v.Verdict != "PASS" || exit != 0 || v.Units["left"] != 2 || v.count("sold_out") == 0 {
		t.Errorf("verdict %s, exit %d, units %v, want a pass with 2 left\n%s", v.Verdict, exit, v.Units, printed)
	}
}

func TestFaultyServerFails(t *testing.T) {
	for _, c := range []struct {
		fault fake.Fault
		want  string // part of a failure in the verdict, or of the output of k6
	}{
		{fake.Oversells, "oversold: 15 rows"},
		{fake.Undersells, "undersold count<=0"},
		{fake.SellsTwice, "one-per-buyer"},
		{fake.ChangesReply, "same-answer"},
		{fake.LosesOrders, "lost_orders count<=0"},
		{fake.HidesLosses, "accepted-becomes-a-row"},
		{fake.AddsRows, "unexplained_rows count<=0"},
		{fake.Unbalanced, "the audit is not balanced"},
		{fake.NeverEmpties, "orders still queued: 1"},
		{fake.Crashes, "purchase_failed rate<=0"},
		{fake.Stalls, "purchase_duration{outcome:accepted} p(95)<500"},
		{fake.ServesHTML, "409 without problem+json"},
	} {
		t.Run(strings.ReplaceAll(string(c.fault), " ", "-"), func(t *testing.T) {
			t.Parallel()
			v, exit, printed := run(t, "smoke", start(t, c.fault),
				"RATE=8", "DURATION=3s", "DOUBLE_KEYED=0.3", "DOUBLE_BARE=0.3")
			if v.Verdict != "FAIL" || exit == 0 {
				t.Errorf("verdict %s, exit %d for a server that %s", v.Verdict, exit, c.fault)
			}
			if output := strings.Join(v.Failures, "\n") + printed; !strings.Contains(output, c.want) {
				t.Errorf("output without %q:\n%s", c.want, output)
			}
		})
	}
}

// A soak test without restocks would only test a sale that is sold out.
func TestSoakWithoutRestocksFails(t *testing.T) {
	t.Parallel()
	v, exit, printed := run(t, "soak", start(t, fake.NeverStocks), "RATE=10", "DURATION=3s", "STOCK=12",
		"RESTOCK_EVERY=1", "RESTOCK=3", "MAX_VUS=30", "P95_ACCEPTED=60000", "P95_SOLD_OUT=60000", "SETTLE=1m",
		"PATIENCE=1m", "MAX_DROPPED=1")
	if failures := strings.Join(v.Failures, ", "); failures != "admin_failures count==0" || exit == 0 {
		t.Errorf("exit %d, failures %q, want admin_failures only\n%s", exit, failures, printed)
	}
}

// A run that is interrupted before its end fails, and so does one that is interrupted while the last buyers still wait.
func TestInterruptedRunFails(t *testing.T) {
	isPurchase := func(r *http.Request) bool { return r.Method == http.MethodPost }
	isNone := func(*http.Request) bool { return false }
	for name, c := range map[string]struct {
		script  string
		env     []string
		isHeld  func(*http.Request) bool // by the server, until the run ends
		reached string                   // the interrupt follows the first request for this path
	}{
		"before the end": {"soak", []string{"RATE=5", "DURATION=1h"}, isNone, "/v1/orders/"},
		// smoke.js requests /healthz two seconds after the last buyer has come.
		"at the end": {"smoke", []string{"RATE=2", "DURATION=1s"}, isPurchase, "/healthz"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := start(t, "")
			answer := server.Public.Config.Handler
			reached := make(chan struct{}, 1)
			server.Public.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, c.reached) {
					select {
					case reached <- struct{}{}:
					default:
					}
				}
				if c.isHeld(r) {
					<-r.Context().Done()
					return
				}
				answer.ServeHTTP(w, r)
			})
			interrupt := func(k6 *os.Process) {
				<-reached
				_ = k6.Signal(os.Interrupt)
			}
			v, exit, printed := runThat(t, interrupt, c.script, server, append(c.env, "FOLLOW=1", "SETTLE=1m")...)
			if v.Verdict != "FAIL" || exit != 105 || !slices.Contains(v.Failures, "interruptions count<=0") ||
				!strings.Contains(printed, "The run ended early, or before its last buyers had finished") {
				t.Errorf("verdict %s, exit %d, failures %q\n%s", v.Verdict, exit, v.Failures, printed)
			}
		})
	}
}

func TestUnreachableAdminAPIFails(t *testing.T) {
	server := start(t, "")
	server.Admin.Close()
	v, exit, printed := run(t, "smoke", server)
	if v.Verdict != "FAIL" || exit == 0 || !strings.Contains(printed, "start sluice, or set ADMIN") {
		t.Errorf("verdict %s, exit %d without the admin API\n%s", v.Verdict, exit, printed)
	}
}

func TestMissingSaleIsNamed(t *testing.T) {
	t.Parallel()
	v, exit, printed := run(t, "smoke", start(t, ""), "SALE=missing")
	if v.Verdict != "FAIL" || exit == 0 || !strings.Contains(printed, "/v1/sales/missing: 404; unset SALE, or set it") {
		t.Errorf("verdict %s, exit %d\n%s", v.Verdict, exit, printed)
	}
}

// The sale of a run that cannot begin is closed too.
func TestUnreachableTargetFails(t *testing.T) {
	server := start(t, "")
	server.Public.Close()
	v, exit, printed := run(t, "smoke", server)
	if v.Verdict != "FAIL" || exit == 0 || !strings.Contains(printed, "check that TARGET and ADMIN belong") {
		t.Errorf("verdict %s, exit %d without the edge\n%s", v.Verdict, exit, printed)
	}
	if !server.Closed() {
		t.Error("the sale is open")
	}
}

// The sale of a run is closed too if its units cannot be counted.
func TestSaleWithoutAnAuditIsClosed(t *testing.T) {
	for _, fault := range []fake.Fault{fake.NeverAudits, fake.StopsAudits} {
		t.Run(strings.ReplaceAll(string(fault), " ", "-"), func(t *testing.T) {
			t.Parallel()
			server := start(t, fault)
			v, exit, printed := run(t, "smoke", server, "RATE=4", "DURATION=1s")
			if v.Verdict != "FAIL" || exit == 0 || !strings.Contains(printed, "/audit: 503") {
				t.Errorf("verdict %s, exit %d without an audit\n%s", v.Verdict, exit, printed)
			}
			if !server.Closed() {
				t.Error("the sale is open")
			}
		})
	}
}

func TestAllConfigurationErrorsAreReported(t *testing.T) {
	bin, err := k6()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "run", "--quiet", "--address", "", "spike.js")
	cmd.Env = append(os.Environ(), "K6_NO_USAGE_REPORT=true", "TARGET=http://shop.example",
		"RATE=many", "DURATION=soon", "SETTLE=1000h", "OPENS_IN=1e300", "MAX_VUS=1000000000",
		"SLUICE_TOKEN_SECRET=short", "SLUICE_ADMIN_TOKEN=")
	printed, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("k6 started the run")
	}
	for _, name := range []string{
		"TARGET=http://shop.example: not this machine", "RATE=many", "DURATION=soon",
		"SETTLE=1000h: use a duration from 1ms to 720h", "OPENS_IN=1e300: use a number from 0 to 86400",
		"MAX_VUS=1000000000: use a whole number from 1 to 100000",
		"SLUICE_TOKEN_SECRET: set it to the value of the server, at least 32 characters, or SLUICE_DATA to the directory",
		"SLUICE_ADMIN_TOKEN: set it to the value of the server, or SLUICE_DATA to the directory",
	} {
		if !strings.Contains(string(printed), name) {
			t.Errorf("%s is not reported in\n%s", name, printed)
		}
	}
}

// A run does not start without a directory for its verdict, or with the name of a data directory that does not exist.
func TestRunRejectsMissingDirectories(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, variable := range []string{"OUT", "SLUICE_DATA"} {
		cmd := exec.Command("./run", "smoke")
		cmd.Env = append(os.Environ(), "TARGET=http://127.0.0.1:1", variable+"="+missing)
		printed, _ := cmd.CombinedOutput()
		want := "loadtest/run: " + variable + "=" + missing + " is not a directory"
		if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.HasPrefix(string(printed), want) ||
			strings.Count(string(printed), "\n") != 1 {
			t.Errorf("exit %d, printed %q, want %q", code, printed, want)
		}
	}
}

// The load tests must run with the rules of production.
func TestPolicyDiffersOnlyInTrust(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		code := regexp.MustCompile(`--[^\n]*`).ReplaceAllString(string(text), "")
		code = regexp.MustCompile(`trusted_proxies\s*=\s*\{[^}]*\}`).ReplaceAllString(code, "trusted_proxies")
		return strings.Join(strings.Fields(code), " ")
	}
	if test, production := read("policy.lua"), read("../lua/policy.lua"); test != production {
		t.Errorf("loadtest/policy.lua has\n%s\nlua/policy.lua has\n%s", test, production)
	}
}
