package sim

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var mutantsFlag = flag.Bool("mutants", false, "break the product in each known way, and see that something notices")

// simulation is this package's own test, with seeds enough for every mutant below.
var simulation = proof{"./internal/sim", "TestSimulation", []string{"-args", "-seeds", "150", "-shrink=false"}}

// proof is a test that must fail when the product is broken.
type proof struct {
	pkg, run string
	args     []string
}

func (p proof) String() string {
	if p.pkg == simulation.pkg {
		return "the simulation"
	}
	return p.run + " in " + p.pkg
}

// mutants are one small edit each of one file, and who must find it.
var mutants = []struct {
	name, file, old, new string
	by                   proof
}{
	{"admit: the stock is not taken from", "lua/redis/admit.lua", "call('DECRBY', stock, n)", "call('DECRBY', stock, 0)", simulation},
	{"admit: sells when nothing is left", "lua/redis/admit.lua", "elseif left <= 0 then", "elseif left <= -1 then", simulation},
	{"admit: the request key is not looked at", "lua/redis/admit.lua", "if before then", "if before and before == '' then", simulation},
	{"ack: no fence", "lua/redis/ack.lua", "if not redis.call('ZSCORE', leases, id) then", "if false then",
		proof{"./backend/queue", "TestListOnMiniredis", nil}},
}

func TestMutantsAreFound(t *testing.T) {
	if !*mutantsFlag {
		t.Skip("make mutants")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			start := time.Now()
			out, err := runMutated(t, root, m.file, m.old, m.new, m.by)
			if err == nil {
				t.Fatalf("%s did not notice", m.by)
			}
			// A mutant that does not build or cannot be run has been found by nobody.
			if !strings.Contains(out, "--- FAIL") {
				t.Fatalf("%s did not run:\n%s", m.by, out)
			}
			t.Logf("killed by %s in %s: %s", m.by, time.Since(start).Truncate(time.Second), because(out))
		})
	}
}

func runMutated(t *testing.T, root, file, before, after string, by proof) (out string, err error) {
	t.Helper()
	source := filepath.Join(root, file)
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), before); n != 1 {
		t.Fatalf("%s has %d times %q: the mutant must be written anew", file, n, before)
	}
	folder := t.TempDir()
	mutated, overlay := filepath.Join(folder, filepath.Base(file)), filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(mutated, []byte(strings.Replace(string(text), before, after, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	plan, err := json.Marshal(map[string]map[string]string{"Replace": {source: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, plan, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	args := append([]string{"test", "-count=1", "-overlay", overlay, "-run", by.run, by.pkg}, by.args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	text, err = cmd.CombinedOutput()
	return string(text), err
}

// because is what the test that found a mutant says first.
func because(out string) string {
	for line := range strings.Lines(out) {
		if _, why, found := strings.Cut(line, "VIOLATION: "); found {
			return strings.TrimSpace(why)
		}
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "_test.go:") || strings.Contains(line, ".go:") {
			return strings.TrimSpace(line)
		}
	}
	return fmt.Sprintf("%d bytes of output", len(out))
}
