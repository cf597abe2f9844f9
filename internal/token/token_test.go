package token

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const secret = "0123456789abcdef0123456789abcdef"

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func key(t testing.TB, at time.Time) *Key {
	t.Helper()
	k, err := NewKeyAt(secret, func() time.Time { return at })
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func segments(header, claims string) string {
	b := base64.RawURLEncoding
	signed := b.EncodeToString([]byte(header)) + "." + b.EncodeToString([]byte(claims))
	sig, err := jwt.SigningMethodHS256.Sign(signed, []byte(secret))
	if err != nil {
		panic(err)
	}
	return signed + "." + b.EncodeToString(sig)
}

func TestVerifyAcceptsWhatSignMakesUntilItExpires(t *testing.T) {
	signed, err := key(t, noon).Sign("ann", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if sub, err := key(t, noon.Add(59*time.Second)).Verify(signed); err != nil || sub != "ann" {
		t.Fatalf("%q, %v", sub, err)
	}
	if _, err := key(t, noon.Add(time.Minute)).Verify(signed); !errors.Is(err, ErrInvalid) {
		t.Fatalf("expired: %v", err)
	}
}

func TestVerifyRefuses(t *testing.T) {
	const head = `{"alg":"HS256","typ":"JWT"}`
	claims := `{"sub":"ann","exp":1798761600}`
	good := segments(head, claims)
	k := key(t, noon)
	if _, err := k.Verify(good); err != nil {
		t.Fatalf("the good one: %v", err)
	}
	b := base64.RawURLEncoding
	for _, claims := range []string{`{"sub":"ann","exp":9007199254740991}`, ` {"exp":1798761600.5,"sub":"ann","a":[{"sub":[1]}],"iat":2e9} `} {
		if sub, err := k.Verify(segments(`{"alg":"HS256","typ":"jwt","kid":"1"}`, claims)); err != nil || sub != "ann" {
			t.Errorf("%s: %q, %v", claims, sub, err)
		}
	}
	for name, raw := range map[string]string{
		"nothing":              "",
		"alg none":             b.EncodeToString([]byte(`{"alg":"none"}`)) + "." + b.EncodeToString([]byte(claims)) + ".",
		"alg HS384":            segments(`{"alg":"HS384"}`, claims),
		"alg RS256":            segments(`{"alg":"RS256"}`, claims),
		"alg missing":          segments(`{"typ":"JWT"}`, claims),
		"crit":                 segments(`{"alg":"HS256","crit":["exp"]}`, claims),
		"no exp":               segments(head, `{"sub":"ann"}`),
		"exp as string":        segments(head, `{"sub":"ann","exp":"1798761600"}`),
		"expired":              segments(head, `{"sub":"ann","exp":1}`),
		"not yet":              segments(head, `{"sub":"ann","exp":1798761600,"nbf":1798761599}`),
		"no sub":               segments(head, `{"exp":1798761600}`),
		"empty sub":            segments(head, `{"sub":"","exp":1798761600}`),
		"sub a number":         segments(head, `{"sub":5,"exp":1798761600}`),
		"another key":          good[:len(good)-4] + "AAAA",
		"two segments":         good[:strings.LastIndex(good, ".")],
		"three and a half":     good + ".x",
		"padding":              good + "=",
		"a space":              good + " ",
		"claims are no object": segments(head, `[]`),
		"exp at 2^53":          segments(head, `{"sub":"ann","exp":9007199254740992}`),
		"exp at 2^63":          segments(head, `{"sub":"ann","exp":9223372036854775808}`),
		"negative nbf":         segments(head, `{"sub":"ann","exp":1798761600,"nbf":-1}`),
		"nbf null":             segments(head, `{"sub":"ann","exp":1798761600,"nbf":null}`),
		"sub twice":            segments(head, `{"sub":"ann","sub":"bob","exp":1798761600}`),
		"sub in capitals":      segments(head, `{"SUB":"ann","exp":1798761600}`),
		"exp twice":            segments(head, `{"sub":"ann","exp":1,"exp":1798761600}`),
		"exp, and Exp":         segments(head, `{"sub":"ann","exp":1,"Exp":1798761600}`),
		"a name twice within":  segments(head, `{"sub":"ann","exp":1798761600,"a":{"b":1,"b":2}}`),
		"too deep":             segments(head, `{"sub":"ann","exp":1798761600,"a":`+strings.Repeat("[", 8)+strings.Repeat("]", 8)+`}`),
		"no double holds it":   segments(head, `{"sub":"ann","exp":1798761600,"a":1e999}`),
		"sub is not UTF-8":     segments(head, "{\"sub\":\"a\xffb\",\"exp\":1798761600}"),
		"half a surrogate":     segments(head, `{"sub":"a\ud800b","exp":1798761600}`),
		"alg twice":            segments(`{"alg":"none","alg":"HS256"}`, claims),
		"typ JWE":              segments(`{"alg":"HS256","typ":"JWE"}`, claims),
		"typ a number":         segments(`{"alg":"HS256","typ":5}`, claims),
		"enc":                  segments(`{"alg":"HS256","enc":"A128GCM"}`, claims),
		"too long":             good + strings.Repeat("a", MaxLen),
	} {
		if sub, err := k.Verify(raw); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %q, %v", name, sub, err)
		}
	}
}

// Names that differ in case are different names: the Lua edge reads "sub" alone, and both must mean the same buyer.
func TestOnlySubNamesTheBuyer(t *testing.T) {
	k := key(t, noon)
	for _, claims := range []string{`{"sub":"ann","Sub":"bob","exp":1798761600}`, `{"SUB":"bob","sub":"ann","\u017fub":"bob","exp":1798761600}`} {
		if sub, err := k.Verify(segments(`{"alg":"HS256"}`, claims)); err != nil || sub != "ann" {
			t.Errorf("%s: %q, %v", claims, sub, err)
		}
	}
}

func TestShortSecretIsRefused(t *testing.T) {
	if _, err := NewKey(strings.Repeat("x", MinSecret-1)); err == nil {
		t.Fatal("31 bytes are accepted")
	}
}

func FuzzVerify(f *testing.F) {
	f.Add("a.b.c")
	f.Add(segments(`{"alg":"HS256"}`, `{"sub":"ann","exp":1798761600}`))
	f.Fuzz(func(t *testing.T, raw string) {
		if sub, err := key(t, noon).Verify(raw); err == nil && sub == "" {
			t.Fatal("verified without a subject")
		}
	})
}
