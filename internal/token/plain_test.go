package token

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const plainHead = `{"alg":"HS256","typ":"JWT"}`

// agree checks that the quick way and the parser say the same about a token, and tells whether the quick way has judged it.
func agree(t rapid.TB, k *Key, raw string) (judged bool) {
	t.Helper()
	if strings.Count(raw, ".") != 2 {
		return false
	}
	sub, expires, good, judged := k.plain(raw)
	if !judged {
		return false
	}
	wantSub, wantExpires, err := k.parse(raw)
	if good != (err == nil) || sub != wantSub || !expires.Equal(wantExpires) {
		t.Fatalf("%s: quickly %q until %v, good %v; the parser says %q until %v, %v", raw, sub, expires, good, wantSub, wantExpires, err)
	}
	return true
}

func TestPlainJudgesWhatSignMakes(t *testing.T) {
	k := key(t, noon)
	raw, err := k.Sign("ann", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if sub, expires, good, judged := k.plain(raw); !judged || !good || sub != "ann" || !expires.Equal(noon.Add(time.Minute)) {
		t.Errorf("%q until %v, good %v, judged %v", sub, expires, good, judged)
	}
	forged := raw[:len(raw)-2] + "AA"
	if _, _, good, judged := k.plain(forged); !judged || good {
		t.Errorf("another signature: good %v, judged %v", good, judged)
	}
}

func TestPlainLeavesWhatIsNotPlainToTheParser(t *testing.T) {
	k := key(t, noon)
	const exp = `"exp":1798761600`
	for _, claims := range []string{
		``, `{`, `{}`, `[]`, `{"sub":"ann"}`, `{` + exp + `}`, `{"sub":"",` + exp + `}`, `{"sub":"ann",` + exp + `}x`, `{"sub":"ann",` + exp + `,}`,
		`{"sub":"ann","exp":1}`, `{"sub":"ann","exp":01798761600}`, `{"sub":"ann","exp":179876160000}`, `{"sub":"ann","exp":1798761600.5}`,
		`{"sub":"ann","exp":"1798761600"}`, `{"sub":"ann","exp":-1}`, `{"sub":"ann","exp":}`, `{"sub":"ann","exp":`, `{"sub":"ann","exp"`, `{"sub":`,
		`{"sub":"ann",` + exp + `,"nbf":1798761600}`, `{"sub":"ann","sub":"eve",` + exp + `}`, `{"sub":"ann",` + exp + `,"exp":1}`, `{"Sub":"ann",` + exp + `}`,
		`{ "sub":"ann",` + exp + `}`, `{"sub":"an\u006e",` + exp + `}`, `{"sub":"änn",` + exp + `}`, "{\"sub\":\"a\x00\"," + exp + `}`, `{"sub":null,` + exp + `}`,
		`{"sub":"ann",` + exp + `,"aud":"shop"}`, `{"sub":"ann",` + exp + `,"iat":null}`, `{"sub":"ann"` + exp + `}`, `{"sub":"ann";` + exp + `}`,
	} {
		if _, _, _, judged := k.plain(segments(plainHead, claims)); judged {
			t.Errorf("claims %q were judged", claims)
		}
	}
	for _, head := range []string{`{"typ":"JWT","alg":"HS256"}`, `{"alg":"HS256"}`, `{"alg":"none","typ":"JWT"}`, `{"alg":"HS256","typ":"JWT","crit":["exp"]}`} {
		if _, _, _, judged := k.plain(segments(head, `{"sub":"ann",`+exp+`}`)); judged {
			t.Errorf("header %q was judged", head)
		}
	}
}

func TestPlainAgreesWithTheParser(t *testing.T) {
	k := key(t, noon)
	at := noon.Unix()
	var quick int
	rapid.Check(t, func(t *rapid.T) {
		members := map[string][]string{
			"sub": {`"ann"`, `"an n"`, `""`, `"a\"b"`, `"ä"`, `7`},
			"exp": {`1798761600`, `0`, `1e12`, `99999999999`},
			"nbf": {`0`, `1798761600`, `1`},
			"iat": {`0`, `1798761600`, `1`},
			"jti": {`"x"`},
		}
		var claims []string
		for range rapid.IntRange(0, 5).Draw(t, "members") {
			name := rapid.SampledFrom([]string{"sub", "exp", "sub", "exp", "nbf", "iat", "jti"}).Draw(t, "name")
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
	})
	if quick == 0 {
		t.Error("nothing was judged quickly")
	}
	for _, s := range []int64{-1, 0, 1} { // around the second of expiry and of nbf
		for _, claim := range []string{"exp", "nbf"} {
			now := key(t, time.Unix(at+s, 999_000_000))
			other := map[string]string{"exp": "nbf", "nbf": "exp"}[claim]
			limits := map[string]string{"exp": "1798761600", "nbf": "0"}
			limits[claim] = "1767268800" // noon
			raw := segments(plainHead, `{"sub":"ann","`+claim+`":`+limits[claim]+`,"`+other+`":`+limits[other]+`}`)
			sub, _, err := now.VerifyUntil(raw)
			wantSub, _, wantErr := now.parse(raw)
			if sub != wantSub || (err == nil) != (wantErr == nil) {
				t.Errorf("%s, %d s after: %q, %v; the parser says %q, %v", claim, s, sub, err, wantSub, wantErr)
			}
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
	b.Run("plain", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := k.Verify(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parser", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := k.parse(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}
