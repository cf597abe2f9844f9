package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
)

// holdRequests holds the changes at a path of the admin API. Each is answered with a JSON object and a status when
// release is called, or fails without an object.
const holdRequests = `((path) => {
	const real = window.fetch;
	window.held = [];
	window.keys = [];
	window.fetch = (url, options) => options.method !== "POST" || !url.endsWith(path) ? real(url, options) : new Promise((resolve, reject) => {
		window.held.push(options.body);
		window.keys.push(options.headers["Idempotency-Key"]);
		window.release = (answer, status = 200) => answer ? resolve(Response.json(answer, { status })) : reject(new TypeError("lost"));
	});
})`

// hold calls holdRequests, without its result.
func (b *tab) hold(path string) { b.t.Helper(); b.eval(holdRequests + `(` + quote(path) + `)`) }

// release answers a held request. An empty answer loses it.
func (b *tab) release(answer string) { b.t.Helper(); b.eval(`window.release(` + answer + `)`) }

// An action of a dialog that is dismissed continues, and the page shows its result. One on many dead letters ends after
// the current page.
func consoleDismissed(t *testing.T, s *shop) {
	b := s.atConsole(t, newPerson(t), "ann", "dead")
	b.hold("/dead/cancel")
	b.text("Cancel all matching")
	b.text("Cancel all")
	b.await("the first request", `window.held.length === 1`)
	b.release(`{ done: 100, failed: 0, next: "1" }`)
	b.await("the progress", `document.querySelector("dialog").textContent.includes("100 done…")`)
	b.await("the second request", `window.held.length === 2`)
	b.text("Back")
	b.await("the page", `!document.querySelector("dialog")`)
	b.release(`{ done: 100, failed: 0, next: "2" }`)
	b.says("toast", "Stopped. 200 done.")
	b.text("Cancel all matching")
	b.text("Cancel all")
	b.await("one request of the second action", `window.held.length === 3`)
	b.text("Back")
	b.await("the page", `!document.querySelector("dialog")`)
	b.release("")
	b.says("toast", "After 0: No response.")
	b.clean()
}

// When the creation of a sale that opens immediately is repeated, also in another dialog, the request is the same and
// the server returns the same sale.
func consoleRepeatsANewSale(t *testing.T, s *shop) {
	b := s.atConsole(t, newPerson(t), "ann", "sales")
	b.hold("/admin/v1/sales")
	begin := func() {
		t.Helper()
		b.text("New sale")
		for name, value := range map[string]string{"title": "Twice", "stock": "5", "price": "1.00"} {
			b.enter(name, value)
		}
	}
	begin()
	b.eval(`document.querySelector("dialog button.main").focus()`)
	b.keys(kb.Enter)
	b.await("the first request", `window.held.length === 1`)
	b.release("")
	b.await("its loss", `document.querySelector("dialog").textContent.includes("repeating it is safe")`)
	b.await("the focus on the button", `document.activeElement.textContent === "Create"`)
	b.text("Create")
	b.await("the second request", `window.held.length === 2`)
	b.text("Back")
	b.await("the page", `!document.querySelector("dialog")`)
	b.release("")
	b.says("toast", "repeating it is safe")
	begin()
	b.text("Create")
	b.await("the third request", `window.held.length === 3`)
	if b.eval(`new Set(window.held).size`) != "1" {
		t.Errorf("the requests differ: %s", b.eval(`window.held.join(" ")`))
	}
	b.clean()
}

// A repetition with other values is rejected if the sale exists. The values of the first request still succeed, and
// another dialog creates another sale.
func consoleChangesASaleThatExists(t *testing.T, s *shop) {
	b := s.atConsole(t, newPerson(t), "ann", "sales")
	b.hold("/admin/v1/sales")
	create := func(title string, requests int) {
		t.Helper()
		for name, value := range map[string]string{"title": title, "stock": "5", "price": "1.00"} {
			b.enter(name, value)
		}
		b.click(`document.querySelector("dialog button.main")`)
		b.await("the request", fmt.Sprint(`window.held.length === `, requests))
	}
	b.text("New sale")
	create("First", 1)
	b.release("")
	b.await("its loss", `document.querySelector("dialog").textContent.includes("repeating it is safe")`)
	create("Other", 2)
	b.release(`{ title: "A sale with this id exists" }, 409`)
	b.await("the rejection", `document.querySelector("dialog").textContent.includes("A sale with this id exists")`)
	create("First", 3)
	b.text("Back")
	b.await("the page", `!document.querySelector("dialog")`)
	b.release("")
	b.text("New sale")
	create("Other", 4)
	if got := b.eval(`[held[0] === held[2], new Set(held.map((r) => JSON.parse(r).id)).size]`); got != "true,2" {
		t.Errorf("the requests are %s", b.eval(`held.join(" ")`))
	}
	b.clean()
}

// A restock without a response is repeated with the same key, also in another dialog: the units are added once, and the
// page reports it, because the admin may have meant further ones.
func consoleRepeatsARestock(t *testing.T, s *shop) {
	s.createSale("stocked", "Stocked", 5, time.Now().Add(-time.Second))
	b := s.atConsole(t, newPerson(t), "ann", "sales/stocked")
	b.hold("/restock")
	restock := func(units string, requests int) {
		t.Helper()
		b.text("Restock")
		b.enter("add", units)
		b.click(`document.querySelector("dialog button.main")`)
		b.await("the request", fmt.Sprint(`window.held.length === `, requests))
		b.text("Back")
		b.await("the page", `!document.querySelector("dialog")`)
	}
	restock("10", 1)
	b.release("")
	b.says("toast", "repeating it is safe")
	restock("10", 2)
	b.release(`{}`)
	b.says("toast", "Units added once: this repeated an earlier request.")
	restock("10", 3)
	b.release(`{}`)
	b.says("toast", "Units added.")
	restock("20", 4)
	if got := b.eval(`[keys[0] === keys[1], new Set(keys).size]`); got != "true,3" {
		t.Errorf("the keys of the requests are %s", b.eval(`keys`))
	}
	b.clean()
}

// While a dialog is open, the page behind it may be rendered again. The focus returns to the new version of the button.
func consoleReturnsTheFocus(t *testing.T, s *shop) {
	s.createSale("focused", "Focused", 5, time.Now().Add(-time.Second))
	b := s.atConsole(t, newPerson(t), "ann", "sales/focused")
	b.await("a dialog", `(() => {
		window.opener1 = [...document.querySelectorAll(".acts button")].find((e) => e.textContent === "Pause");
		opener1?.focus();
		opener1?.click();
		return opener1;
	})()`)
	if code := s.buy("focused", "cat"); code != http.StatusAccepted {
		t.Fatalf("cat got %d", code)
	}
	b.await("another button", `!opener1.isConnected`)
	b.text("Back")
	b.await("the page", `!document.querySelector("dialog")`)
	if at := b.eval(`document.activeElement.closest(".acts")?.textContent`); !strings.HasPrefix(at, "Pause") {
		t.Errorf("the focus is at %s", b.eval(`document.activeElement.outerHTML.slice(0, 200)`))
	}
	b.clean()
}
