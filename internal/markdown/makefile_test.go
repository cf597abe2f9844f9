package markdown

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// makefiles are the Makefile and the files that it includes.
var makefiles = []string{"Makefile", "bench/bench.mk", "test/proof.mk"}

func readMakefile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	selection = regexp.MustCompile(`-run '([^']+)'`)
	changeDir = regexp.MustCompile(`cd (?:\$\(CURDIR\)/)?(\S+)`)
	directory = regexp.MustCompile(`(?:^|\s)(\.(?:/[a-z0-9/]+)?)(?:\s|;|$)`)
	testFunc  = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
)

// go test succeeds if its -run pattern matches no test, so a target of the Makefile would pass without running anything
// after a test is renamed.
func TestMakeTargetsSelectExistingTests(t *testing.T) {
	checked := 0
	for _, file := range makefiles {
		for line := range strings.Lines(readMakefile(t, file)) {
			m := selection.FindStringSubmatch(line)
			if m == nil || m[1] == "^$$" {
				continue
			}
			checked++
			pattern, err := regexp.Compile(m[1])
			if err != nil {
				t.Errorf("%s: -run '%s': %v", file, m[1], err)
				continue
			}
			base := root
			if cd := changeDir.FindStringSubmatch(line); cd != nil {
				base = filepath.Join(root, cd[1])
			}
			for _, dir := range directory.FindAllStringSubmatch(line[strings.Index(line, m[0]):], -1) {
				if !pattern.MatchString(strings.Join(testsIn(t, filepath.Join(base, dir[1])), "\n")) {
					t.Errorf("%s: -run '%s' matches no test in %s", file, m[1], filepath.Join(base, dir[1]))
				}
			}
		}
	}
	if checked < 10 {
		t.Errorf("found only %d calls of go test -run in the Makefiles", checked)
	}
}

// testsIn returns the names of the tests in a directory.
func testsIn(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", dir, err)
	}
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllSubmatch(bytes.ReplaceAll(text, []byte("\r"), nil), -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}
