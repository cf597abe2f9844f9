package nginx

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/lua"
	"sluice/test/testenv"
)

// root is a directory with nginx/ and lua/ for an edge of this variant.
func (f *variant) root(t testing.TB) string {
	t.Helper()
	if !f.plain {
		return ".."
	}
	root := copied(t)
	f.trim(t, root)
	return root
}

// on makes startEdge start an edge of this variant.
func (f *variant) on(t testing.TB) func(*Config) {
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
	answers := []answer{e.do("GET", "/paid"), e.do("GET", "/paid", ann...), e.do("GET", "/paid", ann...),
		e.do("GET", "/"), e.do("GET", "/")}
	if got := statuses(answers...); got != "401 200 429 200 429" {
		t.Errorf("the verdicts are %s", got)
	}
	h := answers[4].header
	if got, want := h.Get("RateLimit-Policy"), `"ip";q=3;w=10800`; got != want || h.Get("Retry-After") == "" {
		t.Errorf("the policy of the last one is %s, want %s; its headers are %v", got, want, h)
	}
	if got := e.raw("GET / HTTP/1.1\r\nHost: x\nX: y\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
		t.Errorf("a bare line feed: %q", got)
	}
}

// Without the directory of accelerators the edge works and logs nothing about them.
func TestEdgeRunsWithoutAccelerators(t *testing.T) {
	t.Parallel()
	e := startEdge(t, twoRules, plain.on(t))
	if _, err := os.Stat(filepath.Join(e.cfg.Root, "lua/edge/sluice/accel")); err == nil {
		t.Fatal("the directory of accelerators exists")
	}
	checkVerdicts(t, e)
	if strings.Contains(e.log.String(), "accelerator") {
		t.Errorf("the log has:\n%s", e.log)
	}
}

// The edge works without any one of the accelerators, whatever builds on it.
func TestEdgeRunsWithoutOneAccelerator(t *testing.T) {
	for _, name := range []string{"each", "head", "jws", "rewrite", "split", "store", "subject", "variables"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(plainVariable, name)
			checkVerdicts(t, startEdge(t, twoRules, nil))
		})
	}
}

// The environment of the program switches accelerators off, as docs/edge.md states. Without the accelerator the zone
// has room for fewer buckets.
func TestEnvironmentSwitchesAcceleratorsOff(t *testing.T) {
	t.Setenv(plainVariable, "each,store")
	e := startEdge(t, twoRules, func(c *Config) { c.Status = testenv.FreeAddress(t) })
	checkVerdicts(t, e)
	if text, want := e.metrics(), "\nsluice_edge_bucket_capacity 5"; !strings.Contains(text, want) {
		t.Errorf("the metrics do not have %q:\n%s", want, text)
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
		{"store", "zone.lua", "SHARED, ROBUST = 1, 1", "SHARED, ROBUST = 1, 7", "this system has no robust mutex"},
		{"variables", "variables.lua", `"ngx_http_get_indexed_variable"`, `"ngx_http_get_indexed"`, "undefined symbol: ngx_http_get_indexed"},
		{"subject", "subject.lua", `"ngx_http_lua_ffi_crc32_long"`, `"ngx_http_lua_ffi_crc32"`, "undefined symbol: ngx_http_lua_ffi_crc32"},
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

// A variable that is not in nginx's memory as expected is set by name, and the log has its name.
func TestVariableOfAnotherLayoutIsSetByName(t *testing.T) {
	t.Parallel()
	root := copied(t)
	file := filepath.Join(root, "lua/edge/sluice/accel/variables.lua")
	rewrite(t, file, "0x0fffffff, 0x10000000", "0x0fffffff, 0x20000000")
	e := startEdge(t, twoRules, func(c *Config) { c.Root = root })
	checkVerdicts(t, e)
	if want := "accelerator variables is off for $sluice_rule"; !strings.Contains(e.log.String(), want) {
		t.Errorf("the log does not have %q:\n%s", want, e.log)
	}
}

// A variable that changes during a request is read as ngx.var reads it.
func TestVariablesAreReadAfterTheyChange(t *testing.T) {
	got := requireLua(t).run(t, `
		local fast, req = require "sluice.accel.variables", ngx.req
		local text = "kept"
		local faults, seen = {}, {}
		for i, change in ipairs {
			function() end,
			function() req.set_uri("/a") end,
			function() req.set_uri("/another/path") end,
			function() req.set_uri_args("x=1") end,
			function() req.set_header("Authorization", "Bearer a") end,
			function() req.set_header("Token", "t") end,
			function() req.set_header("Authorization", "Bearer another") end,
			function() req.clear_header("Authorization") end,
			function() req.set_method(ngx.HTTP_PUT) end,
			function() ngx.var.test = "by name" end,
			function() fast.set("test", text) end,
			function() fast.set("test", text) end,
			function() ngx.var.test = "" end,
			function() ngx.var.test = nil end,
			function() ngx.sleep(0.001) end,
		} do
			change()
			for _, name in ipairs {
				"uri", "args", "http_authorization", "http_token", "http_nothing", "request_method", "test", "nowhere",
			} do
				local is = fast.get(name) -- first: ngx.var brings the array of nginx up to date
				local want = ngx.var[name]
				if is ~= want then
					faults[#faults + 1] = ("%d: $%s is %s and not %s"):format(i, name, tostring(is), tostring(want))
				end
				seen[name .. tostring(want)] = true
			end
		end
		local n = 0
		for _ in pairs(seen) do n = n + 1 end
		return table.concat(faults, "\n") .. (n >= 15 and "" or n .. " values were seen")`)
	if got != "" {
		t.Error(got)
	}
}

// Both variants answer each head alike, also when they have cached its request line.
func TestVariantsJudgeHeadsAlike(t *testing.T) {
	t.Parallel()
	policy := `return { ` + trusting + ` rules = {
		{ name = "ip",    key = "ip",    rate = "1r/h", burst = 1 },
		{ name = "token", key = "token", rate = "1r/h", match = { path = "/v1/sales/*/orders" } },
	} }`
	edges := []*edge{startEdge(t, policy, accelerated.on(t)), startEdge(t, policy, plain.on(t))}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	ann, seen := signed(t, "ann"), map[string]int{}
	for n := range 500 {
		// Each head has a client of its own. Two of three heads are well formed.
		address := fmt.Sprintf("10.%d.%d.%d", n/250, n%250, 1+random.IntN(3))
		spoil := func(good string, bad ...string) string {
			if n%3 > 0 || random.IntN(4) > 0 {
				return good
			}
			return pick(bad...)
		}
		lines := []string{
			"Host: " + spoil(pick("a", "a", "b", "[::1]"), "a!", "", "[a]"),
			"X-Forwarded-For: " + pick(address, address, address, "2001:db8:"+fmt.Sprint(n)+"::1", "::ffff:"+address,
				"1.1.1.1, "+address, address+" ", " "+address, "x"),
		}
		for range random.IntN(4) {
			lines = append(
				lines,
				spoil(
					pick("Authorization: "+ann, "Content-Length: 0", "X: a\tb", "Cookie: a=b", "User-Agent: u",
						"Accept: a", "Idempotency-Key: 1", "X:  y", "X: y  ", "X:"),
					"Authorization: Bearer x",
					"Token: "+strings.TrimPrefix(ann, "Bearer "),
					"Content-Length: 00000",
					"X: a\x01b",
					"X: a\x7f",
					"X:y",
					"Idempotency-Key:",
					"X_Forwarded_For: 1.2.3.4",
					"X(Y): a",
					"x-forwarded-for: "+address,
					"no colon",
					"Transfer-Encoding: chunked",
					"Transfer_Encoding: chunked",
					"Long: "+strings.Repeat("a", 9000),
				),
			)
		}
		end := func() string { return spoil("\r\n", "\n", " \r\n", "\r\r\n") }
		head := pick("GET", "POST", "POST", "HEAD") + spoil(" ", "  ") +
			spoil(pick("/", "/v1/sales/1/orders", "/v1/sales/1/orders?x=1", "/healthz", "/admin", "/V1/Sales/1/Orders/"),
				"/a//b", "/%2e/", "http://a/") + " HTTP/1." + pick("1", "1", "1", "0") + end()
		random.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		for _, line := range lines {
			head += line + end()
		}
		head += "Connection: close\r\n" + spoil("\r\n", "\n")
		if strings.Contains(head, "chunked") {
			head += "0\r\n\r\n"
		}
		var answers [2]string
		for i, e := range edges {
			for range 4 {
				answers[i] += statusOfRaw(t, e, head) + " "
			}
		}
		seen[answers[0]]++
		if answers[0] != answers[1] {
			t.Errorf("seed %d: with accelerators %s, without %s:\n%q", seed, answers[0], answers[1], head)
		}
	}
	t.Logf("seed %d: %v", seed, seen)
}

// statusOfRaw sends bytes and returns the status, or "closed".
func statusOfRaw(t *testing.T, e *edge, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", e.cfg.Listen)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	line, _ := bufio.NewReader(conn).ReadString('\n')
	if _, rest, found := strings.Cut(line, " "); found {
		return rest[:3]
	}
	return "closed"
}
