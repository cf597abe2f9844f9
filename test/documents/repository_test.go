package documents

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func readAll(t *testing.T) map[string]Document {
	t.Helper()
	all, err := ReadAll(root)
	if err != nil {
		t.Fatal(err)
	}
	byPath := map[string]Document{}
	for _, d := range all {
		byPath[d.Path] = d
	}
	return byPath
}

// target returns the path and the anchor of a relative link. It returns false for a link to another host.
func target(d Document, link string) (file, anchor string, ok bool) {
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "" || u.Host != "" {
		return "", "", err != nil
	}
	if u.Path == "" {
		return d.Path, u.Fragment, true
	}
	return path.Join(path.Dir(d.Path), u.Path), u.Fragment, true
}

func TestRelativeLinksResolve(t *testing.T) {
	docs := readAll(t)
	links := 0
	for _, d := range docs {
		for _, l := range d.Links {
			file, anchor, ok := target(d, l.Value)
			if !ok {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(root, file)); err != nil || strings.HasPrefix(file, "..") {
				t.Errorf("%s:%d: link to %s, which does not exist", d.Path, l.Line, l.Value)
				continue
			}
			to, isDocument := docs[file]
			if anchor != "" && isDocument && !to.Anchors[anchor] {
				t.Errorf("%s:%d: %s has no heading %q", d.Path, l.Line, file, anchor)
			}
		}
	}
	if links < 100 {
		t.Errorf("found %d links, want at least 100", links)
	}
}

func TestEveryPageIsLinkedFromDocsReadme(t *testing.T) {
	docs := readAll(t)
	reached := map[string]bool{}
	next := []string{"docs/README.md"}
	for len(next) > 0 {
		d, found := docs[next[0]]
		if next = next[1:]; !found || reached[d.Path] {
			continue
		}
		reached[d.Path] = true
		for _, l := range d.Links {
			file, _, ok := target(d, l.Value)
			if !ok {
				continue
			}
			next = append(next, file)
			for other := range docs { // a link to a directory lists its files
				if path.Dir(other) == file {
					next = append(next, other)
				}
			}
		}
	}
	for name := range docs {
		if (path.Dir(name) == "." || strings.HasPrefix(name, "docs/")) && !reached[name] {
			t.Errorf("%s is not linked, directly or indirectly, from docs/README.md", name)
		}
	}
}

var (
	makeCall   = regexp.MustCompile(`(?:^|[\s;&|])make ([a-z][a-z0-9-]*)`)
	makeTarget = regexp.MustCompile(`(?m)^([a-z0-9][a-z0-9 -]*):`)
	variable   = regexp.MustCompile(`\bSLUICE_[A-Z0-9_]+\b`)
)

func TestDocumentedMakeTargetsExist(t *testing.T) {
	targets := map[string]bool{}
	for _, file := range makefiles {
		for _, m := range makeTarget.FindAllStringSubmatch(readMakefile(t, file), -1) {
			for _, name := range strings.Fields(m[1]) {
				targets[name] = true
			}
		}
	}
	calls := 0
	for _, d := range readAll(t) {
		for _, code := range append(d.Code, d.Spans...) {
			for _, m := range makeCall.FindAllStringSubmatch(code.Value, -1) {
				if calls++; !targets[m[1]] {
					t.Errorf("%s:%d: the makefiles have no target for %q", d.Path, code.Line, "make "+m[1])
				}
			}
		}
	}
	if calls < 10 {
		t.Errorf("found %d calls of make, want at least 10", calls)
	}
}

func TestDocumentedVariablesExist(t *testing.T) {
	used := variablesInCode(t)
	named := 0
	for _, d := range readAll(t) {
		for _, code := range append(d.Code, d.Spans...) {
			for _, name := range variable.FindAllString(code.Value, -1) {
				if named++; !used[name] && !strings.HasSuffix(name, "_") {
					t.Errorf("%s:%d: no program, script or test uses %s", d.Path, code.Line, name)
				}
			}
		}
	}
	if named < 50 {
		t.Errorf("found %d names of variables, want at least 50", named)
	}
}

// sources are the extensions of files that may use a variable. Scripts and the Makefile have none.
var sources = map[string]bool{".go": true, ".lua": true, ".js": true, ".conf": true, ".sh": true, "": true}

// variablesInCode returns the variables that a program, a script or a test names. A variable that only a compose file
// names has no effect.
func variablesInCode(t *testing.T) map[string]bool {
	t.Helper()
	used := map[string]bool{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		switch {
		case d.IsDir() && (name == ".git" || name == "bin" || name == "docs" || name == "node_modules" ||
			strings.HasPrefix(name, ".sluice")): // data of a sluice that was started here
			return filepath.SkipDir
		case !d.Type().IsRegular() || !sources[filepath.Ext(name)]:
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, found := range variable.FindAllString(string(text), -1) {
			used[found] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// Only comments may differ.
func TestTranslationsHaveTheSameCommands(t *testing.T) {
	docs := readAll(t)
	comment := regexp.MustCompile(`\s+# .*`)
	commands := func(name string) []string {
		var lines []string
		for _, c := range docs[name].Code {
			lines = append(lines, comment.ReplaceAllString(c.Value, ""))
		}
		return lines
	}
	for english, chinese := range map[string]string{
		"docs/start.md": "docs/zh-CN/start.md",
		"README.md":     "README.zh-CN.md",
	} {
		want, got := commands(english), commands(chinese)
		if len(want) == 0 || !slices.Equal(want, got) {
			t.Errorf("%s contains the commands\n%s\nbut %s contains\n%s",
				english, strings.Join(want, "\n"), chinese, strings.Join(got, "\n"))
		}
	}
}
