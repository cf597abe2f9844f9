package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// tree returns all runnable commands, with defaults that no environment variable changes.
func tree(t *testing.T) []*cobra.Command {
	t.Helper()
	p := &program{getenv: func(string) string { return "" }, out: &bytes.Buffer{}, errOut: &bytes.Buffer{}}
	var all []*cobra.Command
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		all = append(all, c)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(p.root())
	return all
}

func isLeaf(c *cobra.Command) bool { return c.Runnable() && !c.HasSubCommands() }

// inQuotes matches a text in quotes, which a shell takes for one word. The test does not check the text.
var inQuotes = regexp.MustCompile(`"[^"]*"|'[^']*'`)

// withoutStores matches the error of a command that needs Redis or the database and has no address of it.
var withoutStores = regexp.MustCompile(`no Redis|no database`)

// Every command has an example. The commands, flags and arguments in all examples are valid.
func TestEveryCommandHasExamplesThatParse(t *testing.T) {
	shown := 0
	for _, c := range tree(t) {
		if isLeaf(c) && c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for line := range strings.SplitSeq(c.Example, "\n") {
			_, line, found := strings.Cut(inQuotes.ReplaceAllString(line, "WORD"), "sluice ")
			if !found || strings.Contains(line, "source <(") {
				continue
			}
			line = regexp.MustCompile(`\s[#|<>]|\)`).Split(line, 2)[0] // the rest is a comment or another program
			shown++
			root := tree(t)[0]
			target, rest, err := root.Find(strings.Fields(line))
			if err != nil || target == root || !isLeaf(target) && !target.Runnable() {
				t.Errorf("%s: the example %q names no command: %v", c.CommandPath(), line, err)
				continue
			}
			if err := target.ParseFlags(rest); err != nil {
				t.Errorf("%s: the example %q: %v", c.CommandPath(), line, err)
			}
			if args := target.Flags().Args(); target.Args != nil {
				if err := target.Args(target, args); err != nil {
					t.Errorf("%s: the example %q: %v", c.CommandPath(), line, err)
				}
			}
			if target.Flags().Lookup("redis") == nil || target.PreRunE == nil {
				continue
			}
			target.SetContext(t.Context())
			if err := target.PreRunE(target, nil); err != nil && withoutStores.MatchString(err.Error()) {
				t.Errorf("%s: the example %q: %v", c.CommandPath(), line, err)
			}
		}
	}
	if shown < 60 {
		t.Errorf("%d examples were checked, want at least 60", shown)
	}
}

// noData lists the commands without --json: they print no data, or print it in a format for programs.
var noData = []string{
	"sluice up",
	"sluice gateway",
	"sluice edge reload",
	"sluice edge",
	"sluice backend",
	"sluice worker",
	"sluice watcher",
	"sluice group run", // run until they are stopped, and log JSON
	"sluice keys new",
	"sluice keys public",   // JSON anyway
	"sluice policy import", // Lua, with comments
	"sluice manual",
	"sluice completion bash",
	"sluice completion zsh",
	"sluice completion fish",
	"sluice completion powershell", // a text
}

func TestEveryCommandThatPrintsDataHasJSON(t *testing.T) {
	for _, c := range tree(t) {
		has := c.Flag("json") != nil
		if isLeaf(c) && has == slices.Contains(noData, c.CommandPath()) {
			t.Errorf("%s: --json is there: %v", c.CommandPath(), has)
		}
	}
}

const commandsFile = "../../docs/commands.md"

// docs/commands.md is the manual that the program prints, in any environment.
func TestCommandReferenceIsUpToDate(t *testing.T) {
	want, err := os.ReadFile(commandsFile)
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	code := run(
		t.Context(),
		[]string{"manual"},
		func(name string) string {
			if strings.HasSuffix(name, "_FILE") { // there is no such file
				return ""
			}
			return "set-" + name
		},
		&out,
		&errOut,
	)
	if code != exitOK || errOut.Len() > 0 {
		t.Fatalf("exit %d, %s", code, errOut.String())
	}
	if out.String() != string(want) {
		t.Error("docs/commands.md differs from sluice manual: run make commands")
	}
}

func TestManual(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{
			[]string{"manual"}, exitOK,
			[]string{"## sluice sale create", "| `--per-buyer int` | `1` |", "## Exit codes", "SLUICE_ADMIN_TOKEN"},
		},
		{[]string{"manual", "sale", "create"}, exitOK, []string{"## sluice sale create", "sluice sale create --id shoe"}},
		{[]string{"manual", "edge"}, exitOK, []string{"And `--prefix` of `sluice edge`.\n"}},
		{[]string{"manual", "sale"}, exitOK, []string{"And the flags of `sluice sale`.\n"}},
		{[]string{"manual", "sale", "none"}, exitUsage, []string{`there is no command "sale none"`}},
	} {
		var out bytes.Buffer
		code := run(t.Context(), c.args, func(string) string { return "" }, &out, &out)
		for _, want := range c.want {
			if code != c.code || !strings.Contains(out.String(), want) {
				t.Errorf("%v: exit %d, without %q, in %d bytes", c.args, code, want, out.Len())
			}
		}
	}
}

// The manual describes every variable that the program reads.
func TestEveryVariableIsInTheManual(t *testing.T) {
	manual, err := os.ReadFile(commandsFile)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`"(SLUICE_[A-Z_]+)"`).FindAllSubmatch(text, -1) {
			found++
			if !regexp.MustCompile("[\\[`]" + string(m[1]) + "[\\]`]").Match(manual) {
				t.Errorf("%s: %s is neither in the help of a flag nor in the manual's list of variables", name, m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("%d variables were found; there are more", found)
	}
}

// A variable may contain a password, and the help shows the defaults of flags.
func TestHelpShowsNoValueOfAVariable(t *testing.T) {
	p := &program{getenv: func(string) string { return "hush" }, out: &bytes.Buffer{}, errOut: &bytes.Buffer{}}
	forAll(p.root(), func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if strings.Contains(f.DefValue, "hush") {
				t.Errorf("%s --%s shows the default %s", c.CommandPath(), f.Name, f.DefValue)
			}
		})
	})
}
