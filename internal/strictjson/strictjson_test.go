package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestObjectRejectsAmbiguousText(t *testing.T) {
	deep := func(levels int) string { return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels) }
	for text, want := range map[string]string{
		`{"a":1,"a":2}`: `repeats the name "a"`, `{"a":1,"\u0061":2}`: `repeats the name "a"`,
		deep(MaxDepth + 1): "must not nest deeper than 8 levels",
		"{\"\xff\":1}":     "must be UTF-8", `{"a":"\ud800"}`: "must not contain half of a surrogate pair",
		`{"a":"\udc00"}`: "must not contain half of a surrogate pair",
		`{"a":1e999}`:    "contains a number that is out of range", "{} {}": "must hold nothing after the JSON object",
		"[]":   "must be one JSON object",
		"null": "must be one JSON object", "": "must be one JSON object", "{": "must be one JSON object",
		"\xef\xbb\xbf{}": "must be one JSON object",
	} {
		var invalid *Error
		if _, err := Object([]byte(text)); !errors.As(err, &invalid) || invalid.Detail != want {
			t.Errorf("Object(%.40q): %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{
		"{}", ` {"a":[1,{"b":null}]} `, deep(MaxDepth), `{"a":"\ud83d\ude00"}`, `{"A":1,"a":2}`,
	} {
		if _, err := Object([]byte(text)); err != nil {
			t.Errorf("Object(%.40q): %v", text, err)
		}
	}
}

// FuzzObject verifies that encoding/json accepts each accepted text and reads the same values.
func FuzzObject(f *testing.F) {
	for _, seed := range []string{
		"{}", ` {"a": 1, "b": {"c": [1, 2, {"d": null}]}} `, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"x":1e400}`,
		`{"stock":9223372036854775808}`,
		`{"a":"\ud800"}`, "[]", "null", "{} {}", `{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{}}}}}}}}}}`,
		strings.Repeat("[", 1000), "{\"\xff\":1}",
		`{"a":01}`, `{"a":+1}`, `{"a":.5}`, "{'a':1}", "{\"a\":1,}", "\xef\xbb\xbf{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		object, err := Object(text)
		if err != nil {
			return
		}
		var lenient map[string]any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&lenient); err != nil || !json.Valid(text) {
			t.Fatalf("Object accepts what encoding/json rejects: %v", err)
		}
		got, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(lenient)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("Object reads %s, encoding/json %s", got, want)
		}
	})
}
