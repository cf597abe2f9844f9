package nginx

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sluice/gateway/policy"
)

// parse runs the edge's reader and returns its message, or "" for a good policy.
func parse(t *testing.T, server *luaServer, source string) string {
	t.Helper()
	return server.run(t, `
		local policy, message = require("sluice.policy").parse("p.lua", `+luaString(source)+`)
		return policy and "" or message
	`)
}

// One policy, two engines: what the Go gateway refuses, nginx refuses, at the same line. In the same words too, where those words are ours.
func TestBothEdgesRefuseTheSamePolicies(t *testing.T) {
	server := requireLua(t)
	files, err := filepath.Glob("../gateway/policy/testdata/bad/*.lua")
	if err != nil || len(files) < 40 {
		t.Fatalf("found %d bad policies, %v", len(files), err)
	}
	ours := regexp.MustCompile(`^(a policy|name|rate|burst|delay|mode|key|match|method|path|rules?|a rule needs|a rule is|on_error|trusted_proxies) `)
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, goErr := policy.Parse("p.lua", source)
		var mistakes policy.Mistakes
		if !errors.As(goErr, &mistakes) {
			t.Fatalf("%s: the gateway says %v", file, goErr)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		got := parse(t, server, string(source))
		m := regexp.MustCompile(`^p\.lua:(\d+): (.+)$`).FindStringSubmatch(got)
		if m == nil {
			t.Errorf("%s: %q has no place", name, got)
			continue
		}
		// Which line a loop is on when it has run for too long is the machine's affair; so is where an unfinished file stops to make sense.
		line, _ := strconv.Atoi(m[1])
		if line != mistakes[0].Line && !strings.HasPrefix(name, "endless") && !strings.HasPrefix(name, "giant") && name != "unfinished" {
			t.Errorf("%s: line %d, and the gateway says line %d", name, line, mistakes[0].Line)
		}
		theirs, _, _ := strings.Cut(mistakes[0].What, ": did you mean")
		if ours.MatchString(theirs) && !strings.Contains(theirs, "+Inf") && !strings.Contains(theirs, "NaN") && !strings.HasPrefix(m[2], theirs) {
			t.Errorf("%s: %q, and the gateway says %q", name, m[2], theirs)
		}
	}
}

func TestBothEdgesTakeTheSamePolicies(t *testing.T) {
	server := requireLua(t)
	for _, file := range []string{"../lua/policy.lua", "../gateway/policy/testdata/full.lua"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if message := parse(t, server, string(source)); message != "" {
			t.Errorf("%s is refused: %s", file, message)
		}
		if _, err := policy.Parse(file, source); err != nil {
			t.Errorf("the gateway refuses %s: %v", file, err)
		}
	}
}

// What no policy of the gateway's tests has: ways out of the sandbox that LuaJIT has and gopher-lua has not, and odd ways to write a table.
func TestPolicySandboxAndPlaces(t *testing.T) {
	server := requireLua(t)
	for _, c := range []struct{ name, source, want string }{
		{"bytecode", "\x1bLJ\x02", "p.lua: compiled Lua: a policy is text"},
		{"string methods", `local s = ("x"):rep(10) return { rules = {} }`, "p.lua:1: attempt to index a string value"},
		{"string library by its metatable", `return { rules = { { name = ("x").rep } } }`, "p.lua:1: attempt to index a string value"},
		{"globals of the edge", `return { rules = ngx.shared }`, "p.lua:1: attempt to index global 'ngx'"},
		{"ffi", `local ffi = require "ffi"`, "p.lua:1: attempt to call global 'require'"},
		{"too large", "return { rules = {} } --" + strings.Repeat("x", 70000), "p.lua: larger than 65536 bytes"},
		{"a loop of nothing", "repeat until false", "p.lua:1: runs for more than 20000 steps"},
		{"a loop of calls", "local function f() end for i = 1, 1e9 do f() end return { rules = {} }", "p.lua:1: runs for more than 20000 steps"},
		{"memory", "local s = 'xxxxxxxxxxxxxxxx' for i = 1, 40 do s = s .. s end", "p.lua:1: uses more than 4 MiB"},
		{"line breaks in a message", "return { rules = { { name = 'a\\nb', key = 'ip', rate = '1r/s' } } }", `p.lua:1: name "a\ b" must be`},
		{"comments and strings that look like tables", "--[[ { name = 1 } ]]\n-- return { }\nlocal s = [[ return { \n ]]\nreturn {\n  rules = { -- {\n    { name = 'a}',\n      key = \"ip\", rate = '1r/s' },\n  },\n}",
			`p.lua:7: name "a}" must be`},
		{"fields in brackets", "return {\n  ['rules'] = {\n    {\n      ['name'] = 'a',\n      ['key'] = 'ip',\n      ['rate'] = '0r/s' } } }", "p.lua:6: rate"},
		{"a computed rule", "local r = { name = 'a', key = 'ip', rate = '0r/s' }\nreturn {\n  rules = {\n    r,\n  },\n}", "p.lua:4: rate"},
		{"the second of two", "return {\n  rules = {\n    { name = 'a', key = 'ip', rate = '1r/s', match = { path = '/x' } },\n    { name = 'b', key = 'ip', rate = '1r/s',\n      match = {\n        method = 'get' } },\n  },\n}",
			"p.lua:6: method"},
		{"semicolons and calls", "local function n(x) return x end return {\n  trusted_proxies = {};\n  rules = {\n    { name = 'a'; key = n('ip', { 1, 2 }), burst = n(1),\n      rate = '0r/s' };\n  };\n}", "p.lua:5: rate"},
	} {
		if got := parse(t, server, c.source); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	// A policy leaves the edge as it was: its strings have their methods back.
	if got := server.run(t, `return ("x"):rep(3)`); got != "xxx" {
		t.Errorf("strings after a policy: %q", got)
	}
}

func TestRatesAreExactFractions(t *testing.T) {
	server := requireLua(t)
	for text, want := range map[string]string{
		"20r/s": "1 50000", "3r/s": "3 1000000", "90r/m": "3 2000000", "1000000r/s": "1 1", "0.5r/h": "1 7200000000", "1.5r/s": "3 2000000", "20.0r/s": "1 50000",
		"0.000001r/h": "1 3600000000000000", "333333.333333r/s": "1000000000 3000000001",
		"0r/s": "rate", "0.0r/m": "rate", "1000001r/s": "rate", "1r/d": "rate", "r/s": "rate", "1.r/s": "rate", ".5r/s": "rate", "1e3r/s": "rate", "-1r/s": "rate", "1 r/s": "rate",
		"1r/s ": "rate", "1.0000001r/s": "rate", "1234567890r/h": "rate", "": "rate",
	} {
		got := server.run(t, `
			local count, period = require("sluice.policy.rate").parse(`+luaString(text)+`)
			return count and ("%.0f %.0f"):format(count, period) or period:match("%w+")
		`)
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
