package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/test/documents"
)

// Calls of sluice in code blocks must be valid: the command, its flags with their values, and the number of arguments.
// In a sentence, arguments and values may be missing; the names of the command and its flags must exist.
func TestCommandsInDocumentsParse(t *testing.T) {
	docs, err := documents.ReadAll("../..")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for _, d := range docs {
		if d.Path == "docs/commands.md" { // generated from the help texts, with usage lines
			continue
		}
		for _, code := range d.Code {
			for _, args := range documents.Calls("sluice", code.Value) {
				calls++
				if err := parses(args); err != nil {
					t.Errorf("%s:%d: sluice %s: %v", d.Path, code.Line, strings.Join(args, " "), err)
				}
			}
		}
		for _, code := range d.Spans {
			for _, args := range documents.Calls("sluice", code.Value) {
				calls++
				if err := exists(args); err != nil {
					t.Errorf("%s:%d: `sluice %s`: %v", d.Path, code.Line, strings.Join(args, " "), err)
				}
			}
		}
	}
	if calls < 80 {
		t.Errorf("found %d calls, want at least 80", calls)
	}
}

var (
	shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
	usesSale   = regexp.MustCompile(`sluice sale (?:show|audit|describe|restock|pause|resume|open|close) (\w+)`)
)

// Commands that are printed together run in order: the sale that one of them creates has the id that the next one uses.
func TestCommandsUseTheSaleThatTheyCreate(t *testing.T) {
	var blocks []string
	for _, c := range tree(t) {
		blocks = append(blocks, c.Example)
	}
	docs, err := documents.ReadAll("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		text, err := os.ReadFile(filepath.Join("../..", d.Path))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
			blocks = append(blocks, block[1])
		}
	}
	for _, block := range blocks {
		_, after, creates := strings.Cut(block, "sluice sale create")
		for _, used := range usesSale.FindAllStringSubmatch(after, -1) {
			if creates && !strings.Contains(block, "--id "+used[1]+" ") {
				t.Errorf("no sale %s is created in:\n%s", used[1], block)
			}
		}
	}
}

var (
	variableOfFlag = regexp.MustCompile(`\[(SLUICE_[A-Z_]+)\]$`)
	settingRow     = regexp.MustCompile("(?m)^\\| `(SLUICE_[A-Z_]+)` \\| ([^|]*) \\| ([^|]*) \\|")
)

// The table of the configuration has every flag with a variable, and its default.
func TestConfigurationTableHasFlagsAndDefaults(t *testing.T) {
	text, err := os.ReadFile("../../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	type setting struct{ flag, value string }
	documented := map[string]setting{}
	for _, row := range settingRow.FindAllStringSubmatch(string(text), -1) {
		documented[row[1]] = setting{row[2], strings.TrimLeft(row[3], "`")}
	}
	checked := 0
	for _, c := range tree(t) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			name := variableOfFlag.FindStringSubmatch(f.Usage)
			if name == nil {
				return
			}
			checked++
			row, found := documented[name[1]]
			if !found || !strings.HasPrefix(row.flag, "`--"+f.Name+"`") {
				t.Errorf("%s --%s: the row of %s is missing, or has the flag %q", c.CommandPath(), f.Name, name[1], row.flag)
			}
			if def := flagDefault(f); def != "" && !strings.HasPrefix(row.value, def) {
				t.Errorf("%s --%s: the default is %s, and %q in the table", c.CommandPath(), f.Name, def, row.value)
			}
		})
	}
	if checked < 60 {
		t.Errorf("%d flags with a variable were found; there are more", checked)
	}
}

func find(args []string) (*cobra.Command, []string, error) {
	p := &program{getenv: func(string) string { return "" }, out: io.Discard, errOut: io.Discard}
	root := p.root()
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	c, rest, err := root.Find(args)
	if err == nil {
		c.InitDefaultHelpFlag()
		c.InitDefaultVersionFlag()
	}
	return c, rest, err
}

func parses(args []string) error {
	c, rest, err := find(args)
	if err != nil {
		return err
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}

func exists(args []string) error {
	for i := range args { // as in "sluice group list, run, remove"
		args[i] = strings.TrimRight(args[i], ",")
	}
	c, rest, err := find(args)
	if err != nil {
		return err
	}
	for _, word := range rest {
		name, isFlag := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(name, "=")
		known := name == "" || c.Flags().Lookup(name) != nil || c.InheritedFlags().Lookup(name) != nil ||
			c.PersistentFlags().Lookup(name) != nil
		switch {
		case isFlag && !known:
			return usage("there is no flag --%s", name)
		case !isFlag && strings.ToLower(word) == word && !strings.HasPrefix(word, "-") && c.HasSubCommands() &&
			c.ValidateArgs([]string{word}) != nil:
			return usage("there is no command %q", word)
		}
	}
	return nil
}

func TestDocumentCheckRejectsUnknownCommands(t *testing.T) {
	for _, bad := range []string{
		"sale creat", "sale list --jsn", "sale restock shoe --add many", "upp", "sale show", "up now",
	} {
		if parses(strings.Fields(bad)) == nil {
			t.Errorf("parses(%q) returned no error", bad)
		}
	}
	for _, bad := range []string{"sale creat", "sale list --jsn", "upp"} {
		if exists(strings.Fields(bad)) == nil {
			t.Errorf("exists(%q) returned no error", bad)
		}
	}
}
