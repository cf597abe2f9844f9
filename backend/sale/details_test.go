package sale

import (
	"strings"
	"testing"
)

func TestDetailsAreValidated(t *testing.T) {
	for picture, ok := range map[string]bool{
		"": true, "https://shop.example/shoe.jpg": true, "http://127.0.0.1:8000/a?b=c&d=%20#e": true,
		"https://cdn.shop.example/a;b,c(1)'x'.png": true,
		"shoe.jpg": false, "//shop.example/x": false, "javascript:alert(1)": false, "data:image/png;base64,AA==": false,
		"https://": false, "https://a:b@shop.example/x": false, "https://shop.example/a b": false,
		`https://shop.example/"onerror=x`: false, "https://shop.example/<x>": false, "https://shop.example/\n": false,
		"https://shop.example; script-src *": false, "https://*/x": false, "https://[::1]/x": false, "https://söhne.example/": false,
		"https://shop.example/" + strings.Repeat("x", MaxPictureLen): false,
	} {
		err := Details{Picture: picture}.Validate()
		if (err == nil) != ok {
			t.Errorf("picture %.60q: %v", picture, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "picture: ") {
			t.Errorf("picture %.60q: %v", picture, err)
		}
	}
	for text, ok := range map[string]bool{
		"# A\r\n\n- b\t*c* 鞋 <script>": true, strings.Repeat("x", MaxDescriptionLen): true,
		strings.Repeat("x", MaxDescriptionLen+1): false, "a\x00b": false, "\xff": false, "\x1b[0m": false,
	} {
		if err := (Details{Description: text}).Validate(); (err == nil) != ok {
			t.Errorf("description %.20q: %v", text, err)
		}
	}
	s := valid()
	s.Picture, s.Description = "x", "\x00"
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "picture: ") ||
		!strings.Contains(err.Error(), "description: ") {
		t.Errorf("a sale with both: %v", err)
	}
	if got := (Details{Picture: "https://cdn.shop.example:8443/a/b?c"}).PictureOrigin(); got != "https://cdn.shop.example:8443" {
		t.Errorf("origin %q", got)
	}
}
