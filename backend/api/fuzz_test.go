package api

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"sluice/backend/store"
)

// Whatever the strict reader accepts, every other reader understands, and in the same way.
func FuzzReadObject(f *testing.F) {
	for _, seed := range []string{
		"{}", ` {"a": 1, "b": {"c": [1, 2, {"d": null}]}} `, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"x":1e400}`, `{"stock":9223372036854775808}`, `{"a":"\ud800"}`,
		"[]", "null", "{} {}", `{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{}}}}}}}}}}`, strings.Repeat("[", 1000), "{\"\xff\":1}", `{"opens_at":"2026-11-27T10:00:00Z"}`,
		`{"price":{"amount":1,"currency":"EUR"}}`, `{"a":01}`, `{"a":+1}`, `{"a":.5}`, "{'a':1}", "{\"a\":1,}", "\xef\xbb\xbf{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		o, err := readObject(body)
		if err != nil {
			return
		}
		var lenient map[string]any
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		if err := d.Decode(&lenient); err != nil || !json.Valid(body) {
			t.Fatalf("accepted what encoding/json refuses: %v", err)
		}
		strict, err := json.Marshal(o.fields)
		if err != nil {
			t.Fatal(err)
		}
		other, err := json.Marshal(lenient)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(strict, other) {
			t.Fatalf("read %s where encoding/json reads %s", strict, other)
		}

		o.text("title")
		if n, ok := o.integer("stock"); ok && !bytes.Contains(body, []byte("stock")) && n != 0 {
			t.Fatalf("a stock of %d from nowhere", n)
		}
		o.instant("opens_at")
		price := o.child("price")
		price.integer("amount")
		price.unknown()
		o.unknown()
		if len(o.fields) > 0 && o.err() == nil {
			t.Fatal("unknown fields, and no mistake")
		}
	})
}

func FuzzParseIdempotencyKey(f *testing.F) {
	for _, seed := range []string{`"abc"`, "abc", "", `""`, `"a\"b"`, `"a\\"`, `"a`, `"a"b`, `"a";q=1`, "a b", "é", "\x00", strings.Repeat("a", 256), " a\t", `"`, `\`, `a"b`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, v string) {
		key, err := parseIdempotencyKey(v)
		if err != nil {
			if key != "" {
				t.Fatalf("an error and the key %q", key)
			}
			return
		}
		if len(key) < 1 || len(key) > maxIdempotencyKey {
			t.Fatalf("a key of %d bytes", len(key))
		}
		for i := range len(key) {
			if key[i] < ' ' || key[i] > '~' {
				t.Fatalf("the key %q is not printable ASCII", key)
			}
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		again, err := parseIdempotencyKey(quoted)
		if err != nil || again != key {
			t.Fatalf("%q is read from %q, and %q (%v) from %q", key, v, again, err, quoted)
		}
	})
}

// Whatever arrives, the framing check neither panics nor disagrees with a slow reading of the same lines.
func FuzzNamed(f *testing.F) {
	f.Add("Content-Length: 5")
	f.Add("content-length:5")
	f.Add("Content-Length : 5")
	f.Fuzz(func(t *testing.T, line string) {
		name, _, found := strings.Cut(line, ":")
		want := found && strings.EqualFold(name, "content-length") && len(name) == len("content-length")
		if got := named([]byte(line), "content-length"); got != want {
			t.Fatalf("named(%q) = %v", line, got)
		}
	})
}

// A callback's text comes from outside, signed or not: what is taken of it can be stored, and nothing panics.
func FuzzReadPayment(f *testing.F) {
	f.Add([]byte(paid(orderID(1))))
	f.Add([]byte(`{"type":"payment.failed","data":{"order_id":"7"}}`))
	f.Add([]byte(`{"type":"payment.succeeded","data":{"order_id":"7","amount":-1,"currency":"EUR","reference":"\u0000"}}`))
	f.Add([]byte(`{"type":"other"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := readPayment([]byte("application/json"), body)
		if err != nil || p == nil {
			return
		}
		if p.OrderID <= 0 || len(p.Digest) != 64 || p.Event == store.EventSucceeded && (p.Reference == "" || !currencyCode(p.Price.Currency)) {
			t.Errorf("%q is read as %+v", body, p)
		}
		if strings.ContainsRune(p.Reference, 0) || !utf8.ValidString(p.Reference) || len(p.Reference) > 255 {
			t.Errorf("reference %q cannot be stored", p.Reference)
		}
	})
}
