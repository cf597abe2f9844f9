package nginx

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/test/testenv"
)

const hourly = `return { rules = { { name = "ip", key = "ip", rate = "1r/h" } } }`

// occupy is a location that uses a shared dict without an end, nearly always under its lock.
const occupy = `location = /occupy {
    content_by_lua_block {
        local dict = ngx.shared[ngx.var.arg_dict]
        for i = 1, 5000 do dict:safe_set("occupied " .. i, 1) end
        while true do dict:get_keys(0) end
    }
}
location = /healthz {`

// A worker that is stopped or killed may hold the lock of a shared dict. The master reloads nevertheless, and the new
// workers get the lock when the master has noticed that the worker has ended.
func TestReloadWhileAWorkerHoldsTheLockOfADict(t *testing.T) {
	root := copied(t)
	rewrite(t, filepath.Join(root, "nginx/snippets/server.conf"), "location = /healthz {", occupy)
	for _, dict := range []string{"sluice_buckets", "sluice_leases", "sluice_sales", "sluice_counters"} {
		t.Run(dict, func(t *testing.T) {
			e := startEdge(t, hotPolicy, func(c *Config) { c.Root, c.Workers = root, 1 })
			old := workerOf(t, e.master().Pid)
			go func() {
				if resp, err := http.Get(e.url("/occupy?dict=" + dict)); err == nil {
					resp.Body.Close()
				}
			}()
			testenv.Eventually(t, time.Minute, "the worker is busy", func() bool { return ticks(t, old) >= 20 })
			signal := func(pid int, s syscall.Signal) {
				if err := syscall.Kill(pid, s); err != nil {
					t.Fatal(err)
				}
			}
			before := children(t, e)
			signal(old, syscall.SIGSTOP)
			signal(e.master().Pid, syscall.SIGHUP)
			testenv.Eventually(t, time.Minute, "the master has started new processes", func() bool {
				return slices.ContainsFunc(children(t, e), func(pid int) bool { return !slices.Contains(before, pid) })
			})
			signal(old, syscall.SIGKILL)
			testenv.Eventually(t, time.Minute, "the new worker answers", func() bool {
				resp, err := (&http.Client{Timeout: 2 * time.Second}).Get(e.url("/healthz"))
				return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
			})
		})
	}
}

// A configuration without one of the shared dicts, or with one that is too small, is rejected: by the check, by a
// reload, and by nginx.
func TestConfigurationWithoutSharedDictsIsRejected(t *testing.T) {
	root := copied(t)
	file := filepath.Join(root, "nginx/conf.d/20-lua.conf")
	e := startEdge(t, hourly, func(c *Config) { c.Root = root })
	e.do("GET", "/")
	for _, c := range []struct{ dict, old, new string }{
		{"sluice_counters", "lua_shared_dict sluice_counters 1m;", "# none"},
		{"sluice_leases", "sluice_leases 16m", "sluice_leases 12k"},
		{"sluice_sales", "sluice_sales 32m", "sluice_sales_of_old 32m"},
		{"sluice_buckets", "sluice_buckets 64m", "sluice_buckets 31k"},
	} {
		rewrite(t, file, c.old, c.new)
		want := "edge: lua_shared_dict " + c.dict + " of at least 32k is required"
		for what, do := range map[string]func(context.Context) error{"check": e.cfg.Check, "reload": e.cfg.Reload} {
			if err := do(t.Context()); !errors.Is(err, ErrConfig) || err.Error() != want {
				t.Errorf("%s: %v, want %s", what, err, want)
			}
		}
		if err := e.master().Signal(syscall.SIGHUP); err != nil { // without the check
			t.Fatal(err)
		}
		testenv.Eventually(t, time.Minute, "nginx rejects it", func() bool {
			return strings.Contains(e.log.String(), "init_by_lua error: "+strings.TrimPrefix(want, "edge: "))
		})
		rewrite(t, file, c.new, c.old)
	}
	if got := e.do("GET", "/").status; got != http.StatusTooManyRequests {
		t.Errorf("after all that: %d, want 429", got)
	}
}

// The check and a reload reject an nginx.conf without init_by_lua, such as one of an earlier version.
func TestConfigurationWithoutInitIsRejected(t *testing.T) {
	root := copied(t)
	e := startEdge(t, hourly, func(c *Config) { c.Root = root })
	const line = `init_by_lua_block { require("sluice.edge").init() }`
	rewrite(t, filepath.Join(root, "nginx/nginx.conf"), line, "# "+line)
	want := "edge: nginx.conf lacks " + line
	for what, do := range map[string]func(context.Context) error{"check": e.cfg.Check, "reload": e.cfg.Reload} {
		if err := do(t.Context()); !errors.Is(err, ErrConfig) || err.Error() != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
}

// A worker that cannot open its buckets answers every request with 500, also for the health check, and tries again.
func TestWorkerWithoutBucketsRejectsAndRecovers(t *testing.T) {
	for _, module := range []string{"accel/store.lua", "limit/store.lua"} {
		t.Run(module, func(t *testing.T) {
			if module == "limit/store.lua" {
				t.Setenv(plainVariable, "store")
			}
			root, public := copied(t), t.TempDir()
			if err := os.Chmod(filepath.Dir(public), 0o711); err != nil { // workers run as another user
				t.Fatal(err)
			}
			barrier := filepath.Join(public, "barrier")
			rewrite(t, filepath.Join(root, "lua/edge/sluice", module), "function _M.init(shared_dict)\n",
				fmt.Sprintf("function _M.init(shared_dict)\n  if io.open(%q) then error(\"no room for them\") end\n", barrier))
			e := startEdge(t, hourly, func(c *Config) { c.Root, c.Workers = root, 1 })
			first := e.allWorkers()[0]
			if got := statuses(e.do("GET", "/"), e.do("GET", "/")); got != "200 429" {
				t.Errorf("before: %s", got)
			}
			if err := os.WriteFile(barrier, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			testenv.Eventually(t, time.Minute, "there is another worker", func() bool {
				pids := e.workers()
				return len(pids) == 1 && pids[0] != first
			})
			for _, path := range []string{"/", "/healthz", "/v1/sales/1/orders"} {
				if got := e.do("POST", path); got.status != 500 || got.body != problemBody(500, "") {
					t.Errorf("%s: %d %s, want 500", path, got.status, got.body)
				}
			}
			if want := "the buckets cannot be opened: "; !strings.Contains(e.log.String(), want) ||
				!strings.Contains(e.log.String(), "no room for them") {
				t.Errorf("the log does not have %q and the reason", want)
			}
			if err := os.Remove(barrier); err != nil {
				t.Fatal(err)
			}
			testenv.Eventually(t, time.Minute, "the buckets are open", func() bool {
				return e.do("GET", "/healthz").status == 200
			})
			if got := e.do("GET", "/").status; got != http.StatusTooManyRequests {
				t.Errorf("afterwards: %d, want 429: the bucket is kept", got)
			}
		})
	}
}

// A worker that is killed while it makes the table of buckets does not reduce the memory of the next one.
func TestWorkerKilledWhileItMakesTheBuckets(t *testing.T) {
	for when, lines := range map[string][]string{
		"before the allocation":     {"  local p = C.sluice_slab_alloc(pool, size)"},
		"after it":                  {"  local address = tonumber(cast"},
		"before the end":            {"  fill("},
		"while the next one starts": {"  fill(", "    C.sluice_slab_free(span(lock.dict)", "    state.table = 0\n"},
	} {
		t.Run(when, func(t *testing.T) {
			root := copied(t)
			for i, text := range lines {
				rewrite(t, filepath.Join(root, "lua/edge/sluice/accel/zone.lua"), text, `
  if ngx.shared.sluice_counters:add("killed `+fmt.Sprint(i)+`", 1) then
    if p then
      ffi.fill(p, 65536, 127) -- a part of the table
    end
    ffi.C.sluice_kill(ngx.worker.pid(), 9)
  end
`+text)
			}
			e := startEdge(t, hourly, func(c *Config) { c.Root, c.Status = root, testenv.FreeAddress(t) })
			if got := statuses(e.do("GET", "/"), e.do("GET", "/")); got != "200 429" {
				t.Errorf("the verdicts are %s", got)
			}
			few := regexp.MustCompile(`(?s)\nsluice_edge_buckets \d{1,2}\n.*\nsluice_edge_bucket_capacity 14\d{5}\n`)
			if text := e.metrics(); !few.MatchString(text) {
				t.Errorf("the metrics do not match %s:\n%s", few, text)
			}
		})
	}
}

// children returns the process ids of the master's children. A worker that starts has no title yet.
func children(t *testing.T, e *edge) []int {
	t.Helper()
	pids, err := testenv.Children(e.master().Pid)
	if err != nil {
		t.Fatal(err)
	}
	return pids
}

// ticks returns the processor time of a process in user mode, in clock ticks.
func ticks(t *testing.T, pid int) (n int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	if _, err := fmt.Sscan(strings.Fields(after)[11], &n); err != nil {
		t.Fatal(err)
	}
	return n
}
