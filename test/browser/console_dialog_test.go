package browser

import "testing"

// holdRequests holds the requests to a path of the admin API. Each is answered with a JSON object when release is
// called, or fails without an object.
const holdRequests = `((path) => {
	const real = window.fetch;
	window.held = [];
	window.fetch = (url, options) => !String(url).endsWith(path) ? real(url, options) : new Promise((resolve, reject) => {
		window.held.push(options.body);
		window.release = (answer) => answer ? resolve(Response.json(answer)) : reject(new TypeError("lost"));
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

// When the creation of a sale that opens immediately is repeated, the request is the same and the server returns the
// same sale.
func consoleRepeatsANewSale(t *testing.T, s *shop) {
	b := s.atConsole(t, newPerson(t), "ann", "sales")
	b.hold("/admin/v1/sales")
	b.text("New sale")
	for name, value := range map[string]string{"title": "Twice", "stock": "5", "price": "1.00"} {
		b.enter(name, value)
	}
	b.text("Create")
	b.await("the first request", `window.held.length === 1`)
	b.release("")
	b.await("its loss", `document.querySelector("dialog").textContent.includes("repeating it is safe")`)
	b.text("Create")
	b.await("the second request", `window.held.length === 2`)
	if b.eval(`window.held[0] === window.held[1]`) != "true" {
		t.Errorf("the requests differ: %s", b.eval(`window.held.join(" ")`))
	}
	b.clean()
}
