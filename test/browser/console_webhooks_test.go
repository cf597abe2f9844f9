package browser

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
)

// secret returns the secret that a dialog shows, and closes the dialog.
func (b *tab) secret() string {
	b.t.Helper()
	b.await("the secret", `document.querySelector("dialog #secret")`)
	b.keys(kb.Escape)
	secret := b.eval(`document.querySelector("dialog[open] #secret").textContent`)
	b.text("I have stored it")
	b.await("no dialog", `!document.querySelector("dialog")`)
	if !strings.HasPrefix(secret, "whsec_") {
		b.t.Errorf("the secret is %q", secret)
	}
	return secret
}

// A webhook is added, edited, rotated and removed in the console. Its secrets are shown once.
func consoleWebhooks(t *testing.T, s *shop) {
	s.createSale("hooked", "Hooked", 5, time.Now().Add(-time.Second))
	b := s.atConsole(t, newPerson(t), "ann", "webhooks")
	b.text("New webhook")
	b.enter("url", "ftp://shop.example/hook")
	b.text("Add")
	b.await("the error of the server",
		`document.querySelector("dialog .problem:not([hidden])")?.textContent.includes("url")`)
	b.enter("url", "https://shop.example/hook")
	b.eval(`document.querySelectorAll("dialog input[name^=order]").forEach((box) => { box.checked = false; })`)
	b.text("Add")
	b.await("the error", `document.querySelector("dialog .problem").textContent === "Select at least one event."`)
	b.eval(`document.querySelector("dialog input[name='order.paid']").checked = true`)
	b.enter("sales", "hooked")
	b.enter("reason", "the new shop")
	b.text("Add")
	first := b.secret()
	b.shows("order.paid of hooked")

	b.text("Edit")
	b.await(
		"its settings",
		`document.querySelector("dialog input[name='order.paid']").checked && !document.querySelector("dialog input[name='order.created']").checked`,
	)
	b.enter("sales", "")
	b.enter("title", "The shop’s receiver")
	b.text("Save")
	b.shows("order.paid of all sales")
	b.shows("The shop’s receiver")

	b.text("Rotate secret")
	b.enter("keep", "1h")
	b.text("Rotate")
	if second := b.secret(); second == first {
		t.Error("the secret has not changed")
	}
	b.shows("an old secret signs until")

	b.text("Remove")
	b.text("Back")
	if n := len(s.adminAPI(http.MethodGet, "/webhooks", nil)["webhooks"].([]any)); n != 1 {
		t.Errorf("%d webhooks before the confirmation", n)
	}
	b.text("Remove")
	b.text("Remove")
	b.await("the list", `location.pathname === "/admin/webhooks"`)
	b.shows("No webhooks yet.")
	if got := s.lines(4); got != "ann webhook.remove, ann webhook.rotate, ann webhook.change, ann webhook.add" {
		t.Errorf("action log: %s", got)
	}
	b.clean()
}

// A webhook may exist although its creation got no response, and a repetition would add another one.
func consoleAddsAWebhookWithoutAResponse(t *testing.T, s *shop) {
	b := s.atConsole(t, newPerson(t), "ann", "webhooks")
	b.hold("/admin/v1/webhooks")
	b.text("New webhook")
	b.enter("url", "https://shop.example/hook")
	b.text("Add")
	b.await("the request", `window.held.length === 1`)
	b.release("")
	b.await("the warning",
		`/may have been added/.test(document.querySelector("dialog .problem:not([hidden])")?.textContent)`)
	b.clean()
}

// The page of a webhook shows the changes of other admins. Its form begins with the newest settings, also without a
// connection for live updates. The list has the URL of a webhook without a title once.
func consoleSharesAWebhook(t *testing.T, s *shop) {
	id := s.adminAPI(http.MethodPost, "/webhooks", map[string]any{"url": "https://shop.example/shared"})["id"].(string)
	rename := func(title string) {
		t.Helper()
		s.adminAPI(http.MethodPost, "/webhooks/"+id+"/change", map[string]any{"title": title})
	}
	s.sql(`UPDATE webhook_endpoints SET last_error = 'the endpoint returned 500', last_error_at = now()`)
	ann := newPerson(t)
	b := s.atConsole(t, ann, "ann", "webhooks/"+id)
	b.shows("all events of all sales")
	b.shows(": the endpoint returned 500")
	s.settled(func() bool { rename("The new name"); return strings.Contains(b.seen(), "The new name") }, "the new name")
	b.clean()

	b = openWith(t, ann, s.admin+"/admin/webhooks/"+id, `window.EventSource = class extends EventTarget { close() {} };`)
	b.shows("The new name")
	rename("Another name")
	b.text("Edit")
	b.await("the newest settings", `document.querySelector("dialog input[name=title]").value === "Another name"`)
	rename("The last name")
	b.enter("url", "https://shop.example/edited")
	b.text("Save")
	b.says("toast", "Saved.")
	b.await("both changes", `document.querySelector("h1").textContent === "The last name" &&
		document.querySelector("main").textContent.includes("https://shop.example/edited")`)
	s.adminAPI(http.MethodPost, "/webhooks/"+id+"/change", map[string]any{"url": "https://shop.example/shared"})
	b.clean()

	s.sql(`INSERT INTO webhook_deliveries (id, endpoint_id, position, sequence, type, body, state, due_at)
		SELECT 'ev_' || i, '` + id + `', i, i, 'order.created', '{}', 3, now() FROM generate_series(1, 10001) AS i`)
	b = open(t, ann, s.admin+"/admin/webhooks/"+id)
	b.shows("0 waiting, 10,000+ failed")
	b.text("Resend failed deliveries")
	b.await("the number", `document.querySelector("dialog").innerText.includes("10,000+ deliveries are attempted again.")`)
	b.visit(s.admin + "/admin/webhooks")
	b.await("the number in the list",
		`[...document.querySelectorAll("td.n")].map((cell) => cell.innerText).join() === "0,10,000+,0 s"`)
	rename("")
	b = openWith(t, ann, s.admin+"/admin/webhooks", "")
	b.await("the URL once, as it has no title",
		`document.querySelector("td.wide")?.textContent === "https://shop.example/shared"`)
	b.clean()
	s.adminAPI(http.MethodPost, "/webhooks/"+id+"/remove", map[string]any{})
}

// The dead events of a group are read again after an action of any admin.
func consoleSharesAGroup(t *testing.T, s *shop) {
	s.createSale("grouped", "Grouped", 5, time.Now().Add(-time.Second))
	b := s.atConsole(t, newPerson(t), "ann", "groups/points")
	b.shows("No dead events.")
	s.settled(func() bool {
		s.adminAPI(http.MethodPost, "/sales/grouped/restock", map[string]any{"add": 1})
		return b.count("GET /admin/v1/groups/points/dead?limit=50") > 1
	}, "another request")
	b.clean()
}
