package main

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

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
	unit := read(t, "debian/units/sluice-backend.service")
	_, list, _ := strings.Cut(read(t, "../docs/commands.md"), "A variable that holds a secret can be in a file:")
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
			if !strings.Contains(unit, want+"\n") {
				t.Errorf("sluice-backend.service has no %s", want)
			}
		}
	}
}

// Every group of order events that docs/events.md lists has a unit and a Deployment.
func TestEveryGroupIsPackaged(t *testing.T) {
	groups := regexp.MustCompile("`sluice group run ([a-z-]+)`").FindAllStringSubmatch(read(t, "../docs/events.md"), -1)
	if len(groups) < 3 {
		t.Fatalf("docs/events.md lists %v", groups)
	}
	for _, group := range groups {
		for file, want := range map[string]string{
			"debian/units/sluice-" + group[1] + ".service": "/usr/bin/sluice group run " + group[1] + " ",
			"chart/sluice/templates/" + group[1] + ".yaml": `"sluice.group" (list $ "` + group[1] + `" `,
		} {
			if !strings.Contains(read(t, file), want) {
				t.Errorf("the group %s is not in packaging/%s", group[1], file)
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
