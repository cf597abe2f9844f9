package compose_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice/test/testenv"
)

// build returns the path of a sluice made from this checkout.
func build(t *testing.T) string {
	t.Helper()
	bin, err := testenv.BuildSluice(root(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// The program has every command and flag that a container runs: with --help after them it exits 0 and does nothing
// else.
func TestCommandsExist(t *testing.T) {
	bin := build(t)
	check := func(where string, args []string) {
		out, err := exec.Command(bin, append(slices.Clone(args), "--help")...).CombinedOutput()
		// with --help, an unknown command prints the help of sluice and exits 0
		if err != nil || !strings.Contains(string(out), "\n  sluice "+args[0]+" ") {
			t.Errorf("%s runs sluice %s: %v\n%s", where, strings.Join(args, " "), err, out)
		}
	}
	if exec.Command(bin, "backend", "--no-such-flag", "--help").Run() == nil {
		t.Fatal("--help hides unknown flags, so this test proves nothing")
	}
	for name, s := range project(t).Services {
		if s.Image != "sluice" {
			continue
		}
		check(name, s.Command)
		if health := s.HealthCheck.Test; len(health) > 2 && health[0] == "CMD" && health[1] == "sluice" {
			check(name+"'s health check", health[2:])
		}
	}
}

// The health check of the image fits each command: it fails while `sluice up` starts or a store of the environment does
// not answer. It succeeds beside a gateway, which uses no store.
func TestHealthCheckOfTheImageFitsEachCommand(t *testing.T) {
	check := healthCheck(t)
	starting := t.TempDir()
	if err := os.WriteFile(filepath.Join(starting, "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bin := build(t)
	for name, c := range map[string]struct {
		data, variable string
		healthy        bool
	}{
		"gateway":                 {t.TempDir(), "SLUICE_UPSTREAM=http://backend:8080", true},
		"worker without Redis":    {t.TempDir(), "SLUICE_REDIS_URL=redis://" + testenv.FreeAddress(t), false},
		"sluice up, which starts": {starting, "SLUICE_LISTEN=:8080", false},
	} {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", check)
		cmd.Env = []string{"PATH=" + filepath.Dir(bin), "SLUICE_DATA=" + c.data, c.variable}
		out, err := cmd.CombinedOutput()
		if healthy := err == nil; healthy != c.healthy {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// A Go program that crashes exits with 2, as sluice health does beside a gateway.
func TestHealthCheckOfTheImageFailsAfterACrash(t *testing.T) {
	dir := t.TempDir()
	crash := "#!/bin/sh\necho 'fatal error: out of memory' >&2\nexit 2\n"
	if err := os.WriteFile(filepath.Join(dir, "sluice"), []byte(crash), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", healthCheck(t))
	cmd.Env = []string{"PATH=" + dir}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "out of memory") {
		t.Errorf("%v\n%s", err, out)
	}
}

// healthCheck returns the command of the image's health check, for a shell.
func healthCheck(t *testing.T) string {
	t.Helper()
	check := regexp.MustCompile(`(?m)^HEALTHCHECK .* CMD ((?:.*\\\n)*.*)$`).FindStringSubmatch(read(t, "Dockerfile"))
	if check == nil || !strings.Contains(check[1], "sluice health") {
		t.Fatal("the Dockerfile has no HEALTHCHECK that runs sluice in a shell")
	}
	return check[1]
}

// A variable that no program reads is a setting without effect.
func TestVariablesAreRead(t *testing.T) {
	variable := regexp.MustCompile(`"(SLUICE_[A-Z_]+)"`)
	known := map[string][]string{}
	sources, err := filepath.Glob(filepath.Join(root(t), "cmd/sluice/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		path, _ := filepath.Rel(root(t), source)
		for _, m := range variable.FindAllStringSubmatch(read(t, path), -1) {
			known["sluice"] = append(known["sluice"], m[1])
		}
	}
	for _, m := range regexp.MustCompile(`"(OTEL_[A-Z_]+)"`).FindAllStringSubmatch(
		read(t, "internal/tracing/settings.go"), -1,
	) {
		known["sluice"] = append(known["sluice"], m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^env (\w+);`).FindAllStringSubmatch(read(t, "nginx/runtime/main.conf"), -1) {
		known["edge"] = append(known["edge"], m[1])
	}
	for name, s := range project(t).Services {
		reader := name
		if s.Image == "sluice" {
			reader = "sluice"
		}
		for v := range s.Environment {
			if (reader == "sluice" || strings.HasPrefix(v, "SLUICE_")) && !slices.Contains(known[reader], v) {
				t.Errorf("%s sets %s, which %s does not read", name, v, reader)
			}
		}
	}
}

// .dockerignore includes only what it names; a missing package breaks the build of the image.
func TestImageGetsEveryPackage(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "-f", "{{if .Module}}{{if .Module.Main}}{{.Dir}}{{end}}{{end}}",
		"./cmd/sluice")
	list.Dir = root(t)
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	sent := strings.Split(read(t, ".dockerignore"), "\n")
	dirs := strings.Fields(string(out))
	for _, dir := range dirs {
		path, err := filepath.Rel(root(t), dir)
		if err != nil {
			t.Fatal(err)
		}
		if top, _, _ := strings.Cut(path, "/"); !slices.Contains(sent, "!"+top) {
			t.Errorf(".dockerignore keeps %s from the build", path)
		}
	}
	if len(dirs) < 5 {
		t.Errorf("go list found %d packages only", len(dirs))
	}
}
