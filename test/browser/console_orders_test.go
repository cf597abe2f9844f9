package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
)

// rowsShown waits until a list has this many rows.
func (b *tab) rowsShown(n int) {
	b.t.Helper()
	b.await(fmt.Sprint(n, " rows"), fmt.Sprintf(`document.querySelectorAll("tbody tr[data-key]").length === %d`, n))
}

// logged waits until the page lists these entries of the action log, "admin|action|target|end of the details". Those of
// the audit, which may pause the sale of another test at any time, are left out.
func (b *tab) logged(want ...string) {
	b.t.Helper()
	list, err := json.Marshal(want)
	if err != nil {
		b.t.Fatal(err)
	}
	b.await("the entries "+strings.Join(want, ", "), `(() => {
		const want = `+string(list)+`, lines = [...document.querySelectorAll("tbody tr")]
			.map((r) => [...r.cells].slice(1).map((c) => c.innerText)).filter(([actor]) => actor !== "audit");
		return lines.length === want.length && want.every((w, i) => {
			const [actor, action, target, detail] = w.split("|");
			return lines[i][0] === actor && lines[i][1] === action && lines[i][2] === target && lines[i][3].endsWith(detail);
		});
	})()`)
}

// enter replaces the value of a field of the open dialog, or else of the page.
func (b *tab) enter(name, value string) {
	b.t.Helper()
	field := `(document.querySelector("dialog[open]") || document).querySelector("[name=` + name + `]")`
	b.await("the field "+name, field)
	b.eval(`(() => { const at = ` + field + `; at.value = ` + strconv.Quote(value) +
		`; at.dispatchEvent(new Event("input", { bubbles: true })); at.dispatchEvent(new Event("change", { bubbles: true })); })()`)
}

// orderOf returns the newest order of a buyer.
func (s *shop) orderOf(saleID, buyer string) string {
	s.t.Helper()
	list, _ := s.adminAPI(http.MethodGet, "/orders?sort=newest&sale="+saleID+"&buyer="+buyer, nil)["orders"].([]any)
	if len(list) == 0 {
		s.t.Fatalf("%s has no order in %s", buyer, saleID)
	}
	return fmt.Sprint(list[0].(map[string]any)["order_id"])
}

// An admin finds orders by buyer, id and status, and cancels one. A payment that arrives afterwards is a refund due.
func consoleOrdersAndRefunds(t *testing.T, s *shop) {
	s.create("held", map[string]any{"title": "Held", "hold": "15m"})
	for _, buyer := range []string{"olga", "otto"} {
		if code := s.buy("held", buyer); code != http.StatusAccepted {
			t.Fatal(code)
		}
	}
	s.settled(func() bool { return s.ordered("held") == 2 }, "two rows")
	olga, otto := s.orderOf("held", "olga"), s.orderOf("held", "otto")
	s.pay(olga)

	b := s.atConsole(t, newPerson(t), "ann", "orders?sale=held")
	b.rowsShown(2)
	b.await("the newest first", `document.querySelector("tbody tr[data-key]").dataset.key === `+quote(otto))
	b.enter("buyer", "olga")
	b.rowsShown(1)
	b.shows("paid")
	b.enter("buyer", "")
	b.enter("status", "created")
	b.rowsShown(1)
	b.shows("awaits payment")
	b.enter("order", "no number")
	b.await("the error", `document.querySelector(".note.problem")?.textContent`)
	b.enter("order", "923417600000000123")
	b.shows("No orders in the database match.")
	b.enter("order", otto)
	b.rowsShown(1)

	b.text("Cancel")
	b.enter("reason", "wrong size")
	b.text("Cancel order")
	b.shows("cancelled")
	b.click(`document.querySelector("tbody a")`)
	b.shows("wrong size")
	b.shows("order.cancel")
	b.shows("No payments yet.")
	if code, answer := s.callback(otto); code != http.StatusConflict {
		t.Fatalf("a payment of a cancelled order: %d %s", code, answer)
	}
	b.visit(s.admin + "/admin/refunds?sale=held&refund=open")
	b.rowsShown(1)
	b.shows("€99.90")
	b.shows("order was cancelled")
	b.text("Mark refunded")
	b.enter("note", "refund 7")
	b.text("Mark refunded")
	b.shows("No refunds due.")
	b.enter("refund", "")
	b.rowsShown(2)
	b.shows("refund 7")
	b.shows("by ann")
	if got := s.lines(2); got != "ann payment.settle, ann order.cancel" {
		t.Errorf("action log: %s", got)
	}
	b.visit(s.admin + "/admin/orders/" + otto)
	b.shows("refunded")

	b.click(`[...document.querySelectorAll(".facts a")].find((a) => a.textContent === "held")`)
	entries := []string{
		"ann|payment.settle|" + otto + "|refund 7", "ann|order.cancel|" + otto + "|sale held: wrong size",
		"admin|sale.create|held|stock 10",
	}
	b.logged(entries...)
	b.click(`[...document.querySelectorAll("main a")].find((a) => a.textContent === "View all")`)
	b.await("the log of the sale", `document.querySelector("h1")?.textContent === "Log"`)
	b.logged(entries...)
	b.enter("action", "order")
	b.logged(entries[1])
	b.clean()
}

// Prices are entered with the decimals of their currency, and an ambiguous one is rejected with the remedy.
func consolePrices(t *testing.T, s *shop) {
	b := s.atConsole(t, newPerson(t), "ann", "sales")
	b.text("New sale")
	b.enter("title", "Priced")
	b.enter("id", "priced")
	b.enter("stock", "5")
	for _, row := range []struct{ price, currency, problem string }{
		{"12,50", "EUR", "Write the price with a point"}, {"12.50 EUR", "EUR", "without a currency"}, {"12.5", "EUR", "EUR has 2 decimals"},
		{"12.50", "JPY", "JPY has no decimals"}, {"1.25", "KWD", "KWD has 3 decimals"}, {"-1", "EUR", "Write the price"},
		{"12.50", "euro", "price.currency"},
	} {
		b.enter("price", row.price)
		b.eval(`document.querySelector("dialog input[name=currency]").removeAttribute("maxlength")`)
		b.enter("currency", row.currency)
		b.text("Create")
		b.await(row.price+" to be rejected",
			`document.querySelector("dialog .problem:not([hidden])")?.textContent.includes(`+quote(row.problem)+`)`)
	}
	b.enter("price", "12.50")
	b.enter("currency", "eur")
	b.text("Create")
	b.await("the sale", `location.pathname === "/admin/sales/priced"`)
	b.shows("€12.50")
	if price := fmt.Sprint(
		s.adminAPI(http.MethodGet, "/sales/priced", nil)["price"],
	); price != "map[amount:1250 currency:EUR]" {
		t.Error(price)
	}
	b.clean()
}

// Times are entered and shown in the zone of the browser, with its offset at that time, or in UTC.
func consoleTimes(t *testing.T, s *shop) {
	b := s.atConsole(t, newPerson(t), "ann", "sales")
	b.do(emulation.SetTimezoneOverride("Europe/Berlin"))
	b.visit(s.admin + "/admin/sales")
	b.text("New sale")
	for name, value := range map[string]string{"title": "Timed", "id": "timed", "stock": "5", "price": "1"} {
		b.enter(name, value)
	}
	note := func(want string) {
		t.Helper()
		b.await(want, `document.querySelector("dialog").innerText.includes(`+quote(want)+`)`)
	}
	note("Times are in Europe/Berlin.")
	b.enter("opens", "2036-03-30T02:30") // the clocks skip this hour
	note("30 Mar 2036, 03:30 UTC+02:00, which is 2036-03-30 01:30 UTC")
	b.enter("opens", "2036-07-01T12:00")
	note("UTC+02:00, which is 2036-07-01 10:00 UTC")
	b.enter("closes", "2036-12-01T12:00")
	note("UTC+01:00, which is 2036-12-01 11:00 UTC")
	b.text("Create")
	b.await("the sale", `location.pathname === "/admin/sales/timed"`)
	b.shows("1 Jul 2036, 12:00 UTC+02:00")
	b.shows("1 Dec 2036, 12:00 UTC+01:00")
	created := s.adminAPI(http.MethodGet, "/sales/timed", nil)
	if created["opens_at"] != "2036-07-01T10:00:00Z" || created["closes_at"] != "2036-12-01T11:00:00Z" {
		t.Errorf("%v to %v", created["opens_at"], created["closes_at"])
	}
	b.eval(
		`(() => { const at = document.querySelector("select.zone"); at.value = "UTC"; at.dispatchEvent(new Event("change")); })()`,
	)
	b.shows("1 Jul 2036, 10:00 UTC")
	b.text("Restock") // the page is loaded again
	b.text("Back")
	b.visit(s.admin + "/admin/edge/policy")
	b.await("the form", `document.querySelector("textarea[name=policy]")`)
	b.enter("policy", "-- my policy")
	b.eval(
		`(() => { const at = document.querySelector("select.zone"); at.value = "Europe/Berlin"; at.dispatchEvent(new Event("change")); })()`,
	)
	b.says("toast", "The next page shows its times in this zone.")
	b.clean()
}

// The picture and the description of a sale are set in the console. The error of the API is shown in the dialog.
func consoleDescribes(t *testing.T, s *shop) {
	s.createSale("shown", "Shown", 5, time.Now().Add(-time.Second))
	b := s.atConsole(t, newPerson(t), "ann", "sales/shown")
	b.text("Picture and description")
	b.await("the dialog", `!!document.querySelector("dialog input[name=picture]")`)
	// A browser rejects some of these values itself.
	b.eval(`document.querySelector("dialog input[name=picture]").type = "text"`)
	b.enter("picture", "javascript:alert(1)")
	b.enter("description", "Runs **small**.")
	b.text("Save")
	b.await("the error", `document.querySelector("dialog .problem:not([hidden])")?.textContent.includes("picture")`)
	b.enter("picture", "")
	b.text("Save")
	b.await("no dialog", `!document.querySelector("dialog")`)
	s.settled(func() bool { page, _ := s.get("/s/shown"); return strings.Contains(page, "<strong>small</strong>") },
		"the description")
	b.text("Picture and description")
	b.await("the current text", `document.querySelector("dialog textarea")?.value === "Runs **small**."`)
	s.adminAPI(http.MethodPost, "/sales/shown/describe", map[string]any{"description": "Runs *large*."})
	b.enter("description", "Runs **very** small.")
	b.text("Save")
	b.await("the other change", `document.querySelector("dialog .problem")?.textContent.startsWith("They were changed")`)
	b.text("Back")
	b.text("Picture and description")
	b.await("the other text", `document.querySelector("dialog textarea")?.value === "Runs *large*."`)
	b.eval(`(() => { // the response of the next change is lost
		const real = window.fetch;
		window.fetch = async (url, options) => {
			const got = await real(url, options);
			if (!url.endsWith("/describe")) return got;
			window.fetch = real;
			throw new TypeError("lost");
		};
	})()`)
	b.enter("description", "Runs *medium*.")
	b.text("Save")
	b.await("no response",
		`document.querySelector("dialog .problem:not([hidden])")?.textContent.startsWith("No response.")`)
	b.text("Save")
	b.await("no dialog", `!document.querySelector("dialog")`)
	b.clean()
}

// The report of a rehearsal is listed, its page can be downloaded, and opens.
func consoleReports(t *testing.T, s *shop) {
	s.createSale("tried", "Tried", 5, time.Now().Add(-time.Second))
	const id = "rehearsal-tried-mzxw6ytboi"
	s.adminAPI(http.MethodPost, "/rehearsals/"+id+"/report", map[string]any{
		"verdict":   "no-go",
		"rehearsed": "tried",
		"copy":      map[string]any{"id": id, "title": "<i>Tried</i>", "stock": 5, "per_buyer": 1},
		"why":       []string{"the audit"},
	})
	admin := newPerson(t)
	b := s.atConsole(t, admin, "ann", "rehearsals")
	b.shows("No copies exist.")
	b.shows("no-go")
	b.await("the link to the page",
		`document.querySelector("tbody a[target=_blank]").href.endsWith("/admin/v1/reports/`+id+`/page")`)
	name, text := b.download(admin, `tbody a[download]`)
	if name != id+".html" || !strings.Contains(text, "the audit") {
		t.Errorf("the file %s: %.200s", name, text)
	}
	b.clean()
	b.visit(s.admin + "/admin/v1/reports/" + id + "/page")
	b.await("the report", `document.body.innerText.includes("the audit")`)
}
