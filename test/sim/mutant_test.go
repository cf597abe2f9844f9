package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var mutantsFlag = flag.Bool("mutants", false, "break the product in each known way, and verify that a test fails")

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

// Each mutant is built once, and tested until the first failure. They run in parallel, because a build leaves
// processors idle.
func TestMutantsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("-mutants is not set")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	tested := fast
	if *mutantsFlag {
		tested = append(slices.Clone(fast), mutants...)
	}
	for _, m := range tested {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			out, err := runMutated(t, root, m)
			if err == nil {
				t.Fatalf("%s did not fail:\n%s", m.by, out)
			}
			// A mutant that does not compile or run counts as not found.
			if !strings.Contains(out, "--- FAIL") {
				t.Fatalf("%s did not run:\n%s", m.by, out)
			}
			t.Logf("killed by %s in %s: %s", m.by, time.Since(start).Truncate(time.Second), because(out))
		})
	}
}

// TestMutantsApply finds mutants whose text is no longer in the product.
func TestMutantsApply(t *testing.T) {
	for _, m := range append(slices.Clone(fast), mutants...) {
		text, err := os.ReadFile(filepath.Join("../..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), m.old); n != 1 {
			t.Errorf("mutant %q: %s contains %q %d times, want once", m.name, m.file, m.old, n)
		}
	}
}

func runMutated(t *testing.T, root string, m mutant) (out string, err error) {
	t.Helper()
	source := filepath.Join(root, m.file)
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		t.Fatalf("%s has %d times %q: update the mutant", m.file, n, m.old)
	}
	dir := t.TempDir()
	mutated, overlay := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(mutated, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	plan, err := json.Marshal(map[string]map[string]string{"Replace": {source: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, plan, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"test", "-count=1", "-failfast", "-overlay", overlay, "-run", m.by.run, m.by.pkg}
	if len(m.by.args) > 0 {
		args = append(append(args, "-args"), m.by.args...)
	}
	cmd := exec.Command("go", args...) // ends a test that hangs after ten minutes
	cmd.Dir = root
	text, err = cmd.CombinedOutput()
	return string(text), err
}

// because returns the first message of the test that found a mutant.
func because(out string) string {
	for line := range strings.Lines(out) {
		if _, why, found := strings.Cut(line, "VIOLATION: "); found {
			return strings.TrimSpace(why)
		}
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, ".go:") {
			return strings.TrimSpace(line)
		}
	}
	return fmt.Sprintf("%d bytes of output", len(out))
}
