package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/gateway/policy"
	"sluice/test/testenv"
)

func TestPolicyCheckPrintsEachErrorOnItsOwnLine(t *testing.T) {
	bad := write(
		t,
		"bad.lua",
		"return {\n rules = {\n  { name = 'a', key = 'ip', rate = '0r/s' },\n  { name = 'a', key = 'ip', rate = '1r/s', "+
			"brust = 2 },\n },\n}",
	)
	code, out, errOut := call(t, "policy check "+bad)
	want := bad + `:3: rate "0r/s" must be more than zero: "1r/h" admits almost nothing` + "\n" +
		bad + `:4: a rule has no field "brust": did you mean "burst"?` + "\n" + bad + `:4: rule 2 is named "a" like rule 1: names must differ` + "\n"
	if code != exitUsage || out != "" || errOut != want {
		t.Errorf("exit %d, printed %q and %q, want\n%s", code, out, errOut, want)
	}
}

// The name of a file may come from another user, and its characters must not change the terminal.
func TestPolicyCheckEscapesTheNameOfTheFile(t *testing.T) {
	dir := t.TempDir()
	const odd = "return { rules = { { name = 'a', key = 'ip', rate = '1r/s', delay = true } } }"
	for text, want := range map[string]string{"": ":1: a policy returns a table", odd: ":1: warning: "} {
		file := filepath.Join(dir, "\x1b[31m\nred.lua")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, errOut := sluice(t, nil, "policy", "check", file)
		if want = dir + `/\u001b[31m; red.lua` + want; !strings.HasPrefix(errOut, want) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("printed %q, want %q", errOut, want)
		}
	}
}

// The check reports a file that cannot be read as the edges do.
func TestPolicyCheckReportsADirectory(t *testing.T) {
	dir := t.TempDir()
	code, _, errOut := call(t, "policy check "+dir)
	if _, err := policy.Read(dir); code != exitUsage || errOut != err.Error()+"\n" {
		t.Errorf("exit %d, printed %q; the edges report %q", code, errOut, err)
	}
}

// Only a clone has the default policy. Elsewhere the remedy is to name another one.
func TestPolicyDefaultsToAFileOfAClone(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("a.log", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "sluice: lua/policy.lua does not exist in this directory: name a policy, or set SLUICE_POLICY\n"
	for _, line := range []string{"policy check", "policy replay a.log"} {
		if code, out, errOut := call(t, line); code != exitUsage || out != "" || errOut != want {
			t.Errorf("%s: exit %d, printed %q and %q, want %q", line, code, out, errOut, want)
		}
	}
}

func TestPolicyCheckFailsOnWarningsOnlyIfStrict(t *testing.T) {
	odd := write(t, "odd.lua", `return { rules = { { name = "slow", key = "ip", rate = "1r/s", delay = true } } }`)
	code, out, errOut := call(t, "policy check "+odd)
	if code != exitOK || out != odd+" is valid: 1 rule, 1 warning\n" ||
		!strings.HasPrefix(errOut, odd+`:1: warning: rule "slow" has delay = true without a burst`) {
		t.Errorf("exit %d, printed %q and %q", code, out, errOut)
	}
	if code, out, _ := call(t, "policy check --strict "+odd); code != exitUsage || out != "" {
		t.Errorf("strict: exit %d, printed %q", code, out)
	}
	if code, _, errOut := call(t, "policy check ../../lua/policy.lua --strict"); code != exitOK || errOut != "" {
		t.Errorf("the shipped policy: exit %d, %s", code, errOut)
	}
	for _, args := range [][]string{
		{"--zone", "0"}, {"--zone", "64x"}, {"--zone", ""}, {"--keys", "-1"}, {"--keys", "x"}, {"no.lua"}, {"a", "b"},
	} {
		code, _, errOut := sluice(t, nil, append([]string{"policy", "check"}, args...)...)
		if code != exitUsage || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%v: exit %d, %q", args, code, errOut)
		}
	}
}

// The check and nginx use the same size of the zone.
func TestPolicyCheckKnowsTheZone(t *testing.T) {
	conf, err := os.ReadFile("../../nginx/conf.d/20-lua.conf")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(conf), "\nlua_shared_dict sluice_buckets "+defaultZone+";") {
		t.Errorf("the size of sluice_buckets is not %s", defaultZone)
	}
	if code, _, errOut := call(t, "policy check ../../lua/policy.lua --keys 1000000 --zone 64m"); code != exitOK ||
		!strings.Contains(errOut, "the zone of the nginx edge has 64 MB and needs 88") {
		t.Errorf("exit %d, %s", code, errOut)
	}
}

// A file may have more of everything than a policy can have. A block list is no reason to convert nothing.
func TestPolicyImportWritesAValidPolicyOrNone(t *testing.T) {
	const one = "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s; limit_req zone=a;\n"
	var denied, trusted, limited strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&denied, "deny 192.0.2.%d; # %d\n", i%256, i)
		fmt.Fprintf(&trusted, "set_real_ip_from 10.1.%d.%d;\n", i/256, i%256)
		fmt.Fprintf(&limited, "location /%d { limit_req zone=a; }\n", i)
	}
	for _, c := range []struct{ text, problem string }{
		{one + denied.String(), ""},
		{one + trusted.String(), "makes no valid policy: split the file: "},
		{one + limited.String(), "has 2001 limits; a policy has at most 64 rules: split the file"},
	} {
		file := write(t, "nginx.conf", c.text)
		code, out, errOut := call(t, "policy import "+file)
		if c.problem != "" {
			want := "sluice: " + file + " " + c.problem
			if code != exitUsage || out != "" || !strings.HasPrefix(errOut, want) || strings.Count(errOut, "\n") != 1 {
				t.Errorf("exit %d, %q, want %q", code, errOut, want)
			}
			continue
		}
		if _, err := policy.Parse("new.lua", []byte(out)); err != nil || code != exitOK ||
			!strings.Contains(out, "more, which sluice policy import prints\n") ||
			strings.Count(errOut, "a policy blocks no clients") != 2000 {
			t.Errorf("exit %d, %v, %d bytes", code, err, len(out))
		}
	}
}

func TestPolicyReplayPrintsAReport(t *testing.T) {
	var log strings.Builder
	for i := range 10 {
		fmt.Fprintf(
			&log,
			`{"time":1795255200.%03d,"client":"192.0.2.%d","method":"GET","path":"/","status":200,"verdict":"allow","seconds":0,"upstream":"b"}`+"\n",
			i,
			i%2,
		)
	}
	file := write(t, "access.log", log.String())
	strict, loose := write(t, "new.lua",
		`return { rules = { { name = "ip", key = "ip", rate = "1r/h", burst = 1 } } }`), write(
		t,
		"old.lua",
		`return { rules = {} }`,
	)
	code, out, errOut := call(t, "policy replay "+file+" --policy "+strict+" --against "+loose)
	if code != exitOK || errOut != "" || !strings.Contains(out, strict+" rejects 6 of 10 requests (60%)") ||
		!strings.Contains(out, "ip 192.0.2.0 ") {
		t.Errorf("exit %d, %s, printed\n%s", code, errOut, out)
	}
	if strings.Contains(out, "\x1b") {
		t.Error("a report that goes to no terminal has colours")
	}
	code, out, _ = call(t, "policy replay "+file+" --policy "+strict+" --against "+loose+" --json")
	var report struct {
		Policy     struct{ Refused int }
		Against    struct{ Refused int }
		Difference struct {
			OnlyNew int `json:"only_new"`
		}
	}
	if err := json.Unmarshal([]byte(out),
		&report); err != nil || code != exitOK || report.Policy.Refused != 6 || report.Against.Refused != 0 ||
		report.Difference.OnlyNew != 6 {
		t.Errorf("exit %d, %v, %+v", code, err, report)
	}
}

// Programs that read the JSON need no case for a list that is missing.
func TestPolicyReplayPrintsEmptyListsAsJSON(t *testing.T) {
	log := write(t, "access.log", `192.0.2.1 - - [21/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5`+"\n")
	none := write(t, "p.lua", "return { rules = {} }")
	code, out, errOut := call(t, "policy replay "+log+" --policy "+none+" --against "+none+" --json")
	if code != exitOK || errOut != "" || strings.Contains(out, "null") {
		t.Errorf("exit %d, %s, printed\n%s", code, errOut, out)
	}
}

func TestPolicyReplayRejectsInvalidInput(t *testing.T) {
	policy, log := write(t, "p.lua", "return { rules = {} }"), write(t, "access.log", "nonsense\n")
	for _, args := range [][]string{
		{}, {"nowhere.log"}, {t.TempDir()}, {log}, {log, "--policy", "nowhere.lua"}, {log, "--against", log},
		{log, "--window", "0s"}, {log, "--top", "0"}, {log, "--buckets", "-1"},
	} {
		if !strings.Contains(strings.Join(args, " "), "--policy") {
			args = append(args, "--policy", policy)
		}
		code, out, errOut := call(t, "policy replay "+strings.Join(args, " "))
		if code != exitUsage || out != "" || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%v: exit %d, %q, %q", args, code, out, errOut)
		}
	}
}

// Two readers of standard input would each get a part of its lines.
func TestStandardInputIsReplayedOnce(t *testing.T) {
	wantUsage(t, "- is standard input and can be read once: name it once", "policy", "replay", "-", "a.log", "-",
		"--policy", "../../lua/policy.lua")
}

// Opening or reading a pipe may block without end. An interrupt ends the command.
func TestReadingAPipeCanBeInterrupted(t *testing.T) {
	silent := filepath.Join(t.TempDir(), "silent")
	if err := syscall.Mkfifo(silent, 0o600); err != nil {
		t.Fatal(err)
	}
	idle := filepath.Join(t.TempDir(), "idle")
	if err := syscall.Mkfifo(idle, 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(idle, os.O_RDWR, 0) // opens without a reader
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	for _, args := range [][]string{
		{"policy", "check", silent}, {"policy", "check", idle}, {"keys", "public", silent},
		{
			"policy", "replay", silent, "--policy", "../../lua/policy.lua",
		}, {"policy", "replay", idle, "--policy", "../../lua/policy.lua"},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		var errOut bytes.Buffer
		done := make(chan int, 1)
		go func() { done <- run(ctx, args, func(string) string { return "" }, io.Discard, &errOut) }()
		interrupt()
		select {
		case code := <-done:
			if code != exitFail || errOut.String() != "sluice: interrupted\n" {
				t.Errorf("%v: exit %d, %q", args, code, errOut.String())
			}
		case <-time.After(time.Minute):
			t.Fatalf("%v waits on", args)
		}
	}
}

// What the gateway logs, replay reads.
func TestGatewayAccessLogIsReadByReplay(t *testing.T) {
	backend := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
	)
	defer backend.Close()
	policy, log := write(t, "p.lua", `return { rules = { { name = "ip", key = "ip", rate = "1r/h" } } }`), filepath.Join(
		t.TempDir(),
		"access.log",
	)
	address := testenv.FreeAddress(t)
	getenv := func(name string) string {
		return map[string]string{"SLUICE_TOKEN_SECRET": strings.Repeat("s", 32)}[name]
	}
	args := []string{"gateway", "--listen", address, "--upstream", backend.URL, "--policy", policy, "--access-log"}
	var errOut bytes.Buffer
	if code := run(t.Context(), append(args, t.TempDir()), getenv, io.Discard, &errOut); code != exitUsage ||
		!strings.HasPrefix(errOut.String(), "sluice: --access-log: ") {
		t.Errorf("a directory as the log: exit %d, %s", code, errOut.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() { done <- run(ctx, append(args, log), getenv, io.Discard, io.Discard) }()
	testenv.Eventually(t, time.Minute, "the gateway answers", func() bool {
		response, err := http.Get("http://" + address + "/healthz")
		if err == nil {
			response.Body.Close()
		}
		return err == nil
	})
	for i := range 3 {
		response, err := http.Get("http://" + address + "/")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if i == 0 {
			rotate(t, log)
		}
	}
	cancel()
	if code := <-done; code != exitOK {
		t.Errorf("the gateway ended with %d", code)
	}
	code, out, errText := call(t, "policy replay "+log+".1 "+log+" --policy "+policy)
	if code != exitOK || !strings.Contains(out, "3 lines, 3 requests") ||
		!strings.Contains(out, "in the log: 2 rejected") ||
		!strings.Contains(out, policy+" rejects 2 of 3 requests") {
		t.Errorf("exit %d, %s, printed\n%s", code, errText, out)
	}
}

// rotate renames the log of the gateway in this process when it has a line, and makes it reopen the log.
func rotate(t *testing.T, log string) {
	t.Helper()
	testenv.Eventually(t, time.Minute, "a request is logged", func() bool {
		text, err := os.ReadFile(log)
		return err == nil && len(text) > 0
	})
	if err := os.Rename(log, log+".1"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "the log is reopened", func() bool {
		_, err := os.Stat(log)
		return err == nil
	})
}
