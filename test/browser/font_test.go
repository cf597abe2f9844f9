package browser

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
)

// Text has the size that a user has chosen in the browser, and a narrow page does not scroll sideways with text that is
// twice as large.
func TestFontSizeOfTheBrowser(t *testing.T) {
	s := openUp(t)
	s.create("large", map[string]any{
		"stock": 1_000_000_000, "price": map[string]any{"amount": 999_999_999_999, "currency": "EUR"},
		"opens_at": time.Now().AddDate(9, 0, 0).UTC().Format(time.RFC3339),
	})
	b := s.atConsole(t, newPerson(t), "ann", "")
	b.look("light", 320, 640)
	b.do(page.SetFontSizes(&page.FontSizes{Standard: 32, Fixed: 26}))
	for _, c := range []struct{ url, settled, size string }{
		{s.page("large", "ann"), `!document.getElementById("countdown").hidden`, "34px"},
		{s.admin + "/admin/", `document.querySelector(".funnel li")`, "28px"},
		{s.admin + "/admin/sales/large", `document.querySelector(".audit") && document.querySelector(".facts dd")`, "28px"},
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

// The boxes of a countdown of years are in one row or in two equal ones, and no text touches its box.
func TestCountdownOfYears(t *testing.T) {
	s := openUp(t)
	s.createSale("years", "The drop", 10, time.Now().AddDate(9, 0, 0))
	b := open(t, newPerson(t), s.page("years", "ann"))
	for width, inRow := range map[int64]string{320: "2,2", 390: "4", 1000: "4"} {
		b.look("light", width, 780)
		b.await("the countdown", `innerWidth === `+fmt.Sprint(width)+` && document.getElementById("d").textContent > 3000`)
		if got := b.eval(`(() => {
			const rows = {};
			for (const box of document.querySelectorAll(".clock > span")) rows[box.offsetTop] = (rows[box.offsetTop] ?? 0) + 1;
			return Object.values(rows);
		})()`); got != inRow {
			t.Errorf("%d pixels: the rows have %s boxes, want %s", width, got, inRow)
		}
		if tight := b.eval(`[...document.querySelectorAll(".clock > span")].map((box) => {
			const text = document.createRange(), at = box.getBoundingClientRect();
			text.selectNodeContents(box.firstElementChild.firstChild);
			return Math.min(text.getBoundingClientRect().left - at.left, at.right - text.getBoundingClientRect().right);
		}).filter((gap) => gap < 4)`); tight != "" {
			t.Errorf("%d pixels: texts are %s pixels from their boxes", width, tight)
		}
	}
	b.clean()
}
