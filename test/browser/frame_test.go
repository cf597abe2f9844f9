package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A site may show the page of a sale in a frame if --frame-ancestors names it.
func TestFrame(t *testing.T) {
	var page string
	embedding := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<!doctype html><iframe src="%s" onload="window.loaded = true"></iframe>`, page)
	}))
	defer embedding.Close()
	for _, c := range []struct {
		name  string
		env   []string
		shown bool
	}{
		{"allowed", []string{"SLUICE_FRAME_ANCESTORS=" + embedding.URL}, true},
		{"another site is allowed", []string{"SLUICE_FRAME_ANCESTORS=https://shop.example,https://*.shop.example"}, false},
		{"not allowed", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openUp(t, c.env...)
			s.create("framed", nil)
			page = s.page("framed", "ann")
			b := open(t, newPerson(t), embedding.URL)
			b.await("the frame", `window.loaded`)
			const script = "GET /v1/sales/framed" // of the page's script
			if c.shown {
				s.settled(func() bool { return b.count(script) > 0 }, "a request of the page in the frame")
				return
			}
			if b.count(script) > 0 {
				t.Error("the page runs in a frame")
			}
		})
	}
}
