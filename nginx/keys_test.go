package nginx

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/internal/token"
	"sluice/internal/token/tokentest"
)

// verified verifies tokens with the keys of an Issuer at the edge, and returns the subject of each token, or "-".
func verified(t rapid.TB, server *luaServer, w *tokentest.Issuer, now int64, tokens []string) []string {
	t.Helper()
	out, err := server.try(fmt.Sprintf(`
		local keys, token = require "sluice.token.keys", require "sluice.token"
		local before = token.use(assert(keys.set(%s, assert(keys.parse(%s)))))
		local out, tokens = {}, %s
		for round = 1, 2 do -- the second time its header, or all of it, may be remembered
			for i, raw in ipairs(tokens) do
				local ok, sub, why = pcall(token.verify, raw, %d)
				if not ok then sub, why = "error", sub end
				if round == 1 then
					out[i] = sub or "-"
				elseif out[i] ~= (sub or "-") then
					out[i] = out[i] .. ", then " .. (sub or "-")
				end
			end
		end
		token.use(before)
		return table.concat(out, "\n")`, luaString(w.Secret), luaString(string(w.Keys)), list(tokens), now))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(out, "\n")
}

func TestEdgeVerifiesTokens(t *testing.T) { variants(t, testEdgeVerifiesTokens) }

func testEdgeVerifiesTokens(t *testing.T, f *variant) {
	w := tokentest.New()
	cases := w.Cases()
	var tokens []string
	for _, c := range cases {
		tokens = append(tokens, c.Token)
	}
	for i, got := range verified(t, f.lua(t), w, time.Now().Unix(), tokens) {
		want := cases[i].Subject
		if want == "" {
			want = "-"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", cases[i].Name, got, want)
		}
	}
}

// The same tokens through HTTP: a bad token gets a 401 that quotes nothing, and reaches no backend.
func TestEdgeAcceptsTokensOfAllKeysOnly(t *testing.T) {
	w := tokentest.New()
	backend := echo(t)
	e := startEdge(t, `return { rules = { { name = "token", key = "token", rate = "1000r/s", burst = 100000 } } }`,
		func(c *Config) { c.Secret, c.TokenKeys = w.Secret, w.File(t) }, backend.addr)
	passed := 0
	for _, c := range w.Cases() {
		if !c.InHeader() {
			continue
		}
		got := e.do("GET", "/", "Authorization", "Bearer "+c.Token)
		if c.Subject != "" {
			passed++
			if got.status != 200 {
				t.Errorf("%s: status %d", c.Name, got.status)
			}
			continue
		}
		if len(c.Token) > 8000 && got.status == 431 {
			continue // no header is as long as this
		}
		if got.status != 401 || got.body != problemBody(401, "") ||
			got.header.Get("WWW-Authenticate") != `Bearer error="invalid_token"` {
			t.Errorf("%s: status %d, %v, %s", c.Name, got.status, got.header, got.body)
		}
	}
	if n := len(backend.requests()); n != passed {
		t.Errorf("%d requests reached the backend, want %d", n, passed)
	}
}

// An edge that expects an issuer and an audience: through HTTP, so that its settings reach the workers.
func TestEdgeVerifiesIssuerAndAudience(t *testing.T) { variants(t, testEdgeVerifiesIssuerAndAudience) }

func testEdgeVerifiesIssuerAndAudience(t *testing.T, f *variant) {
	w := tokentest.New()
	e := startEdge(t, byToken, func(c *Config) {
		f.on(t)(c)
		c.Secret, c.TokenKeys = w.Secret, w.File(t)
		c.Issuer, c.Audience = tokentest.Expected.Issuer, tokentest.Expected.Audience
	})
	for _, c := range w.ExpectedCases() {
		want := 401
		if c.Subject != "" {
			want = 200
		}
		if got := e.do("GET", "/", "Authorization", "Bearer "+c.Token); got.status != want {
			t.Errorf("%s: status %d, want %d", c.Name, got.status, want)
		}
	}
}

// The edge verifies the same vectors as internal/token.
func TestEdgeVerifiesVectorsOfWycheproof(t *testing.T) { verifyVectors(t, tokentest.Vectors(t)) }

func TestEdgeVerifiesExamplesOfRFCs(t *testing.T) { verifyVectors(t, tokentest.RFCVectors()) }

func verifyVectors(t *testing.T, vectors []tokentest.Vector) {
	t.Helper()
	server := requireLua(t)
	for some := range slices.Chunk(vectors, 50) {
		var keys, texts, signatures []string
		for _, v := range some {
			keys, texts = append(keys, `{"keys":[`+v.Key+`]}`), append(texts, v.Text)
			signatures = append(signatures, string(v.Signature))
		}
		out := server.run(t, `
			local hmac, public = require "sluice.token.hmac", require "sluice.token.public"
			local read = require("sluice.token.keys").parse
			local keys, texts, signatures, out = `+list(keys)+`, `+list(texts)+`, `+list(signatures)+`, {}
			for i, text in ipairs(texts) do
				local key = assert(read(keys[i]))[1]
				if key.hmac then
					out[i] = tostring(hmac.equal(hmac.sum(key.hmac, text), signatures[i]))
				else
					out[i] = tostring(public.verify(key, text, signatures[i]))
				end
			end
			return table.concat(out, " ")`)
		for i, got := range strings.Fields(out) {
			if want := fmt.Sprint(some[i].Valid); got != want {
				t.Errorf("%s: %s, want %s", some[i].Name, got, want)
			}
		}
	}
}

// The edge decides as internal/token about tokens with any payload: those that pass fail at their claims.
func TestEdgeVerifiesJWSVectorsOfWycheproof(t *testing.T) { variants(t, testEdgeVerifiesJWSVectors) }

func testEdgeVerifiesJWSVectors(t *testing.T, f *variant) {
	server := f.lua(t)
	for some := range slices.Chunk(tokentest.JWSVectors(t), 50) {
		var keys, tokens []string
		for _, v := range some {
			keys, tokens = append(keys, v.Keys), append(tokens, v.Token)
		}
		out := server.run(t, `
			local read, token = require "sluice.token.keys", require "sluice.token"
			local keys, tokens, out, before = `+list(keys)+`, `+list(tokens)+`, {}, nil
			for i, raw in ipairs(tokens) do
				local all, why = read.parse(keys[i])
				if all then
					local last = token.use(assert(read.set(nil, all)))
					before = before or last
					why = select(2, token.verify(raw, 1))
				end
				out[i] = why
			end
			token.use(before)
			return table.concat(out, "\n")`)
		reasons := strings.Split(out, "\n")
		for i, v := range some {
			if signed := strings.HasPrefix(reasons[i], "claims: "); signed != v.Signed {
				t.Errorf("%s: %s, want %v", v.Name, reasons[i], v.Signed)
			}
		}
	}
}

// The edge and the gateway find the same buyer in every token.
func TestGoAndLuaNeverDisagree(t *testing.T) { variants(t, testGoAndLuaNeverDisagree) }

func testGoAndLuaNeverDisagree(t *testing.T, f *variant) {
	w, server := tokentest.New(), f.lua(t)
	at := time.Unix(1800000000, 0)
	keys, err := token.Open(w.File(t), w.Secret, token.Options{Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	one := rapid.Custom(func(r *rapid.T) string { return anyToken(r, w) })
	good := 0
	rapid.Check(t, func(r *rapid.T) {
		tokens := rapid.SliceOfN(one, 20, 60).Draw(r, "tokens")
		for i, got := range verified(r, server, w, at.Unix(), tokens) {
			want, err := keys.Verify(tokens[i])
			if err != nil {
				want = "-"
			} else {
				good++
			}
			if got != want {
				r.Fatalf("%q: the edge returns %q, Go returns %q, %v", tokens[i], got, want, err)
			}
		}
	})
	if good == 0 {
		t.Error("no good token was drawn")
	}
}

// Tokens at the bounds of readers in memory: segments without a byte, the longest token, signatures of other lengths,
// and bytes that end a text in C.
func TestGoAndLuaAgreeOnShapesOfTokens(t *testing.T) {
	w := tokentest.New()
	at := time.Unix(1800000000, 0)
	keys, err := token.Open(w.File(t), w.Secret, token.Options{Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	part := base64.RawURLEncoding.EncodeToString
	claims := func(more string) string { return `{"sub":"ann","exp":4102444800` + more + `}` }
	var tokens []string
	for _, key := range [][2]string{
		{"HS256", ""}, {"HS256", tokentest.First}, {"EdDSA", tokentest.Edward}, {"RS256", tokentest.Rivest},
		{"PS256", tokentest.Salted}, {"ES256", tokentest.Curved},
	} {
		header := `{"alg":"` + key[0] + `"}`
		if key[1] != "" {
			header = `{"alg":"` + key[0] + `","kid":"` + key[1] + `"}`
		}
		sign := func(claims string) string { return w.Sign(key[0], key[1], tokentest.Segments(header, claims)) }
		good := sign(claims(""))
		dot, middle := strings.LastIndexByte(good, '.'), strings.IndexByte(good, '.')
		tokens = append(tokens, good, good[:dot], good[:dot+1], good[dot:], good[middle:], "."+good, good+".", "..", ".", "",
			good+"\x00", "\x00"+good, good[:dot]+"\x00"+good[dot:], good[:dot]+"="+good[dot:], good[:middle]+"="+good[middle:],
			good[:middle+1]+good[dot:], strings.ToUpper(good), good[:dot+1]+strings.Repeat("A", len(good)-dot-1))
		for _, n := range []int{1, 41, 42, 43, 44, 45, 64, 85, 86, 87, 341, 342, 343} {
			tokens = append(tokens, good[:dot+1]+strings.Repeat("A", n), good[:min(len(good), dot+1+n)],
				good+strings.Repeat("=", n%4))
		}
		for _, with := range []string{"A", "B", "Q", "=", "-", "+", "/", "\n", "\x00", "\xff"} {
			for _, end := range []int{middle, dot, len(good)} {
				signed := min(end, dot)
				tokens = append(tokens, good[:end-1]+with+good[end:],
					w.Sign(key[0], key[1], good[:signed-1]+with+good[signed:dot]))
			}
		}
		for _, more := range []string{"=", "==", "=A", "=AA", "=AAA", "=AAAA", "A", "AA", "A=="} {
			tokens = append(tokens, w.Sign(key[0], key[1], good[:dot]+more))
		}
		for _, text := range []string{
			"", "{}", "\x00", "{", claims("\x00"), claims("") + "\x00", claims(`,"a":"` + "\x00" + `"`), `{"sub":"ann","exp":4102444800`,
			claims(`,"exp":1`), claims(`,"sub":"bob"`), claims(`,"nbf":1,"nbf":1`), `{"sub":"ann","exp":99999999999}`,
			`{"sub":"ann","exp":999999999999}`, `{"sub":"ann","exp":18446744073709551617}`, `{"sub":"ann","exp":4e99}`,
			claims(`,"a":1,"b":2,"c":3,"d":4`), claims(`,"a":1,"b":2,"c":3,"d":4,"e":5`), claims(`,"a":1,"b":2,"c":3,"d":4,"a":5`),
		} {
			tokens = append(tokens, sign(text))
		}
		// The longest token, and one byte more.
		for pad := range 40 {
			long := sign(claims(`,"a":"` + strings.Repeat("a", (4096-len(good))*3/4-20+pad) + `"`))
			if len(long) >= 4090 && len(long) <= 4102 {
				tokens = append(tokens, long)
			}
		}
		tokens = append(tokens, part([]byte(header))+"."+strings.Repeat("A", 4096), strings.Repeat(".", 4096),
			strings.Repeat("a", 4096))
	}
	variants(t, func(t *testing.T, f *variant) {
		good := 0
		for some := range slices.Chunk(tokens, 30) { // nginx takes bodies of 1 MB
			for i, got := range verified(t, f.lua(t), w, at.Unix(), some) {
				want, err := keys.Verify(some[i])
				if err != nil {
					want = "-"
				} else {
					good++
				}
				if got != want {
					t.Errorf("%q: the edge returns %q, Go returns %q, %v", some[i], got, want, err)
				}
			}
		}
		if good < 20 {
			t.Errorf("%d of %d tokens are good", good, len(tokens))
		}
	})
}

// anyToken draws a token that usually has a valid signature; its header and claims are good, odd or bad.
func anyToken(r *rapid.T, w *tokentest.Issuer) string {
	member := func(name string, values ...string) string {
		return name + ":" + rapid.SampledFrom(values).Draw(r, name)
	}
	odd := func(one, other string) string {
		if rapid.IntRange(0, 9).Draw(r, "odd") == 0 {
			return other
		}
		return one
	}
	pair := rapid.SampledFrom([][2]string{
		{
			"HS256",
			"",
		},
		{"HS256", tokentest.First},
		{"HS256", tokentest.Second},
		{"EdDSA", tokentest.Edward},
		{"RS256", tokentest.Rivest},
		{"PS256", tokentest.Salted},
		{"ES256", tokentest.Curved},
		{"Ed25519", tokentest.Edward},
	}).Draw(r, "key")
	alg, kid := odd(
		pair[0],
		rapid.SampledFrom([]string{"none", "HS256", "RS256", "PS256", "ES256", "EdDSA", "Ed25519", "hs256"}).
			Draw(r, "other alg"),
	), odd(
		pair[1],
		rapid.SampledFrom([]string{tokentest.First, tokentest.Rivest, tokentest.Curved, "x", `\u0000`}).Draw(r, "other kid"),
	)
	header := []string{`"alg":"` + alg + `"`}
	if kid != "" {
		header = append(header, `"kid":"`+kid+`"`)
	}
	header = append(
		header,
		rapid.SliceOfN(
			rapid.SampledFrom([]string{
				`"typ":"JWT"`,
				`"typ":"jwt"`,
				`"typ":"JWT"`,
				`"typ":"at+jwt"`,
				`"typ":"at+JWT"`,
				`"x5t":"a"`,
				`"typ":"JWS"`,
				`"crit":[]`,
				`"jwk":{}`,
				`"Alg":"none"`,
				`"a":1e999`,
				`"b":{"a":1}`,
			}),
			0, 2,
		).
			Draw(r, "more of the header")...)
	times := []string{
		"1800000000",
		"1799999999",
		"1800000001",
		"4102444800",
		"4102444800",
		"4102444800",
		"4102444800.5",
		"41e8",
		"1800000000.0004",
		"0",
		"-1",
		"-0",
		`"1"`,
		"null",
		"9007199254740991",
		"9007199254740992",
		"1e400",
		"01",
		"99999999999",
		"123456789012",
	}
	early := []string{
		"0",
		"1",
		"1799999999",
		"1800000000",
		"1800000000.5",
		"1800000001",
		"1e9",
		`"1"`,
		"null",
		"-1",
		"-0.0",
		"9007199254740992",
	}
	claims := []string{
		member(`"sub"`, `"ann"`, `"ann"`, `"ann"`, `"bob b"`, `"cy\u00e9"`, `"cyé"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ufffd"`,
			`"a\u0000"`, `"a\u0085"`, "\"a\u0085\"", "\"a\x7f\"", "\"\xff\"", `""`, `5`, `null`, `"\/"`,
			`"`+strings.Repeat("a", 255)+`"`, `"`+strings.Repeat("a", 256)+`"`),
		member(`"exp"`, times...),
	}
	more := rapid.SampledFrom([]string{`"nbf"`, `"iat"`, `"sub"`, `"exp"`, `"Sub"`, `"\u0073ub"`, `"jti"`, `"aud"`, `""`})
	for range rapid.IntRange(0, 4).Draw(r, "more") {
		name := more.Draw(r, "name")
		values := append(early, `"x"`, `["x",1]`, `{"a":1,"a":2}`, `{"a":{"b":[]}}`, `[[[[[[[[]]]]]]]]`, `"\ud800"`, "true",
			"7", "7", "1e5", `"a\"b"`)
		if name == `"nbf"` || name == `"iat"` {
			values = early
		}
		claims = append(claims, member(name, values...))
	}
	if rapid.Bool().Draw(r, "shuffle") {
		claims = rapid.Permutation(claims).Draw(r, "order")
	}
	comma := odd(",", rapid.SampledFrom([]string{" , ", ",\n", ",,", ";", "\v,"}).Draw(r, "comma"))
	text := tokentest.Segments("{"+strings.Join(header, comma)+"}",
		odd("", " ")+"{"+strings.Join(claims, comma)+"}"+odd("", "x"))
	if rapid.IntRange(0, 9).Draw(r, "damage") == 0 { // before it is signed
		i := rapid.IntRange(0, len(text)-1).Draw(r, "at")
		text = text[:i] + rapid.SampledFrom([]string{"", "A", "=", "-", "_", "+", ".", " ", "\n", "\x00", "é"}).
			Draw(r, "with") +
			text[i+1:]
	}
	raw := w.Sign(pair[0], pair[1], text)
	if rapid.IntRange(0, 9).Draw(r, "spoil") == 0 {
		i := rapid.IntRange(0, len(raw)-1).Draw(r, "at")
		raw = raw[:i] + rapid.SampledFrom([]string{"", "A", "B", "=", ".", "\n"}).Draw(r, "with") + raw[i+1:]
	}
	return raw
}

// The edge accepts the same key files as internal/token, with the same errors for bad ones.
func TestEdgeReadsKeyFilesAsGoDoes(t *testing.T) {
	files, err := filepath.Glob("../internal/token/testdata/keys/*/*.json")
	if err != nil || len(files) < 50 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	var texts []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	out := requireLua(t).run(t, `
		local keys, out = require "sluice.token.keys", {}
		for i, text in ipairs `+list(texts)+` do
			local _, ok, list, err = nil, pcall(keys.parse, text)
			local names, skipped = {}, ""
			if ok and list and #err > 0 then skipped, err = "; " .. table.concat(err, "; "), nil end
			for j, key in ipairs(ok and list or {}) do names[j] = (key.alg .. " " .. key.kid):gsub("%s+$", "") end
			table.sort(names)
			out[i] = not ok and list or not list and err or table.concat(names, ", ") .. skipped
		end
		return table.concat(out, "\n")`)
	for i, got := range strings.Split(out, "\n") {
		keys, err := token.Open(files[i], "", token.Options{})
		var want string
		if err != nil {
			want = strings.TrimPrefix(err.Error(), files[i]+": ")
		} else {
			want = strings.Join(append([]string{strings.Join(keys.Set().Names(), ", ")}, keys.Set().Skipped()...), "; ")
		}
		if got != want {
			t.Errorf("%s: the edge returns %q, Go returns %q", files[i], got, want)
		}
	}
}
