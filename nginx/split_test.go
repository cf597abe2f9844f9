package nginx

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// spills is a location that returns how many traces LuaJIT has given up because they had too many spill slots.
const spills = `location = /spills {
    content_by_lua_block { ngx.print(package.loaded.spills.n) }
}
location = /healthz {`

// countSpills counts them in a worker.
const countSpills = `init_worker_by_lua_block {
  local spills, reasons = { n = 0 }, require("jit.vmdef").traceerr
  package.loaded.spills = spills
  jit.attach(function(what, _, _, _, reason)
    if what == "abort" and (reasons[reason] or ""):find("spill slots", 1, true) then
      spills.n = spills.n + 1
    end
  end, "trace")`

// The accelerator split keeps the path of a purchase with a new token in traces that LuaJIT compiles. Without it, the
// path of each phase, rewrite and access, is one trace, which is too large.
func TestPathOfPurchaseFitsIntoTraces(t *testing.T) {
	policy, err := os.ReadFile("../loadtest/policy.lua")
	if err != nil {
		t.Fatal(err)
	}
	spillsOf := func(t *testing.T, root string) int {
		rewrite(t, filepath.Join(root, "nginx/conf.d/20-lua.conf"), "init_worker_by_lua_block {", countSpills)
		rewrite(t, filepath.Join(root, "nginx/snippets/server.conf"), "location = /healthz {", spills)
		e := startEdge(t, string(policy), func(c *Config) { c.Root, c.Workers = root, 1 })
		for i := range 2000 {
			got := e.do("POST", "/v1/sales/shoe/orders", "Authorization", signed(t, fmt.Sprint("buyer-", i)),
				"X-Forwarded-For", fmt.Sprintf("10.0.%d.%d", i/250, i%250))
			if got.status != 200 {
				t.Fatalf("purchase %d: status %d", i, got.status)
			}
		}
		n, err := strconv.Atoi(e.do("GET", "/spills").body)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Run("with split", func(t *testing.T) {
		t.Parallel()
		if n := spillsOf(t, copied(t)); n > 0 {
			t.Errorf("LuaJIT gave up %d traces", n)
		}
	})
	t.Run("without split", func(t *testing.T) {
		t.Parallel()
		root := copied(t)
		if err := os.Remove(filepath.Join(root, "lua/edge/sluice/accel/split.lua")); err != nil {
			t.Fatal(err)
		}
		if n := spillsOf(t, root); n == 0 {
			t.Error("LuaJIT gave up no trace: this path needs no split")
		}
	})
}
