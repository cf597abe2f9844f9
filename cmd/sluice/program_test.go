package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sluice runs the program with arguments, in an environment that has only env.
func sluice(t *testing.T, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = run(t.Context(), args, func(name string) string { return env[name] }, &out, &errOut)
	return code, out.String(), errOut.String()
}

// call is sluice with a command line without quotes, and with variables such as NAME=VALUE.
func call(t *testing.T, line string, variables ...string) (code int, stdout, stderr string) {
	t.Helper()
	env := map[string]string{}
	for _, variable := range variables {
		name, value, _ := strings.Cut(variable, "=")
		env[name] = value
	}
	return sluice(t, env, strings.Fields(line)...)
}

// write writes a new file and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
