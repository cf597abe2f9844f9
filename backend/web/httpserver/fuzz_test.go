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

// For any line, the framing check does not panic and agrees with a simple parser.
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
