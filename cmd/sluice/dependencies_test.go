package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Each module in the program costs its users time to download and compile. One more is a decision; see ADR 49.
func TestModulesOfTheProgram(t *testing.T) {
	const golden = "testdata/modules.txt"
	list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", ".")
	list.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	got := strings.Join(slices.Compact(modules), "\n") + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the program has the modules\n%swant\n%sIf that is intended: go test ./cmd/sluice -run Modules -update",
			got, want)
	}
}

// A method that is looked up by a name that the linker does not know keeps every exported method in the program. The
// templates of the standard library look methods up so.
func TestLinkerRemovesUnusedMethods(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads ELF")
	}
	file := filepath.Join(t.TempDir(), "sluice")
	build := exec.Command("go", "build", "-ldflags=-w", "-o", file, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	symbols, err := program.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, s := range symbols {
		names[s.Name] = true
	}
	const unused = "github.com/redis/go-redis/v9.cmdable.FTSynUpdate"
	if !names["sluice/internal/htmltemplate.Parse"] || names[unused] {
		t.Errorf("a method that the program does not use is linked: go build -ldflags=-dumpdep ./cmd/sluice 2>&1 | " +
			"grep ReflectMethod shows the cause")
	}
}
