package documents

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
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
	selection = regexp.MustCompile(`-(?:run|bench) '?([^'\s]+)'?`)
	changeDir = regexp.MustCompile(`cd (?:\$\(CURDIR\)/)?(\S+)`)
	directory = regexp.MustCompile(`(?:^|\s)(\.(?:/[a-z0-9/]+)?)(?:\s|;|$)`)
	testFunc  = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
)

// go test succeeds if its -run pattern matches no test, so a target of the Makefile or a command of a document would
// pass without running anything after a test is renamed.
func TestCommandsSelectExistingTests(t *testing.T) {
	lines := map[string][]string{}
	for _, file := range makefiles {
		lines[file] = strings.Split(readMakefile(t, file), "\n")
	}
	for _, d := range readAll(t) {
		for _, code := range append(d.Code, d.Spans...) {
			lines[d.Path] = append(lines[d.Path], code.Value)
		}
	}
	checked := 0
	for file, all := range lines {
		for _, line := range all {
			if strings.Contains(line, "go test") || strings.Contains(line, "$(GO) test") {
				checked += checkSelection(t, file, line)
			}
		}
	}
	if checked < 20 {
		t.Errorf("found only %d calls of go test with -run or -bench", checked)
	}
}

// checkSelection reports patterns of a go test command that match no test in its directories, and returns the number of
// patterns. Patterns that select no test on purpose are omitted.
func checkSelection(t *testing.T, file, line string) (checked int) {
	base := root
	if cd := changeDir.FindStringSubmatch(line); cd != nil {
		base = filepath.Join(root, cd[1])
	}
	for _, m := range selection.FindAllStringSubmatch(line, -1) {
		if m[1] == "^$$" || m[1] == "xx" {
			continue
		}
		checked++
		names := strings.Split(m[1], "/") // of the test and its subtests
		pattern, err := regexp.Compile(names[0])
		if err != nil {
			t.Errorf("%s: %s: %v", file, m[0], err)
			continue
		}
		for _, dir := range directory.FindAllStringSubmatch(line, -1) {
			tests, text := testsIn(t, filepath.Join(base, dir[1]))
			if !pattern.MatchString(strings.Join(tests, "\n")) {
				t.Errorf("%s: %s matches no test in %s", file, m[0], dir[1])
			}
			for _, name := range names[1:] {
				if !strings.Contains(text, strconv.Quote(name)) {
					t.Errorf("%s: %s: no test in %s has a subtest %s", file, m[0], dir[1], name)
				}
			}
		}
	}
	return checked
}

var runbook = regexp.MustCompile(`(?m)^\s*runbook_url: (\S+)$`)

// A link in an alert must lead to an existing section.
func TestRunbooksOfAlertsExist(t *testing.T) {
	docs := readAll(t)
	text, err := os.ReadFile(filepath.Join(root, "observe/prometheus/alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	links := runbook.FindAllSubmatch(text, -1)
	for _, m := range links {
		page, anchor, _ := strings.Cut(string(m[1]), "#")
		if d, ok := docs[page]; !ok || anchor != "" && !d.Anchors[anchor] {
			t.Errorf("runbook %s does not exist", m[1])
		}
	}
	if len(links) < 20 {
		t.Errorf("found only %d runbooks", len(links))
	}
}

var alert = regexp.MustCompile(`(?s)alert: (\w+)\n.*?severity: (\w+) .*?runbook_url: docs/(\S+)\n`)

// The table of alerts has each one with its severity and the link of its runbook, and no other.
func TestAlertsAreInObservability(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "observe/prometheus/alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(filepath.Join(root, "docs/observability.md"))
	if err != nil {
		t.Fatal(err)
	}
	alerts := alert.FindAllSubmatch(text, -1)
	for _, m := range alerts {
		row := regexp.MustCompile("(?m)^\\| `" + string(m[1]) + "` \\| " + string(m[2]) + " \\|.*\\]\\(" +
			regexp.QuoteMeta(string(m[3])) + "\\) \\|$")
		if !row.Match(document) {
			t.Errorf("docs/observability.md has no row of %s with %s and a link to %s", m[1], m[2], m[3])
		}
	}
	if rows := bytes.Count(document, []byte("\n| `Sluice")); rows != len(alerts) || rows < 20 {
		t.Errorf("docs/observability.md has %d rows of alerts, want %d", rows, len(alerts))
	}
}

// testsIn returns the names of the tests in a directory, and the text of their files.
func testsIn(t *testing.T, dir string) (names []string, text string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", dir, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text += string(bytes.ReplaceAll(content, []byte("\r"), nil))
	}
	for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names, text
}
