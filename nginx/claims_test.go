package nginx

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// list is a Lua table of these texts.
func list(texts []string) string {
	var b strings.Builder
	b.WriteString("{\n")
	for _, text := range texts {
		b.WriteString(luaString(text) + ",\n")
	}
	return b.String() + "}"
}

// readAlike compares the accelerator with the strict reader. It returns how many texts the accelerator read.
func readAlike(t rapid.TB, server *luaServer, texts []string) (taken int) {
	t.Helper()
	out, err := server.try(`
		local json, claims = require "sluice.json", require "sluice.accel.claims"
		local taken = 0
		for _, text in ipairs ` + list(texts) + ` do
			local sub, exp, nbf = claims.plainly(text)
			if sub then
				taken = taken + 1
				local strict, err = json.object(text)
				if not strict or strict.sub ~= sub or strict.exp ~= exp or strict.nbf ~= nbf then
					return ("%q: %q %s %s, and strictly %s"):format(text, sub, exp, tostring(nbf), err or ("%q %s %s"):format(tostring(strict.sub), tostring(strict.exp), tostring(strict.nbf)))
				end
			end
		end
		return taken`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(out, &taken); err != nil {
		t.Fatal(out)
	}
	return taken
}

func TestPlainClaimsAreReadAsByStrictReader(t *testing.T) {
	server := requireLua(t)
	const exp = `"exp":1798761600`
	good := []string{
		`{"sub":"ann",` + exp + `}`,
		`{` + exp + `,"sub":"a b~","iat":0,"nbf":99999999999}`,
		`{"iss":"https://shop.example","aud":"a","sub":"ann",` + exp + `,"iat":1,"jti":"7","":0}`,
		`{"Sub":"bob","subs":"eve","sub":"ann",` + exp + `}`,
	}
	if n := readAlike(t, server, good); n != len(good) {
		t.Errorf("%d of %d plain claims were read", n, len(good))
	}
	bad := []string{
		``,
		`{`,
		`{"`,
		`{"su`,
		`{"sub`,
		`{"sub"`,
		`{"sub":`,
		`{"sub":"`,
		`{"sub":"ann`,
		`{"sub":"ann"`,
		`{"sub":"ann",`,
		`{}`,
		`[]`,
		`{"sub":"ann"}`,
		`{` + exp + `}`,
		`{"sub":"ann",` + exp + `}x`,
		`{"sub":"ann",` + exp + `,}`,
		`{"sub":"ann",` + exp,
		`{"sub":"ann",` + exp + `]`,
		`{"sub":"ann","exp":01}`,
		`{"sub":"ann","exp":}`,
		`{"sub":"ann","exp":179876160000}`,
		`{"sub":"ann","exp":1798761600.5}`,
		`{"sub":"ann","exp":-1}`,
		`{"sub":"ann","exp":1e9}`,
		`{"sub":"ann","exp":"1"}`,
		`{"sub":"ann","sub":"eve",` + exp + `}`,
		`{"sub":"ann",` + exp + `,"exp":1}`,
		`{"sub":"ann",` + exp + `,"nbf":1,"nbf":1}`,
		`{"Sub":"ann",` + exp + `}`,
		`{ "sub":"ann",` + exp + `}`,
		`{"sub":"an\u006e",` + exp + `}`,
		`{"sub":"änn",` + exp + `}`,
		"{\"sub\":\"a\x00\"," + exp + `}`,
		"{\"sub\":\"a\x7f\"," + exp + `}`,
		`{"sub":null,` + exp + `}`,
		`{"sub":"ann"` + exp + `}`,
		`{"sub":"ann";` + exp + `}`,
		`{"sub":7,` + exp + `}`,
		`"sub":"ann",` + exp + `}`,
		`{"sub:"ann",` + exp + `}`,
		`{"jti":1,"jti":2,"sub":"ann",` + exp + `}`,
		`{"a":1,"b":1,"c":1,"d":1,"a":1,"sub":"ann",` + exp + `}`,
		`{"a":1,"b":1,"c":1,"d":1,"e":1,"sub":"ann",` + exp + `}`,
		`{"a":[],"sub":"ann",` + exp + `}`,
		`{"a":-1,"sub":"ann",` + exp + `}`,
		`{"a":"\n","sub":"ann",` + exp + `}`,
		`{"\u0061":"","sub":"ann",` + exp + `}`,
		`{"":"","":"","sub":"ann",` + exp + `}`,
	}
	if n := readAlike(t, server, bad); n != 0 {
		t.Errorf("the accelerator has read %d claims that are not plain", n)
	}
	members := map[string][]string{
		"sub": {`"ann"`, `"an n"`, `"bob"`, `""`, `"a\"b"`, `"ä"`, `7`, `null`},
		"exp": {`1798761600`, `0`, `1e12`, `99999999999`, `01`, `-1`},
		"nbf": {`0`, `1798761600`, `1`, `"1"`},
		"iat": {`0`, `1798761600`, `1`},
		"jti": {`"x"`, `{}`},
	}
	taken := 0
	rapid.Check(t, func(r *rapid.T) {
		texts := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) string {
			var claims []string
			for _, name := range rapid.Permutation([]string{"sub", "exp", "nbf", "iat"}).Draw(r, "names")[:rapid.IntRange(2, 4).Draw(r, "members")] {
				claims = append(claims, `"`+name+`":`+rapid.SampledFrom(members[name]).Draw(r, "value"))
			}
			if rapid.IntRange(0, 3).Draw(r, "one more") == 0 {
				claims = append(
					claims,
					rapid.SampledFrom([]string{`"sub":"eve"`, `"exp":1`, `"nbf":1`, `"iat":1`, `"jti":"x"`, `"aud":"x","iss":7`, `"a":1,"a":1`, `"a":[1]`}).
						Draw(r, "more"),
				)
			}
			text := "{" + strings.Join(claims, ",") + "}"
			if rapid.IntRange(0, 2).Draw(r, "spoil") == 0 {
				at := rapid.IntRange(0, len(text)-1).Draw(r, "at")
				with := rapid.SampledFrom([]string{"", `"`, "{", "}", ",", ":", "\\", " ", "\x00", "0", "s"}).Draw(r, "with")
				text = text[:at] + with + text[at+1:]
			}
			return text
		}), 20, 50).Draw(r, "texts")
		taken += readAlike(r, server, texts)
	})
	if taken == 0 {
		t.Error("the accelerator read nothing")
	}
}

// The edge decodes what Go's strict decoder does, and nothing else.
func TestBase64URLHasOneSpelling(t *testing.T) {
	server := requireLua(t)
	texts := []string{
		"",
		"A",
		"AA",
		"AB",
		"AAA",
		"AAB",
		"AAAA",
		"AAAAA",
		"-_-_",
		"+/+/",
		"AA==",
		"AAA=",
		"AAAAA=",
		"A=AA",
		"=",
		"====",
		"AA AA",
		"AA.AA",
		"\x00AAA",
		"\xffAAA",
		"AAA\x00",
	}
	for range 300 {
		texts = append(texts, rapid.StringOfN(rapid.RuneFrom([]rune("ABQgw_-=+ ")), 0, 9, -1).Example())
	}
	out := server.run(t, `
		local decode, out = require("sluice.token.base64url").decode, {}
		for i, text in ipairs `+list(texts)+` do
			local bytes = decode(text)
			out[i] = bytes and bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end) or "-"
		end
		return table.concat(out, "\n")`)
	for i, got := range strings.Split(out, "\n") {
		want := "-"
		if bytes, err := base64.RawURLEncoding.Strict().DecodeString(texts[i]); err == nil {
			want = fmt.Sprintf("%x", bytes)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", texts[i], got, want)
		}
	}
}
