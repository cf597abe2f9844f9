package httpserver

import (
	"testing"
	"unsafe"
)

func TestIdempotencyKeysAreReadInBothForms(t *testing.T) {
	for in, want := range map[string]string{
		"abc": "abc", `"abc"`: "abc", "  abc\t": "abc", `"a b;c,d"`: "a b;c,d", `"a\"b\\c"`: `a"b\c`,
		"8e03978e-40d5-43dd": "8e03978e-40d5-43dd", "a=b:c/d": "a=b:c/d",
	} {
		if got, err := parseIdempotencyKey(in); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestIdempotencyKeyIsACopy(t *testing.T) {
	for _, text := range []string{"abcdef", `"abcdef"`} {
		buffer := []byte(text)
		got, err := parseIdempotencyKey(unsafe.String(&buffer[0], len(buffer)))
		if err != nil {
			t.Fatal(err)
		}
		clear(buffer)
		if got != "abcdef" {
			t.Errorf("%s became %q when the header's memory was used again", text, got)
		}
	}
}
