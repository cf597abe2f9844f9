package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// machine is a directory in place of the root of a Debian system, for the maintainer scripts of the packages. Its
// systemctl records its arguments in the file calls, and fails for the unit in the file broken.
type machine struct {
	*testing.T
	root string
}

func newMachine(t *testing.T) machine {
	t.Helper()
	m := machine{t, t.TempDir()}
	for _, dir := range []string{"etc/sluice/credentials", "run/systemd/system", "bin"} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.write("bin/systemctl", "#!/bin/sh\ncd \"$(dirname \"$0\")/..\" && echo \"$*\" >>calls\n"+
		"for unit; do :; done\n[ ! -e broken ] || [ \"$unit\" != \"$(cat broken)\" ]\n", 0o755)
	return m
}

func (m machine) write(name, text string, mode os.FileMode) {
	m.Helper()
	if err := os.WriteFile(filepath.Join(m.root, name), []byte(text), mode); err != nil {
		m.Fatal(err)
	}
}

func (m machine) read(name string) string {
	m.Helper()
	text, err := os.ReadFile(filepath.Join(m.root, name))
	if err != nil {
		m.Fatal(err)
	}
	return string(text)
}

func (m machine) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(m.root, name))
	return err == nil
}

// run runs a maintainer script as dpkg does, with the paths of this machine. It returns the output and the calls of
// systemctl.
func (m machine) run(script string, args ...string) (out string, calls []string, err error) {
	m.Helper()
	text, readErr := os.ReadFile("debian/scripts/" + script)
	if readErr != nil {
		m.Fatal(readErr)
	}
	path := regexp.MustCompile(`/(?:etc|run|var)/`)
	text = path.ReplaceAll(text, []byte(m.root+"$0"))
	cmd := exec.CommandContext(m.Context(), "sh", append([]string{"-c", string(text), script}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+m.root+"/bin:"+os.Getenv("PATH"))
	printed, err := cmd.CombinedOutput()
	if m.exists("calls") {
		calls = strings.Split(strings.TrimSpace(m.read("calls")), "\n")
		_ = os.Remove(filepath.Join(m.root, "calls"))
	}
	return string(printed), calls, err
}

// units returns the names of the units in packaging/debian/units that belong to a package.
func units(t *testing.T, edge bool) []string {
	t.Helper()
	files, err := filepath.Glob("debian/units/sluice-*.*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var names []string
	for _, file := range files {
		if name := filepath.Base(file); (name == "sluice-edge.service") == edge {
			names = append(names, name)
		}
	}
	return names
}

// A unit that cannot start, for example because a file of it is missing, neither fails the upgrade nor leaves the other
// services with the old program.
func TestUpgradeRestartsTheOtherServices(t *testing.T) {
	m := newMachine(t)
	m.write("broken", "sluice-backend.service", 0o600)
	out, calls, err := m.run("sluice.postinst", "configure", "1.0.0")
	if err != nil || !strings.Contains(out, "journalctl -u sluice-backend") {
		t.Errorf("the upgrade printed %q: %v", out, err)
	}
	for _, unit := range units(t, false) {
		if strings.HasSuffix(unit, ".service") && !slices.Contains(calls, "try-restart "+unit) {
			t.Errorf("%s is not restarted: %q", unit, calls)
		}
	}
}

// The first configuration starts nothing. It creates the secrets, also after one that was interrupted.
func TestSecretsAreCreatedOnce(t *testing.T) {
	m := newMachine(t)
	m.write("etc/sluice/credentials/token-secret.new", "0123", 0o600)
	out, calls, err := m.run("sluice.postinst", "configure", "")
	if err != nil || !slices.Equal(calls, []string{"daemon-reload"}) {
		t.Errorf("the first configuration calls systemctl with %q: %v\n%s", calls, err, out)
	}
	secrets := map[string]string{}
	for _, name := range []string{"token-secret", "admin-token"} {
		file := "etc/sluice/credentials/" + name
		secrets[file] = m.read(file)
		info, err := os.Stat(filepath.Join(m.root, file))
		if err != nil || info.Mode() != 0o600 || !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(secrets[file]) {
			t.Errorf("%s is %q with mode %v: %v", name, secrets[file], info.Mode(), err)
		}
	}
	for _, version := range []string{"", "1.0.0"} {
		if out, _, err := m.run("sluice.postinst", "configure", version); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		for file, before := range secrets {
			if m.read(file) != before {
				t.Errorf("%s has changed", file)
			}
		}
	}
}

// A shop with keys of its own for tokens removes the token secret, because every reader of it could sign tokens.
func TestUpgradeKeepsTokenSecretRemoved(t *testing.T) {
	m := newMachine(t)
	for _, version := range []string{"", "1.0.0"} {
		if out, _, err := m.run("sluice.postinst", "configure", version); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if created := m.exists("etc/sluice/credentials/token-secret"); created != (version == "") {
			t.Errorf("after the configuration over version %q, the token secret exists: %v", version, created)
		}
		_ = os.Remove(filepath.Join(m.root, "etc/sluice/credentials/token-secret"))
	}
	for _, unit := range []string{"backend", "edge", "gateway"} {
		text, err := os.ReadFile("debian/units/sluice-" + unit + ".service")
		if err != nil || !strings.Contains(string(text), "\nSetCredential=token-secret:\\n\n") {
			t.Errorf("sluice-%s.service does not start without a token secret: %v", unit, err)
		}
	}
}

func TestRemovalStopsEveryUnitAndKeepsFiles(t *testing.T) {
	for name, edge := range map[string]bool{"sluice": false, "sluice-edge": true} {
		m := newMachine(t)
		m.write("etc/sluice/credentials/token-secret", "secret", 0o600)
		if out, calls, err := m.run(name+".prerm", "upgrade", "1.0.1"); err != nil || len(calls) > 0 {
			t.Errorf("%s: an upgrade calls systemctl with %q: %v\n%s", name, calls, err, out)
		}
		out, calls, err := m.run(name+".prerm", "remove")
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		for _, unit := range units(t, edge) {
			if !slices.Contains(calls, "disable --now --quiet "+unit) {
				t.Errorf("%s is not stopped: %q", unit, calls)
			}
		}
		out, _, err = m.run(name+".postrm", "remove")
		if err != nil || !m.exists("etc/sluice/credentials/token-secret") {
			t.Errorf("%s: the removal deletes the secrets: %v\n%s", name, err, out)
		}
	}
}

// A purge removes secrets and logs, and can be repeated. The journal stays: it may have the only copy of an order.
func TestPurgeKeepsJournal(t *testing.T) {
	m := newMachine(t)
	for _, dir := range []string{"var/lib/private/sluice-edge/logs", "var/lib/private/sluice-backend/journal"} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		for _, name := range []string{"sluice-edge", "sluice"} {
			if out, _, err := m.run(name+".postrm", "purge"); err != nil {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
		}
	}
	if m.exists("etc/sluice/credentials") || m.exists("var/lib/private/sluice-edge") ||
		!m.exists("var/lib/private/sluice-backend/journal") {
		t.Error("the purge removes the journal, or keeps secrets or logs")
	}
}
