package httpserver

import (
	"strings"
	"testing"
)

func FuzzParseIdempotencyKey(f *testing.F) {
	for _, seed := range []string{
		`"abc"`, "abc", "", `""`, `"a\"b"`, `"a\\"`, `"a`, `"a"b`, `"a";q=1`, "a b", "é", "\x00", strings.Repeat("a", 256),
		" a\t", `"`, `\`, `a"b`,
	} {
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

// Both lengths are found between any other lines.
func FuzzAmbiguousFraming(f *testing.F) {
	f.Add("Host: x\r", "Content-Length : 5\r")
	f.Add("", "content-length")
	f.Add("Transfer-Encoding", ":chunked")
	f.Fuzz(func(t *testing.T, before, between string) {
		lines := []string{before, "content-length:5\r", between, "Transfer-Encoding: Chunked\r", ""}
		if raw := strings.Join(lines, "\n"); !ambiguousFraming([]byte(raw)) {
			t.Fatalf("%q is accepted", raw)
		}
	})
}
