package nginx

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"hash"
	"strings"
	"testing"
	"time"

	"sluice/internal/token"
)

var b64 = base64.RawURLEncoding

// forge signs any header and claims, however odd.
func forge(header, claims, key string, h func() hash.Hash) string {
	text := b64.EncodeToString([]byte(header)) + "." + b64.EncodeToString([]byte(claims))
	mac := hmac.New(h, []byte(key))
	mac.Write([]byte(text))
	return text + "." + b64.EncodeToString(mac.Sum(nil))
}

func hs256(header, claims string) string { return forge(header, claims, secret, sha256.New) }

const (
	plainHeader = `{"alg":"HS256","typ":"JWT"}`
	year2100    = "4102444800"
)

// forgeries are tokens that no edge may take, each for one reason.
func forgeries(t *testing.T) map[string]string {
	good := hs256(plainHeader, `{"sub":"ann","exp":`+year2100+`}`)
	head, rest, _ := strings.Cut(good, ".")
	claims, signature, _ := strings.Cut(rest, ".")
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsHead := b64.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`))
	digest := sha256.Sum256([]byte(rsHead + "." + claims))
	rs, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	none := b64.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + claims + "."
	lastBits := []byte(good)
	lastBits[len(lastBits)-1]++ // the last character of 32 bytes carries two bits that decode to nothing
	return map[string]string{
		"empty":                        "",
		"a word":                       "nonsense",
		"dots":                         "..",
		"four segments":                good + "." + signature,
		"three and a half segments":    good + ".",
		"two segments":                 head + "." + claims,
		"no signature":                 head + "." + claims + ".",
		"wrong key":                    forge(plainHeader, `{"sub":"ann","exp":`+year2100+`}`, secret+"x", sha256.New),
		"signature of other claims":    head + "." + b64.EncodeToString([]byte(`{"sub":"eve","exp":`+year2100+`}`)) + "." + signature,
		"short signature":              head + "." + claims + "." + b64.EncodeToString([]byte("short")),
		"padded signature":             good + "=",
		"loose bits in the signature":  string(lastBits),
		"line break in the signature":  head + "." + claims + "." + signature[:10] + "\t" + signature[10:],
		"alg none":                     none,
		"alg none, signed":             hs256(`{"alg":"none"}`, `{"sub":"ann","exp":`+year2100+`}`),
		"alg None":                     hs256(`{"alg":"None"}`, `{"sub":"ann","exp":`+year2100+`}`),
		"alg hs256":                    hs256(`{"alg":"hs256"}`, `{"sub":"ann","exp":`+year2100+`}`),
		"alg missing":                  hs256(`{"typ":"JWT"}`, `{"sub":"ann","exp":`+year2100+`}`),
		"alg twice":                    hs256(`{"alg":"HS256","alg":"HS256"}`, `{"sub":"ann","exp":`+year2100+`}`),
		"alg a list":                   hs256(`{"alg":["HS256"]}`, `{"sub":"ann","exp":`+year2100+`}`),
		"alg HS512":                    forge(`{"alg":"HS512"}`, `{"sub":"ann","exp":`+year2100+`}`, secret, sha512.New),
		"alg RS256":                    rsHead + "." + claims + "." + b64.EncodeToString(rs),
		"alg RS256, signed as HS256":   hs256(`{"alg":"RS256"}`, `{"sub":"ann","exp":`+year2100+`}`),
		"crit":                         hs256(`{"alg":"HS256","crit":["b64"],"b64":false}`, `{"sub":"ann","exp":`+year2100+`}`),
		"crit null":                    hs256(`{"alg":"HS256","crit":null}`, `{"sub":"ann","exp":`+year2100+`}`),
		"enc":                          hs256(`{"alg":"HS256","enc":"A128GCM"}`, `{"sub":"ann","exp":`+year2100+`}`),
		"typ of something else":        hs256(`{"alg":"HS256","typ":"at+jwt"}`, `{"sub":"ann","exp":`+year2100+`}`),
		"header is a list":             hs256(`["HS256"]`, `{"sub":"ann","exp":`+year2100+`}`),
		"header is not JSON":           hs256(`{"alg":"HS256"`, `{"sub":"ann","exp":`+year2100+`}`),
		"claims are not JSON":          hs256(plainHeader, `{"sub":"ann","exp":`+year2100),
		"claims and more":              hs256(plainHeader, `{"sub":"ann","exp":`+year2100+`}{}`),
		"claims are null":              hs256(plainHeader, `null`),
		"claims are a list":            hs256(plainHeader, `[{"sub":"ann","exp":`+year2100+`}]`),
		"expired":                      hs256(plainHeader, fmt.Sprintf(`{"sub":"ann","exp":%d}`, time.Now().Unix()-1)),
		"expires now":                  hs256(plainHeader, fmt.Sprintf(`{"sub":"ann","exp":%d}`, time.Now().Unix())),
		"no exp":                       hs256(plainHeader, `{"sub":"ann"}`),
		"exp a string":                 hs256(plainHeader, `{"sub":"ann","exp":"`+year2100+`"}`),
		"exp null":                     hs256(plainHeader, `{"sub":"ann","exp":null}`),
		"exp true":                     hs256(plainHeader, `{"sub":"ann","exp":true}`),
		"exp 2^63":                     hs256(plainHeader, `{"sub":"ann","exp":9223372036854775808}`),
		"exp 1e400":                    hs256(plainHeader, `{"sub":"ann","exp":1e400}`),
		"exp negative":                 hs256(plainHeader, `{"sub":"ann","exp":-1}`),
		"exp hexadecimal":              hs256(plainHeader, `{"sub":"ann","exp":0xFFFFFFFF}`),
		"exp twice":                    hs256(plainHeader, `{"sub":"ann","exp":1,"exp":`+year2100+`}`),
		"not before next century":      hs256(plainHeader, `{"sub":"ann","nbf":4000000000,"exp":`+year2100+`}`),
		"nbf a string":                 hs256(plainHeader, `{"sub":"ann","nbf":"1","exp":`+year2100+`}`),
		"no sub":                       hs256(plainHeader, `{"exp":`+year2100+`}`),
		"sub empty":                    hs256(plainHeader, `{"sub":"","exp":`+year2100+`}`),
		"sub a number":                 hs256(plainHeader, `{"sub":5,"exp":`+year2100+`}`),
		"sub null":                     hs256(plainHeader, `{"sub":null,"exp":`+year2100+`}`),
		"sub twice":                    hs256(plainHeader, `{"sub":"eve","sub":"ann","exp":`+year2100+`}`),
		"sub twice, once escaped":      hs256(plainHeader, `{"sub":"eve","s\u0075b":"ann","exp":`+year2100+`}`),
		"sub with a line break":        hs256(plainHeader, `{"sub":"ann\nverdict","exp":`+year2100+`}`),
		"sub with a zero byte":         hs256(plainHeader, `{"sub":"ann\u0000","exp":`+year2100+`}`),
		"sub with a C1 control":        hs256(plainHeader, `{"sub":"ann\u0085","exp":`+year2100+`}`),
		"sub not UTF-8":                hs256(plainHeader, "{\"sub\":\"ann\xff\",\"exp\":"+year2100+"}"),
		"sub a lone surrogate":         hs256(plainHeader, `{"sub":"ann\ud800","exp":`+year2100+`}`),
		"sub of 256 bytes":             hs256(plainHeader, `{"sub":"`+strings.Repeat("a", 256)+`","exp":`+year2100+`}`),
		"nested for ever":              hs256(plainHeader, `{"sub":"ann","exp":`+year2100+`,"x":`+strings.Repeat("[", 500)+strings.Repeat("]", 500)+`}`),
		"longer than 4096 bytes":       hs256(plainHeader, `{"sub":"ann","exp":`+year2100+`,"x":"`+strings.Repeat("a", 4000)+`"}`),
		"white space instead of a dot": head + " " + claims + " " + signature,
	}
}

func TestTheEdgeTakesNoForgedToken(t *testing.T) {
	backend := echo(t)
	e := startEdge(t, `return { rules = { { name = "token", key = "token", rate = "1000r/s", burst = 100000 } } }`, nil, backend.addr)
	key, err := token.NewKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	// These the backend's verifier takes: it reads JSON as encoding/json does, and leaves to its caller how a buyer may be called.
	looser := map[string]bool{
		"alg twice": true, "enc": true, "typ of something else": true, "exp twice": true, "sub twice": true, "sub twice, once escaped": true,
		"sub with a line break": true, "sub with a zero byte": true, "sub with a C1 control": true, "sub not UTF-8": true,
		"sub a lone surrogate": true, "exp a string": true, "exp 2^63": true, "nbf a string": true, "sub of 256 bytes": true, "nested for ever": true,
	}
	for name, raw := range forgeries(t) {
		got := e.do("GET", "/", "Authorization", "Bearer "+raw)
		if got.status != 401 || got.body != problemBody(401, "") || got.header.Get("WWW-Authenticate") != `Bearer error="invalid_token"` {
			t.Errorf("%s: status %d, %v, %s", name, got.status, got.header, got.body)
		}
		if _, err := key.Verify(raw); err == nil && !looser[name] {
			t.Errorf("%s: the backend takes it, and this test did not know", name)
		}
	}
	if n := len(backend.requests()); n != 0 {
		t.Errorf("%d requests with forged tokens reached the backend", n)
	}
}

func TestTheEdgeTakesGoodTokensFromEitherHeader(t *testing.T) {
	backend := echo(t)
	e := startEdge(t, `return { rules = { { name = "token", key = "token", rate = "1r/h", burst = 0 } } }`, nil, backend.addr)
	raw := strings.TrimPrefix(signed(t, "ann"), "Bearer ")
	for i, c := range []struct {
		name   string
		header []string
		status int
	}{
		{"Authorization", []string{"Authorization", "Bearer " + raw}, 200},
		{"the same buyer by the other header", []string{"Token", raw}, 429},
		{"the same buyer by another token", []string{"Authorization", "bearer  " + hs256(plainHeader, `{"sub":"ann","exp":`+year2100+`}`)}, 429},
		{"another buyer", []string{"Token", hs256(plainHeader, `{"sub":"bob","exp":`+year2100+`}`)}, 200},
		{"no typ, a fraction, claims of others", []string{"Token", hs256(`{"alg":"HS256"}`, `{"iss":"shop","aud":["a"],"sub":"cy\u00e9 \ud83d\ude00","exp":`+year2100+`.5,"nbf":1e3}`)}, 200},
		{"a name of 255 bytes", []string{"Token", hs256(plainHeader, `{"sub":"`+strings.Repeat("d", 255)+`","exp":`+year2100+`}`)}, 200},
		{"Basic and a token", []string{"Authorization", "Basic YTpi", "Token", raw}, 401},
		{"nothing", nil, 401},
		{"Bearer alone", []string{"Authorization", "Bearer "}, 401},
	} {
		if got := e.do("GET", fmt.Sprintf("/%d", i), c.header...); got.status != c.status {
			t.Errorf("%s: status %d, want %d", c.name, got.status, c.status)
		}
	}
	for _, r := range backend.requests() {
		if r.header.Get("Authorization") != "" && r.header.Get("Token") != "" {
			t.Errorf("%s reached the backend with two tokens", r.path)
		}
	}
	// Control characters apart, what a buyer is called is his affair; the log must stay one object a line.
	if entry := e.logged(4, 200)[2]; entry["buyer"] != "cyé 😀" {
		t.Errorf("logged buyer %q", entry["buyer"])
	}
}

// A remembered token must not outlive its expiry, nor stand in for one that looks like it.
func TestARememberedTokenIsNoBetterThanAVerifiedOne(t *testing.T) {
	good := hs256(plainHeader, `{"sub":"ann","exp":2000000000}`)
	got := requireLua(t).run(t, `
		local verify = require("sluice.token").verify
		local raw, out = `+luaString(good)+`, {}
		local function try(...) out[#out + 1] = table.concat({ tostring((verify(...))), select(2, verify(...)) }, " ") end
		try(raw, 1999999998)
		try(raw, 1999999999)
		try(raw, 2000000000)
		try(raw .. "x", 1999999999)
		try(raw:sub(1, -2), 1999999999)
		return table.concat(out, "; ")
	`)
	if want := "ann; ann; nil expired; nil signature; nil signature"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Where both headers are there, the backend must see the one that the edge has judged.
func TestTheBackendSeesTheTokenThatWasJudged(t *testing.T) {
	backend := echo(t)
	e := startEdge(t, `return { rules = { { name = "token", key = "token", rate = "1r/s", burst = 10 } } }`, nil, backend.addr)
	bob := strings.TrimPrefix(signed(t, "bob"), "Bearer ")
	if got := e.do("GET", "/", "Authorization", signed(t, "ann"), "Token", bob).status; got != 200 {
		t.Fatalf("status %d", got)
	}
	r := backend.requests()[0]
	if r.header.Get("Token") != "" || r.header.Get("Authorization") == "" {
		t.Errorf("the backend got Authorization %q and Token %q", r.header.Get("Authorization"), r.header.Get("Token"))
	}
	if entry := e.logged(1, 200)[0]; entry["buyer"] != "ann" {
		t.Errorf("judged as %v", entry["buyer"])
	}
}

// A flood of made-up tokens must run into the per-IP limit, or every one of them costs a signature check.
func TestBadTokensUseUpTheAddressesQuota(t *testing.T) {
	e := startEdge(t, `return { rules = {
		{ name = "ip",    key = "ip",    rate = "1r/h", burst = 1 },
		{ name = "token", key = "token", rate = "1r/h", burst = 5 },
	} }`, nil)
	bad := []string{"Authorization", "Bearer a.b.c"}
	if got := statuses(e.do("GET", "/", bad...), e.do("GET", "/", bad...), e.do("GET", "/", bad...)); got != "401 401 429" {
		t.Errorf("bad tokens: %s, want 401 401 429", got)
	}
	if got := e.do("GET", "/", "Authorization", signed(t, "ann")).status; got != 429 {
		t.Errorf("then a good one: %d, want 429", got)
	}
}
