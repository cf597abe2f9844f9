package origin

import (
	"strings"
	"testing"
)

func TestCheckAcceptsWhatBrowsersSend(t *testing.T) {
	for _, good := range []string{"https://shop.example", "http://localhost:3000", "http://127.0.0.1:8080", "https://xn--shne-5qa.example"} {
		if err := Check(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "*", "null", "shop.example", "https://", "https://shop.example/", "https://Shop.example", "https://*.shop.example",
		"https://a b", "https://a\"; x", "https://a$b", "https://a;b", "https://a\r\nX: y", "https://a:b@c", "ftp://shop.example",
		"https://shop.example:0", "https://shop.example:999999", "https://shop.example\n", "https://söhne.example", "https://.example",
	} {
		if Check(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if err := Check("https://shop.example:443"); err == nil ||
		!strings.HasSuffix(err.Error(), "write https://shop.example") {
		t.Errorf("the default port: %v", err)
	}
}
