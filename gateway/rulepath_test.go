package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/gateway/policy"
)

// The paths that a policy check says no rule can match are those that the edge answers by itself, and no others.
func TestPolicyCheckKnowsTheEdgesOwnPaths(t *testing.T) {
	for _, path := range []string{"/healthz", "/healthz/x", "/Healthz", "/admin", "/ADMIN/x", "/administrators", "/adminx/y", "/metrics", "/metrics/x", "/metricsx", "/Debug", "/debug/pprof/x",
		"/debugger", "/.sluice", "/.Sluice/sales/x/holders", "/.sluicex", "/v1/admin", "/", "/v1/sales"} {
		file := filepath.Join(t.TempDir(), "policy.lua")
		if err := os.WriteFile(file, []byte(`return { rules = { { name = "x", key = "ip", rate = "1r/s", match = { path = "`+path+`" } } } }`), 0o600); err != nil {
			t.Fatal(err)
		}
		_, warnings, err := policy.Inspect(file, policy.Expect{})
		if err != nil {
			t.Fatal(err)
		}
		said := strings.Contains(warnings.Error(), "can never match")
		if _, asked := RulePath(nil, []byte(path)); asked == said {
			t.Errorf("%s: rules are asked: %v, and the check says they never are: %v", path, asked, said)
		}
	}
}

func TestRulePathIsTheDecodedPath(t *testing.T) {
	for target, want := range map[string]string{"/v1/s%61les?x=1": "/v1/sales", "/": "/", "/a//b": "", "http://x/a": "", "*": "", "/healthz": "", "/admin?x": ""} {
		path, ok := RulePath(nil, []byte(target))
		if ok != (want != "") || ok && string(path) != want {
			t.Errorf("%s: %q %v, want %q", target, path, ok, want)
		}
	}
}
