package gateway

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/internal/reload"
	"sluice/test/testenv"
)

// write replaces the policy file, with a modification time that differs from the previous one.
func write(t *testing.T, path, source string, age time.Duration) {
	t.Helper()
	if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	when := time.Now().Add(-age)
	if err := os.Chtimes(path, when, when); err != nil {
		t.Fatal(err)
	}
}

func TestReloadKeepsBucketsOfUnchangedRules(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.lua")
	write(t, path, `return { rules = {
		{ name = "kept", key = "ip", rate = "1r/h", burst = 1, match = { path = "/kept" } },
		{ name = "changed", key = "ip", rate = "1r/h", burst = 1, match = { path = "/changed" } },
		{ name = "wider", key = "ip", rate = "1r/h", burst = 1, match = { path = "/wider" } },
		{ name = "gone", key = "ip", rate = "1r/h", burst = 1, match = { path = "/gone" } },
		{ name = "network", key = "ip", rate = "1r/h", burst = 1, match = { path = "/network" } },
	} }`, time.Hour)
	b := newBackend(t, nil)
	e := serve(t, "", []string{b.address()}, func(c *Config) { c.PolicyPath = path })
	for _, target := range []string{"/kept", "/changed", "/wider", "/gone", "/network"} {
		mustHave(t, e.send(t, "GET", target, ""), 200)
	}
	write(t, path, `return { rules = {
		{ name = "new", key = "ip", rate = "1r/h", match = { path = "/new" } },
		{ name = "changed", key = "ip", rate = "2r/h", burst = 1, match = { path = "/changed" } },
		{ name = "kept", key = "ip", rate = "1r/h", burst = 1, match = { path = "/kept" } },
		{
			name = "wider", key = "ip", rate = "1r/h", burst = 2, delay = false, on_error = "allow",
			match = { path = "/wider" },
		},
		{ name = "network", key = "ip", rate = "1r/h", burst = 1, match = { path = "/network" }, ipv6_prefix = 48 },
	} }`, time.Minute)
	testenv.Eventually(t, time.Minute, "the policy is reloaded", func() bool {
		return e.count(t, "sluice_edge_policy_reloads_total", "result", "ok") == 1
	})
	testenv.Eventually(t, time.Minute, "the buckets of the other rules are removed",
		func() bool { return e.count(t, "sluice_edge_buckets") == 2 })
	mustHave(t, e.send(t, "GET", "/kept", ""), 200, "RateLimit", `"kept";r=0;t=3600`)
	mustHave(t, e.send(t, "GET", "/wider", ""), 200, "RateLimit", `"wider";r=1;t=3600`)
	mustHave(t, e.send(t, "GET", "/changed", ""), 200, "RateLimit", `"changed";r=1;t=1800`)
	mustHave(t, e.send(t, "GET", "/network", ""), 200, "RateLimit", `"network";r=1;t=3600`)
	mustHave(t, e.send(t, "GET", "/gone", ""), 200, "RateLimit", "")
	mustHave(t, e.send(t, "GET", "/new", ""), 200)
	mustHave(t, e.send(t, "GET", "/new", ""), 429)
}

func TestInvalidPolicyIsLoggedOnceAndIgnored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.lua")
	write(t, path, `return { rules = { { name = "ip", key = "ip", rate = "1r/h" } } }`, time.Hour)
	g, log := reloading(t, path)
	before := g.policy.Load()
	write(
		t,
		path,
		"return { rules = {\n{ name = \"ip\", key = \"ip\", rate = \"0r/h\" },\n{ name = \"ip\", key = \"ip\", rate = "+
			"\"1r/h\" } } }",
		time.Minute,
	)
	for range 3 {
		g.runOnce()
	}
	if g.policy.Load() != before {
		t.Error("an invalid policy was applied")
	}
	logged := log.String()
	if n := strings.Count(logged, "keeping the previous one"); n != 1 {
		t.Errorf("logged %d times, want once: %s", n, logged)
	}
	mustContain(t, "the log", logged, path+`:2: rate \"0r/h\" must be more than zero`)
	mustContain(t, "the log", logged, `; `+path+`:3: rule 2 is named`)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	g.runOnce()
	g.runOnce()
	if g.policy.Load() != before || strings.Count(log.String(), "keeping the previous one") != 2 {
		t.Errorf("after the file was removed: %s", log.String())
	}
	write(t, path, `return { rules = {} }`, time.Second)
	g.runOnce()
	if g.policy.Load() == before {
		t.Error("a valid policy after an invalid one was not applied")
	}
}

// A file may change without a new modification time or size, for example when a link is replaced.
func TestReloadDetectsChangesOfContentOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.lua")
	sources := [2]string{
		`return { rules = { { name = "ip", key = "ip", rate = "1r/h" } } }`,
		`return { rules = { { name = "ip", key = "ip", rate = "2r/h" } } }`,
	}
	for i, name := range []string{"a", "b"} {
		write(t, filepath.Join(dir, name), sources[i], time.Hour)
		when := time.Unix(1_700_000_000, 0)
		if err := os.Chtimes(filepath.Join(dir, name), when, when); err != nil {
			t.Fatal(err)
		}
	}
	link := func(name string) {
		if err := os.Symlink(name, path+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	link("a")
	g, log := reloading(t, path)
	link("b")
	g.runOnce()
	if rate := g.policy.Load().all()[0].Rate.Requests; rate != 2 {
		t.Errorf("the rate is %v, want that of the new file: %s", rate, log.String())
	}
}

// With anything but a valid policy in its place, the gateway keeps the previous policy, logs once, and does not block.
func TestReloadDoesNotBlockOnOtherFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.lua")
	write(t, path, `return { rules = { { name = "ip", key = "ip", rate = "1r/h" } } }`, time.Hour)
	g, log := reloading(t, path)
	policy := g.policy.Load()
	for _, c := range []struct {
		name string
		put  func() error
	}{
		{"a pipe without writer", func() error { return syscall.Mkfifo(path, 0o600) }},
		{"a directory", func() error { return os.Mkdir(path, 0o700) }},
		{"a link to nowhere", func() error { return os.Symlink("nowhere", path) }},
		{"a link to itself", func() error { return os.Symlink(path, path) }},
		{"an endless file", func() error { return os.Symlink("/dev/zero", path) }},
		{"an empty file", func() error { return os.WriteFile(path, nil, 0o600) }},
		{
			"the first half of a policy",
			func() error { return os.WriteFile(path, []byte("return { rules = { { name"), 0o600) },
		},
		{"a file that is too large", func() error { return os.WriteFile(path, bytes.Repeat([]byte("-"), 1<<20), 0o600) }},
		{"compiled Lua", func() error { return os.WriteFile(path, []byte("\x1bLua"), 0o600) }},
		{"a loop", func() error { return os.WriteFile(path, []byte("while true do end"), 0o600) }},
	} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := c.put(); err != nil {
			t.Fatal(err)
		}
		before := strings.Count(log.String(), "keeping the previous one")
		done := make(chan struct{})
		go func() { g.runOnce(); g.runOnce(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("%s: the gateway blocks", c.name)
		}
		if g.policy.Load() != policy {
			t.Errorf("%s was applied", c.name)
		}
		if n := strings.Count(log.String(), "keeping the previous one") - before; n != 1 {
			t.Errorf("%s was logged %d times, want once", c.name, n)
		}
	}
}

// A pipe gives the certificate once. A gateway that reads it again would block, also when it stops.
func TestCertificateOfAPipeIsReadOnce(t *testing.T) {
	dir := t.TempDir()
	cert, key, pipe := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "pipe")
	testenv.Certificate(t, cert, key, 1)
	text, err := os.ReadFile(cert)
	if err := errors.Join(err, syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(pipe, text, 0) }()
	log := &testenv.Buffer{}
	c := Config{Shared: shared("127.0.0.1:1"), PolicySource: []byte(open), Logger: slog.New(slog.NewTextHandler(log, nil))}
	c.TLSCert, c.TLSKey = pipe, key
	g, err := New(c)
	if err := errors.Join(err, <-written); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { g.runOnce(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the gateway blocks")
	}
	if strings.Contains(log.String(), "certificate") {
		t.Error(log)
	}
}

// A device may have no end.
func TestCertificateFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	cert, key, long := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "long.pem")
	testenv.Certificate(t, cert, key, 1)
	for _, file := range []string{cert, key} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, long, string(text)+strings.Repeat("\n", reload.MaxPEM), 0)
		c := Config{Shared: shared("127.0.0.1:1"), PolicySource: []byte(open)}
		c.TLSCert, c.TLSKey = cert, long
		if file == cert {
			c.TLSCert, c.TLSKey = long, key
		}
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), long+" has more than 1048576 bytes") {
			t.Errorf("New returned %v for a long %s", err, filepath.Base(file))
		}
	}
}

func TestEmptyPolicyFileIsRejected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.lua")
	write(t, path, "", 0)
	if _, err := New(Config{Shared: shared("127.0.0.1:1"), PolicyPath: path}); err == nil ||
		!strings.Contains(err.Error(), "this returns nothing") {
		t.Errorf("New returned %v", err)
	}
}

// reloading returns a gateway that does not serve, for calls of runOnce.
func reloading(t *testing.T, path string) (*Gateway, *testenv.Buffer) {
	t.Helper()
	log := &testenv.Buffer{}
	g, err := New(
		Config{
			Shared:     shared("127.0.0.1:1"),
			PolicyPath: path,
			Logger:     slog.New(slog.NewTextHandler(log, nil)),
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	return g, log
}
