package token

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const plainHead = `{"alg":"HS256","typ":"JWT"}`

// agree checks that the verification of a token has the same result with caches and without. It returns the error.
func agree(t rapid.TB, raw string) error {
	t.Helper()
	k, err := newSet(secret, nil, Options{Now: func() time.Time { return noon }, Cache: 16})
	if err != nil {
		t.Fatal(err)
	}
	wantSub, wantExpires, want := k.VerifyUntil(raw)
	for range 2 { // with a cached header, and a cached token if it is valid
		sub, expires, err := k.VerifyUntil(raw)
		if (err == nil) != (want == nil) || sub != wantSub || !expires.Equal(wantExpires) {
			t.Fatalf("%s: %q until %v, %v; before %q until %v, %v", raw, sub, expires, err, wantSub, wantExpires, want)
		}
	}
	if err := k.Explain(raw); (err == nil) != (want == nil) {
		t.Fatalf("%s: %v, explained as %v", raw, want, err)
	}
	return want
}

func TestCachesDoNotChangeResults(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		members := map[string][]string{
			"sub": {`"ann"`, `"an n"`, `"bob"`, `""`, `"a\"b"`, `"ä"`, `7`},
			"exp": {`1798761600`, `0`, `1e12`, `99999999999`},
			"nbf": {`0`, `1798761600`, `1`},
			"iat": {`0`, `1798761600`, `1`},
			"jti": {`"x"`, `1`, `""`},
			"aud": {`"x"`, `[]`, `true`},
		}
		for range 20 {
			names := rapid.Permutation([]string{"sub", "exp", "nbf", "iat", "jti", "aud"}).Draw(t, "names")
			names = names[:rapid.IntRange(2, 6).Draw(t, "members")]
			if rapid.IntRange(0, 3).Draw(t, "twice") == 0 {
				names = append(names, rapid.SampledFrom(names).Draw(t, "which"))
			}
			var claims []string
			for _, name := range names {
				claims = append(claims, `"`+name+`":`+rapid.SampledFrom(members[name]).Draw(t, "value"))
			}
			raw := segments(plainHead, "{"+strings.Join(claims, ",")+"}")
			if rapid.IntRange(0, 3).Draw(t, "spoil") == 0 {
				i := rapid.IntRange(0, len(raw)-1).Draw(t, "at")
				raw = raw[:i] + rapid.SampledFrom([]string{"A", "B", "-", "=", ".", "é"}).Draw(t, "with") + raw[i+1:]
			}
			if agree(t, raw) == nil {
				accepted++
			}
		}
	})
	if accepted == 0 {
		t.Error("no token was accepted")
	}
}

func TestClaimsInOddForms(t *testing.T) {
	const exp = `"exp":1798761600`
	for _, claims := range []string{
		``, `{`, `{}`, `[]`, `{"sub":"ann"}`, `{` + exp + `}`, `{"sub":"",` + exp + `}`, `{"sub":"ann",` + exp + `}x`,
		`{"sub":"ann",` + exp + `,}`,
		`{"sub":"ann","exp":01798761600}`, `{"sub":"ann","exp":+1}`, `{"sub":"ann",` + exp,
		`{"sub":"ann","exp":"1798761600"}`, `{"sub":"ann","exp":-1}`, `{"sub":"ann","exp":}`, `{"sub":"ann","exp":`,
		`{"sub":"ann","exp"`, `{"sub":`, `{"sub"`, `{"`,
		`{"sub":"ann","sub":"eve",` + exp + `}`, `{"sub":"ann",` + exp + `,"exp":1}`, `{"Sub":"ann",` + exp + `}`,
		`{"sub":7,` + exp + `}`, "{\"sub\":\"a\x00\"," + exp + `}`, `{"sub":null,` + exp + `}`,
		`{"sub":"ann",` + exp + `,"iat":null}`, `{"sub":"ann"` + exp + `}`, `{"sub":"ann";` + exp + `}`,
		`{"sub":"ann",` + exp + `,"a":1,"a":1}`, `{"sub":"ann",` + exp + `,"":1,"":"x"}`,
		`{"sub":"` + strings.Repeat("a", MaxSubject+1) + `",` + exp + `}`,
	} {
		if agree(t, segments(plainHead, claims)) == nil {
			t.Errorf("%q is accepted", claims)
		}
	}
	for _, claims := range []string{
		`{"sub":"ann",` + exp + `}`, `{` + exp + `,"iat":0,"nbf":0,"sub":"a b~"}`, `{ "sub":"ann",` + exp + `}`,
		`{"iss":"a","":1,"A":"","aud":"b","jti":7,"sub":"ann",` + exp + `}`, `{"sub":"ann",` + exp + `,"aud":["shop"]}`,
		`{"sub":"an\u006e",` + exp + `}`, `{"sub":"änn",` + exp + `}`, `{"sub":"ann","exp":1798761600.5}`,
		`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"sub":"ann",` + exp + `}`,
		`{"sub":"ann","exp":179876160000}`,
	} {
		if err := agree(t, segments(plainHead, claims)); err != nil {
			t.Errorf("%q is rejected: %v", claims, err)
		}
	}
}

// Around the second of exp and of nbf.
func TestTimesAreExactToTheSecond(t *testing.T) {
	for _, s := range []int64{-1, 0, 1} {
		for _, claim := range []string{"exp", "nbf"} {
			k := key(t, time.Unix(noon.Unix()+s, 999_000_000))
			other := map[string]string{"exp": "nbf", "nbf": "exp"}[claim]
			limits := map[string]string{"exp": "1798761600", "nbf": "0"}
			limits[claim] = "1767268800" // noon
			raw := segments(plainHead, `{"sub":"ann","`+claim+`":`+limits[claim]+`,"`+other+`":`+limits[other]+`}`)
			for range 2 { // the second time from the cache
				if _, err := k.Verify(raw); (s < 0 == (claim == "exp")) != (err == nil) {
					t.Errorf("%s, %d s after: %v", claim, s, err)
				}
			}
		}
	}
}

func FuzzClaims(f *testing.F) {
	f.Add(`{"sub":"ann","exp":1798761600}`)
	f.Add(`{"exp":1798761600,"iat":1,"nbf":2,"sub":"a b"}`)
	f.Fuzz(func(t *testing.T, claims string) { _ = agree(t, segments(plainHead, claims)) })
}

func BenchmarkVerify(b *testing.B) {
	raw, err := key(b, noon).Sign("4c9a8f0e2b7d61535c0fa1b2", time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("first", func(b *testing.B) {
		k := key(b, noon)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := k.read(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("again", func(b *testing.B) {
		k := key(b, noon)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := k.Verify(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}
