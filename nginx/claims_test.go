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
