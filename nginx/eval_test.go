package nginx

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/test/testenv"
)

// luaServer is a real nginx that runs pieces of Lua with the edge's modules.
type luaServer struct {
	address string
	master  int // process
}

// worker is the process id of one of its workers.
func (s *luaServer) worker(t testing.TB) int {
	t.Helper()
	return workerOf(t, s.master)
}

// variant is a way to run the edge: with its accelerators, or with the directory of accelerators removed.
type variant struct {
	name  string
	plain bool

	mu     sync.Mutex
	server *luaServer // shared by all tests: scripts leave only buckets behind, with different names
	stop   func()
}

var accelerated, plain = variant{name: "accelerated"}, variant{name: "plain", plain: true}

// variants runs a test with both variants.
func variants(t *testing.T, test func(*testing.T, *variant)) {
	t.Helper()
	for _, f := range []*variant{&accelerated, &plain} {
		t.Run(f.name, func(t *testing.T) { test(t, f) })
	}
}

func TestMain(m *testing.M) {
	code := testenv.Main(m)
	for _, f := range []*variant{&accelerated, &plain} {
		if f.stop != nil {
			f.stop()
		}
	}
	os.Exit(code)
}

// requireLua is the shared server with accelerators.
func requireLua(t testing.TB) *luaServer { return accelerated.lua(t) }

// lua returns the shared server of the variant.
func (f *variant) lua(t testing.TB) *luaServer {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.server == nil {
		f.server, f.stop = f.startLua(t, "1m")
	}
	return f.server
}

// trim removes the accelerators from a copy of lua/ below dir, in the plain variant.
func (f *variant) trim(t testing.TB, dir string) {
	t.Helper()
	if f.plain {
		if err := os.RemoveAll(dir + "/lua/edge/sluice/accel"); err != nil {
			t.Fatal(err)
		}
	}
}

// startLua starts a server of its own with a zone of this size for buckets, for tests that leave something behind.
func (f *variant) startLua(t testing.TB, zone string) (*luaServer, func()) {
	return f.startLuaWith(t, "eval.conf", "sluice_buckets 1m", "sluice_buckets "+zone)
}

func startLua(t testing.TB, zone string) (*luaServer, func()) { return accelerated.startLua(t, zone) }

func startLuaWith(t testing.TB, name, old, replacement string) (*luaServer, func()) {
	return accelerated.startLuaWith(t, name, old, replacement)
}

// startLuaWith starts a server from a file of testdata, in which one text is replaced by another.
func (f *variant) startLuaWith(t testing.TB, name, old, replacement string) (*luaServer, func()) {
	t.Helper()
	bin := requireBinary(t)
	dir, err := os.MkdirTemp("", "sluice-lua-")
	if err != nil {
		t.Fatal(err)
	}
	port := testenv.FreePort(t)
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	conf, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.MkdirAll(dir+"/nginx/runtime", 0o755), os.Mkdir(dir+"/logs", 0o755), os.Mkdir(dir+"/tmp", 0o755), os.CopyFS(dir+"/lua", os.DirFS(root+"/lua")), os.Symlink(
			root+"/nginx/testdata", dir+"/testdata",
		),
		os.WriteFile(dir+"/nginx/"+name, []byte(strings.Replace(string(conf), old, replacement, 1)), 0o644),
		os.WriteFile(dir+"/nginx/runtime/listen.conf", fmt.Appendf(nil, "listen 127.0.0.1:%d;", port), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	f.trim(t, dir)
	log := &testenv.Buffer{}
	cmd := exec.Command(bin.path, bin.args(dir, name, "daemon off")...)
	cmd.Env, cmd.Stderr, cmd.WaitDelay = environment(secret), log, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	ended := make(chan error, 1)
	if err := startBound(cmd, ended); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		os.RemoveAll(dir)
	})
	s := &luaServer{address: fmt.Sprintf("127.0.0.1:%d", port), master: cmd.Process.Pid}
	testenv.Eventually(t, time.Minute, "nginx runs Lua", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("nginx did not start: %v\n%s", err, log)
		default:
		}
		out, err := s.try("return 'up'")
		return err == nil && out == "up"
	})
	return s, stop
}

func (s *luaServer) try(code string) (string, error) { return s.post("/", code) }

// everywhere runs code in both workers at the same time and returns what it returned in each. ngx.worker.id() is 0 and
// 1 there.
func (s *luaServer) everywhere(t *testing.T, code string) (results [2]string) {
	t.Helper()
	out, err := s.post("/everywhere", code)
	if err != nil {
		t.Fatalf("Lua failed: %v\nin:\n%s", err, code)
	}
	copy(results[:], strings.Split(out, "\n"))
	return results
}

func (s *luaServer) post(path, code string) (string, error) {
	// A connection for each, so that any worker may take it.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Post("http://"+s.address+path, "text/plain", strings.NewReader(code))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	out, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != 200 {
		err = fmt.Errorf("%s", out)
	}
	return string(out), err
}

// run returns what the piece of Lua returns, as text.
func (s *luaServer) run(t *testing.T, code string) string {
	t.Helper()
	out, err := s.try(code)
	if err != nil {
		t.Fatalf("Lua failed: %v\nin:\n%s", err, code)
	}
	return out
}

// luaString returns s as a Lua string literal, for any bytes.
func luaString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		fmt.Fprintf(&b, "\\%03d", s[i])
	}
	b.WriteByte('"')
	return b.String()
}
