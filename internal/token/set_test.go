package token_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"sluice/internal/token"
	"sluice/internal/token/tokentest"
)

func open(t testing.TB, path, secret string) *token.Keys {
	t.Helper()
	f, err := token.Open(path, secret, token.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestVerifyCases(t *testing.T) {
	w := tokentest.New()
	keys := open(t, w.File(t), w.Secret)
	for _, c := range w.Cases() {
		for range 2 { // the second time with a cached header
			sub, err := keys.Verify(c.Token)
			if sub != c.Subject || (err == nil) != (c.Subject != "") || err != nil && !errors.Is(err, token.ErrInvalid) {
				t.Errorf("%s: %q, %v; want %q", c.Name, sub, err, c.Subject)
			}
		}
	}
}

// The library is more lenient. It must accept all valid tokens.
func TestLibraryAcceptsValidTokens(t *testing.T) {
	w := tokentest.New()
	for _, c := range w.Cases() {
		if c.Subject == "" || strings.Contains(c.Name, "cty") || c.Name == "alg Ed25519" { // the library lacks this name
			continue
		}
		_, err := jwt.Parse(c.Token, func(t *jwt.Token) (any, error) {
			kid, _ := t.Header["kid"].(string)
			switch t.Method.Alg() {
			case token.EdDSA:
				return w.Ed25519.Public(), nil
			case token.ES256:
				return w.P256.Public(), nil
			case token.PS256:
				return &w.PSS.PublicKey, nil
			case token.RS256:
				return &w.RSA.PublicKey, nil
			}
			if secret := w.Secrets[kid]; secret != nil {
				return secret, nil
			}
			return []byte(w.Secret), nil
		}, jwt.WithStrictDecoding())
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

func TestErrorsDoNotQuoteTokens(t *testing.T) {
	w := tokentest.New()
	keys := open(t, w.File(t), w.Secret)
	const mark = "sesame"
	for _, raw := range []string{
		mark, mark + ".x.y", tokentest.Segments(`{"alg":"`+mark+`"}`, "") + ".",
		tokentest.Segments(`{"alg":"HS256","kid":"`+mark+`"}`, "") + ".",
		tokentest.HS(tokentest.Segments(`{"alg":"HS256"}`, `{"sub":"`+mark+`\n","exp":4102444800}`), []byte(w.Secret)),
		tokentest.HS(tokentest.Segments(`{"alg":"HS256"}`, mark), []byte(w.Secret)),
	} {
		if _, err := keys.Verify(raw); err == nil || strings.Contains(err.Error(), mark) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestHeaderCacheIsBounded(t *testing.T) {
	w := tokentest.New()
	keys := open(t, "", w.Secret)
	for i := range 200 {
		raw := tokentest.HS(tokentest.Segments(`{"alg":"HS256","n":`+strings.Repeat("1", i+1)+`}`, `{"sub":"ann",`+
			`"exp":4102444800}`), []byte(w.Secret))
		if _, err := keys.Verify(raw); err != nil {
			t.Fatal(err)
		}
	}
	if n := keys.Set().CachedHeaders(); n < 1 || n > 64 {
		t.Errorf("%d headers in the cache", n)
	}
}

// The nginx edge is tested with the same files.
func TestKeyFiles(t *testing.T) {
	for _, dir := range []string{"good", "bad"} {
		files, err := filepath.Glob("testdata/keys/" + dir + "/*.json")
		if err != nil || len(files) < 5 {
			t.Fatalf("%d files, %v", len(files), err)
		}
		for _, file := range files {
			_, err := token.Open(file, "", token.Options{})
			if (err == nil) != (dir == "good") ||
				err != nil && (!strings.HasPrefix(err.Error(), file+": ") || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// A set may contain keys for other verifiers. A warning names each once, so that an operator sees why its tokens are
// rejected.
func TestUnsupportedKeysAreSkippedWithAWarning(t *testing.T) {
	keys := open(t, filepath.Join("testdata", "keys", "good", "unsupported-are-skipped.json"), "")
	if got := keys.Set().Names(); !slices.Equal(got, []string{"ES256 b"}) {
		t.Errorf("keys in use: %v", got)
	}
	var log bytes.Buffer
	keys.Set().Warn(slog.New(slog.NewTextHandler(&log, nil)))
	if n := strings.Count(log.String(), "level=WARN"); n != 9 || len(keys.Set().Skipped()) != 9 {
		t.Errorf("%d warnings, %d keys; want 9", n, len(keys.Set().Skipped()))
	}
	for _, want := range []string{
		`key 1 (kid "p-384"): its crv is not supported`, `key 3 (kid "x"): its crv is not supported`,
		`key 4 (kid "r"): its alg is not supported`, `key 5 (kid ""quoted""): its alg is not supported`,
		`key 6 (kid "pq"): its kty is not supported`, `key 7: its kty is not supported`,
	} {
		if !slices.Contains(keys.Set().Skipped(), want) {
			t.Errorf("no %s in %q", want, keys.Set().Skipped())
		}
	}
}

func TestOpenErrors(t *testing.T) {
	w := tokentest.New()
	kidless := filepath.Join("testdata", "keys", "good", "one-without-a-kid.json")
	for name, c := range map[string]struct{ path, secret, want string }{
		"nothing":                   {"", "", "at least 32 bytes, and has 0"},
		"a short secret":            {"", strings.Repeat("x", 31), "at least 32 bytes, and has 31"},
		"a short secret and keys":   {w.File(t), "short", "at least 32 bytes, and has 5"},
		"no file":                   {filepath.Join(t.TempDir(), "none.json"), "", "no such file"},
		"a directory":               {t.TempDir(), "", "is a directory"},
		"a secret and its like":     {kidless, w.Secret, "give the key a kid"},
		"longer than a file may be": {fileOf(t, `{"keys":[`+strings.Repeat(" ", 1<<18)+`]}`), "", "longer than 262144 bytes"},
		"too many keys":             {fileOf(t, `{"keys":[{}`+strings.Repeat(",{}", 100)+`]}`), "", "more than 100 keys"},
	} {
		if _, err := token.Open(c.path, c.secret, token.Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func fileOf(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	replace(t, path, text)
	return path
}

// replace replaces a file atomically.
func replace(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// A pipe gives the keys once. Another read of it would block, also when the process stops.
func TestKeysOfAPipeAreReadOnce(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "keys.json")
	text, err := os.ReadFile(tokentest.New().File(t))
	if err := errors.Join(err, syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(pipe, text, 0) }()
	keys, err := token.Open(pipe, "", token.Options{})
	if err := errors.Join(err, <-written); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() { _, err := keys.Reload(); read <- err }()
	select {
	case err := <-read:
		if err != nil || len(keys.Set().Names()) == 0 {
			t.Errorf("%v, keys %v", err, keys.Set().Names())
		}
	case <-time.After(time.Minute):
		t.Fatal("Reload blocks")
	}
}

// The documented steps of a key rotation: valid tokens are accepted at every step, and tokens of the old key are
// rejected after the last one.
func TestRotation(t *testing.T) {
	before, old := tokentest.Generate(token.HS256, "before")
	after, next := tokentest.Generate(token.EdDSA, "after")
	public, err := token.Public(after)
	if err != nil {
		t.Fatal(err)
	}
	path := fileOf(t, string(before))
	keys := open(t, path, "")
	expect := func(want string) {
		t.Helper()
		var got []string
		for _, raw := range []string{old, next} {
			sub, err := keys.Verify(raw)
			if err != nil {
				sub = "-"
			}
			got = append(got, sub)
		}
		if s := strings.Join(got, " "); s != want {
			t.Fatalf("%s, want %s", s, want)
		}
	}
	step := func(text string, wantChanged bool, wantErr string) {
		t.Helper()
		replace(t, path, text)
		changed, err := keys.Reload()
		if changed != wantChanged || (err == nil) != (wantErr == "") ||
			err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Fatalf("changed %v, %v", changed, err)
		}
	}
	expect("ann -")
	both := strings.TrimSpace(string(before))
	both = strings.TrimSuffix(both, "]\n}") + "," + strings.TrimPrefix(strings.TrimSpace(string(public)),
		"{\n  \"keys\": [")
	step(both, true, "")
	expect("ann ann")
	step("{", false, "not a JSON object")
	expect("ann ann")
	if changed, err := keys.Reload(); changed || err != nil {
		t.Fatalf("the error is returned twice: %v, %v", changed, err)
	}
	step(string(public), true, "")
	expect("- ann")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if changed, err := keys.Reload(); changed || err == nil {
		t.Fatalf("after the file was removed: %v, %v", changed, err)
	}
	expect("- ann")
	step(both, true, "")
	expect("ann ann")
}

func generate(t testing.TB, alg, kid string) []byte {
	t.Helper()
	text, err := token.Generate(alg, kid)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestPublicContainsNoPrivateKeys(t *testing.T) {
	ed, rs, hs := generate(t, token.EdDSA, "ed"), generate(t, token.RS256, "rs"), generate(t, token.HS256, "hs")
	es, ps := generate(t, token.ES256, "es"), generate(t, token.PS256, "ps")
	public, err := token.Public(ed, rs, es, ps)
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range []string{`"d"`, `"p"`, `"q"`, `"dp"`, `"dq"`, `"qi"`, `"k"`} {
		if bytes.Contains(public, []byte(member)) {
			t.Errorf("%s in %s", member, public)
		}
	}
	keys := open(t, fileOf(t, string(public)), "")
	if got := keys.Set().
		Names(); !slices.Equal(got, []string{"ES256 es", "EdDSA ed", "PS256 ps", "RS256 rs"}) ||
		len(keys.Set().Private()) != 0 {
		t.Errorf("%v, private %v", got, keys.Set().Private())
	}
	for _, private := range [][]byte{ed, rs, es, ps} {
		if sub, err := keys.Verify(tokentest.SignBy(private)); sub != "ann" {
			t.Errorf("%q, %v", sub, err)
		}
		if got := open(t, fileOf(t, string(private)), "").Set().Private(); len(got) != 1 {
			t.Errorf("private keys: %v", got)
		}
	}
	if _, err := token.Public(ed, hs); err == nil {
		t.Error("a secret is accepted")
	}
	if _, err := token.Public(ed, ed); err == nil {
		t.Error("two keys with the same kid are accepted")
	}
	if _, err := token.NewSigner(public, "ed"); err == nil {
		t.Error("a public key signs")
	}
}

func TestNewSignerErrors(t *testing.T) {
	ed, other := string(generate(t, token.EdDSA, "ed")), string(generate(t, token.EdDSA, "ed"))
	rs, es := string(generate(t, token.RS256, "rs")), string(generate(t, token.ES256, "es"))
	stranger := string(generate(t, token.ES256, "es"))
	member := func(set, name string) string {
		_, rest, _ := strings.Cut(set, `"`+name+`": "`)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	hs := generate(t, token.HS256, "a")
	two := strings.Replace(string(hs), `"keys": [`, `"keys": [{"kty":"oct","kid":"b","k":"`+strings.Repeat("A", 43)+`"},`,
		1)
	for name, c := range map[string]struct{ text, kid, want string }{
		"no such kid":            {ed, "EDDSA", "no key with the kid"},
		"two that can sign":      {two, "", "select one"},
		"another's d":            {strings.Replace(ed, member(ed, "d"), member(other, "d"), 1), "ed", "does not match"},
		"d of 31 bytes":          {strings.Replace(ed, member(ed, "d"), strings.Repeat("A", 42), 1), "ed", "32 bytes"},
		"another's d of P-256":   {strings.Replace(es, member(es, "d"), member(stranger, "d"), 1), "es", "does not match"},
		"d of P-256 of 31 bytes": {strings.Replace(es, member(es, "d"), strings.Repeat("A", 42), 1), "es", "32 bytes"},
		"d of P-256 of zeros":    {strings.Replace(es, member(es, "d"), strings.Repeat("A", 43), 1), "es", "32 bytes"},
		"an RSA key with no p":   {strings.Replace(rs, `"p"`, `"P"`, 1), "rs", "d, p and q"},
		"another's RSA d":        {strings.Replace(rs, member(rs, "d"), strings.Repeat("A", 42)+"E", 1), "rs", "d, p and q"},
		"not JSON":               {"-----BEGIN PRIVATE KEY-----", "", "not a JSON object"},
	} {
		if _, err := token.NewSigner([]byte(c.text), c.kid); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	alone := `{"kty":"oct","kid":"x","k":"` + member(string(hs), "k") + `"}`
	if _, err := token.NewSigner([]byte(alone), "x"); err != nil {
		t.Errorf("a single JWK: %v", err)
	}
}

func FuzzVerifySet(f *testing.F) {
	w := tokentest.New()
	keys := open(f, w.File(f), w.Secret)
	cases := w.Cases()
	for _, c := range cases {
		f.Add(c.Token)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		sub, err := keys.Verify(raw)
		if (err == nil) != (sub != "") || len(sub) > token.MaxSubject {
			t.Fatalf("%q, %v", sub, err)
		}
		// The fuzzer has no key, so every change must invalidate the token.
		if err == nil &&
			!slices.ContainsFunc(cases, func(c tokentest.Case) bool { return c.Token == raw && c.Subject == sub }) {
			t.Fatalf("accepted forgery: %s is %q", raw, sub)
		}
	})
}

// The cache compares whole tokens and checks their expiry.
func TestCachedTokensAreChecked(t *testing.T) {
	w := tokentest.New()
	now := time.Unix(1800000000, 0)
	keys, err := token.Open(w.File(t), "", token.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	raw := w.Ed(tokentest.Segments(`{"alg":"EdDSA","kid":"`+tokentest.Edward+`"}`, `{"sub":"ann","exp":1800000010}`))
	for i, c := range []struct {
		at   time.Duration
		raw  string
		want string
	}{
		{0, raw, "ann"}, {0, raw, "ann"}, {9 * time.Second, raw, "ann"}, {0, raw[:len(raw)-4] + "AAAA", ""},
		{0, raw + "A", ""}, {10 * time.Second, raw, ""}, {time.Hour, raw, ""}, {0, raw, "ann"},
	} {
		now = time.Unix(1800000000, 0).Add(c.at)
		if sub, err := keys.Verify(c.raw); sub != c.want {
			t.Errorf("%d: %q, %v; want %q", i, sub, err, c.want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = keys.Verify(raw) }); n > 0 {
		t.Errorf("%v allocations for a cached token: it was verified again", n)
	}
}

func FuzzKeyFiles(f *testing.F) {
	files, err := filepath.Glob("testdata/keys/*/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := fileOf(t, string(text))
		keys, err := token.Open(path, "", token.Options{})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
			return
		}
		if len(keys.Set().Names()) == 0 {
			t.Error("an empty set")
		}
		_, _ = token.NewSigner(text, "")
	})
}

// A token of another issuer or for another audience is invalid with any key.
func TestIssuerAndAudience(t *testing.T) {
	w := tokentest.New()
	keys, err := token.Open(w.File(t), w.Secret, token.Options{Expect: tokentest.Expected, Cache: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range w.ExpectedCases() {
		for range 2 {
			sub, err := keys.Verify(c.Token)
			if _, cached := keys.Cached(c.Token); sub != c.Subject || (err == nil) != (c.Subject != "") ||
				cached != (err == nil) {
				t.Errorf("%s: %q, %v; cached %v; want %q", c.Name, sub, err, cached, c.Subject)
			}
		}
	}
	key := tokentest.Key(t, w.Secret)
	for claims, want := range map[token.Expect]string{
		tokentest.Expected: "ann", {}: "", {Issuer: tokentest.Expected.Issuer}: "", {Audience: "sluice"}: "",
	} {
		raw, err := key.With(claims).Sign("ann", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if sub, err := keys.Verify(raw); sub != want {
			t.Errorf("signed with %+v: %q, %v", claims, sub, err)
		}
		if sub, err := key.Verify(raw); sub != "ann" {
			t.Errorf("signed with %+v, for any issuer: %q, %v", claims, sub, err)
		}
	}
}
