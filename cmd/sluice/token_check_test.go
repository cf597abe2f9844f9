package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/token"
	"sluice/internal/token/tokentest"
)

func TestTokenCheck(t *testing.T) {
	provider := tokentest.NewProvider(token.ES256, "2026-11")
	url := provider.Serve(t)
	good := provider.Sign("ann")
	none := "--data " + t.TempDir()
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"token check --token-keys " + url + " " + none + " " + good, "valid: the buyer is ann, until 2", exitOK},
		{"token check --token-keys " + url + " --json " + none + " " + good, `"user": "ann"`, exitOK},
		{"token check --token-keys " + url + " --token-issuer https://shop.example " + none + " " + good,
			`the token is rejected: iss is not the expected issuer: iss is "https://login.example/", want "https://shop.example"`, exitFail},
		{"token check --token-keys " + url + " " + none + " " + good[:len(good)-6] + "AAAAAA", "invalid signature", exitFail},
		{"token check --token-keys " + url + " --json " + none + " x", `"valid": false`, exitFail},
		{"token check " + none + " " + good, "SLUICE_TOKEN_SECRET is not set", exitUsage},
		{"token check", "TOKEN is missing", exitUsage},
		{"token check --token-keys ftp://x/y " + good, "want https://", exitUsage},
	} {
		code, stdout, stderr := call(t, c.args)
		if out := stdout + stderr; code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit %d, %s; want %d, %s", c.args, code, out, c.code, c.want)
		}
	}
	// A token of the secret, with what a header has before it.
	code, stdout, stderr := call(t, "token --user bob "+none, "SLUICE_TOKEN_SECRET="+testSecret)
	if code != exitOK {
		t.Fatal(stderr)
	}
	args := append([]string{"token", "check", "Bearer " + strings.TrimSpace(stdout)}, strings.Fields(none)...)
	code, stdout, stderr = sluice(t, map[string]string{envSecret: testSecret}, args...)
	if code != exitOK || !strings.Contains(stdout, "bob") {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
}

// If the environment has no secret, the command names the file of the secret that it uses.
func TestTokenCheckNamesTheSecretFile(t *testing.T) {
	data := t.TempDir()
	if err := dataDir(data).write(tokenSecretFile, []byte(testSecret+"\n")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(data, "token.secret")
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{tokentest.Sign(t, testSecret, "ann", time.Hour), "the secret is that of " + file, exitOK},
		{tokentest.Sign(t, testSecret+"x", "ann", time.Hour), "the secret is that of " + file, exitFail},
		{"--json x", `"secret_file": "` + file + `"`, exitFail},
	} {
		args := "token check --data " + data + " " + c.args
		code, stdout, stderr := call(t, args)
		if out := stdout + stderr; code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit %d, %s; want %d, %s", c.args, code, out, c.code, c.want)
		}
		_, stdout, stderr = call(t, args, "SLUICE_TOKEN_SECRET="+testSecret)
		if out := stdout + stderr; strings.Contains(out, file) {
			t.Errorf("%s: with a secret in the environment: %s", c.args, out)
		}
	}
}

func TestTokenCheckReportsATimeInMilliseconds(t *testing.T) {
	raw := tokentest.HS(tokentest.Segments(`{"alg":"HS256"}`, `{"sub":"ann","exp":1795985874000}`), []byte(testSecret))
	code, stdout, stderr := call(t, "token check --data "+t.TempDir()+" "+raw, "SLUICE_TOKEN_SECRET="+testSecret)
	want := "valid: the buyer is ann, until 9999-12-31T23:59:59Z or later: exp must be in seconds, not in milliseconds\n"
	if code != exitOK || stdout != want {
		t.Errorf("exit %d, %s%s, want %s", code, stdout, stderr, want)
	}
}
