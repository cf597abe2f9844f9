package browser

import (
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
)

// Text has the size that a user has chosen in the browser, and a narrow page does not scroll sideways with text that is
// twice as large.
func TestFontSizeOfTheBrowser(t *testing.T) {
	s := openUp(t)
	s.createSale("large", "The drop", 10, time.Now().Add(time.Hour))
	b := s.atConsole(t, newPerson(t), "ann", "")
	b.look("light", 390, 780)
	b.do(page.SetFontSizes(&page.FontSizes{Standard: 32, Fixed: 26}))
	for _, c := range []struct{ url, settled, size string }{
		{s.page("large", "ann"), `!document.getElementById("countdown").hidden`, "34px"},
		{s.admin + "/admin/", `document.querySelector(".funnel li")`, "28px"},
		{s.base + "/reference", `document.querySelector("#schemas")`, "32px"},
	} {
		b.visit(c.url)
		b.await("the page", c.settled)
		if size := b.eval(`getComputedStyle(document.documentElement).fontSize`); size != c.size {
			t.Errorf("%.60s: the text has %s, want %s", c.url, size, c.size)
		}
		if wide := b.eval(`document.documentElement.scrollWidth - innerWidth`); wide != "0" {
			t.Errorf("%.60s: the page is %s pixels wider than the window", c.url, wide)
		}
	}
	b.clean()
}
