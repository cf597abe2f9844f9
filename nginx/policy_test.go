package nginx

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

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

// engineErrors matches errors of the Lua engines, which differ between LuaJIT and the gateway's engine.
var engineErrors = regexp.MustCompile(
	`^(syntax error|Invalid token|unterminated|attempt to|cannot perform|too many local)`,
)

// nginx rejects the policies that the Go gateway rejects, at the same line and with the same message, except for
// errors of the Lua engines.
func TestBothEdgesRefuseTheSamePolicies(t *testing.T) {
	server := requireLua(t)
	files, err := filepath.Glob("../gateway/policy/testdata/bad/*.lua")
	if err != nil || len(files) < 60 {
		t.Fatalf("found %d bad policies, %v", len(files), err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, goErr := policy.Parse("p.lua", source)
		var findings policy.Findings
		if !errors.As(goErr, &findings) {
			t.Fatalf("%s: the gateway reports %v", file, goErr)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		got := parse(t, server, string(source))
		m := regexp.MustCompile(`^p\.lua:(?:(\d+):)? (.+)$`).FindStringSubmatch(got)
		if m == nil {
			t.Errorf("%s: %q has no position", name, got)
			continue
		}
		// Engines report different lines for a loop that runs too long, and for the end of an unfinished file.
		line, _ := strconv.Atoi(m[1])
		if line != findings[0].Line && !strings.HasPrefix(name, "endless") && !strings.HasPrefix(name, "recursion") &&
			name != "unfinished" {
			t.Errorf("%s: line %d, and the gateway reports line %d", name, line, findings[0].Line)
		}
		if theirs := findings[0].Message; !engineErrors.MatchString(theirs) && m[2] != theirs {
			t.Errorf("%s: %q, and the gateway reports %q", name, m[2], theirs)
		}
	}
}

// Of several errors on one line, both edges report the same first.
func TestBothEdgesReportTheSameErrorOfALine(t *testing.T) {
	server := requireLua(t)
	for _, fields := range []string{
		`name = "concurrency", key = "ip", rate = "1r/s", delay = 5`,
		`name = "a", key = "Ip", rate = 5, burst = -1, match = 5, delay = 5, mode = 5`,
		`name = "a", key = "ip", rate = "1r/s", match = { method = "get", path = 5 }`,
		`name = "a", key = "ip", rate = "1r/s", ipv6_prefix = 5, on_error = 5, scope = 5`,
	} {
		source := "return { rules = { { " + fields + " } } }"
		_, err := policy.Parse("p.lua", []byte(source))
		theirs, _, _ := strings.Cut(fmt.Sprint(err), "\n")
		if ours := parse(t, server, source); ours != theirs {
			t.Errorf("%s: %q, and the gateway reports %q", fields, ours, theirs)
		}
	}
}

func TestBothEdgesTakeTheSamePolicies(t *testing.T) {
	server := requireLua(t)
	files, err := filepath.Glob("../gateway/policy/testdata/good/*.lua")
	if err != nil || len(files) < 12 {
		t.Fatalf("found %d good policies, %v", len(files), err)
	}
	odd, _ := filepath.Glob("../gateway/policy/testdata/warn/*.lua")
	for _, file := range append(append(files, odd...), "../lua/policy.lua", "../gateway/policy/testdata/full.lua") {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if theirs, ours := meaning(source), dump(t, server, string(source)); theirs != ours ||
			strings.HasPrefix(ours, "bad") {
			t.Errorf("%s means\n%s to nginx, and to the gateway\n%s", file, ours, theirs)
		}
	}
}

// Random policies of all constructs that tests have found to be ambiguous: both edges accept a policy or both reject
// it, and an accepted one has the same meaning.
func TestBothEdgesAgreeOnAnyPolicy(t *testing.T) {
	server := requireLua(t)
	values := []string{
		`"ip"`,
		`'token'`,
		`"Ip"`,
		`"1r/s"`,
		`"20r/s"`,
		`"0.5r/h"`,
		`"0r/s"`,
		`"-1r/s"`,
		`"1e99r/s"`,
		`"60000000.000001r/m"`,
		`"999999999.999999r/h"`,
		`"10 per second"`,
		"5",
		"0",
		"-0",
		"-1",
		"1e6",
		"1e6+1",
		"0x10",
		"0b11",
		"0x1p4",
		"40LL",
		"1.5",
		"0/0",
		"1/0",
		`"5"`,
		`"5"+0`,
		"2^3",
		"7%4",
		"1 .. 0",
		"nil",
		"true",
		"false",
		"{}",
		"{1}",
		"{ x = 1 }",
		`"enforce"`,
		`"shadow"`,
		`"deny"`,
		`"allow"`,
		`"a"`,
		`"b"`,
		`"a b"`,
		`"\\97"`,
		`"\\x41"`,
		`"\\z a"`,
		`"\\q"`,
		`"\\300"`,
		`"ü"`,
		`""`,
		"[[a]]",
		"[==[\na]==]",
		`"a" --[[ x ]]`,
		"(\"a\")",
		"not nil",
		"#'abc'",
		`{ method = "POST", path = "/v1/*/x" }`,
		`{ method = "post" }`,
		`{ path = "/a*" }`,
		`{ path = "/" }`,
		`{ path = "//" }`,
		`{ path = "/a/" }`,
		`{ path = "/%20" }`,
		`{ path = "/ü" }`,
		`{ path = "x" }`,
		`{ path = "/./a" }`,
		"{ method = 5 }",
		`"10.0.0.0/8"`,
		`"10.0.0.0/08"`,
		`"::/0"`,
		`"::ffff:1.2.3.4/96"`,
		`"::ffff:1.2.3.4/95"`,
		`"1.2.3.4\\0"`,
		`"1.2.3"`,
		`"fe80::%1"`,
		`"1.2.3.4/33"`,
		`"0:0::0:0"`,
		`"00000::"`,
		"local",
		"goto",
		"f()",
		"rules",
		"...",
		"function() end",
	}
	names := []string{
		"name",
		"key",
		"rate",
		"burst",
		"match",
		"delay",
		"mode",
		"on_error",
		"brust",
		`["name"]`,
		"[1]",
		"[2]",
		"[1.5]",
		"goto",
		"ü",
		"",
	}
	rapid.Check(t, func(r *rapid.T) {
		pick := func(from []string) string { return rapid.SampledFrom(from).Draw(r, "part") }
		fields := func(n int) string {
			var b strings.Builder
			for range rapid.IntRange(0, n).Draw(r, "fields") {
				if name := pick(names); name != "" {
					b.WriteString(name + " = ")
				}
				b.WriteString(pick(values) + pick([]string{",", ",", ",", ";", ",\n", ";;"}))
			}
			return b.String()
		}
		var rules strings.Builder
		for i := range rapid.IntRange(0, 3).Draw(r, "rules") {
			// Mostly valid, so that some policies are accepted.
			fmt.Fprintf(&rules, "{ name = 'r%d', key = 'ip', rate = '1r/s', %s },\n", i, fields(2))
		}
		source := pick(
			[]string{
				"",
				"",
				"",
				"\xef\xbb\xbf",
				"#!x\n",
				";",
				"-- x\n",
				"local a = 1 ;\n",
				"do end ",
				"local function f() return 1 end ",
			},
		) +
			"return { rules = { " + rules.String() + pick(
			[]string{"", "", "nil", "5"},
		) + " }, " + pick(
			[]string{"", "", "trusted_proxies = { " + pick(values) + " },", fields(1)},
		) + "}" + pick(
			[]string{"", "", ";", ";;", " ...", "\x00"},
		)
		theirs, ours := meaning([]byte(source)), dump(t, server, source)
		if strings.HasPrefix(theirs, "bad") != strings.HasPrefix(ours, "bad") ||
			!strings.HasPrefix(theirs, "bad") && theirs != ours {
			r.Fatalf("%s\nmeans to nginx\n%s\nand to the gateway\n%s", source, ours, theirs)
		}
	})
}

// A field that occurs in a table twice, in any form.
func TestBothEdgesAgreeOnRepeatedFields(t *testing.T) {
	server := requireLua(t)
	for _, c := range []struct{ before, fields, after string }{
		{"", `burst = 1, burst = 2`, ""},
		{"", `burst = 1, ["burst"] = 2`, ""},
		{"", `burst = 1, ["bur\115t"] = 2`, ""},
		{"", `burst = 1, [ [[burst]] ] = 2`, ""},
		{"", `burst = 1, [("burst")] = 2`, ""},
		{"", `burst = 1, ["burst "] = 2`, ""},
		{"", `[""] = 1, [""] = 2`, ""},
		{`local x = "burst" `, `[x] = 1, [x] = 2`, ""},
		{`local x = "burst" `, `[x] = 1, x = nil`, ""},
		{`local x, y = "burst", "burst" `, `[x] = 1, [y] = 2`, ""},
		{`local t = { [true] = 1, [true] = 2 } `, `burst = t[true]`, ""},
		{`local t = { f = function() local x = 1; x = 2; x = 3 return x end } `, `burst = t.f()`, ""},
		{"", `burst = 1, burst = 2`, " ;;"},
		{"", `burst = 1, burst = 2`, " local x = 0x1p4"},
	} {
		source := c.before + `return { rules = { { name = "a", key = "ip", rate = "1r/s", ` + c.fields + ` } } }` + c.after
		if theirs, ours := meaning([]byte(source)), dump(t, server, source); theirs != ours {
			t.Errorf("%s\nmeans to nginx\n%s\nand to the gateway\n%s", source, ours, theirs)
		}
	}
}

// Numbers in strings, strings in arithmetic and remainders: the Lua engines have different rules.
func TestBothEdgesComputeTheSame(t *testing.T) {
	server := requireLua(t)
	for _, c := range []struct{ fields, want string }{
		{`rate = 0.1 * 3 .. "r/s"`, "a ip 0.3 0   false false false\n"},
		{`rate = 1234567 * 0.1 .. "r/h"`, "a ip 34.2935278 0   false false false\n"},
		{`rate = 10 % 0.3 .. "r/s"`, "a ip 0.1 0   false false false\n"},
		{`rate = 7.75 % 2 .. "r/s"`, "a ip 1.75 0   false false false\n"},
		{`burst = (function() return 1, "010" end)() + 1`, "a ip 1 2   false false false\n"},
		{`burst = (function(...) return 4 - ... end)(1, "010")`, "a ip 1 3   false false false\n"},
		{`burst = -1 % 1000`, "a ip 1 999   false false false\n"},
		{`burst = "5" * 2 + "1e1" - -"0x1F"`, "a ip 1 51   false false false\n"},
		{`rate = 1e15 .. "r/s"`, "bad"},
		{`rate = 1 % 0 .. "r/s"`, "bad"},
		{`rate = -0 .. "1r/s"`, "bad"},
		{`burst = 1 + "1_0"`, "bad"},
		{`burst = -"1_0" and 1`, "bad"},
		{`burst = "x" % 2`, "bad"},
		{`burst = 2 % nil`, "bad p.lua:1: attempt to perform arithmetic on a nil value"},
		{`burst = nil .. 2`, "bad"},
	} {
		source := `return { rules = { { name = "a", key = "ip", rate = "1r/s", ` + c.fields + ` } } }`
		if strings.HasPrefix(c.fields, "rate") {
			source = `return { rules = { { name = "a", key = "ip", ` + c.fields + ` } } }`
		}
		theirs, ours := meaning([]byte(source)), dump(t, server, source)
		if strings.HasPrefix(c.want, "bad") {
			theirs, ours = theirs[:min(len(c.want), len(theirs))], ours[:min(len(c.want), len(ours))]
		}
		if theirs != c.want || ours != c.want {
			t.Errorf("%s means to nginx\n%s\nand to the gateway\n%s\nwant\n%s", c.fields, ours, theirs, c.want)
		}
	}
}

// gopher-lua assigns a in a, b = b, a before it reads it, and nothing in c = f() and 1 if f() is false.
func TestBothEdgesAssignTheSame(t *testing.T) {
	server := requireLua(t)
	for _, c := range []struct{ code, burst string }{
		{"local a, b = 1, 2 a, b = b, a", "a * 10 + b"},
		{"local a, b, c = 1, 2, 3 a, b, c = c, a, b", "a * 100 + b * 10 + c"},
		{"local a, b = 1, 2 b, a = nil or 6, b", "a * 10 + b"},
		{"local a, b = 1, 2 a, b = 5", "b == nil and a"},
		{"local function f() return 7, 8 end local a, b, c = 1, 2, 3 a, b, c = f()", "c == nil and a * 10 + b"},
		{"local function f() return 7, 8 end local a, b, c = 1, 2, 3 a, b, c = f(), f()", "a * 100 + b * 10 + c"},
		{"local t = { n = 1 } t.n, t = 5, { n = 7 }", "t.n"},
		{"local i, t = 1, { 0, 0 } i, t[i] = i + 1, 20", "i * 100 + t[1]"},
		{"local function f() return false end local c = 4 c = f() and 1", "c == false and 9"},
		{"local function f() return false end local c = 4 c = f() or nil", "c == nil and 9"},
		{"local t, u = { n = 1 } local function f() t = { n = 3 } return 7 end u = t t.n, u.m = f(), 2", "u.n * 10 + t.n"},
		{"local t = { a = { n = 1 } } t.a.n, t.a = 5, { n = 7 }", "t.a.n"},
		{"local a = 9 local function f() a = 5 return 3 end local b = a + f()", "b"},
		{"local a = 9 local function f() a = 5 return 3 end local b = a * f() - a", "b"},
		{"local a = 9 local function f() a = 5 return 3 end local b = a % f()", "b"},
		{"local a = 9 local function f() local function g() a = 5 return 4 end return a % g() end", "f()"},
		{"a = 9 local function f() a = 5 return 3 end local b = a % f() * 10 + a ^ f() - a", "b"},
		{"local a = 9 local function f() local function g() a = 5 return 4 end return a * g() + a - g() end", "f()"},
	} {
		source := c.code + ` return { rules = { { name = "a", key = "ip", rate = "1r/s", burst = ` + c.burst + ` } } }`
		if theirs, ours := meaning([]byte(source)), dump(t, server, source); theirs != ours ||
			strings.HasPrefix(ours, "bad") {
			t.Errorf("%s means to nginx\n%s\nand to the gateway\n%s", source, ours, theirs)
		}
	}
}

// meaning returns a policy as the gateway reads it, or "bad" and the errors.
func meaning(source []byte) string {
	p, err := policy.Parse("p.lua", source)
	if err != nil {
		return "bad " + err.Error()
	}
	var b strings.Builder
	for _, n := range p.TrustedProxies {
		fmt.Fprintf(&b, "%x/%d\n", n.Addr().AsSlice(), n.Bits())
	}
	for _, r := range p.Rules {
		fmt.Fprintf(&b, "%s %s %.9g %d %s %s %v %v %v\n", r.Name, r.Key, r.Rate.PerSecond(), r.Burst, r.Match.Method,
			r.Match.Path, r.Delay, r.Mode == policy.Shadow, r.OnError == policy.Allow || r.Mode == policy.Shadow)
	}
	return b.String()
}

// dump returns the same for the nginx edge.
func dump(t *testing.T, server *luaServer, source string) string {
	t.Helper()
	return server.run(t, `
		local p, message = require("sluice.policy").parse("p.lua", `+luaString(source)+`)
		if not p then return "bad " .. message end
		local out = {}
		local function add(...) out[#out + 1] = string.format(...) end
		for _, n in ipairs(p.networks) do
			-- The bits behind the prefix say nothing.
			local hex = ""
			for i = 1, #n.bytes do
				local keep = math.max(0, math.min(8, n.bits - 8 * (i - 1)))
				hex = hex .. ("%02x"):format(bit.band(n.bytes:byte(i), bit.band(0xff, bit.lshift(0xff, 8 - keep))))
			end
			add("%s/%d\n", hex, n.bits)
		end
		for _, r in ipairs(p.rules) do
			add("%s %s %.9g %d %s %s %s %s %s\n", r.name, r.key, r.count / r.period * 1e6, r.burst, r.method or "", r.path or "", tostring(r.delay), tostring(r.shadow), tostring(r.lenient))
		end
		return table.concat(out)
	`)
}

// Cases that the gateway's tests lack: escapes from the sandbox that LuaJIT offers and gopher-lua does not, and unusual
// ways to write a table.
func TestPolicySandboxAndPositions(t *testing.T) {
	server := requireLua(t)
	for _, c := range []struct{ name, source, want string }{
		{"bytecode", "\x1bLJ\x02", "p.lua: compiled Lua: write the policy as text"},
		{"string methods", `local s = ("x"):rep(10) return { rules = {} }`, "p.lua:1: attempt to index a string value"},
		{
			"string library by its metatable", `return { rules = { { name = ("x").rep } } }`,
			"p.lua:1: attempt to index a string value",
		},
		{"globals of the edge", `return { rules = ngx.shared }`, "p.lua:1: attempt to index global 'ngx'"},
		{"ffi", `local ffi = require "ffi"`, "p.lua:1: attempt to call global 'require'"},
		{"too large", "return { rules = {} } --" + strings.Repeat("x", 70000), "p.lua: larger than 65536 bytes"},
		{"a loop of nothing", "repeat until false", "p.lua:1: runs for more than 20000 steps"},
		{
			"a loop of calls", "local function f() end for i = 1, 1e9 do f() end return { rules = {} }",
			"p.lua:1: runs for more than 20000 steps",
		},
		{
			"memory", "local s = 'xxxxxxxxxxxxxxxx' for i = 1, 40 do s = s .. s end",
			"p.lua:1: makes a string of more than 4096 bytes",
		},
		{
			"line breaks in a message", "return { rules = { { name = 'a\\nb', key = 'ip', rate = '1r/s' } } }",
			`p.lua:1: name "a?b" must be`,
		},
		{"comments and strings that look like tables", "--[[ { name = 1 } ]]\n-- return { }\nlocal s = [[ return { \n " +
			"]]\nreturn {\n  rules = { -- {\n    { name = 'a}',\n      key = \"ip\", rate = '1r/s' },\n  },\n}",
			`p.lua:7: name "a}" must be`},
		{
			"fields in brackets",
			"return {\n  ['rules'] = {\n    {\n      ['name'] = 'a',\n      ['key'] = 'ip',\n      ['rate'] = '0r/s' } } }",
			"p.lua:6: rate",
		},
		{
			"a computed rule",
			"local function r() return { name = 'a', key = 'ip', rate = '0r/s' } end\nreturn {\n  rules = {\n    r(),\n  },\n}",
			"p.lua:4: rate",
		},
		{"the second of two", "return {\n  rules = {\n    { name = 'a', key = 'ip', rate = '1r/s', match = { path = '/x' " +
			"} },\n    { name = 'b', key = 'ip', rate = '1r/s',\n      match = {\n        method = 'get' } },\n  },\n}",
			"p.lua:6: method"},
		{
			"semicolons and calls",
			"local function n(x) return x end return {\n  trusted_proxies = {};\n  rules = {\n    { name = 'a'; key = " +
				"n('ip', { 1, 2 }), burst = n(1),\n      rate = '0r/s' };\n  };\n}",
			"p.lua:5: rate",
		},
	} {
		if got := parse(t, server, c.source); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	// After a policy has run, the strings of the edge have their methods again.
	if got := server.run(t, `return ("x"):rep(3)`); got != "xxx" {
		t.Errorf("strings after a policy: %q", got)
	}
}

func TestRatesAreExactFractions(t *testing.T) {
	server := requireLua(t)
	for text, want := range map[string]string{
		"20r/s": "1 50000", "3r/s": "3 1000000", "90r/m": "3 2000000", "1000000r/s": "1 1", "0.5r/h": "1 7200000000",
		"1.5r/s": "3 2000000", "20.0r/s": "1 50000",
		"0.000001r/h": "1 3600000000000000", "333333.333333r/s": "1000000000 3000000001",
		"0r/s": "no", "0.0r/m": "no", "1000001r/s": "no", "1r/d": "no", "r/s": "no", "1.r/s": "no", ".5r/s": "no",
		"1e3r/s": "no", "-1r/s": "no", "1 r/s": "no",
		"1r/s ": "no", "1.0000001r/s": "no", "1234567890r/h": "no", "": "no",
	} {
		got := server.run(t, `
			local count, period = require("sluice.policy.rate").parse(`+luaString(text)+`)
			return count and ("%.0f %.0f"):format(count, period) or "no"
		`)
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
