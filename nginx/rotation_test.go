package nginx

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/token"
	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

// An edge without a secret accepts the tokens of an added key after a reload. After a reload without a key it rejects
// that key's tokens, also one that it has just verified. An invalid file changes nothing.
func TestReloadTakesChangedKeys(t *testing.T) {
	first, old := tokentest.Generate(token.EdDSA, "first")
	second, next := tokentest.Generate(token.RS256, "second")
	path := filepath.Join(t.TempDir(), "keys.json")
	write := func(sets ...[]byte) {
		t.Helper()
		text, err := token.Public(sets...)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(first)
	e := startEdge(t, `return { rules = { { name = "token", key = "token", rate = "1000r/s", burst = 1000 } } }`,
		func(c *Config) { c.Secret, c.TokenKeys = "", path })
	say := func() string {
		return statuses(e.do("GET", "/", "Authorization", "Bearer "+old), e.do("GET", "/", "Authorization", "Bearer "+old),
			e.do("GET", "/", "Authorization", "Bearer "+next))
	}
	if got := say(); got != "200 200 401" {
		t.Fatalf("the first key alone: %s", got)
	}
	reload := func(want string) {
		t.Helper()
		if err := (Config{Prefix: e.cfg.Prefix}).Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, time.Minute, want, func() bool { return say() == want })
	}
	write(first, second)
	reload("200 200 200")
	if err := os.WriteFile(path, []byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQ"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Config{Prefix: e.cfg.Prefix}.Reload(t.Context())
	if !errors.Is(err, ErrConfig) ||
		!strings.Contains(err.Error(), path+": key 1: n must be base64url of an odd number of 2048 to 8192 bits") {
		t.Fatalf("a bad file: %v", err)
	}
	if got := say(); got != "200 200 200" {
		t.Fatalf("after a bad file: %s", got)
	}
	write(second)
	reload("401 401 200")
}

func TestCheckRefusesBadKeys(t *testing.T) {
	w := tokentest.New()
	good := Config{Listen: "127.0.0.1:8080", Root: "..", Shared: settings("127.0.0.1:8081")}
	for _, c := range []struct{ secret, path, want string }{
		{"", "", "the token secret must have at least 32 bytes, and has 0"},
		{"short", w.File(t), "the token secret must have at least 32 bytes, and has 5"},
		{"", filepath.Join(t.TempDir(), "none.json"), "No such file"},
		{"", t.TempDir(), "directory"},
		{secret, "../internal/token/testdata/keys/good/one-without-a-kid.json", "give the key a kid"},
		{secret, "../internal/token/testdata/keys/bad/rsa-e-1.json", "rsa-e-1.json: key 1: e must be"},
		{
			secret, "../internal/token/testdata/keys/bad/x-of-zeros.json",
			"x-of-zeros.json: key 1: x is a point of small order: signatures can be forged",
		},
		{secret, "../internal/token/testdata/keys/bad/empty.json", "empty.json: not a JSON object"},
	} {
		cfg := good
		cfg.Secret, cfg.TokenKeys = c.secret, c.path
		err := cfg.Check(t.Context())
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", c.path, err, c.want)
		}
	}
	good.Secret, good.TokenKeys = "", w.File(t)
	if err := good.Check(t.Context()); err != nil {
		t.Errorf("keys without a secret: %v", err)
	}
}
