package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// contents checks the metadata and file lists of the packages.
func contents(t *testing.T, dir string) {
	t.Helper()
	deb := filepath.Join(dir, "sluice_0.1.0_amd64.deb")
	list := output(t, "dpkg-deb", "--contents", deb)
	for _, want := range []string{
		`-rwxr-xr-x root/root .* \./usr/bin/sluice`, `drwx------ root/root .* \./etc/sluice/credentials/`,
		`-rw-r--r-- root/root .* \./usr/lib/systemd/system/sluice-backend\.service`,
		`-rw-r--r-- root/root .* \./usr/share/man/man1/sluice-sale\.1\.gz`,
		`-rw-r--r-- root/root .* \./usr/share/bash-completion/completions/sluice`,
	} {
		if !regexp.MustCompile(want + `(\n|$)`).MatchString(list) {
			t.Errorf("sluice has no %s:\n%s", want, list)
		}
	}
	edge := filepath.Join(dir, "sluice-edge_0.1.0_all.deb")
	if list := output(t, "dpkg-deb", "--contents", edge); strings.Contains(list, "_test.go") ||
		!strings.Contains(list, "./usr/share/sluice/lua/edge/sluice/access.lua") || !strings.Contains(list, "-rw-r--r--") ||
		strings.Contains(list, "-rw-------") {
		t.Errorf("sluice-edge has\n%s", list)
	}
	fields := output(t, "dpkg-deb", "--field", edge, "Depends", "Architecture", "Version")
	for _, want := range []string{"sluice (= 0.1.0)", "nginx-light |", "libnginx-mod-http-lua", "Architecture: all"} {
		if !strings.Contains(fields, want) {
			t.Errorf("sluice-edge has no %s in\n%s", want, fields)
		}
	}
}

// The backend reads every secret that docs/commands.md lists from a file of systemd.
func TestBackendUnitLoadsEverySecret(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	commands, err := os.ReadFile(filepath.Join(root, "docs/commands.md"))
	if err != nil {
		t.Fatal(err)
	}
	unit, err := os.ReadFile(filepath.Join(root, "packaging/debian/units/sluice-backend.service"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(commands), "A variable that holds a secret can be in a file:")
	list, _, _ = strings.Cut(list, "\n")
	names := regexp.MustCompile("`(SLUICE_([A-Z_]+))`").FindAllStringSubmatch(list, -1)
	if len(names) < 8 {
		t.Fatalf("docs/commands.md lists %v", names)
	}
	for _, name := range names {
		file := strings.ToLower(strings.ReplaceAll(name[2], "_", "-"))
		for _, want := range []string{
			"LoadCredential=" + file + ":/etc/sluice/credentials/" + file, "Environment=" + name[1] + "_FILE=%d/" + file,
		} {
			if !strings.Contains(string(unit), want+"\n") {
				t.Errorf("sluice-backend.service has no %s", want)
			}
		}
	}
}

// Every group of order events that docs/events.md lists has a unit and a Deployment.
func TestEveryGroupIsPackaged(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/events.md"))
	if err != nil {
		t.Fatal(err)
	}
	groups := regexp.MustCompile("`sluice group run ([a-z-]+)`").FindAllStringSubmatch(string(text), -1)
	if len(groups) < 3 {
		t.Fatalf("docs/events.md lists %v", groups)
	}
	for _, group := range groups {
		for file, want := range map[string]string{
			"debian/units/sluice-" + group[1] + ".service": "/usr/bin/sluice group run " + group[1] + " ",
			"chart/sluice/templates/" + group[1] + ".yaml": `"sluice.group" (list $ "` + group[1] + `" `,
		} {
			text, err := os.ReadFile(filepath.Join(root, "packaging", file))
			if err != nil || !strings.Contains(string(text), want) {
				t.Errorf("the group %s is not in packaging/%s: %v", group[1], file, err)
			}
		}
	}
}

// exposure rates the units as systemd does: each is below 2.0.
func exposure(t *testing.T, dir string) {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"sluice_0.1.0_amd64.deb", "sluice-edge_0.1.0_all.deb"} {
		output(t, "dpkg-deb", "--extract", filepath.Join(dir, name), root)
	}
	rated := regexp.MustCompile(`Overall exposure level for (\S+): ([0-9.]+) `)
	for _, name := range append(units(t, true), units(t, false)...) {
		if !strings.HasSuffix(name, ".service") {
			continue
		}
		text := output(t, "systemd-analyze", "security", "--offline=true", "--no-pager", "--root="+root, name)
		m := rated.FindStringSubmatch(text)
		if m == nil {
			t.Errorf("%s: %s", name, text)
			continue
		}
		if level, err := strconv.ParseFloat(m[2], 64); err != nil || level >= 2 {
			t.Errorf("%s has the exposure %s, want below 2.0", m[1], m[2])
		}
	}
}

// The rate limiter is installed from each artefact, and passes its tests from there.
func TestInstalledLimiterKeepsBound(t *testing.T) {
	r := testRelease(t, "0.1.0", t.TempDir())
	rock := filepath.Join(r.Out, "lua-sluice-limit-0.1.0-1.src.rock")
	opm := filepath.Join(r.Out, "lua-sluice-limit-0.1.0.opm.tar.gz")
	if *releaseDir != "" {
		rock, opm = artefact(t, "lua-sluice-limit-*.src.rock"), artefact(t, "lua-sluice-limit-*.opm.tar.gz")
	} else if err := r.Make(t.Context(), []string{"lua"}); err != nil {
		t.Fatal(err)
	}
	tree, dir := t.TempDir(), t.TempDir()
	output(t, "luarocks", "--lua-version", "5.1", "--tree", tree, "install", "--deps-mode=none", rock)
	unpack(t, opm, dir)
	lib := filepath.Join(dir, strings.TrimSuffix(filepath.Base(opm), ".tar.gz"), "lib/?.lua")
	for name, path := range map[string]string{"rock": tree + "/share/lua/5.1/?.lua", "opm": lib} {
		cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-v",
			"-run", "^(TestLimiterReplacesRestyLimitReq|TestLimiterAgreesWithRestyLimitReq|TestLimiterLoadsDocumentedFiles)$",
			"./nginx")
		cmd.Dir, cmd.Env = r.Root, append(os.Environ(), "SLUICE_TEST_LUA_PATH="+path)
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Count(string(out), "--- PASS") != 3 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// unpack extracts an archive as opm does, and checks its dist.ini.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r, ini := tar.NewReader(z), false; ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			if !ini {
				t.Error("the opm package has no dist.ini")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(h.Name, "/dist.ini") {
			version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(archive), "lua-sluice-limit-"), ".opm.tar.gz")
			ini = strings.Contains(string(text), "\nversion = "+version+"\n") &&
				strings.Contains(string(text), "\nmain_module = lib/sluice/limit/req.lua\n")
		}
		to := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // workers of nginx read it
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o644); err != nil { //nolint:gosec // workers of nginx read it
			t.Fatal(err)
		}
	}
}

func TestNotesAreSectionOfChangelog(t *testing.T) {
	const log = "# Changelog\n\n## [Unreleased]\n\n- later\n\n## [1.2.0] - 2026-11-22\n\n### Added\n\n- a\n\n## [1.1.0]\n\n- b\n\n## [1.0.0]\n\n"
	for version, want := range map[string]string{
		"1.2.0": "# sluice 1.2.0 - 2026-11-22\n\n### Added\n\n- a\n",
		"1.1.0": "# sluice 1.1.0\n\n- b\n",
	} {
		if got, err := changes(log, version); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", version, got, err, want)
		}
	}
	for version, want := range map[string]string{
		"1.3.0": "CHANGELOG.md has no section ## [1.3.0]: rename [Unreleased] to it first",
		"1.0.0": "CHANGELOG.md has nothing in the section ## [1.0.0]",
		"1.2":   "no section", "1.2.0-rc.1": "no section",
	} {
		if _, err := changes(log, version); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", version, err, want)
		}
	}
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

// A candidate is older than its release, in Debian and in LuaRocks.
func TestVersionsOfCandidates(t *testing.T) {
	if got := debVersion("1.2.3-rc.1"); got != "1.2.3~rc.1" {
		t.Error(got)
	}
	output(t, "dpkg", "--compare-versions", debVersion("1.2.3-rc.1"), "lt", debVersion("1.2.3"))
	if got := rockVersion("1.2.3-rc.1"); got != "1.2.3rc.1-1" {
		t.Error(got)
	}
}

func TestManPages(t *testing.T) {
	pages := manPages("# Commands\n\n## sluice\n\nsluice sells. It is exact.\n\n## sluice sale\n\nManage sales.\n\n"+
		"## sluice sale list\n\nList sales.\n\n| Flag | Default | What |\n| --- | --- | --- |\n"+
		"| `--json` |  | print a \\| b |\n| `--state string` | `open` | state |\n\n## Exit codes\n\n"+
		"| Code | When |\n| --- | --- |\n| `0` | success |\n", "1.2.3", time.Unix(0, 0).UTC())
	if len(pages) != 2 {
		t.Fatalf("%d pages", len(pages))
	}
	for name, wants := range map[string][]string{
		"sluice":      {`.TH SLUICE 1 "1970-01-01"`, ".SH EXIT CODES", "success", "sluice-sale", "sluice sells"},
		"sluice-sale": {".SH SLUICE SALE LIST", "print a | b", "(default", "open"},
	} {
		for _, want := range wants {
			if !strings.Contains(string(pages[name]), want) {
				t.Errorf("%s has no %q:\n%s", name, want, pages[name])
			}
		}
	}
}

func TestSBOMListsModules(t *testing.T) {
	r := testRelease(t, "0.1.0", t.TempDir())
	r.Archs = []string{"amd64"}
	if err := r.Make(t.Context(), []string{"sbom"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(r.Out, "sluice_0.1.0_amd64.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, c := range d.Components {
		names[c.Name] = c.Version
	}
	if d.Format != "CycloneDX" || names["github.com/goreleaser/nfpm/v2"] == "" || !strings.HasPrefix(names["std"], "1.") ||
		len(d.Dependencies) != 1 || len(d.Dependencies[0].DependsOn) != len(d.Components) {
		t.Errorf("%s", text)
	}
}
