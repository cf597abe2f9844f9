package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSecretsAreReadFromFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	env := map[string]string{
		"SLUICE_TOKEN_SECRET_FILE":   write("token", "secret\n"),
		"SLUICE_PAYMENT_SECRET_FILE": write("blank", " \n"),
		"SLUICE_REDIS_URL":           "redis://other:6379/0",
		// A unit of systemd names a file without a value if the credential is missing.
		"SLUICE_LIMIT_REDIS_URL": "redis://limits:6379/0", "SLUICE_LIMIT_REDIS_URL_FILE": write("missing", "\n"),
		"SLUICE_DATABASE_URL": "postgres://db/shop", "SLUICE_DATABASE_URL_FILE": write("equal", "postgres://db/shop\n"),
	}
	getenv, err := withSecretFiles(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		envSecret: "secret", envPayment: "", envRedis: "redis://other:6379/0", envAdminToken: "",
		envLimitRedis: "redis://limits:6379/0", envDatabase: "postgres://db/shop",
	} {
		if got := getenv(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestUnusableSecretFilesAreUsageErrors(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, make([]byte, maxSecret+1), 0o600); err != nil {
		t.Fatal(err)
	}
	two := filepath.Join(dir, "two")
	if err := os.WriteFile(two, []byte("old\nnew\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("y"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{
			map[string]string{"SLUICE_TOKEN_SECRET_FILE": filepath.Join(dir, "none")},
			"SLUICE_TOKEN_SECRET_FILE: open " + filepath.Join(dir, "none") + ": no such file or directory",
		},
		{map[string]string{"SLUICE_TOKEN_SECRET_FILE": dir}, "SLUICE_TOKEN_SECRET_FILE: read " + dir + ": is a directory"},
		{map[string]string{"SLUICE_ADMIN_TOKEN_FILE": big}, "has more than 65536 bytes"},
		{map[string]string{"SLUICE_ADMIN_TOKEN_FILE": "/dev/zero"}, "/dev/zero has more than 65536 bytes"},
		{map[string]string{"SLUICE_ADMIN_TOKEN_FILE": big, "SLUICE_ADMIN_TOKEN": "x"}, "SLUICE_ADMIN_TOKEN_FILE: " + big},
		{map[string]string{"SLUICE_ADMIN_TOKEN_FILE": two}, two + " has more than one line, or control characters"},
		{
			map[string]string{"SLUICE_ADMIN_TOKEN_FILE": other, "SLUICE_ADMIN_TOKEN": "x"},
			"SLUICE_ADMIN_TOKEN and SLUICE_ADMIN_TOKEN_FILE are both set: set one of them",
		},
	} {
		var out, errOut strings.Builder
		code := run(t.Context(), []string{"manual"}, func(name string) string { return c.env[name] }, &out, &errOut)
		if code != exitUsage || !strings.Contains(errOut.String(), c.want) || strings.Count(errOut.String(), "\n") != 1 {
			t.Errorf("exit %d, %q, want exit 2 and one line with %q", code, errOut.String(), c.want)
		}
	}
}
