package policy_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/gateway/policy"
)

// For every input, Parse must return soon, with a policy within the limits or with findings of one line each.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.lua")
	more, _ := filepath.Glob("testdata/*/*.lua")
	for _, file := range append(files, more...) {
		source, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(source)
	}
	f.Add([]byte("\x1bLua"))
	f.Add([]byte("return {rules={[1]={},[3]={}}}"))
	f.Add([]byte("goto x ::x:: return {}"))
	f.Fuzz(func(t *testing.T, source []byte) {
		p, err := policy.Parse("p.lua", source)
		if err != nil {
			var findings policy.Findings
			if !errors.As(err, &findings) || len(findings) == 0 {
				t.Fatalf("the error is %T, want Findings", err)
			}
			for _, m := range findings {
				if strings.ContainsAny(m.Error(), "\r\n") || m.Message == "" {
					t.Fatalf("not one line: %q", m.Error())
				}
			}
			return
		}
		if len(p.Rules) > policy.MaxRules || len(p.TrustedProxies) > policy.MaxProxies {
			t.Fatalf("%d rules, %d proxies", len(p.Rules), len(p.TrustedProxies))
		}
		names := map[string]bool{}
		for _, r := range p.Rules {
			if names[r.Name] || r.Name == "" {
				t.Fatalf("name %q is empty or repeated", r.Name)
			}
			names[r.Name] = true
			if rate := r.Rate.PerSecond(); !(rate > 0 && rate <= policy.MaxRate) {
				t.Fatalf("rate %v", rate)
			}
			if r.Burst < 0 || r.Burst > policy.MaxBurst {
				t.Fatalf("burst %d", r.Burst)
			}
		}
	})
}
