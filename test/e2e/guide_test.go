package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/test/testenv"
)

const quickStart = "docs/start.md"

// The commands of the README and of the quick start work as printed, in their order: those of the README alone, and
// those of the README after the quick start.
func TestGuidesRunAsPrinted(t *testing.T) {
	t.Parallel()
	for name, documents := range map[string][]string{
		"readme":                   {"README.md"},
		"quick start, then readme": {quickStart, "README.md"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuide(t)
			for _, document := range documents {
				g.add(t, document)
			}
			g.run(t)
			if len(documents) > 1 {
				g.checkQuickStart(t)
			}
			if reports, _ := filepath.Glob(filepath.Join(g.dir, "rehearsal-demo-*.html")); len(reports) != 1 {
				t.Errorf("found the rehearsal reports %v, want one", reports)
			}
		})
	}
}

// guide is a shell script of the commands of some documents, and the output of each block of them.
type guide struct {
	dir     string
	replace *strings.Replacer // of the addresses in the documents
	env     []string
	script  strings.Builder
	blocks  []string          // the sources, in order
	output  map[string]string // source -> output
}

// newGuide creates a directory that looks like a clone, for a deployment on free ports. go and make are replaced by
// scripts that use the binary under test.
func newGuide(t *testing.T) *guide {
	t.Helper()
	g := &guide{dir: t.TempDir(), output: map[string]string{}}
	listen, admin := addr(t), addr(t)
	g.replace = strings.NewReplacer("127.0.0.1:8080", listen, "127.0.0.1:8081", admin)
	policy, err := os.ReadFile(filepath.Join(root, "lua/policy.lua"))
	if err != nil {
		t.Fatal(err)
	}
	tools := t.TempDir()
	install := fmt.Sprintf("mkdir -p bin && cp %s bin/sluice", binary)
	for path, text := range map[string]string{
		filepath.Join(g.dir, "lua/policy.lua"): string(policy),
		filepath.Join(tools, "make"):           "#!/bin/sh\ncase $1 in build) " + install + ";; test) ;; *) exit 2;; esac\n",
		filepath.Join(tools, "go"): "#!/bin/sh\ncase $1 in build) " + install + ";; " +
			"run) shift 2; exec " + binary + " \"$@\";; *) exit 2;; esac\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a directory of the test
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil { //nolint:gosec // an executable of the test
			t.Fatal(err)
		}
	}
	g.env = []string{
		"PATH=" + tools + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "NO_COLOR=1",
		"SLUICE_LISTEN=" + listen, "SLUICE_ADMIN_LISTEN=" + admin,
	}
	// ERR records commands that fail; those in conditions do not count. With job control, background processes receive
	// the SIGINT that stands for Ctrl-C in the first terminal.
	g.script.WriteString(`set -mE
trap 'echo "exit $?: $BASH_COMMAND" >> failures' ERR
trap 'kill $(jobs -p) 2> /dev/null || true' EXIT
first=
stop_first() { if [ -n "$first" ]; then kill -INT "$first"; wait "$first"; first=; fi; }
start_first() {
  stop_first
  wait # for a process that a document has killed
  go run ./cmd/sluice up > first.log 2>&1 & first=$!
  until ` + binary + ` health 2> /dev/null; do kill -0 "$first" || break; sleep 0.1; done
}
written() { until ` + binary + ` sale audit "$1" | grep -qE "ordered +$2"; do sleep 0.1; done; }
`)
	return g
}

var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// add appends the blocks of a document to the script.
func (g *guide) add(t *testing.T, document string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	blocks := shellBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 4 {
		t.Fatalf("%s has only %d blocks", document, len(blocks))
	}
	for _, block := range blocks {
		source := g.replace.Replace(block[1])
		fmt.Fprintf(&g.script, "echo '=== block %d'\n", len(g.blocks))
		g.blocks = append(g.blocks, block[1])
		for line := range strings.Lines(source) {
			switch {
			case strings.HasPrefix(line, "go run ./cmd/sluice up"):
				line = "start_first\n" // the first terminal
			case strings.HasPrefix(line, "sluice up > up.log"):
				line = "stop_first\n" + line
			case document == quickStart && strings.HasPrefix(line, "sluice order list"):
				line = "written demo 1\n" + line // a person is slower than the worker
			case document == quickStart && strings.HasPrefix(line, "sluice sale audit shoe"):
				line = "written shoe 5\n" + line
			}
			g.script.WriteString(line)
		}
	}
}

// run executes the script. Commands may fail only where the documents state it.
func (g *guide) run(t *testing.T) {
	t.Helper()
	g.script.WriteString("stop_first\n")
	shell := testenv.Launch(t, "bash", g.env, "-c", "cd "+g.dir+"\n"+g.script.String())
	select {
	case <-shell.Done():
	case <-time.After(5 * time.Minute): // only a command that hangs takes this long
		t.Error("the commands do not end")
		shell.End(syscall.SIGTERM)
	}
	printed := shell.Output()
	for i, part := range strings.Split(printed, "=== block ")[1:] {
		if i < len(g.blocks) {
			_, part, _ = strings.Cut(part, "\n")
			g.output[g.blocks[i]] += part
		}
	}
	failures, _ := os.ReadFile(filepath.Join(g.dir, "failures"))
	for failure := range strings.Lines(string(failures)) {
		switch {
		case strings.HasPrefix(failure, "exit 7: curl "), strings.HasPrefix(failure, "exit 56: curl "),
			strings.HasPrefix(failure, "exit 52: curl "): // refused or reset, after kill -9
		case strings.HasPrefix(failure, "exit 1: sluice rehearse"): // no-go on a slow machine
		case strings.HasPrefix(failure, "exit 137: sluice up"): // kill -9
		default:
			t.Errorf("a command of the documents fails: %s", failure)
		}
	}
	if t.Failed() {
		first, _ := os.ReadFile(filepath.Join(g.dir, "first.log"))
		t.Logf("--- first terminal\n%s", first)
	}
}

// checkQuickStart compares the output of the quick start with its text.
func (g *guide) checkQuickStart(t *testing.T) {
	t.Helper()
	for _, want := range []struct {
		block, text string
		times       int
	}{
		{"curl -i -w", "202 Accepted", 1},
		{"sluice order list --sale demo", "created", 1},
		{`"buyer $i: %{http_code}`, ": 202", 5},
		{`"buyer $i: %{http_code}`, ": 409", 2},
		{"sluice sale audit shoe", "balanced", 1},
		{"sleep 2; bob=", " 202", 1},
		{"sleep 2; bob=", " 429", 1},
		{"sleep 2; bob=", "Retry-After", 1},
		{"kill -9 $pid", "202 ", 15},
		{"kill -9 $pid", "000 ", 15},
		{"sluice sale audit demo", "balanced", 1},
	} {
		found := false
		for _, block := range g.blocks {
			if !strings.Contains(block, want.block) {
				continue
			}
			if found = strings.Count(g.output[block], want.text) >= want.times; found {
				break
			}
		}
		if !found {
			t.Errorf("no block with %q prints %q %d times", want.block, want.text, want.times)
		}
	}
}
