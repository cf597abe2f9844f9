package nginx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/lua"
)

// root is a directory with nginx/ and lua/ for an edge on this floor.
func (f *floor) root(t testing.TB) string {
	t.Helper()
	if !f.plain {
		return ".."
	}
	root := copied(t)
	f.trim(t, root)
	return root
}

// on makes startEdge start an edge on this floor.
func (f *floor) on(t testing.TB) func(*Config) {
	root := f.root(t)
	return func(c *Config) { c.Root = root }
}

// copied is a copy of nginx/ and lua/, for tests that change a module.
func copied(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	for _, err := range []error{os.CopyFS(root+"/nginx", files), os.CopyFS(root+"/lua", lua.Edge)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const twoRules = `return { rules = {
	{ name = "ip",    key = "ip",    rate = "1r/h", burst = 2 },
	{ name = "token", key = "token", rate = "1r/h", match = { path = "/paid" } },
} }`

// checkVerdicts sends requests that get every verdict of twoRules.
func checkVerdicts(t *testing.T, e *edge) {
	t.Helper()
	ann := []string{"Authorization", signed(t, "ann")}
	got := statuses(
		e.do("GET", "/paid"),
		e.do("GET", "/paid", ann...),
		e.do("GET", "/paid", ann...),
		e.do("GET", "/"),
		e.do("GET", "/"),
	)
	if got != "401 200 429 200 429" {
		t.Errorf("the verdicts are %s", got)
	}
	if got := e.raw("GET / HTTP/1.1\r\nHost: x\nX: y\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
		t.Errorf("a bare line feed: %q", got)
	}
}

// Without the directory of accelerators the edge works, and does not mention them.
func TestEdgeRunsWithoutAccelerators(t *testing.T) {
	t.Parallel()
	e := startEdge(t, twoRules, plain.on(t))
	if _, err := os.Stat(filepath.Join(e.cfg.Root, "lua/edge/sluice/accel")); err == nil {
		t.Fatal("the accelerators are there")
	}
	checkVerdicts(t, e)
	if strings.Contains(e.log.String(), "accelerator") {
		t.Errorf("the log has:\n%s", e.log)
	}
}

// An accelerator whose assumption does not hold is replaced by its plain module, and the log has one line with its name
// and the reason.
func TestBrokenAssumptionFallsBackWithOneLogLine(t *testing.T) {
	for _, c := range []struct{ name, file, old, new, reason string }{
		{
			"store", "zone.lua", "size ~= dict:capacity()", "size ~= dict:capacity() + 1",
			"the layout of ngx_shm_zone_t is not known",
		},
		{"store", "zone.lua", `"ngx_slab_alloc"`, `"ngx_slab_allocate"`, "undefined symbol: ngx_slab_allocate"},
		{"head", "head.lua", `require "resty.core.request"`, `error("no such function", 0)`, "no such function"},
	} {
		t.Run(c.name+" "+c.reason, func(t *testing.T) {
			t.Parallel()
			root := copied(t)
			rewrite(t, filepath.Join(root, "lua/edge/sluice/accel", c.file), c.old, c.new)
			e := startEdge(t, twoRules, func(cfg *Config) { cfg.Root = root })
			checkVerdicts(t, e)
			var lines []string
			for line := range strings.Lines(e.log.String()) {
				if strings.Contains(line, "accelerator") {
					lines = append(lines, line)
				}
			}
			if len(lines) != 1 || !strings.Contains(lines[0], "[warn]") ||
				!strings.Contains(lines[0], "accelerator "+c.name+" is off: ") ||
				!strings.Contains(lines[0], c.reason) {
				t.Errorf("the log has %d lines about accelerators:\n%s", len(lines), strings.Join(lines, ""))
			}
		})
	}
}
