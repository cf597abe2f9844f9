package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// testRelease returns a release of this repository that writes into the directory out. Its binary is this test: a
// build of sluice takes minutes.
func testRelease(t *testing.T, version, out string) Release {
	t.Helper()
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Release{
		Root: root, Out: out, Made: t.TempDir(), Version: version, Time: time.Unix(1_700_000_000, 0).UTC(),
		Archs: []string{"amd64", "arm64"}, Binaries: map[string]string{"amd64": self, "arm64": self},
	}
}

// output runs a command that must succeed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// copyTree copies files with another mode and time, as another checkout has them.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), text, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The same commit gives the same bytes, in another directory and with other modes and times of files.
func TestArtefactsAreReproducible(t *testing.T) {
	first := testRelease(t, "0.1.0", t.TempDir())
	second := testRelease(t, "0.1.0", t.TempDir())
	second.Root = filepath.Join(t.TempDir(), "another directory")
	for _, name := range []string{
		"CHANGELOG.md", "LICENSE", "docs/commands.md", "lua", "nginx/conf.d", "nginx/snippets", "nginx/nginx.conf",
		"nginx/check.conf", "packaging/debian", "packaging/chart", "packaging/lua",
	} {
		to := filepath.Join(second.Root, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		copyTree(t, filepath.Join(first.Root, name), to)
	}
	for _, r := range []Release{first, second} {
		if err := r.Make(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(first.Out)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		a, err := os.ReadFile(filepath.Join(first.Out, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(second.Out, e.Name()))
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs: %v", e.Name(), err)
		}
	}
	want := []string{
		"NOTES.md", "SHA256SUMS", "lua-sluice-limit-0.1.0-1.src.rock", "lua-sluice-limit-0.1.0.opm.tar.gz",
		"sluice-0.1.0.tgz", "sluice-edge_0.1.0_all.deb", "sluice_0.1.0_amd64.cdx.json", "sluice_0.1.0_amd64.deb",
		"sluice_0.1.0_arm64.cdx.json", "sluice_0.1.0_arm64.deb",
	}
	if !slices.Equal(names, want) {
		t.Errorf("the artefacts are %v, want %v", names, want)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--quiet", "SHA256SUMS")
	check.Dir = first.Out
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	contents(t, first.Out)
	exposure(t, first.Out)
}

func TestInvalidReleasesAreUsageErrors(t *testing.T) {
	for _, c := range []struct {
		version     string
		only, archs []string
		want        string
	}{
		{"", nil, []string{"amd64"}, `--version "": want a version such as 1.2.3`},
		{"v1.2.3", nil, []string{"amd64"}, "--version"},
		{"1.2.3; rm -rf /", nil, []string{"amd64"}, "--version"},
		{"1.2.3\n", nil, []string{"amd64"}, "--version"},
		{"01.2.3", nil, []string{"amd64"}, "--version"},
		{"1.2.3", []string{"rpm"}, []string{"amd64"}, `--only "rpm": want deb, chart, lua, sbom, notes`},
		{"1.2.3", nil, []string{"riscv64"}, `--arch "riscv64": want amd64 or arm64`},
		{"1.2.3", nil, nil, "--arch is empty"},
	} {
		err := Release{Version: c.version, Archs: c.archs}.check(c.only)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := (Release{Version: "1.2.3-rc.1", Archs: []string{"arm64"}}).check([]string{"deb", "notes"}); err != nil {
		t.Error(err)
	}
}
