package main

import (
	"strings"
	"testing"

	"sluice/internal/token"
	"sluice/internal/token/tokentest"
)

const testSecret = "a secret of the test, of 32 bytes at least"

func TestKeysAndTokensGoTogether(t *testing.T) {
	none := "--data " + t.TempDir()
	for _, alg := range []string{token.EdDSA, token.ES256, token.PS256, token.RS256} {
		code, private, stderr := call(t, "keys new --kid k1 --alg "+alg)
		if code != 0 {
			t.Fatalf("%s: exit %d, %s", alg, code, stderr)
		}
		path := write(t, "keys.json", private)
		code, public, stderr := call(t, "keys public "+path)
		if code != 0 || strings.Contains(public, `"d"`) {
			t.Fatalf("%s: exit %d, %s%s", alg, code, stderr, public)
		}
		keys, err := token.Open(write(t, "keys.json", public), "", token.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, how := range []string{"--token-keys " + path + " --kid k1", "--token-keys " + path} {
			code, raw, stderr := call(t, "token --user ann "+how+" "+none)
			if sub, err := keys.Verify(strings.TrimSpace(raw)); code != 0 || sub != "ann" {
				t.Errorf("%s, %s: exit %d, %s; %q, %v", alg, how, code, stderr, sub, err)
			}
		}
		code, _, stderr = call(t, "token --user ann --token-keys "+write(t, "keys.json", public)+" --kid k1")
		if code != exitUsage || !strings.Contains(stderr, "no private part") {
			t.Errorf("a public key signs: exit %d, %s", code, stderr)
		}
	}
	// A secret signs as it always has, also beside a file of keys, unless a kid is named.
	_, hs, _ := call(t, "keys new --kid k2 --alg HS256")
	key := tokentest.Key(t, testSecret)
	both := []string{"SLUICE_TOKEN_SECRET=" + testSecret, "SLUICE_TOKEN_KEYS=" + write(t, "keys.json", hs)}
	_, raw, _ := call(t, "token --user ann", both...)
	if sub, err := key.Verify(strings.TrimSpace(raw)); sub != "ann" {
		t.Errorf("beside a file: %q, %v", sub, err)
	}
	_, raw, _ = call(t, "token --user ann --kid k2", both...)
	keys, err := token.Open(write(t, "keys.json", hs), testSecret, token.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if sub, err := keys.Verify(strings.TrimSpace(raw)); sub != "ann" {
		t.Errorf("with a kid: %q, %v", sub, err)
	}
	if _, err := key.Verify(strings.TrimSpace(raw)); err == nil {
		t.Error("the kid was not used")
	}
}

// Every error is one line and exit 2, before anything is started.
func TestInvalidKeysAreUsageErrors(t *testing.T) {
	_, private, _ := call(t, "keys new --kid k1")
	twice := write(t, "keys.json", private)
	bad := write(t, "keys.json", `{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`)
	const n = "n must be base64url of an odd number of 2048 to 8192 bits"
	backend := "backend --redis redis://127.0.0.1:1/0 --database sqlite:none.db"
	for _, c := range []struct {
		args, want string
		env        []string
	}{
		{"gateway --upstream http://127.0.0.1:1 --token-keys " + bad, n, nil},
		{"gateway --upstream http://127.0.0.1:1 --token-keys http://login.example/keys", "want https://", nil},
		{"edge --upstream http://127.0.0.1:1 --token-keys https://ann@login.example/keys", "without a user", nil},
		{backend + " --token-keys ftp://login.example/keys", "want https://", []string{"SLUICE_ADMIN_TOKEN=x"}},
		{"token --user ann --token-keys https://login.example/keys", "is a URL: want a file", nil},
		{"keys public https://login.example/keys", "is a URL: want a file", nil},
		{"gateway --upstream http://127.0.0.1:1", n, []string{"SLUICE_TOKEN_KEYS=" + bad}},
		{"gateway --upstream http://127.0.0.1:1", "SLUICE_TOKEN_SECRET is not set", nil},
		{"gateway --upstream http://127.0.0.1:1 --token-keys none.json", "no such file", nil},
		{"edge --upstream http://127.0.0.1:1 --token-keys " + bad, n, nil},
		{"edge --upstream http://127.0.0.1:1", "SLUICE_TOKEN_SECRET is not set", nil},
		{backend + " --token-keys " + bad, n, []string{"SLUICE_ADMIN_TOKEN=x"}},
		{backend, "SLUICE_TOKEN_SECRET is not set", []string{"SLUICE_ADMIN_TOKEN=x"}},
		{backend + " --token-keys " + bad, "has 5 bytes", []string{"SLUICE_ADMIN_TOKEN=x", "SLUICE_TOKEN_SECRET=short"}},
		{"token --user ann --token-keys " + bad, n, nil},
		{"token --user ann --kid x", "--token-keys", []string{"SLUICE_TOKEN_SECRET=" + testSecret}},
		{"keys new", "--kid is missing", nil},
		{"keys new --alg ES512", `--alg "ES512": want EdDSA, ES256, PS256, RS256 or HS256; --kid is missing`, nil},
		{"keys public " + bad, n, nil},
		{"keys public none.json", "no such file", nil},
		{"keys public " + twice + " " + twice,
			twice + ", after the keys of the files before it: key 2: its kid is used twice\n", nil},
	} {
		code, _, stderr := call(t, c.args, c.env...)
		if code != exitUsage || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, %s; want %s", c.args, code, stderr, c.want)
		}
	}
}
