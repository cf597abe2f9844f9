package nginx

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sluice/gateway/policy"
)

// The edge finds the rules of a request in a tree, the gateway matches rule by rule.
func TestBothEdgesFindTheSameRules(t *testing.T) {
	server := requireLua(t)
	paths := []string{"", "/", "/*", "/a", "/a/*", "/*/b", "/a/*/c", "/a/b/c", "/v1/sales/*/orders", "/a-b.c", "/A"}
	requests := []string{
		"/",
		"/a",
		"/A/",
		"/a/b",
		"/a/b/",
		"/x/b",
		"/a/b/c",
		"/a/x/c",
		"/A/X/C/",
		"/a//c",
		"/v1/sales/1/orders",
		"/V1/sales/a.b/Orders/",
		"/v1/sales/1/orders/2",
		"/a-b.c",
		"/a-bxc",
		"/b",
		"/a\n",
		"/a/\n",
		"/é/b",
		"/a/b/c/d",
	}
	rapid.Check(t, func(r *rapid.T) {
		type rule struct{ key, method, path string }
		rules := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) rule {
			return rule{
				rapid.SampledFrom([]string{"ip", "token"}).Draw(r, "key"),
				rapid.SampledFrom([]string{"", "GET", "POST"}).Draw(r, "method"),
				rapid.SampledFrom(paths).Draw(r, "path"),
			}
		}), 0, 8).Draw(r, "rules")
		var source strings.Builder
		source.WriteString("return { rules = {\n")
		for i, rule := range rules {
			fmt.Fprintf(&source, "{ name = 'r%d', key = '%s', rate = '1r/s', match = {", i, rule.key)
			if rule.method != "" {
				fmt.Fprintf(&source, "method = '%s',", rule.method)
			}
			if rule.path != "" {
				fmt.Fprintf(&source, "path = '%s',", rule.path)
			}
			source.WriteString("} },\n")
		}
		source.WriteString("} }")
		theirs, err := policy.Parse("p.lua", []byte(source.String()))
		if err != nil {
			r.Fatal(err)
		}
		var code, want strings.Builder
		fmt.Fprintf(&code, `
			local plan, quota = require "sluice.plan", require "sluice.quota"
			local p = assert(require("sluice.policy").parse("p.lua", %s))
			for _, rule in ipairs(p.rules) do quota.prepare(rule) end
			local plans, out = plan.new(p), {}
			local function find(method, path)
				local found = plan.find(plans, method, path)
				local names = {}
				for i, rule in ipairs(found.rules) do names[i] = rule.name .. (i <= found.ip_n and "i" or "") end
				out[#out + 1] = table.concat(names, " ")
			end
		`, luaString(source.String()))
		for _, method := range []string{"GET", "POST", "HEAD", "get"} {
			for _, path := range requests {
				fmt.Fprintf(&code, "find(%q, %s)\n", method, luaString(path))
				var names []string
				for _, key := range []policy.Key{policy.ByIP, policy.ByToken} {
					for _, rule := range theirs.Rules {
						if rule.Key == key && rule.Match.Covers([]byte(method), []byte(path)) {
							names = append(names, rule.Name+map[policy.Key]string{policy.ByIP: "i"}[key])
						}
					}
				}
				fmt.Fprintf(&want, "%s %s: %s\n", method, strings.TrimSpace(fmt.Sprintf("%q", path)), strings.Join(names, " "))
			}
		}
		code.WriteString(`return table.concat(out, "\n")`)
		out, err := server.try(code.String())
		if err != nil {
			r.Fatal(err)
		}
		lines, wants := strings.Split(out, "\n"), strings.Split(strings.TrimSuffix(want.String(), "\n"), "\n")
		for i, line := range lines {
			if _, names, _ := strings.Cut(wants[i], ": "); names != line {
				r.Fatalf("%s\n%s, and by the edge: %s", source.String(), wants[i], line)
			}
		}
	})
}
