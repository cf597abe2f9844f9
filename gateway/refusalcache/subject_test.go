package refusalcache

import (
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"sluice/internal/token"
	"sluice/internal/token/tokentest"
)

const secret = "0123456789abcdef0123456789abcdef"

// bearer signs any text as claims.
func bearer(header, claims string) []byte {
	return []byte(tokentest.HS(tokentest.Segments(header, claims), []byte(secret)))
}

const plainHeader = `{"alg":"HS256","typ":"JWT"}`

func TestSubjectOfAnUnverifiedToken(t *testing.T) {
	for claims, name := range map[string]string{
		`{"sub":"ann","exp":9999999999}`:                          "ann",
		`{"exp":9999999999,"iat":1,"sub":"ann@example.org"}`:      "ann@example.org",
		`{"sub" : "ann", "exp": 9999999999}`:                      "ann",
		"{\n\t\"sub\"\r\n:\n\"ann\"}":                             "ann",
		`{"sub":"Zoë 🙂","exp":9999999999}`:                        "Zoë 🙂",
		`{"sub":"sub","exp":1}`:                                   "", // ambiguous
		`{"iss":"https://id.example","sub":"a:b,c{}","roles":[]}`: "a:b,c{}",
	} {
		hash, found, _ := subject(bearer(plainHeader, claims), nil)
		if name == "" {
			if found != ambiguous {
				t.Errorf("%s: got %d, want ambiguous", claims, found)
			}
		} else if found != oneSubject || hash != crc32.ChecksumIEEE([]byte(name)) {
			t.Errorf("%s: got %d with hash %08x, want that of %q", claims, found, hash, name)
		}
	}
}

func TestTextThatIsNoTokenHasNoSubject(t *testing.T) {
	good := string(bearer(plainHeader, `{"sub":"ann"}`))
	for _, raw := range []string{
		"", ".", "..a", "a.b", "a.!.c", "a.b.c.d", good + ".x", strings.Replace(good, ".", "", 1), "a.e30=.c", "a.e31.c",
		strings.Repeat("a", 5000) + good,
	} {
		_, found, _ := subject([]byte(raw), nil)
		empty := raw == "..a" // has claims, although empty ones; the verifier decides
		if empty && found != ambiguous || !empty && found != noSubject {
			t.Errorf("%.40q: got %d", raw, found)
		}
	}
}

func TestUnclearClaimsAreAmbiguous(t *testing.T) {
	for _, claims := range []string{
		`{"sub":"a\u006en"}`, `{"s\u0075b":"ann"}`, `{"x":"\\","sub":"ann"}`, `{"sub":"ann","sub":"bob"}`,
		`{"sub":"ann","SUB":"bob"}`, `{"Sub":"x","sub":"ann"}`,
		`{"sub":1}`, `{"sub":null}`, `{"sub":["ann"]}`, `{"sub":{"x":"ann"}}`, `{"sub"}`, `{"sub":`, `{"sub":"`,
		`{"sub":"ann`, `{"exp":1}`, `{}`, `x`, `{"a":"sub","sub":"ann"}`,
		`{"a":"sub"}`, `"sub"`, `"sub"sub"`, `{"sub";"ann"}`, `{"sub""ann"}`,
	} {
		if _, found, _ := subject(bearer(plainHeader, claims), nil); found != ambiguous {
			t.Errorf("%s: got %d, want ambiguous", claims, found)
		}
	}
}

// A token that the verifier accepts must never be read as having no subject or another one: that buyer could receive
// "sold out" although the buyer holds an order.
func FuzzSubjectAgreesWithTheVerifier(f *testing.F) {
	for _, claims := range []string{
		`{"sub":"ann","exp":9999999999}`, `{"exp":9999999999,"sub":"ann"}`, `{"sub":"a\"n","exp":9999999999}`,
		`{"\u0073ub":"ann","exp":9999999999}`,
		`{"sub":"ann","sub":"bob","exp":9999999999}`, `{"SUB":"bob","sub":"ann","exp":9999999999}`,
		`{"a":{"sub":"bob"},"sub":"ann","exp":9999999999}`,
		`{"sub" :	"ann" , "exp":9999999999}`, `{"a":"sub","b":":","sub":"ann","exp":9999999999}`,
		`{"x":["sub",":","bob"],"sub":"ann","exp":9999999999}`, `{"sub":"Zoë","exp":9e9}`,
		`{"exp":9999999999,"sub":"ann"} `, `{"ſub":"bob","sub":"ann","exp":9999999999}`,
		`{"":"","sub":"ann","exp":9999999999}`,
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
		hash, found, _ := subject(raw, nil)
		name, err := key.Verify(string(raw))
		if err != nil {
			return
		}
		if found == noSubject || found == oneSubject && hash != crc32.ChecksumIEEE([]byte(name)) {
			t.Fatalf("verified subject %q of %s, but got %d with hash %08x", name, claims, found, hash)
		}
	})
}

// A text that the verifier accepts must have a subject.
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
		_, found, _ := subject([]byte(raw), scratch)
		if name, err := key.Verify(raw); err == nil && found == noSubject {
			t.Fatalf("%q is valid for %q, but got no subject", raw, name)
		}
	})
}

func BenchmarkSubject(b *testing.B) {
	raw := bearer(plainHeader, `{"sub":"buyer-0123456789abcdef","exp":9999999999,"iat":1800000000}`)
	var scratch []byte
	b.ReportAllocs()
	for b.Loop() {
		var found certainty
		if _, found, scratch = subject(raw, scratch); found != oneSubject {
			b.Fatal(found)
		}
	}
}
