package documents

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// The signed requests in the documents have the signature of the secret beside them, so that readers can test their
// code with them.
func TestSignaturesOfExamplesAreValid(t *testing.T) {
	for _, name := range []string{"docs/webhooks.md", "docs/orders.md"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		find := func(pattern string) string {
			m := regexp.MustCompile(`(?m)` + pattern).FindSubmatch(text)
			if m == nil {
				t.Fatalf("%s: no %s", name, pattern)
			}
			return string(m[1])
		}
		key, err := base64.StdEncoding.DecodeString(find(`whsec_(c2x[A-Za-z0-9+/]+=*)`))
		if err != nil {
			t.Fatal(err)
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(find(`^webhook-id: (.+)$`) + "." + find(`^webhook-timestamp: (.+)$`) + "." + find(`^(\{"type".+)$`)))
		want := base64.StdEncoding.EncodeToString(mac.Sum(nil))
		if got := find(`^webhook-signature: v1,(.+)$`); got != want {
			t.Errorf("%s: the signature is %s, want %s", name, got, want)
		}
	}
}
