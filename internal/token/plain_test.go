package token

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const plainHead = `{"alg":"HS256","typ":"JWT"}`

// agree checks that fast and strict verification return the same result. It reports whether the claims are plain.
func agree(t rapid.TB, k *Key, raw string) (isPlain bool) {
	t.Helper()
	for range 2 { // the second time with a cached header
		sub, expires, err := k.verify(raw, true)
		wantSub, wantExpires, wantErr := k.verify(raw, false)
		if (err == nil) != (wantErr == nil) || sub != wantSub || !expires.Equal(wantExpires) {
			t.Fatalf("%s: fast %q until %v, %v; strict %q until %v, %v", raw, sub, expires, err, wantSub, wantExpires,
				wantErr)
		}
	}
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return false
	}
	text, err := decodeStrictly(nil, parts[1])
	if err != nil {
		return false
	}
	c, isPlain := plainClaims(text)
	if isPlain {
		if strictly, err := strictClaims(text, Expect{}); err != nil || c != strictly {
			t.Fatalf("%s: plain %+v, strict %+v, %v", text, c, strictly, err)
		}
	}
	return isPlain
}

func TestPlainClaimsParseSignedTokens(t *testing.T) {
	k := key(t, noon)
	raw, err := k.Sign("ann", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if !agree(t, k, raw) {
		t.Errorf("%s is not plain", raw)
	}
	if _, isKnown := (*k.headers.Load())[raw[:strings.IndexByte(raw, '.')]]; !isKnown {
		t.Error("the header is not cached")
	}
	agree(t, k, raw[:len(raw)-2]+"AA")
}

func TestPlainClaimsRejectOtherForms(t *testing.T) {
	const exp = `"exp":1798761600`
	for _, claims := range []string{
		``, `{`, `{}`, `[]`, `{"sub":"ann"}`, `{` + exp + `}`, `{"sub":"",` + exp + `}`, `{"sub":"ann",` + exp + `}x`,
		`{"sub":"ann",` + exp + `,}`,
		`{"sub":"ann","exp":01798761600}`, `{"sub":"ann","exp":179876160000}`, `{"sub":"ann","exp":1798761600.5}`,
		`{"sub":"ann","exp":+1}`, `{"sub":"ann",` + exp,
		`{"sub":"ann","exp":"1798761600"}`, `{"sub":"ann","exp":-1}`, `{"sub":"ann","exp":}`, `{"sub":"ann","exp":`,
		`{"sub":"ann","exp"`, `{"sub":`, `{"sub"`, `{"`,
		`{"sub":"ann","sub":"eve",` + exp + `}`, `{"sub":"ann",` + exp + `,"exp":1}`, `{"Sub":"ann",` + exp + `}`,
		`{"sub":7,` + exp + `}`,
		`{ "sub":"ann",` + exp + `}`, `{"sub":"an\u006e",` + exp + `}`, `{"sub":"änn",` + exp + `}`,
		"{\"sub\":\"a\x00\"," + exp + `}`, `{"sub":null,` + exp + `}`,
		`{"sub":"ann",` + exp + `,"aud":["shop"]}`, `{"sub":"ann",` + exp + `,"iat":null}`, `{"sub":"ann"` + exp + `}`,
		`{"sub":"ann";` + exp + `}`,
		`{"sub":"ann",` + exp + `,"a":1,"a":1}`, `{"sub":"ann",` + exp + `,"":1,"":"x"}`,
		`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"sub":"ann",` + exp + `}`,
		`{"sub":"` + strings.Repeat("a", MaxSubject+1) + `",` + exp + `}`,
	} {
		if c, isPlain := plainClaims([]byte(claims)); isPlain {
			t.Errorf("%q is accepted: %+v", claims, c)
		}
	}
	for _, claims := range []string{
		`{"sub":"ann",` + exp + `}`, `{` + exp + `,"iat":0,"nbf":99999999999,"sub":"a b~"}`,
		`{"iss":"a","":1,"A":"","aud":"b","jti":7,"sub":"ann",` + exp + `}`,
	} {
		if _, isPlain := plainClaims([]byte(claims)); !isPlain {
			t.Errorf("%q is rejected", claims)
		}
	}
}

func TestPlainClaimsAgreeWithStrictClaims(t *testing.T) {
	k := key(t, noon)
	at := noon.Unix()
	var quick int
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
			if agree(t, k, raw) {
				quick++
			}
		}
	})
	if quick == 0 {
		t.Error("no claims were plain")
	}
	for _, s := range []int64{-1, 0, 1} { // around the second of expiry and of nbf
		for _, claim := range []string{"exp", "nbf"} {
			now := key(t, time.Unix(at+s, 999_000_000))
			other := map[string]string{"exp": "nbf", "nbf": "exp"}[claim]
			limits := map[string]string{"exp": "1798761600", "nbf": "0"}
			limits[claim] = "1767268800" // noon
			raw := segments(plainHead, `{"sub":"ann","`+claim+`":`+limits[claim]+`,"`+other+`":`+limits[other]+`}`)
			_, err := now.Verify(raw)
			if good := s < 0 == (claim == "exp"); good != (err == nil) {
				t.Errorf("%s, %d s after: %v", claim, s, err)
			}
			agree(t, now, raw)
		}
	}
}

func FuzzPlain(f *testing.F) {
	k := key(f, noon)
	f.Add(`{"sub":"ann","exp":1798761600}`)
	f.Add(`{"exp":1798761600,"iat":1,"nbf":2,"sub":"a b"}`)
	f.Fuzz(func(t *testing.T, claims string) { agree(t, k, segments(plainHead, claims)) })
}

func BenchmarkVerify(b *testing.B) {
	k := key(b, noon)
	raw, err := k.Sign("4c9a8f0e2b7d61535c0fa1b2", time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		quickly bool
	}{{"plain", true}, {"strict", false}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := k.verify(raw, c.quickly); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
