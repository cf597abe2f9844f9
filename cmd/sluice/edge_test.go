package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

// runEdge runs sluice edge until the test ends, and returns its directory and its log, which has the line of its
// address.
func runEdge(t *testing.T, args ...string) (prefix string, log *testenv.Buffer) {
	t.Helper()
	prefix, log = t.TempDir(), &testenv.Buffer{}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	env := map[string]string{envSecret: testSecret}
	args = append(strings.Fields("edge --upstream 127.0.0.1:1 --root= --log text --prefix "+prefix), args...)
	go func() { ended <- run(ctx, args, func(name string) string { return env[name] }, log, log) }()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != exitOK {
			t.Errorf("sluice edge: exit %d: %s", code, log)
		}
	})
	testenv.Eventually(t, time.Minute, "the edge listens", func() bool {
		select {
		case code := <-ended:
			ended <- code
			t.Fatalf("sluice edge: exit %d: %s", code, log)
		default:
		}
		return strings.Contains(log.String(), "edge listening")
	})
	return prefix, log
}

// The edge logs its address when it listens. A second edge at that address ends with one line, with the remedy.
func TestEdgeReportsItsAddress(t *testing.T) {
	t.Parallel()
	address := testenv.FreeAddress(t)
	_, log := runEdge(t, "--listen", address)
	if text := log.String(); !strings.Contains(text, "INF edge listening address="+address+` policy="built-in;`) ||
		strings.Count(text, "edge listening") != 1 {
		t.Errorf("the log of a start: %s", text)
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	code, stdout, stderr := call(t, "edge --upstream 127.0.0.1:1 --listen "+address+" --prefix "+t.TempDir(),
		envSecret+"="+testSecret)
	if want := "sluice: edge: --listen " + address + ": the address is in use: stop the process that listens there, or " +
		"choose another address\n"; code != exitUsage || stdout != "" || stderr != want {
		t.Errorf("a second edge: exit %d, %s%s, want %s", code, stdout, stderr, want)
	}
	code, stdout, stderr = call(t, "gateway --upstream 127.0.0.1:1 --listen "+address, envSecret+"="+testSecret)
	want := "address already in use: stop the process that listens there, or choose another address\n"
	if code != exitUsage || stdout != "" || !strings.HasPrefix(stderr, "sluice: --listen: ") ||
		!strings.HasSuffix(stderr, want) {
		t.Errorf("a gateway: exit %d, %s%s, want %s", code, stdout, stderr, want)
	}
}

// The flags of the log apply to the edge as to every command.
func TestEdgeChecksTheFormatOfItsLog(t *testing.T) {
	t.Parallel()
	if code, out, errOut := call(t, "edge reload --log xml"); code != exitUsage || out != "" ||
		errOut != "sluice: --log \"xml\": want text, json or auto\n" {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
}

// A start checks the policy as sluice gateway does, which lists all errors and their remedies.
func TestEdgeChecksThePolicyOfAStart(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{"lua", "nginx"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "nginx", "nginx.conf"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "lua", "policy.lua")
	for _, bad := range []string{"return {", "return { rules = { { nam = 'a', key = 'ip', rate = '1r/s' } } }", "return 1"} {
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		secret := envSecret + "=" + testSecret
		_, _, want := call(t, "gateway --upstream 127.0.0.1:1 --policy "+file, secret)
		for _, args := range []string{" --policy " + file, " -t --policy " + file, " --root " + root} {
			code, out, errOut := call(t, "edge --upstream 127.0.0.1:1"+args, secret)
			if code != exitUsage || out != "" || errOut != want || !strings.HasPrefix(errOut, "sluice: "+file+":1: ") {
				t.Errorf("edge%s with %q: exit %d, %s%s, want %s", args, bad, code, out, errOut, want)
			}
		}
	}
}

// A reload checks the policy as sluice policy check does. An error changes nothing, and a warning prevents nothing.
func TestEdgeReloadChecksThePolicy(t *testing.T) {
	t.Parallel()
	address := testenv.FreeAddress(t)
	file := write(t, "policy.lua", "return { rules = {} }")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	status := func() int {
		response, err := http.Get("http://" + address + "/v1/sales")
		if err != nil {
			return 0
		}
		response.Body.Close()
		return response.StatusCode
	}
	prefix, log := runEdge(t, "--listen", address, "--policy", file)

	for _, bad := range []string{"return {", "return { rules = { { name = 'a', key = 'ip', brust = 1 } } }", "return 1"} {
		put(bad)
		_, _, want := call(t, "policy check "+file)
		code, out, errOut := call(t, "edge reload --prefix "+prefix)
		if code != exitUsage || out != "" || errOut != want || !strings.HasPrefix(errOut, file+":1: ") {
			t.Errorf("reload of %q: exit %d, %s%s, want %s", bad, code, out, errOut, want)
		}
	}
	if got := status(); got != http.StatusServiceUnavailable || strings.Count(log.String(), "policy.lua") != 1 {
		t.Errorf("after rejected reloads: status %d, %s", got, log)
	}

	put(`return { rules = { { name = "slow", key = "ip", rate = "1r/h", delay = true } } }`)
	if code, _, errOut := call(t, "policy check "+file); code != exitOK || !strings.Contains(errOut, "warning: ") {
		t.Errorf("the policy has no warning: exit %d, %s", code, errOut)
	}
	if code, out, errOut := call(t, "edge reload --prefix "+prefix); code != exitOK || out+errOut != "" {
		t.Errorf("reload with a warning: exit %d, %s%s", code, out, errOut)
	}
	testenv.Eventually(t, time.Minute, "the new policy is in effect",
		func() bool { return status() == http.StatusTooManyRequests })
	code, out, errOut := call(t, "edge reload --prefix "+t.TempDir())
	if code != exitUsage || out != "" || !strings.HasPrefix(errOut, "sluice: edge: no edge runs in ") ||
		!strings.HasSuffix(errOut, ": set --prefix to the directory of the running edge\n") {
		t.Errorf("without an edge: exit %d, %s%s", code, out, errOut)
	}
}

// A file that is not PEM is rejected before nginx or the gateway starts.
func TestCertificateMustBePEM(t *testing.T) {
	file := write(t, "cert.pem", "not a certificate")
	for _, edge := range []string{"edge", "gateway"} {
		line := edge + " --upstream 127.0.0.1:1 --listen 127.0.0.1:0 --tls-cert " + file + " --tls-key none.pem"
		code, stdout, stderr := call(t, line, envSecret+"="+testSecret)
		want := "sluice: --tls-cert: " + file + " has no PEM block (-----BEGIN ...): name a PEM file; " +
			"--tls-key: open none.pem: no such file or directory\n"
		if code != exitUsage || stdout != "" || stderr != want {
			t.Errorf("%s: exit %d, %s%s, want %s", line, code, stdout, stderr, want)
		}
	}
}

// Both edges reject a rule of the fleet without a Redis server, with the same line.
func TestFleetRuleNeedsARedisServer(t *testing.T) {
	file := write(t, "p.lua", `return { rules = {
		{ name = "buy", key = "ip", rate = "1r/s", burst = 9, scope = "fleet" },
	} }`)
	want := "sluice: " + file + `: rule "buy" has scope = "fleet", which needs a Redis server: set ` +
		"SLUICE_LIMIT_REDIS_URL, or --limit-redis of sluice edge and sluice gateway\n"
	for _, edge := range []string{"edge -t --root=", "gateway --listen 127.0.0.1:0"} {
		line := edge + " --upstream 127.0.0.1:1 --policy " + file
		code, stdout, stderr := call(t, line, envSecret+"="+testSecret)
		if code != exitUsage || stdout != "" || stderr != want {
			t.Errorf("%s: exit %d, %s%s, want %s", line, code, stdout, stderr, want)
		}
	}
}

// A reload to a rule of the fleet is rejected with the line of sluice edge, which names the file as its flag did.
func TestEdgeReloadRejectsAFleetRuleWithoutARedisServer(t *testing.T) {
	t.Chdir(t.TempDir())
	put := func(rules string) {
		t.Helper()
		if err := os.WriteFile("p.lua", []byte("return { rules = {"+rules+"} }"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("")
	prefix, _ := runEdge(t, "--listen", testenv.FreeAddress(t), "--policy", "p.lua")
	put(`{ name = "buy", key = "ip", rate = "1r/s", burst = 9, scope = "fleet" }`)
	_, _, want := call(t, "edge -t --root= --upstream 127.0.0.1:1 --policy p.lua", envSecret+"="+testSecret)
	code, out, errOut := call(t, "edge reload --prefix "+prefix)
	if code != exitUsage || out != "" || errOut != want || !strings.HasPrefix(want, `sluice: p.lua: rule "buy" has `) {
		t.Errorf("reload: exit %d, %s%s, want %s", code, out, errOut, want)
	}
}

// An edge without --policy uses lua/policy.lua of the working directory, as sluice up and sluice gateway do.
func TestEdgeReadsThePolicyOfTheWorkingDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("lua", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(defaultPolicy, []byte("return { rules = { { name = 1 } } }"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"edge -t --upstream 127.0.0.1:1", "gateway --listen 127.0.0.1:0 --upstream 127.0.0.1:1"} {
		code, _, stderr := call(t, line, envSecret+"="+testSecret)
		if code != exitUsage || !strings.Contains(stderr, defaultPolicy+":1: ") {
			t.Errorf("sluice %s: exit %d, %s", line, code, stderr)
		}
	}
}
