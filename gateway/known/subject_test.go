package known

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"sluice/internal/token"
)

const secret = "0123456789abcdef0123456789abcdef"

// bearer signs any text as claims.
func bearer(header, claims string) []byte {
	b64 := base64.RawURLEncoding.EncodeToString
	text := b64([]byte(header)) + "." + b64([]byte(claims))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return []byte(text + "." + b64(mac.Sum(nil)))
}

const plainHeader = `{"alg":"HS256","typ":"JWT"}`

func TestSubjectIsReadFromAPlainToken(t *testing.T) {
	for claims, name := range map[string]string{
		`{"sub":"ann","exp":9999999999}`:                          "ann",
		`{"exp":9999999999,"iat":1,"sub":"ann@example.org"}`:      "ann@example.org",
		`{"sub" : "ann", "exp": 9999999999}`:                      "ann",
		"{\n\t\"sub\"\r\n:\n\"ann\"}":                             "ann",
		`{"sub":"Zoë 🙂","exp":9999999999}`:                        "Zoë 🙂",
		`{"sub":"sub","exp":1}`:                                   "", // two readings
		`{"iss":"https://id.example","sub":"a:b,c{}","roles":[]}`: "a:b,c{}",
	} {
		sum, who, _ := subject(bearer(plainHeader, claims), nil)
		if name == "" {
			if who != anybody {
				t.Errorf("%s is claim %d, want anybody", claims, who)
			}
		} else if who != one || sum != crc32.ChecksumIEEE([]byte(name)) {
			t.Errorf("%s is claim %d with sum %08x, want that of %q", claims, who, sum, name)
		}
	}
}

func TestTextThatCannotBeATokenHoldsNothing(t *testing.T) {
	good := string(bearer(plainHeader, `{"sub":"ann"}`))
	for _, raw := range []string{"", ".", "..a", "a.b", "a.!.c", "a.b.c.d", good + ".x", strings.Replace(good, ".", "", 1), "a.e30=.c", "a.e31.c", strings.Repeat("a", 5000) + good} {
		_, who, _ := subject([]byte(raw), nil)
		empty := raw == "..a" // no claims at all: which a verifier refuses too, but that is for it to say
		if empty && who != anybody || !empty && who != nobody {
			t.Errorf("%.40q is claim %d", raw, who)
		}
	}
}

func TestClaimsWithAnyDoubtMayBeAnybodys(t *testing.T) {
	for _, claims := range []string{
		`{"sub":"a\u006en"}`, `{"s\u0075b":"ann"}`, `{"x":"\\","sub":"ann"}`, `{"sub":"ann","sub":"bob"}`, `{"sub":"ann","SUB":"bob"}`, `{"Sub":"x","sub":"ann"}`,
		`{"sub":1}`, `{"sub":null}`, `{"sub":["ann"]}`, `{"sub":{"x":"ann"}}`, `{"sub"}`, `{"sub":`, `{"sub":"`, `{"sub":"ann`, `{"exp":1}`, `{}`, `x`, `{"a":"sub","sub":"ann"}`,
		`{"a":"sub"}`, `"sub"`, `"sub"sub"`, `{"sub";"ann"}`, `{"sub""ann"}`,
	} {
		if _, who, _ := subject(bearer(plainHeader, claims), nil); who != anybody {
			t.Errorf("%s is claim %d, want anybody", claims, who)
		}
	}
}

// Whatever a verifier accepts must never be taken for nobody's, nor for another's: that buyer would be told "sold out" about an order that he holds.
func FuzzSubjectAgreesWithTheVerifier(f *testing.F) {
	for _, claims := range []string{
		`{"sub":"ann","exp":9999999999}`, `{"exp":9999999999,"sub":"ann"}`, `{"sub":"a\"n","exp":9999999999}`, `{"\u0073ub":"ann","exp":9999999999}`,
		`{"sub":"ann","sub":"bob","exp":9999999999}`, `{"SUB":"bob","sub":"ann","exp":9999999999}`, `{"a":{"sub":"bob"},"sub":"ann","exp":9999999999}`,
		`{"sub" :	"ann" , "exp":9999999999}`, `{"a":"sub","b":":","sub":"ann","exp":9999999999}`, `{"x":["sub",":","bob"],"sub":"ann","exp":9999999999}`, `{"sub":"Zoë","exp":9e9}`,
		`{"exp":9999999999,"sub":"ann"} `, `{"ſub":"bob","sub":"ann","exp":9999999999}`, `{"":"","sub":"ann","exp":9999999999}`,
	} {
		f.Add(plainHeader, claims)
		f.Add(`{"alg":"HS256"}`, claims)
	}
	key, err := token.NewKeyAt(secret, func() time.Time { return time.Unix(1_800_000_000, 0) })
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, header, claims string) {
		raw := bearer(header, claims)
		sum, who, _ := subject(raw, nil)
		name, err := key.Verify(string(raw))
		if err != nil {
			return
		}
		if who == nobody || who == one && sum != crc32.ChecksumIEEE([]byte(name)) {
			t.Fatalf("the verifier says %q of %s, and this is claim %d with sum %08x", name, claims, who, sum)
		}
	})
}

// The text of a token, whatever it is: what a verifier accepts is not nobody's.
func FuzzTokenText(f *testing.F) {
	f.Add(string(bearer(plainHeader, `{"sub":"ann","exp":9999999999}`)))
	f.Add("a.b.c")
	f.Add("..")
	key, err := token.NewKeyAt(secret, func() time.Time { return time.Unix(1_800_000_000, 0) })
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		scratch := make([]byte, 3)
		_, who, _ := subject([]byte(raw), scratch)
		if name, err := key.Verify(raw); err == nil && who == nobody {
			t.Fatalf("%q is good for %q, and taken for nobody's", raw, name)
		}
	})
}

func BenchmarkSubject(b *testing.B) {
	raw := bearer(plainHeader, `{"sub":"buyer-0123456789abcdef","exp":9999999999,"iat":1800000000}`)
	var scratch []byte
	b.ReportAllocs()
	for b.Loop() {
		var who claim
		if _, who, scratch = subject(raw, scratch); who != one {
			b.Fatal(who)
		}
	}
}
