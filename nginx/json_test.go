package nginx

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// decoded runs the edge's JSON reader over texts and returns what each one is: "-" when refused, else its kind and, for
// a string, its bytes.
func decoded(server *luaServer, texts []string) ([]string, error) {
	var code strings.Builder
	code.WriteString("local json, out = require 'sluice.json', {}\nfor i, text in ipairs {\n")
	for _, text := range texts {
		code.WriteString(luaString(text) + ",\n")
	}
	code.WriteString(`} do
		local value, err = json.decode(text)
		if err then
			out[i] = "-"
		elseif type(value) == "string" then
			out[i] = "string " .. value:gsub(".", function(c) return ("%02x"):format(c:byte()) end)
		elseif type(value) == "number" then
			out[i] = ("number %.17g"):format(value)
		else
			out[i] = value == json.null and "null" or getmetatable(value) == json.array and "array" or type(value)
		end
	end
	return table.concat(out, "\n")`)
	out, err := server.try(code.String())
	return strings.Split(out, "\n"), err
}

func TestJSONReader(t *testing.T) {
	cases := map[string]string{
		`null`:                        "null",
		`true`:                        "boolean",
		` [ ] `:                       "array",
		"\t{\r\n}":                    "table",
		`[1,2]`:                       "array",
		`{"a":{"a":1},"b":[{"a":2}]}`: "table",
		`0`:                           "number 0",
		`-0.5e+2`:                     "number -50",
		`1E3`:                         "number 1000",
		`9007199254740993`:            "number 9007199254740992",
		`1e308`:                       "number 1e+308",
		`"a\u00e9\"\\\/\b\f\n\r\t"`:   "string 61c3a9225c2f080c0a0d09",
		`"\ud83d\ude00"`:              "string f09f9880",
		`"\u0000"`:                    "string 00",
		"\"\x7f\"":                    "string 7f",
		`"é"`:                         "string c3a9",
		`""`:                          "string ",
		`"\uFFFF"`:                    "string efbfbf",
		`[[[[[[[[1]]]]]]]]`:           "array",
		`[[[[[[[[[1]]]]]]]]]`:         "-",
		``:                            "-",
		` `:                           "-",
		`nul`:                         "-",
		`nulll`:                       "-",
		`True`:                        "-",
		`NaN`:                         "-",
		`1e999`:                       "-",
		`-1e400`:                      "-",
		`1e99999999999`:               "-",
		`{"crit":1e99999999999}`:      "-",
		`-2.5E-99999999999`:           "number 0",
		`0.0e+99999999999`:            "number 0",
		`Infinity`:                    "-",
		`-`:                           "-",
		`+1`:                          "-",
		`01`:                          "-",
		`-01`:                         "-",
		`1.`:                          "-",
		`.5`:                          "-",
		`1e`:                          "-",
		`1e+`:                         "-",
		`0x10`:                        "-",
		`1 2`:                         "-",
		`1,`:                          "-",
		`"a`:                          "-",
		`"a\`:                         "-",
		`"\x41"`:                      "-",
		`"\u12"`:                      "-",
		`"\u12g4"`:                    "-",
		`"\u+123"`:                    "-",
		`"\ud800"`:                    "-",
		`"\ud800\u0041"`:              "-",
		`"\ude00"`:                    "-",
		`"\ud800\ud800"`:              "-",
		"\"a\nb\"":                    "-",
		"\"\x00\"":                    "-",
		"\"\xff\"":                    "-",
		"\"\xc0\xaf\"":                "-",
		"\"\xed\xa0\x80\"":            "-",
		"\"\xf4\x90\x80\x80\"":        "-",
		"\"\xe2\x82\"":                "-",
		"\xef\xbb\xbf1":               "-",
		`[`:                           "-",
		`[1`:                          "-",
		`[1,]`:                        "-",
		`[,1]`:                        "-",
		`[1 2]`:                       "-",
		`]`:                           "-",
		`{`:                           "-",
		`{"a"`:                        "-",
		`{"a":`:                       "-",
		`{"a":1`:                      "-",
		`{"a":1,}`:                    "-",
		`{,}`:                         "-",
		`{a:1}`:                       "-",
		`{'a':1}`:                     "-",
		`{"a" 1}`:                     "-",
		`{"a":1 "b":2}`:               "-",
		`{1:1}`:                       "-",
		`{"a":1,"a":2}`:               "-",
		`{"a":1,"\u0061":2}`:          "-",
		`{"a":null,"a":null}`:         "-",
		`{"a":false,"a":1}`:           "-",
		`{}{}`:                        "-",
		`/**/1`:                       "-",
		"1\x00":                       "-",
		"\v1":                         "-",
	}
	var texts []string
	for text := range cases {
		texts = append(texts, text)
	}
	got, err := decoded(requireLua(t), texts)
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		if got[i] != cases[text] {
			t.Errorf("%q: %s, want %s", text, got[i], cases[text])
		}
	}
}

// Texts that are nearly JSON: the edge accepts one if and only if Go's reader accepts it and it has no construct that
// the edge rejects on purpose.
func TestJSONReaderAgreesWithGos(t *testing.T) {
	server := requireLua(t)
	pieces := []string{
		`{`,
		`}`,
		`[`,
		`]`,
		`,`,
		`:`,
		`"a"`,
		`"b"`,
		`"\u0061"`,
		`"\ud800"`,
		`1`,
		`-2.5e3`,
		`0`,
		`01`,
		`true`,
		`null`,
		` `,
		"\n",
		`"é"`,
		"\xff",
		`\`,
		`"`,
		`{"a":1}`,
		`[1,2]`,
		`"k":`,
	}
	rapid.Check(t, func(r *rapid.T) {
		texts := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 9).Draw(r, "pieces"), "")
		}), 1, 50).Draw(r, "texts")
		got, err := decoded(server, texts)
		if err != nil {
			r.Fatal(err)
		}
		for i, text := range texts {
			if want := strict(text); (got[i] != "-") != want {
				r.Fatalf("%q: %s, and by Go %v", text, got[i], want)
			}
		}
	})
}

// strict reports whether text is one JSON value that the edge accepts: no duplicate names, valid UTF-8, no lone
// surrogates.
func strict(text string) bool {
	if !json.Valid([]byte(text)) || !utf8.ValidString(text) || strings.Contains(text, `\ud800`) {
		return false
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	return noDuplicates(decoder) == nil
}

func noDuplicates(d *json.Decoder) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	names := map[json.Token]bool{}
	for d.More() {
		if delim == '{' {
			name, err := d.Token()
			if err != nil {
				return err
			}
			if names[name] {
				return fmt.Errorf("%v twice", name)
			}
			names[name] = true
		}
		if err := noDuplicates(d); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil && err != io.EOF {
		return err
	}
	return nil
}
