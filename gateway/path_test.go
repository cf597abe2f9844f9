package gateway

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/gateway/policy"
)

func TestDecodePath(t *testing.T) {
	for _, c := range []struct {
		path, want string
		ok         bool
	}{
		{"/", "/", true},
		{"/v1/sales/42/orders", "/v1/sales/42/orders", true},
		{"/v1/sales/42/orders/", "/v1/sales/42/orders/", true},
		{"/v1/s%61les/%34%32/orders", "/v1/sales/42/orders", true},
		{"/v1/sales/a%20b", "/v1/sales/a b", true},
		{"/v1/sales/%C3%A9", "/v1/sales/é", true},
		{"/v1/sales/\xc3\xa9", "/v1/sales/é", true},
		{"/v1/sales/4;2", "/v1/sales/4;2", true},
		{"/.well-known/x", "/.well-known/x", true},
		{"/...", "/...", true},
		{"/a%252Fb", "/a%2Fb", true},
		{"", "", false},
		{"v1", "", false},
		{"//", "", false},
		{"//v1/sales", "", false},
		{"/v1//sales", "", false},
		{"/v1/sales//", "", false},
		{"/.", "", false},
		{"/..", "", false},
		{"/./v1", "", false},
		{"/v1/../admin", "", false},
		{"/v1/..", "", false},
		{"/v1/sales/%2e%2e/x", "", false},
		{"/v1/sales/.%2E", "", false},
		{"/v1/sales/4%2e2", "", false},
		{"/v1/sales%2F42/orders", "", false},
		{"/v1/sales%2f42/orders", "", false},
		{`/v1\sales`, "", false},
		{"/v1%5Csales", "", false},
		{"/v1/sales%00", "", false},
		{"/v1/sales%0A", "", false},
		{"/v1/sales%7F", "", false},
		{"/v1/%", "", false},
		{"/v1/%4", "", false},
		{"/v1/%4g", "", false},
		{"/v1/%%34", "", false},
	} {
		got, ok := decodePath(nil, []byte(c.path))
		if ok != c.ok || ok && string(got) != c.want {
			t.Errorf("%q decodes to %q, %v, want %q, %v", c.path, got, ok, c.want, c.ok)
		}
	}
}

// net/url must decode an accepted path to the same text, and the text must have no empty or dot segments.
func FuzzDecodePath(f *testing.F) {
	for _, p := range []string{
		"/", "/v1/sales/42/orders", "/a%20b", "/%2e", "/a//b", "/../a", "/%C3%A9", "/a%2Fb", "/.", "/a/",
	} {
		f.Add([]byte(p))
	}
	f.Fuzz(func(t *testing.T, path []byte) {
		path = splitTarget(path)
		got, ok := decodePath(nil, path)
		if !ok {
			return
		}
		other, err := url.PathUnescape(string(path))
		if err != nil || other != string(got) {
			t.Fatalf("%q decodes to %q, with net/url to %q, %v", path, got, other, err)
		}
		if bytes.IndexByte(got, 0) >= 0 || strings.Count(string(got), "/") != bytes.Count(path, []byte("/")) {
			t.Fatalf("%q decodes to %q, with more slashes or a zero byte", path, got)
		}
		for segment := range strings.SplitSeq(strings.TrimSuffix(string(got[1:]), "/"), "/") {
			if len(got) > 1 && (segment == "" || segment == "." || segment == "..") {
				t.Fatalf("%q decodes to %q, with a segment %q", path, got, segment)
			}
		}
	})
}

// The policy check must warn about rules for reserved paths, and only about those.
func TestPolicyCheckKnowsReservedPaths(t *testing.T) {
	for _, path := range []string{
		"/healthz", "/healthz/x", "/Healthz", "/admin", "/ADMIN/x", "/administrators", "/adminx/y", "/metrics",
		"/metrics/x", "/metricsx", "/Debug", "/debug/pprof/x", "/debugger", "/.sluice", "/.Sluice/sales/x/holders",
		"/.sluicex", "/v1/admin", "/", "/v1/sales",
	} {
		file := filepath.Join(t.TempDir(), "policy.lua")
		if err := os.WriteFile(file,
			[]byte(`return { rules = { { name = "x", key = "ip", rate = "1r/s", match = { path = "`+path+`" } } } }`),
			0o600); err != nil {
			t.Fatal(err)
		}
		_, warnings, err := policy.Inspect(file, policy.Sizing{})
		if err != nil {
			t.Fatal(err)
		}
		warned := strings.Contains(warnings.Error(), "can never match")
		if _, ok := RulePath(nil, []byte(path)); ok == warned {
			t.Errorf("%s: rules apply: %v, but the check warns: %v", path, ok, warned)
		}
	}
}

func TestRulePathIsTheDecodedPath(t *testing.T) {
	for target, want := range map[string]string{
		"/v1/s%61les?x=1": "/v1/sales", "/": "/", "/a//b": "", "http://x/a": "", "*": "", "/healthz": "", "/admin?x": "",
	} {
		path, ok := RulePath(nil, []byte(target))
		if ok != (want != "") || ok && string(path) != want {
			t.Errorf("%s: %q %v, want %q", target, path, ok, want)
		}
	}
}
