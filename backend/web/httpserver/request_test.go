package httpserver

import (
	"bytes"
	"compress/gzip"
	"errors"
	"testing"
	"unsafe"

	"sluice/backend/sale"
)

func TestRejectedCompressedBodyNamesTheReason(t *testing.T) {
	var body bytes.Buffer
	w := gzip.NewWriter(&body)
	if _, err := w.Write([]byte("{}")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := ParseObject(body.Bytes())
	want := sale.FieldError{Field: "body", Detail: "must not be compressed"}
	invalid, ok := errors.AsType[*sale.InvalidError](err)
	if !ok || len(invalid.Fields) != 1 || invalid.Fields[0] != want {
		t.Errorf("got %v, want %v", err, want)
	}
}

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
			t.Errorf("%s became %q when the header's memory was reused", text, got)
		}
	}
}
