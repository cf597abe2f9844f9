package main

import (
	"debug/buildinfo"
	"debug/elf"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var releaseDir = flag.String("release", "", "directory of the output of `make release`, which the test checks")

// artefact returns the artefact of -release that matches the pattern.
func artefact(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(*releaseDir, pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s in %s: %v, %v", pattern, *releaseDir, files, err)
	}
	return files[0]
}

// A release has the files of its checksums, and a package for each architecture with a static binary that runs. `make
// release-check` runs this, and TestInstalledLimiterKeepsBound with the artefacts of the release.
func TestRelease(t *testing.T) {
	if *releaseDir == "" {
		t.Skip("needs -release: see make release-check")
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	check.Dir = *releaseDir
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	version := regexp.MustCompile(`sluice-(.*)\.tgz$`).FindStringSubmatch(artefact(t, "sluice-*.tgz"))[1]
	notes, err := os.ReadFile(artefact(t, "NOTES.md"))
	if err != nil || !strings.HasPrefix(string(notes), "# sluice "+version) {
		t.Errorf("NOTES.md: %.100s, %v", notes, err)
	}
	debs, err := filepath.Glob(filepath.Join(*releaseDir, "sluice_*.deb"))
	if err != nil || len(debs) == 0 {
		t.Fatalf("no package: %v", err)
	}
	var files string // of each package
	for _, deb := range debs {
		arch := strings.TrimSpace(output(t, "dpkg-deb", "--field", deb, "Architecture"))
		if !strings.HasSuffix(deb, "_"+arch+".deb") {
			t.Errorf("%s is for %s", deb, arch)
		}
		t.Run(arch, func(t *testing.T) { binary(t, deb, arch, version) })
		list := paths(output(t, "dpkg-deb", "--contents", deb))
		if files != "" && list != files {
			t.Errorf("%s has\n%sanother has\n%s", deb, list, files)
		}
		files = list
	}
}

// paths returns the modes and names of a list of contents.
func paths(contents string) string {
	return regexp.MustCompile(`(?m)^(\S+ \S+) .* (\./.*)$`).ReplaceAllString(contents, "$1 $2")
}

// binary checks the binary, manual pages and completions of a package.
func binary(t *testing.T, deb, arch, version string) {
	root := t.TempDir()
	output(t, "dpkg-deb", "--extract", deb, root)
	name := filepath.Join(root, "usr/bin/sluice")
	file, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	want, known := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	if libraries, _ := file.ImportedLibraries(); !known || file.Machine != want || len(libraries) > 0 {
		t.Errorf("the binary is for %v and needs %v", file.Machine, libraries)
	}
	info, err := buildinfo.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["GOARCH"] != arch || settings["CGO_ENABLED"] != "0" || len(settings["vcs.revision"]) != 40 ||
		settings["vcs.modified"] != "false" {
		t.Errorf("built with %v", settings)
	}
	for _, pattern := range []string{
		"usr/share/man/man1/*.1.gz", "usr/lib/systemd/system/sluice-*.service", "usr/share/bash-completion/completions/*",
		"usr/share/zsh/vendor-completions/*", "usr/share/fish/vendor_completions.d/*",
	} {
		if found, err := filepath.Glob(filepath.Join(root, pattern)); err != nil || len(found) == 0 {
			t.Errorf("no %s: %v", pattern, err)
		}
	}
	output(t, "bash", "-n", filepath.Join(root, "usr/share/bash-completion/completions/sluice"))
	run := []string{name, "version"}
	if arch != goArch(t) {
		emulator := map[string]string{"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}[arch]
		if _, err := exec.LookPath(emulator); err != nil {
			t.Logf("the binary was not run: %v (Debian package qemu-user-static)", err)
			return
		}
		run = append([]string{emulator}, run...)
	}
	text := output(t, run[0], run[1:]...)
	if !strings.Contains(text, version) || !strings.Contains(text, "linux/"+arch) ||
		!strings.Contains(text, settings["vcs.revision"][:7]) {
		t.Errorf("%v prints %s", run, text)
	}
	t.Logf("%s", text)
}
