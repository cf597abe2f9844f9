package nginx

import (
	"fmt"
	"os"
	"path/filepath"
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

// policyError returns the first error that the gateway reports about a policy, or "".
func policyError(source string) string {
	if _, err := policy.Parse("p.lua", []byte(source)); err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		return first
	}
	return ""
}

// nginx rejects the policies that the Go gateway rejects, at the same line and with the same message.
func TestBothEdgesRefuseTheSamePolicies(t *testing.T) {
	server := requireLua(t)
	files, err := filepath.Glob("../gateway/policy/testdata/bad/*.lua")
	if err != nil || len(files) < 90 {
		t.Fatalf("found %d bad policies, %v", len(files), err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		theirs := policyError(string(source))
		if ours := parse(t, server, string(source)); ours != theirs || ours == "" {
			t.Errorf("%s: %q, and the gateway reports %q", file, ours, theirs)
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
		`name = "a", key = "ip", rate = "1r/s", match = { path = "/./" }`,
		`name = "a", key = "ip", rate = "1r/s", match = { path = "/a//." }`,
		`name = "a", key = "ip", rate = "1r/s", match = { path = "/?//a" }`,
		"name = \"\xff\"",
		`name = "` + strings.Repeat("ü", 21) + `"`,
	} {
		source := "return { rules = { { " + fields + " } } }"
		theirs := policyError(source)
		if ours := parse(t, server, source); ours != theirs {
			t.Errorf("%s: %q, and the gateway reports %q", fields, ours, theirs)
		}
	}
}

func TestBothEdgesTakeTheSamePolicies(t *testing.T) {
	server := requireLua(t)
	files, err := filepath.Glob("../gateway/policy/testdata/good/*.lua")
	if err != nil || len(files) < 10 {
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
		if wrong := otherThanLua(t, server, string(source)); wrong != "" {
			t.Errorf("%s: %s", file, wrong)
		}
	}
}

// Random policies, of which some use constructs of Lua that a policy cannot have: both edges report the same first
// error, or read the same policy.
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
		"\"\xff\"",
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
		if theirs != ours {
			r.Fatalf("%s\nmeans to nginx\n%s\nand to the gateway\n%s", source, ours, theirs)
		}
		if wrong := otherThanLua(t, server, source); wrong != "" {
			r.Fatalf("%s\n%s", source, wrong)
		}
	})
}

// Random tokens, which are rarely a policy: both parsers report the same error at the same line.
func TestBothEdgesAgreeOnAnyTokens(t *testing.T) {
	server := requireLua(t)
	tokens := append(
		strings.Fields(`local return true false nil end a _b1 = == { { } } , ; [ ] ( .. - -- --[[ ]] --[=[ ]=] --[=`),
		strings.Fields("5 -5 .5 1.5 1. 0x1 1e3 -0 007 '' \"x\" \" ' \\ é \xff rules # \xef\xbb\xbf")...)
	tokens = append(tokens, "\n", "\r\n", "\r", "--\r", "--x\n", "\t", "\x00", "\x7f")
	rapid.Check(t, func(r *rapid.T) {
		var b strings.Builder
		b.WriteString(rapid.SampledFrom([]string{"", "return {", "return { 1 }", "local a = 1 return {"}).Draw(r, "begin"))
		for range rapid.IntRange(0, 8).Draw(r, "tokens") {
			b.WriteString(rapid.SampledFrom([]string{" ", "", "\n"}).Draw(r, "space"))
			b.WriteString(rapid.SampledFrom(tokens).Draw(r, "token"))
		}
		source := b.String()
		if theirs, ours := policyError(source), parse(t, server, source); theirs != ours {
			r.Fatalf("%q: nginx reports\n%s\nand the gateway\n%s", source, ours, theirs)
		}
		if wrong := otherThanLua(t, server, source); wrong != "" {
			r.Fatalf("%q: %s", source, wrong)
		}
	})
}

// otherThanLua executes a source that the parser accepts as Lua. It returns "" if that has the same result.
func otherThanLua(t *testing.T, server *luaServer, source string) string {
	t.Helper()
	return server.run(t, `
		local source = `+luaString(source)+`
		local ours, _, _, err = require("sluice.policy.syntax").parse(source)
		if err then return "" end
		local chunk, why = load(source, "=policy", "t", {})
		if not chunk then return "Lua reports: " .. why end
		local function same(a, b)
			if type(a) ~= "table" or type(b) ~= "table" then return a == b end
			for key in pairs(a) do
				if not same(a[key], b[key]) then return false end
			end
			for key in pairs(b) do
				if a[key] == nil then return false end
			end
			return true
		end
		return same(ours, chunk()) and "" or "Lua returns another value"
	`)
}

// meaning returns a policy as the gateway reads it, or "bad" and the first error.
func meaning(source []byte) string {
	if wrong := policyError(string(source)); wrong != "" {
		return "bad " + wrong
	}
	p, _ := policy.Parse("p.lua", source)
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
