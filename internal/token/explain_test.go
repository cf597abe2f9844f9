package token_test

import (
	"strings"
	"testing"
	"time"

	"sluice/internal/token"
	"sluice/internal/token/tokentest"
)

// Explain rejects the same tokens as Verify, and names the values that the fix needs.
func TestExplain(t *testing.T) {
	w := tokentest.New()
	at := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)
	keys, err := token.Open(w.File(t), "", token.Options{
		Expect: tokentest.Expected, Now: func() time.Time { return at },
	})
	if err != nil {
		t.Fatal(err)
	}
	signed := func(kid, claims string) string {
		return w.ES(tokentest.Segments(`{"alg":"ES256","kid":"`+kid+`"}`, claims))
	}
	const rest = `"iss":"https://login.example/","aud":"sluice"`
	good := signed(tokentest.Curved, `{"sub":"ann","exp":4102444800,`+rest+`}`)
	if err := keys.Set().Explain(good); err != nil {
		t.Errorf("a valid token: %v", err)
	}
	for raw, want := range map[string]string{
		"":     "not three segments",
		"x.yz": "not three segments",
		signed("2027", `{}`): `it is signed with alg "ES256", kid "2027"; the keys are: ES256 ec:1, EdDSA ed 1, ` +
			`HS256 2026-10, HS256 2026-11, PS256 ps~1, RS256 rs/1`,
		tokentest.Segments(`{"alg":"HS256"}`, `{}`) + ".AA": `alg "HS256", kid none`,
		tokentest.Segments(`{"alg":"none"}`, `{}`) + ".":    `alg "none", kid none`,
		signed(tokentest.Curved, `{"sub":"ann","exp":1795427999,`+rest+`}`): "expired: exp is " +
			"2026-11-23T09:59:59Z, now it is 2026-11-23T10:00:00Z",
		signed(tokentest.Curved, `{"sub":"ann","exp":4102444800,"nbf":1795428060,`+rest+`}`): "not valid yet: nbf is " +
			"2026-11-23T10:01:00Z, now it is 2026-11-23T10:00:00Z",
		signed(tokentest.Curved, `{"sub":"ann","exp":4102444800,"iss":"https://login.example","aud":"sluice"}`): `iss is ` +
			`"https://login.example", want "https://login.example/"`,
		signed(tokentest.Curved, `{"sub":"ann","exp":4102444800,"iss":"https://login.example/","aud":["a","b"]}`): `aud is ` +
			`["a","b"], want "sluice"`,
		signed(tokentest.Curved, `{"sub":"ann","exp":4102444800,"iss":"https://login.example/"}`): `aud is ` +
			`none, want "sluice"`,
		signed(tokentest.Curved, `{"sub":"ann",`+rest+`}`): "exp is missing",
		good[:len(good)-4] + "AAAA": `invalid signature: the key with alg "ES256", ` +
			`kid "ec:1" has not signed this text`,
	} {
		err := keys.Set().Explain(raw)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
	}
	for _, c := range append(w.Cases(), w.ExpectedCases()...) {
		_, wrong := keys.Verify(c.Token)
		if err := keys.Set().Explain(c.Token); (err == nil) != (wrong == nil) {
			t.Errorf("%s: %v, but Verify returns %v", c.Name, err, wrong)
		}
	}
}

// An issuer that decodes the secret from base64 signs with another key.
func TestExplainOfASecretThatIsDecoded(t *testing.T) {
	w := tokentest.New()
	keys, err := token.Open("", w.Secret, token.Options{})
	if err != nil {
		t.Fatal(err)
	}
	raw := tokentest.HS(tokentest.Segments(`{"alg":"HS256"}`, `{"sub":"ann","exp":4102444800}`), []byte("decoded"))
	want := `invalid signature: the key with alg "HS256", kid none has not signed this text: ` +
		"the issuer needs the same secret, as text and not decoded from base64"
	if err := keys.Set().Explain(raw); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
