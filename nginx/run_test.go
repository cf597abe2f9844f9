package nginx

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"sluice/test/testenv"
)

func TestCheckRejectsWhatCannotRun(t *testing.T) {
	requireBinary(t)
	good := Config{Listen: "127.0.0.1:8080", Root: "..", Shared: settings("127.0.0.1:8081")}
	policy := filepath.Join(t.TempDir(), "policy.lua")
	if err := os.WriteFile(policy,
		[]byte("return {\n  rules = {\n    { name = 'ip', key = 'ip', rate = '20' },\n  },\n}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	broken := workingCopy(t)
	rewrite(t, broken+"/nginx/conf.d/50-upstream.conf", "proxy_http_version 1.1;",
		"proxy_http_version 1.1;\nproxy_htp_version 1.1;")
	misspelled := workingCopy(t)
	rewrite(t, misspelled+"/lua/edge/sluice/quota.lua", "--", "this is not Lua")
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"good", func(*Config) {}, ""},
		{"embedded files", func(c *Config) { c.Root = "" }, ""},
		{
			"all addresses",
			func(c *Config) { c.Listen, c.Upstreams = ":8080", []string{"http://localhost:8081/", "[::1]:8082"} }, "",
		},
		{
			"a bad rate", func(c *Config) { c.Policy = policy },
			"edge: " + policy + `:3: rate "20" is not a rate: write "20r/s" for 20 requests a second, or r/m, r/h`,
		},
		{
			"no policy file", func(c *Config) { c.Policy = policy + "x" },
			"edge: " + policy + "x: cannot be read: No such file or directory",
		},
		{
			"a short secret", func(c *Config) { c.Secret = "short" },
			"edge: the token secret must have at least 32 bytes, and has 5",
		},
		{"no port", func(c *Config) { c.Listen = "127.0.0.1" }, `edge: --listen "127.0.0.1": write host:port`},
		{
			"port 0", func(c *Config) { c.Listen = "127.0.0.1:0" },
			`edge: --listen "127.0.0.1:0": the port must be a number from 1 to 65535`,
		},
		{
			"no backend", func(c *Config) { c.Upstreams = nil },
			"edge: --upstream is missing: want http://host:port or unix:/path, once for each backend",
		},
		{
			"https", func(c *Config) { c.Upstreams = []string{"https://x:1"} },
			`edge: --upstream "https://x:1": backends are reached by http, and not by https`,
		},
		{
			"a directive as a backend", func(c *Config) { c.Upstreams = []string{"x;server y:1"} },
			`edge: --upstream "x;server y:1": not a host name or address`,
		},
		{
			"a path as a backend", func(c *Config) { c.Upstreams = []string{"http://x:1/api"} },
			`edge: --upstream "http://x:1/api": write http://host:port and nothing more`,
		},
		{
			"a directive as a socket", func(c *Config) { c.Upstreams = []string{"unix:/x;server y:1"} },
			`edge: --upstream "unix:/x;server y:1": want unix:/path, an absolute path of letters, digits and / . _ -, ` +
				"without .. and //",
		},
		{
			"two mistakes", func(c *Config) { c.Listen, c.Workers = "x", -1 },
			"edge: --listen \"x\": write host:port\n--workers must be between 0 and 1024, and is -1",
		},
		{
			"an unknown directive", func(c *Config) { c.Root = broken },
			`edge: unknown directive "proxy_htp_version" in ` + broken + "/nginx/conf.d/50-upstream.conf:",
		},
		{
			"a module with a syntax error", func(c *Config) { c.Root = misspelled },
			"edge: error loading module 'sluice.quota' from file '" + misspelled + "/lua/edge/sluice/quota.lua': " +
				misspelled + "/lua/edge/sluice/quota.lua:1: '=' expected near 'is'",
		},
		{"a root without files", func(c *Config) { c.Root = t.TempDir() }, "edge: "},
		{"a binary that is not nginx", func(c *Config) { c.Binary = "/bin/false" }, "edge: /bin/false -V: exit status 1"},
		{
			"a program that accepts everything", func(c *Config) { c.Binary = "/bin/true" },
			"edge: /bin/true is not nginx: -V prints no version and no configure arguments",
		},
		{"a directory that is not of an edge", func(c *Config) { c.Prefix = ".."; c.Listen = "x" }, "edge: --listen"},
	} {
		cfg := good
		c.change(&cfg)
		err := cfg.Check(t.Context())
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (!errors.Is(err, ErrConfig) || !strings.HasPrefix(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

func TestRunRejectsABadPolicyAndADirectoryInUse(t *testing.T) {
	requireBinary(t)
	cfg := Config{
		Shared: settings("127.0.0.1:1"),
		Listen: testenv.FreeAddress(t),
		Root:   "..",
	}
	bad := cfg
	bad.Policy = "../gateway/policy/testdata/bad/rate_zero.lua"
	if err := bad.Run(t.Context()); !errors.Is(err, ErrConfig) ||
		!strings.HasSuffix(err.Error(),
			`rate_zero.lua:3: rate "0r/s" must be more than zero: "1r/h" admits almost nothing`) {
		t.Errorf("a bad policy: %v", err)
	}
	taken := cfg
	taken.Prefix = t.TempDir()
	precious := filepath.Join(taken.Prefix, "nginx")
	if err := os.WriteFile(precious, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := taken.Run(t.Context()); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("a directory with files: %v", err)
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "mine" {
		t.Errorf("the file there: %q, %v", text, err)
	}
}

func TestABadPolicyOnReloadChangesNothing(t *testing.T) {
	e := startEdge(t, `return { rules = { { name = "ip", key = "ip", rate = "1r/h", burst = 1 } } }`, nil)
	e.do("GET", "/")
	e.writePolicy("return {\n  rules = {\n    { name = 'ip', key = 'ip', rate = '1r/h', brust = 5 },\n  },\n}\n")
	err := e.cfg.Reload(t.Context())
	if want := fmt.Sprintf(`edge: %s:3: a rule has no field "brust": did you mean "burst"?`,
		e.policy); !errors.Is(err, ErrConfig) ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("reload: %v, want %s", err, want)
	}
	// A signal skips the check of Reload: nginx itself rejects the policy.
	_, master, err := running(e.cfg.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	if err := master.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "nginx reports the error of the policy",
		func() bool { return strings.Contains(e.log.String(), `policy.lua:3: a rule has no field "brust"`) })
	if log := e.log.String(); strings.Contains(log, "stack traceback") {
		t.Errorf("nginx reports the error with the calls of Lua: %s", log)
	}
	if got := statuses(e.do("GET", "/"), e.do("GET", "/")); got != "200 429" {
		t.Errorf("after two failed reloads: %s, want 200 429", got)
	}
}

// Reload rejects any invalid file at the path of the policy with one line and without delay, and the edge keeps its
// policy.
func TestReloadRejectsAnyInvalidFileAsPolicy(t *testing.T) {
	t.Parallel()
	e := startEdge(t, `return { rules = { { name = "ip", key = "ip", rate = "1r/h" } } }`, nil)
	e.do("GET", "/")
	_, master, err := running(e.cfg.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		put  func() error
		want string
	}{
		{
			"a pipe without a writer", func() error { return syscall.Mkfifo(e.policy, 0o600) },
			":1: a policy returns a table, and this returns nothing: ",
		},
		{"a directory", func() error { return os.Mkdir(e.policy, 0o700) }, ": cannot be read: Is a directory"},
		{"nothing", func() error { return os.Symlink("nowhere", e.policy) }, ": cannot be read: No such file or directory"},
		{
			"a link to itself", func() error { return os.Symlink(e.policy, e.policy) },
			": cannot be read: Too many levels of symbolic links",
		},
		{"an endless file", func() error { return os.Symlink("/dev/zero", e.policy) }, ": larger than 65536 bytes: "},
		{
			"an empty file", func() error { return os.WriteFile(e.policy, nil, 0o600) },
			":1: a policy returns a table, and this returns nothing: ",
		},
		{
			"the first half of a policy",
			func() error { return os.WriteFile(e.policy, []byte("return { rules = { { name"), 0o600) }, ":1: ",
		},
		{
			"compiled Lua", func() error { return os.WriteFile(e.policy, []byte("\x1bLJ\x02"), 0o600) },
			":1: a control character: it may be in comments only",
		},
		{
			"a program",
			func() error { return os.WriteFile(e.policy, []byte(`os.execute("true") return { rules = {} }`), 0o600) },
			`:1: unexpected "os": `,
		},
	} {
		if err := os.Remove(e.policy); err != nil {
			t.Fatal(err)
		}
		if err := c.put(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := e.cfg.Reload(ctx)
		cancel()
		if !errors.Is(err, ErrConfig) || !strings.HasPrefix(err.Error(), "edge: "+e.policy+c.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		if err := master.Signal(syscall.SIGHUP); err != nil { // without the check
			t.Fatal(err)
		}
	}
	testenv.Eventually(t, time.Minute, "nginx itself has refused the last of them",
		func() bool { return strings.Contains(e.log.String(), `unexpected "os": `) })
	if got := e.do("GET", "/").status; got != 429 {
		t.Errorf("after all that: %d, want 429", got)
	}
	e.writeOver(`return { rules = {} }`)
	if err := e.cfg.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "a valid policy is applied",
		func() bool { return e.do("GET", "/").status == 200 })
}

// writeOver replaces any file at the path of the policy with a policy.
func (e *edge) writeOver(policy string) {
	e.t.Helper()
	if err := os.RemoveAll(e.policy); err != nil {
		e.t.Fatal(err)
	}
	e.writePolicy(policy)
}

func TestReloadTakesChangedFilesOfTheWorkingTree(t *testing.T) {
	root := workingCopy(t)
	e := startEdge(t, open, func(c *Config) { c.Root = root })
	rewrite(t, root+"/nginx/snippets/server.conf", `{"status":"ok"}`, `{"status":"changed"}`)
	if err := (Config{Prefix: e.cfg.Prefix}).Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "the change is served",
		func() bool { return e.do("GET", "/healthz").body == `{"status":"changed"}` })
	rewrite(t, root+"/nginx/snippets/server.conf", "return 200", "retrun 200")
	err := (Config{Prefix: e.cfg.Prefix}).Reload(t.Context())
	if want := fmt.Sprintf(`unknown directive "retrun" in %s/nginx/snippets/server.conf:`,
		root); !errors.Is(err, ErrConfig) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("a syntax error: %v, want %s", err, want)
	}
}

func TestRunningPolicyIsTheFileThatAReloadReads(t *testing.T) {
	root := workingCopy(t)
	for name, change := range map[string]func(*Config){
		"of the flag":        func(*Config) {},
		"of the root":        func(c *Config) { c.Root, c.Policy = root, "" },
		"the embedded files": func(c *Config) { c.Root, c.Policy = "", "" },
		"beside leases":      func(c *Config) { c.LeaseSocket = "/nonexistent/lease.sock" },
	} {
		e := startEdge(t, open, change)
		file, leases, err := Config{Prefix: e.cfg.Prefix}.RunningPolicy()
		if err != nil || leases != (e.cfg.LeaseSocket != "") {
			t.Errorf("%s: %v, leases: %v", name, err, leases)
			continue
		}
		rewrite(t, file, "return {", "return { brust = 1,")
		if err := e.cfg.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), `"brust"`) {
			t.Errorf("%s: a reload does not read %s: %v", name, file, err)
		}
		if err := e.stop(); err != nil {
			t.Error(err)
		}
		if file, _, err := (Config{Prefix: e.cfg.Prefix}).RunningPolicy(); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: without an edge: %s, %v", name, file, err)
		}
	}
}

func TestReloadWithNoEdgeRunning(t *testing.T) {
	requireBinary(t)
	e := startEdge(t, open, nil)
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{e.cfg.Prefix, t.TempDir(), ""} {
		if err := (Config{Prefix: prefix}).Reload(t.Context()); !errors.Is(err, ErrConfig) {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

// The page cache of an edge that was killed is removed by the next edge in its directory, and the next one's at its
// end.
func TestKilledEdgeLeavesNoPages(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only the page cache of root is outside of the prefix")
	}
	t.Setenv("TMPDIR", t.TempDir())
	open := func(dir string) *prefix {
		t.Helper()
		p, err := openPrefix(dir, "")
		if err == nil {
			err = p.keepPages()
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	dir := t.TempDir()
	killed, other := open(dir), open(t.TempDir())
	killed.lock.Close() // the kernel does that
	next := open(dir)
	if _, err := os.Stat(killed.pages); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pages of a killed edge: %v", err)
	}
	if _, err := os.Stat(other.pages); err != nil {
		t.Errorf("the pages of another edge: %v", err)
	}
	next.close()
	if _, err := os.Stat(next.pages); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
	precious := t.TempDir()
	if err := os.Symlink(precious, filepath.Join(dir, pagesLink)); err != nil {
		t.Fatal(err)
	}
	open(dir).close()
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("a link to another directory removes it: %v", err)
	}
}

func TestOneEdgeAtATimeInADirectory(t *testing.T) {
	e := startEdge(t, open, nil)
	second := e.cfg
	second.Listen = testenv.FreeAddress(t)
	if err := second.Run(t.Context()); !errors.Is(err, ErrConfig) ||
		!strings.Contains(err.Error(), "another edge runs in "+e.cfg.Prefix+": stop it, or use another --prefix") {
		t.Errorf("the second edge: %v", err)
	}
	if got := e.do("GET", "/healthz").status; got != 200 {
		t.Errorf("the first edge: %d", got)
	}
}

// Stop lets a request in progress finish, and accepts no new ones.
func TestStopFinishesRequestsInProgress(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	backend := startBackend(t, func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-release
		w.WriteHeader(http.StatusAccepted)
	})
	e := startEdge(t, open, func(c *Config) { c.Grace = time.Minute }, backend.addr)
	status := make(chan int, 1)
	go func() { status <- e.do("POST", "/v1/sales/1/orders").status }()
	<-arrived
	stopped := make(chan error, 1)
	go func() { stopped <- e.stop() }()
	testenv.Eventually(t, time.Minute, "the edge takes no new requests", func() bool {
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(e.url("/healthz"))
		if err == nil {
			response.Body.Close()
		}
		return err != nil
	})
	close(release)
	if got := <-status; got != 202 {
		t.Errorf("the request in progress got %d, want 202", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestStopEndsAfterGrace(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	backend := startBackend(t, func(http.ResponseWriter, *http.Request) { close(arrived); <-release })
	e := startEdge(t, open, func(c *Config) { c.Grace = 200 * time.Millisecond }, backend.addr)
	go func() {
		if response, err := http.Get(e.url("/")); err == nil {
			response.Body.Close()
		}
	}()
	<-arrived
	start := time.Now()
	if err := e.stop(); err != nil {
		t.Error(err)
	}
	// without its Grace it waits for the backend, which answers when the test ends
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}

// When the master is killed, Run returns an error, and its workers end: they would keep the port.
func TestWorkersEndWithTheirMaster(t *testing.T) {
	c := Config{Shared: settings("127.0.0.1:1"), Listen: testenv.FreeAddress(t), Workers: 2, Log: &testenv.Buffer{}}
	c.Prefix = filepath.Join(t.TempDir(), "edge")
	listening, ended := make(chan struct{}), make(chan error, 1)
	c.Listening = func() { close(listening) }
	go func() { ended <- c.Run(t.Context()) }()
	select {
	case <-listening:
	case err := <-ended:
		t.Fatal(err)
	}
	_, master, err := running(c.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	workerOf(t, master.Pid)
	if err := master.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "nginx exited: signal: killed") {
		t.Errorf("the edge ended with %v", err)
	}
	testenv.Eventually(t, time.Minute, "the port is free", func() bool { return !isInUse(t.Context(), c.Listen) })
}

func TestTheEmbeddedFilesRunAnywhere(t *testing.T) {
	e := startEdge(t, open, func(c *Config) { c.Root, c.Policy = "", "" })
	if got := e.do("GET", "/"); got.status != 200 || got.header.Get("RateLimit-Policy") != `"ip";q=41;w=3` {
		t.Errorf("status %d, %v: want the shipped policy in effect", got.status, got.header)
	}
	if got := e.send("POST", "/v1/sales/1/orders", "{}").status; got != 401 {
		t.Errorf("an order with no token: %d", got)
	}
}

func TestRunReportsAddressesInUse(t *testing.T) {
	t.Parallel()
	e := startEdge(t, open, nil)
	second := e.cfg
	second.Prefix, second.Log = "", &testenv.Buffer{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	want := ": the address is in use: stop the process that listens there, or choose another address"
	_, port, _ := net.SplitHostPort(e.cfg.Listen)
	for listen, shown := range map[string]string{e.cfg.Listen: e.cfg.Listen, ":" + port: "*:" + port} {
		second.Listen = listen
		if err := second.Run(ctx); !errors.Is(err, ErrConfig) || err.Error() != "edge: --listen "+shown+want {
			t.Errorf("%s: %v", listen, err)
		}
	}
	second.Listen, second.Status = testenv.FreeAddress(t), e.cfg.Listen
	if err := second.Run(ctx); !errors.Is(err, ErrConfig) || err.Error() != "edge: --metrics "+e.cfg.Listen+want {
		t.Errorf("an address of metrics: %v", err)
	}
	if log := second.Log.(*testenv.Buffer).String(); log != "" {
		t.Errorf("nginx was started: %s", log)
	}
}

// An address that is in use for a moment, as that of an edge that was killed, is awaited.
func TestAddressIsAwaited(t *testing.T) {
	before := testenv.Listen(t)
	cfg := Config{Listen: before.Addr().String()}
	synctest.Test(t, func(t *testing.T) {
		if err := cfg.awaitAddresses(t.Context()); !errors.Is(err, ErrConfig) {
			t.Errorf("the address stays in use: %v", err)
		}
		time.AfterFunc(2*time.Second, func() { _ = before.Close() })
		if err := cfg.awaitAddresses(t.Context()); err != nil {
			t.Errorf("the address is in use for two seconds: %v", err)
		}
	})
}

func TestRunReportsAnNginxThatCannotListen(t *testing.T) {
	t.Parallel()
	requireBinary(t)
	log := &testenv.Buffer{}
	cfg := Config{Shared: settings("127.0.0.1:1"), Listen: "192.0.2.1:8080", Root: "..", Log: log}
	cfg.Listening = func() { t.Error("an nginx that cannot listen is reported as listening") }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := cfg.Run(ctx)
	if text := fmt.Sprint(err) + log.String(); err == nil || !strings.Contains(text, "Cannot assign requested address") {
		t.Errorf("on an address of another machine: %v, and the log of nginx: %s", err, log)
	}
}

// Listening is called once nginx accepts connections, also in a directory with the pid file of an edge that was killed.
func TestRunReportsThatNginxListens(t *testing.T) {
	t.Parallel()
	requireBinary(t)
	prefix, log := t.TempDir(), &testenv.Buffer{}
	for name, text := range map[string]string{marker: "", pidFile: fmt.Sprintln(os.Getpid())} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(prefix, name)), 0o755),
			os.WriteFile(filepath.Join(prefix, name), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	cfg := Config{
		Shared: settings("127.0.0.1:1"), Listen: testenv.FreeAddress(t),
		Root: "..", Prefix: prefix, Log: log, Grace: 2 * time.Second,
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	listening := 0
	cfg.Listening = func() {
		listening++
		response, err := http.Get("http://" + cfg.Listen + "/healthz")
		if err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("%v, %v", response, err)
		} else {
			response.Body.Close()
		}
		time.AfterFunc(3*pidPoll, stop)
	}
	if err := cfg.Run(ctx); err != nil || listening != 1 {
		t.Errorf("%v, %d calls of Listening: %s", err, listening, log)
	}
}
