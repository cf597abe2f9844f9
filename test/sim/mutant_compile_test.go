package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/gopher-lua/parse"
)

// TestMutantsCompile finds mutants in Go that do not compile, and mutants in Lua that do not parse: no test would run
// them. It checks the types of the changed package only, and reads those of its imports from the build cache.
func TestMutantsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: with the race detector, all imports would be built again without it")
	}
	packages := listPackages(t)
	for _, m := range slices.Concat(fast, mutants) {
		text, err := os.ReadFile(filepath.Join("../..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		mutated := strings.Replace(string(text), m.old, m.new, 1)
		switch path.Ext(m.file) {
		case ".go":
			err = packages.check(m.file, mutated)
		case ".lua":
			_, err = parse.Parse(strings.NewReader(mutated), m.file)
		}
		if err != nil {
			t.Errorf("mutant %q: %v", m.name, err)
		}
	}
}

// packageFiles is a package as go list describes it.
type packageFiles struct {
	ImportPath, Export string // Export is the file with its exported types
	GoFiles            []string
}

// goPackages are the packages with mutants and everything that they import.
type goPackages struct {
	byPath   map[string]packageFiles
	fset     *token.FileSet
	importer types.Importer
}

// listPackages builds the packages with mutants, as go test does, if the build cache does not have them.
func listPackages(t *testing.T) *goPackages {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export,GoFiles"}
	for _, m := range slices.Concat(fast, mutants) {
		if dir := "./" + path.Dir(m.file); path.Ext(m.file) == ".go" && !slices.Contains(args, dir) {
			args = append(args, dir)
		}
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := &goPackages{byPath: map[string]packageFiles{}, fset: token.NewFileSet()}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p packageFiles
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all.byPath[p.ImportPath] = p
	}
	all.importer = importer.ForCompiler(all.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(all.byPath[path].Export)
	})
	return all
}

// check checks the types of the package of a file that has this text. It returns the first error.
func (all *goPackages) check(file, text string) error {
	dir := path.Dir(file)
	p := all.byPath["sluice/"+dir]
	if !slices.Contains(p.GoFiles, path.Base(file)) {
		return fmt.Errorf("%s is not a file of the product", file)
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		var changed any // nil: the parser reads the file
		if name == path.Base(file) {
			changed = text
		}
		parsed, err := parser.ParseFile(all.fset, filepath.Join("../..", dir, name), changed, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, parsed)
	}
	_, err := (&types.Config{Importer: all.importer}).Check(p.ImportPath, all.fset, files, nil)
	return err
}
