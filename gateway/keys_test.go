package gateway

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/token"
	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

const byToken = `return { rules = { { name = "token", key = "token", rate = "1000r/s", burst = 100000 } } }`

func TestTokensOfAllKeysAreAccepted(t *testing.T) {
	w := tokentest.New()
	b := newBackend(t, nil)
	e := serve(t, byToken, []string{b.address()}, func(c *Config) { c.Secret, c.TokenKeys = w.Secret, w.File(t) })
	for _, c := range w.Cases() {
		if !c.InHeader() {
			continue
		}
		got := e.send(t, "GET", "/", "", "Authorization: Bearer "+c.Token)
		switch {
		case c.Subject != "":
			if got.status != 200 {
				t.Errorf("%s: status %d", c.Name, got.status)
			}
		case len(c.Token) > 8000 && got.status == 431: // no header is as long as this
		case got.status != 401 || got.header.Get("WWW-Authenticate") != `Bearer error="invalid_token"` ||
			!strings.Contains(got.body, `"detail":"A valid token is required."`):
			t.Errorf("%s: status %d, %v, %s", c.Name, got.status, got.header, got.body)
		}
	}
}

func TestIssuerAndAudience(t *testing.T) {
	w := tokentest.New()
	b := newBackend(t, nil)
	e := serve(t, byToken, []string{b.address()}, func(c *Config) {
		c.Secret, c.TokenKeys, c.Expect = w.Secret, w.File(t), tokentest.Expected
	})
	for _, c := range w.ExpectedCases() {
		want := 401
		if c.Subject != "" {
			want = 200
		}
		if got := e.send(t, "GET", "/", "", "Authorization: Bearer "+c.Token); got.status != want {
			t.Errorf("%s: status %d, want %d", c.Name, got.status, want)
		}
	}
}

// A token of a removed key is rejected, also if it is cached.
func TestKeyReload(t *testing.T) {
	first, old := tokentest.Generate(token.EdDSA, "first")
	second, next := tokentest.Generate(token.RS256, "second")
	path := filepath.Join(t.TempDir(), "keys.json")
	replace := func(text []byte) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path+".new", text, 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	put := func(sets ...[]byte) {
		t.Helper()
		text, err := token.Public(sets...)
		if err != nil {
			t.Fatal(err)
		}
		replace(text)
	}
	put(first)
	b := newBackend(t, nil)
	e := serve(t, byToken, []string{b.address()}, func(c *Config) { c.Secret, c.TokenKeys = "", path })
	await := func(what, want string) {
		t.Helper()
		testenv.Eventually(t, time.Minute, what, func() bool {
			return fmt.Sprint(e.send(t, "GET", "/", "", "Authorization: Bearer "+old).status,
				e.send(t, "GET", "/", "", "Authorization: Bearer "+old).status,
				e.send(t, "GET", "/", "", "Authorization: Bearer "+next).status) == want
		})
	}
	await("the first key is accepted", "200 200 401")
	put(first, second)
	await("both keys are accepted", "200 200 200")
	replace([]byte(`{"keys":[]}`))
	testenv.Eventually(t, time.Minute, "the invalid file is rejected",
		func() bool { return strings.Contains(e.log.String(), `\"keys\" must be a list of one key at least`) })
	await("both keys are accepted after an invalid file", "200 200 200")
	put(second)
	await("the second key is accepted", "401 401 200")
	if ok, bad := e.count(t, "sluice_edge_token_key_reloads_total", "result", "ok"), e.count(t,
		"sluice_edge_token_key_reloads_total", "result", "error"); ok != 2 ||
		bad != 1 {
		t.Errorf("%v successful and %v failed reloads, want 2 and 1", ok, bad)
	}
}
