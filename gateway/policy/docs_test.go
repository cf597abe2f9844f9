package policy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sluice/gateway/policy"
)

var luaBlock = regexp.MustCompile("(?s)```lua\n(.*?)```")

// Every policy, rule and field in the documentation must be valid.
func TestPoliciesInTheDocumentationAreValid(t *testing.T) {
	text, err := os.ReadFile("../../docs/edge.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range luaBlock.FindAllStringSubmatch(string(text), -1) {
		source := m[1]
		switch {
		case strings.HasPrefix(source, "return {"), strings.HasPrefix(source, "local "):
		case strings.HasPrefix(source, `{ name = "ip",`):
			source = "return { rules = {" + source + "} }"
		case strings.HasPrefix(source, "{ name ="):
			// A recipe is one of several rules, so add the general rule.
			source = `return { rules = { { name = "general", key = "ip", rate = "1000r/s", burst = 1000 },` + source + `} }`
		case strings.HasPrefix(source, "trusted_proxies ="):
			source = "return { rules = {}, " + source + "}"
		default:
			t.Errorf("neither a policy nor rules:\n%s", source)
			continue
		}
		found++
		file := filepath.Join(t.TempDir(), "policy.lua")
		if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, warnings, err := policy.Inspect(file, policy.Sizing{}); err != nil || len(warnings) > 0 {
			t.Errorf("%s\n%v\n%v", source, err, warnings)
		}
	}
	if found < 7 {
		t.Errorf("only %d policies found", found)
	}
}
