package browser

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"sluice/backend/redis/keyspace"
)

// All scenarios use one deployment.
func TestAdminConsole(t *testing.T) {
	s := openConsoleShop(t)
	for _, sc := range []struct {
		name string
		run  func(*testing.T, *shop)
	}{
		{"PausesAndRestocks", consolePausesAndRestocks},
		{"AuditDifferences", consoleAuditDifferences},
		{"OpensNow", consoleOpensNow},
		{"Archived", consoleArchived},
		{"UnknownInRedis", consoleUnknownInRedis},
		{"RetriesAndCancels", consoleRetriesAndCancels},
		{"RetriesOrdersOnly", consoleRetriesOrdersOnly},
		{"ManyAtOnce", consoleManyAtOnce},
		{"UnavailableShards", consoleUnavailableShards},
		{"UnavailableShardsLive", consoleUnavailableShardsLive},
		{"Dismissed", consoleDismissed},
		{"RepeatsANewSale", consoleRepeatsANewSale},
		{"ChangesASaleThatExists", consoleChangesASaleThatExists},
		{"RepeatsARestock", consoleRepeatsARestock},
		{"ReturnsTheFocus", consoleReturnsTheFocus},
		{"TwoAdmins", consoleTwoAdmins},
		{"BackToThePage", consoleBackToThePage},
		{"KeyboardAlone", consoleKeyboardAlone},
		{"OtherOriginsDoNothing", consoleOtherOrigins},
		{"TitlesAreText", consoleTitlesAreText},
		{"OrdersAndRefunds", consoleOrdersAndRefunds},
		{"Prices", consolePrices},
		{"Times", consoleTimes},
		{"Describes", consoleDescribes},
		{"Reports", consoleReports},
		{"Policy", consolePolicy},
		{"Webhooks", consoleWebhooks},
		{"AddsAWebhookWithoutAResponse", consoleAddsAWebhookWithoutAResponse},
		{"SharesAWebhook", consoleSharesAWebhook},
		{"SharesAGroup", consoleSharesAGroup},
		{"ImpossibleTimes", consoleImpossibleTimes},
		{"UnknownGroup", consoleUnknownGroup},
		{"SessionEnds", consoleSessionEnds},
		{"SignInAgain", consoleSignInAgain},
		{"SessionEndsDuringInput", consoleSessionEndsDuringInput},
		{"ConnectionLost", consoleConnectionLost},
		{"StreamThatFailsOften", consoleStreamThatFailsOften},
		{"SlowServer", consoleSlowServer},
		{"Loading", consoleLoading},
		{"KeepsTheScrollPosition", consoleKeepsTheScrollPosition},
		{"Phone", consolePhone},
		{"ForcedColors", consoleForcedColors},
		{"WrongClock", consoleWrongClock},
	} {
		t.Run(sc.name, func(t *testing.T) {
			at := *s
			at.t = t
			sc.run(t, &at)
		})
	}
}

// An audit that does not balance shows why, and the orders in the wrong place.
func consoleAuditDifferences(t *testing.T, s *shop) {
	s.createSaleWithOrder("torn", "Torn")
	b := s.atConsole(t, newPerson(t), "ann", "sales/torn")
	b.shows("Balanced")
	c, shard := s.redis.Client(), keyspace.Shard(0)
	if err := errors.Join(c.HIncrBy(t.Context(), shard.Sale("torn"), "accepted", -1).Err(),
		c.Del(t.Context(), shard.Buyers("torn")).Err()); err != nil {
		t.Fatal(err)
	}
	b.text("Run audit")
	b.shows("Not balanced")
	b.shows("SQL has an order with serial 1, and Redis has accepted 0")
	b.await("the order", `/^Order \d+ of bob: is a row, and its buyer has no slot with it in Redis$/.test(`+
		`document.querySelector("#audit-differences li:last-child").textContent)`)
	b.clean()
}

// The overview of a shop with one sale uses the singular.
func TestOneSaleIsSingular(t *testing.T) {
	s := openUp(t) // with the demo sale
	b := s.atConsole(t, newPerson(t), "ann", "")
	b.await("the tiles", `/in 1 sale\b/.test(document.querySelector(".tiles").textContent)`)
	b.clean()
}

// An invalid time causes an error message, and the form remains usable.
func consoleImpossibleTimes(t *testing.T, s *shop) {
	b := s.atConsole(t, newPerson(t), "ann", "sales")
	b.text("New sale")
	b.await("the form", `document.querySelector("dialog[open]")`)
	b.eval(
		`(() => { for (const [name, value] of Object.entries({ title: "Far", id: "far", stock: "5", price: "1", opens: "99999-01-01T00:00" })) document.querySelector("dialog input[name=" + name + "]").value = value; })()`,
	)
	b.text("Create")
	b.await("the browser's own refusal", `document.querySelector("dialog input[name=opens]").validity.rangeOverflow`)
	// as in a browser without this check
	b.eval(`document.querySelector("dialog input[name=opens]").removeAttribute("max")`)
	b.text("Create")
	b.await("words", `document.querySelector("dialog .problem:not([hidden])")?.textContent`)
	b.eval(`document.querySelector("dialog input[name=opens]").value = ""`)
	b.text("Create")
	b.await("the sale", `location.pathname === "/admin/sales/far"`)
}

func consolePausesAndRestocks(t *testing.T, s *shop) {
	s.createSaleWithOrder("drop", "The drop")
	b := s.atConsole(t, newPerson(t), "ann", "sales")
	b.await("the sale in the list", `[...document.querySelectorAll("tbody a")].some((a) => a.textContent === "The drop")`)
	b.click(`[...document.querySelectorAll("tbody a")].find((a) => a.textContent === "The drop")`)
	b.shows("Balanced")
	b.says("audit-left", "2")
	b.says("audit-ordered", "1")

	b.text("Pause")
	b.text("Back")
	b.await("no dialog", `!document.querySelector("dialog")`)
	if code := s.buy("drop", "cat"); code != http.StatusAccepted {
		t.Errorf("paused without confirmation: %d", code)
	}
	b.text("Pause")
	b.text("Pause")
	b.shows("by ann")
	if code := s.buy("drop", "dan"); code != http.StatusConflict {
		t.Errorf("a paused sale answers %d", code)
	}

	b.text("Restock")
	b.do(chromedp.SendKeys(`dialog input[name=add]`, "40", chromedp.ByQuery))
	b.eval(`(() => { const go = document.querySelector("dialog button.main"); go.click(); go.click(); })()`)
	b.says("stock", "43")
	b.text("Resume")
	b.text("Resume")
	b.await("the sale to be open", `document.querySelector("main .badge").textContent === "open"`)
	s.settled(func() bool { return s.buy("drop", "eve") == http.StatusAccepted }, "buyers to buy again")
	if got := s.lines(3); got != "ann sale.resume, ann sale.restock, ann sale.pause" {
		t.Errorf("action log: %s", got)
	}
	b.text("Close")
	b.text("Close")
	b.await(
		"only the button for the description to be enabled",
		`[...document.querySelectorAll("main .acts button")].every(`+
			`(b) => b.disabled === (b.textContent !== "Picture and description"))`,
	)
	b.text("Picture and description")
	b.await("the dialog", `!!document.querySelector("dialog textarea[name=description]")`)
	b.enter("description", "Sold out.")
	b.text("Save")
	s.settled(func() bool { return s.lines(1) == "ann sale.describe" }, "the description of the closed sale")
	b.clean()
}

// An archived sale names its files. Redis does not hold it, which is not shown as a change that is missing there.
func consoleArchived(t *testing.T, s *shop) {
	s.createSaleWithOrder("old", "An old one")
	s.adminAPI(http.MethodPost, "/sales/old/close", map[string]any{})
	s.settled(func() bool { // the consumers handle the events of its order first
		return exec.CommandContext(t.Context(), binary, "sale", "archive", "old", "--output", t.TempDir(),
			"--redis", "redis://"+s.redis.Addr+"/0", "--database", s.database).Run() == nil
	}, "the archive")
	b := s.atConsole(t, newPerson(t), "ann", "sales/old")
	b.shows("1 order in old-1-")
	b.shows("Balanced")
	b.visit(s.admin + "/admin/sales?q=old")
	b.await("the sale in the list", `document.querySelector("tbody .badge")?.textContent === "closed"`)
	if seen := b.eval(`document.querySelector("main").textContent`); strings.Contains(seen, "applied") {
		t.Errorf("the list shows %s", seen)
	}
	b.clean()
}

// While Redis does not respond for a sale, the console does not show a change that is missing there.
func consoleUnknownInRedis(t *testing.T, s *shop) {
	s.createSale("unknown", "Unknown", 5, time.Now().Add(-time.Second))
	ann := newPerson(t)
	s.atConsole(t, ann, "ann", "log")
	const script = `
	const real = window.fetch;
	window.fetch = async (url, options) => {
		const got = await real(url, options);
		if (!String(url).includes("/sales")) return got;
		const body = await got.json();
		for (const sale of body.sales || [body]) Object.assign(sale, { left: null, accepted: null, applied: false });
		return Response.json(body);
	};`
	b := openWith(t, ann, s.admin+"/admin/sales/unknown", script)
	b.shows("Redis does not respond, or does not have this sale yet")
	b = openWith(t, ann, s.admin+"/admin/sales?q=unknown", script)
	b.shows("unknown in Redis")
	b.clean()
}

func consoleOpensNow(t *testing.T, s *shop) {
	s.createSale("early", "The early one", 3, time.Now().Add(time.Hour))
	b := s.atConsole(t, newPerson(t), "ann", "sales/early")
	b.await("the sale to be scheduled", `document.querySelector("main .badge").textContent === "scheduled"`)
	b.text("Open now")
	b.text("Back")
	b.await("no dialog", `!document.querySelector("dialog")`)
	if code := s.buy("early", "bob"); code != http.StatusConflict {
		t.Errorf("opened without confirmation: %d", code)
	}
	b.text("Open now")
	b.text("Open now")
	b.await(
		"the sale to be open",
		`document.querySelector("main .badge").textContent === "open" && ![...document.querySelectorAll("main .acts button")].some((b) => b.textContent === "Open now")`,
	)
	s.settled(func() bool { return s.buy("early", "bob") == http.StatusAccepted }, "buyers to buy")
	if got := s.lines(1); got != "ann sale.open" {
		t.Errorf("action log: %s", got)
	}
	b.clean()
}

func consoleRetriesAndCancels(t *testing.T, s *shop) {
	s.createSale("dead", "Dead ones", 2, time.Now().Add(-time.Second))
	s.addDeadLetters("dead", 2)
	keys := s.dead("dead")
	b := s.atConsole(t, newPerson(t), "ben", "dead?sale=dead")
	b.await("two letters", `document.querySelectorAll("tbody tr[data-key]").length === 2`)
	b.shows("the table refuses cursed-dead-0")
	b.eval(holdReload)
	for _, change := range []string{"pause", "resume"} { // each is a line in the action log, so the list is reloaded
		s.adminAPI(http.MethodPost, "/sales/dead/"+change, map[string]any{})
	}
	b.await("a reload that has begun", `window.endReload`)
	b.text(keys[0])
	history := `document.querySelector(".detail:not([hidden]) .history li")`
	b.await("its history", history)
	b.eval(`(() => { window.before = document.querySelector("tbody tr"); window.endReload(); })()`)
	b.await("the end of the reload", `!window.before.isConnected`)
	b.await("the history after the reload", history)

	s.sql(`ALTER TABLE orders DISABLE TRIGGER cursed`) // remove the cause
	defer s.sql(`ALTER TABLE orders ENABLE TRIGGER cursed`)
	b.click(`document.querySelector('[aria-label="Retry order ` + keys[0] + `"]')`)
	b.do(chromedp.SendKeys(`dialog input[name=reason]`, "the table is fixed", chromedp.ByQuery))
	b.text("Retry")
	b.await("one letter", `document.querySelectorAll("tbody tr[data-key]").length === 1`)
	s.settled(func() bool { return s.ordered("dead") == 1 }, "the retried order to be a row")
	b.click(`document.querySelector('[aria-label="Cancel order ` + keys[1] + `"]')`)
	b.text("Cancel order")
	b.shows("No dead letters.")
	s.settled(func() bool { return s.buy("dead", "blessed") == http.StatusAccepted },
		"the cancelled unit to be on sale again")
	if got := s.lines(2); got != "ben order.cancel, ben dead.retry" {
		t.Errorf("action log: %s", got)
	}
	b.visit(s.admin + "/admin/sales/dead")
	b.logged("ben|order.cancel|"+keys[1]+"|sale dead", "ben|dead.retry|"+keys[0]+"|the table is fixed",
		"admin|sale.resume|dead|version 3", "admin|sale.pause|dead|version 2", "admin|sale.create|dead|stock 2")
	b.click(`[...document.querySelectorAll("tbody a")].find((a) => a.textContent === "` + keys[0] + `")`)
	b.await("the retried order", `document.querySelector("h1")?.textContent === "Order `+keys[0]+`"`)
	b.logged("ben|dead.retry|" + keys[0] + "|the table is fixed")
	b.clean()
}

// holdReload holds the response to the next request of the page for dead letters until endReload is called.
const holdReload = `(() => {
	const real = window.fetch;
	window.fetch = async (url, options) => {
		const got = await real(url, options);
		if (String(url).includes("/dead") && !window.endReload) await new Promise((resolve) => { window.endReload = resolve; });
		return got;
	};
})()`

// A retry of the selection drops no dead letter that cannot be retried.
func consoleRetriesOrdersOnly(t *testing.T, s *shop) {
	s.createSale("mixed", "Orders and others", 5, time.Now().Add(-time.Second))
	if err := s.redis.Client().LPush(t.Context(), "sluice:{0}:ready", "no order").Err(); err != nil {
		t.Fatal(err)
	}
	s.addDeadLetters("mixed", 1)
	others := func() int {
		list, _ := s.adminAPI(http.MethodGet, "/dead", nil)["dead"].([]any)
		return len(list) - len(s.dead("mixed"))
	}
	b := s.atConsole(t, newPerson(t), "ann", "dead")
	b.await("the text that is not an order", `document.querySelectorAll('[aria-label^="Select raw:"]').length === 1`)
	b.click(`document.querySelector('[aria-label^="Select raw:"]')`)
	b.text("Retry")
	b.says("toast", "Only orders can be retried.")
	b.click(`document.querySelector("thead input")`)
	b.shows("2 selected")
	b.text("Retry")
	b.await("the confirmation of the one order",
		`document.querySelector("dialog[open] h2")?.textContent === "Retry order `+s.dead("mixed")[0]+`?"`)
	b.text("Retry")
	b.says("toast", "1 done.")
	if n := others(); n != 1 {
		t.Errorf("%d texts that are not orders are left", n)
	}
	s.settled(func() bool { return len(s.dead("mixed")) == 1 }, "the order to be dead again")
	b.reload()
	b.await("both", `document.querySelectorAll("tbody tr[data-key]").length === 2`)
	const cancel = `[...document.querySelectorAll("main > .acts button")].find((b) => b.textContent === "Cancel")`
	unit := "The unit of the order goes back on sale, and its buyer may buy again."
	for _, c := range []struct{ box, text string }{
		{`document.querySelector('tbody input:not([aria-label^="Select raw:"])')`, unit},
		{`document.querySelector('[aria-label^="Select raw:"]')`, "The entry is not an order. It is dropped."},
		{`document.querySelector("thead input")`, unit + " Entries that are not orders are dropped."},
	} {
		b.click(c.box)
		b.click(cancel)
		b.await("the effect of a cancel", `[...document.querySelectorAll("dialog[open] p")].some((p) => p.textContent === `+
			quote(c.text)+`)`)
		b.text("Back")
		b.await("the page", `!document.querySelector("dialog")`)
		b.click(c.box)
	}
	b.click(`document.querySelector("thead input")`)
	b.shows("2 selected")
	b.click(cancel)
	b.text("Cancel orders")
	b.shows("No dead letters.")
	b.clean()
}

// holdNextPage holds the response with the next page of dead letters until the page requests the list again.
const holdNextPage = `(() => {
	const real = window.fetch;
	let held = false, release;
	const again = new Promise((resolve) => { release = resolve; });
	window.fetch = async (url, options) => {
		if (held || !/\/dead\?.*after=[^&]/.test(String(url))) {
			if (held && String(url).includes("/dead")) release();
			return real(url, options);
		}
		held = true;
		const got = await real(url, options);
		await again;
		return got;
	};
})()`

func consoleManyAtOnce(t *testing.T, s *shop) {
	s.createSale("many", "Many dead ones", 100, time.Now().Add(-time.Second))
	s.addDeadLetters("many", 60)
	b := s.atConsole(t, newPerson(t), "ben", "dead?sale=many")
	b.await("a page of letters", `document.querySelectorAll("tbody tr[data-key]").length === 50`)
	b.eval(holdNextPage)
	b.text("Next")
	for _, change := range []string{"pause", "resume"} { // each is a line in the action log, so the list is reloaded
		s.adminAPI(http.MethodPost, "/sales/many/"+change, map[string]any{})
	}
	b.await("the rest", `document.querySelectorAll("tbody tr[data-key]").length === 10`)
	b.click(`document.querySelector("thead input")`)
	b.shows("10 selected")
	b.click(`[...document.querySelectorAll("main > .acts button")].find((b) => b.textContent === "Cancel")`)
	b.text("Cancel orders")
	b.await("the previous page, because this one is empty",
		`document.querySelectorAll("tbody tr[data-key]").length === 50`)
	if n := len(s.dead("many")); n != 50 {
		t.Errorf("%d dead letters are left", n)
	}
	b.text("Cancel all matching")
	b.text("Cancel all")
	b.says("toast", "50 done")
	b.shows("No dead letters.")
	if audit := s.adminAPI(http.MethodGet, "/sales/many/audit", nil); audit["balanced"] != true || audit["left"] != 100.0 {
		t.Errorf("afterwards: %v", audit)
	}
	b.clean()
}

// loseShards adds unavailable shards to the responses with dead letters.
const loseShards = `(() => {
	const real = window.fetch;
	window.fetch = async (url, options) => {
		const got = await real(url, options);
		if (!String(url).includes("/dead")) return got;
		return Response.json({ ...await got.json(), unavailable_shards: [1, 3] }, { status: got.status });
	};
})()`

// While shards are unavailable, the list and the result of a filter name them.
func consoleUnavailableShards(t *testing.T, s *shop) {
	s.createSale("torn-off", "Without two shards", 5, time.Now().Add(-time.Second))
	b := s.atConsole(t, newPerson(t), "ann", "dead?sale=torn-off")
	b.shows("No dead letters.")
	b.eval(loseShards)
	s.adminAPI(http.MethodPost, "/sales/torn-off/pause", map[string]any{}) // the list is reloaded
	b.shows("Unavailable shards: 1, 3. Their dead letters are missing")
	b.text("Retry all matching")
	b.text("Retry all")
	b.says("toast", "Unavailable shards: 1, 3. Their dead letters were not processed")
	b.clean()
}

// loseLiveShards adds unavailable shards to the last sample of the live stats, which are polled.
const loseLiveShards = `
	window.EventSource = class extends EventTarget { constructor() { super(); this.readyState = 2; setTimeout(() => this.onerror()); } close() {} };
	EventSource.CLOSED = 2;
	const real = window.fetch;
	window.fetch = async (url, options) => {
		const got = await real(url, options);
		if (!String(url).includes("/live")) return got;
		const body = await got.json(), last = body.samples.at(-1);
		if (last) last.queue.unavailable_shards = [1, 3];
		return Response.json(body);
	};`

// While shards are unavailable, the overview names them.
func consoleUnavailableShardsLive(t *testing.T, s *shop) {
	ann := newPerson(t)
	s.atConsole(t, ann, "ann", "log")
	b := openWith(t, ann, s.admin+"/admin/", loseLiveShards)
	b.shows("Unavailable shards: 1, 3. Their orders are not counted")
	b.clean()
}

// A change by one admin is shown to the other without a reload.
func consoleTwoAdmins(t *testing.T, s *shop) {
	s.createSale("both", "For both", 5, time.Now().Add(-time.Second))
	ann, ben := s.atConsole(t, newPerson(t), "ann", "sales/both"), s.atConsole(t, newPerson(t), "ben", "sales/both")
	ben.shows("Pause")
	ann.text("Pause")
	ann.text("Pause")
	ben.shows("by ann")
	ann.text("Resume")
	ben.text("Resume")
	ann.text("Resume")
	ben.text("Resume") // the sale is already on, which is not an error
	ann.await("one answer", `document.querySelector("main .badge").textContent === "open"`)
	ben.await("the same answer", `document.querySelector("main .badge").textContent === "open"`)
	if got := s.lines(2); strings.Count(got, "sale.resume") != 1 {
		t.Errorf("action log: %s", got)
	}
	ann.clean()
	ben.clean()
}

// Back, and a reload, show the page of a long list that the admin has left. A new filter shows the first page.
func consoleBackToThePage(t *testing.T, s *shop) {
	s.sql(`INSERT INTO admin_log (actor, action, target)
		SELECT 'paging', 'sale.pause', 'row-' || n FROM generate_series(1, 120) n`)
	b := s.atConsole(t, newPerson(t), "ann", "log?actor=paging")
	row := func(text string) {
		t.Helper()
		b.await(text, `document.querySelector("tbody td:nth-child(4)")?.textContent === `+quote(text))
	}
	row("row-120")
	b.text("Next")
	row("row-70")
	b.click(`document.querySelector("tbody a")`)
	b.await("the page of the sale", `location.pathname === "/admin/sales/row-70"`)
	b.eval(`void setTimeout(() => history.back())`) // the response arrives before the navigation
	row("row-70")
	b.text("Next")
	row("row-20")
	b.reload()
	row("row-20")
	b.text("Previous")
	row("row-70")
	b.enter("target", "row-9")
	row("row-9")
	b.clean()
}

// A person without a mouse signs in, finds a sale and pauses it.
func consoleKeyboardAlone(t *testing.T, s *shop) {
	s.createSale("keys", "Keys only", 5, time.Now().Add(-time.Second))
	b := s.atConsole(t, newPerson(t), "kim", "sales/keys")
	b.shows("Balanced")
	b.tabTo("Pause")
	b.keys(kb.Enter)
	b.await("the dialog to have the focus", `document.querySelector("dialog[open]")?.contains(document.activeElement)`)
	b.keys(kb.Escape)
	b.await("the focus on the same button",
		`!document.querySelector("dialog") && document.activeElement.textContent === "Pause"`)
	b.keys(kb.Enter)
	b.await("the dialog again", `document.querySelector("dialog[open]")?.contains(document.activeElement)`)
	b.keys(kb.Enter)
	b.shows("by kim")
	b.clean()
}

// tabTo presses Tab until a button with this text has the focus.
func (b *tab) tabTo(words string) {
	b.t.Helper()
	for range 60 {
		if b.eval(`document.activeElement?.tagName + " " + document.activeElement?.textContent`) == "BUTTON "+words {
			return
		}
		b.keys(kb.Tab)
	}
	b.t.Fatalf("the button %s is not reached with Tab", words)
}

// A page of another origin, even on the same host, changes nothing with an admin session, reads nothing, and cannot
// show the console in a frame.
func consoleOtherOrigins(t *testing.T, s *shop) {
	s.createSale("csrf", "Not yours", 5, time.Now().Add(-time.Second))
	victim := newPerson(t)
	s.atConsole(t, victim, "ann", "sales/csrf").shows("Balanced")
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(
			w,
			`<!doctype html><title>evil</title><form method="post" target="f" action="%[1]s/admin/v1/sales/csrf/pause"></form><form id="out" method="post" target="g" action="%[1]s/admin/sign-out"></form>
			<iframe name="f"></iframe><iframe name="g"></iframe><iframe id="framed" src="%[1]s/admin/"></iframe>`,
			s.admin,
		)
	}))
	defer evil.Close()
	b := open(t, victim, evil.URL)
	tries := `(async () => { const said = [];
		for (const [method, headers] of [["POST", {}], ["POST", {"Sluice-Admin": "1"}], ["GET", {}]]) {
			for (const mode of ["cors", "no-cors"]) {
				try { const r = await fetch(` + quote(s.admin) + ` + (method === "GET" ? "/admin/v1/sales/csrf" : "/admin/v1/sales/csrf/pause"), { method, mode, headers, credentials: "include" }); said.push(r.type + " " + r.status + " " + (await r.text()).length); }
				catch { said.push("refused"); }
			}
		}
		document.forms[0].submit(); document.forms[1].submit(); return said.join(", "); })()`
	said := b.promise(tries)
	if strings.Contains(said, "200") || strings.Contains(said, "basic") || strings.Contains(said, "cors 2") {
		t.Errorf("another origin was answered: %s", said)
	}
	b.await("the forms to be sent", `document.readyState === "complete"`)
	again := s.atConsole(t, victim, "ann", "sales/csrf") // still signed in
	again.shows("Balanced")
	if state := s.adminAPI(http.MethodGet, "/sales/csrf", nil)["state"]; state != "open" {
		t.Errorf("the sale is %v", state)
	}
	if strings.Contains(s.lines(20), "sign_out") {
		t.Error("another origin has signed the admin out")
	}
	// A blocked frame shows an error page of the browser, which scripts cannot read.
	if seen := b.eval(
		`(() => { try { return document.getElementById("framed").contentDocument === null ? "closed" : "open"; } catch { return "closed"; } })()`,
	); seen != "closed" {
		t.Errorf("the frame is %s", seen)
	}
	resp, err := http.Get(s.admin + "/admin/sign-in")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'none'") {
		t.Errorf("the policy is %q", csp)
	}
}

func consoleTitlesAreText(t *testing.T, s *shop) {
	for i, title := range []string{
		`<img src=x onerror="window.owned=1"><script>window.owned=1</script>`, "\u202Eevil\u202C 👟 'quotes' \"both\"",
		strings.Repeat("W", 200),
	} {
		id := fmt.Sprintf("text%d", i)
		s.createSale(id, title, 1, time.Now().Add(-time.Second))
		b := s.atConsole(t, newPerson(t), `<b>ann</b> `+"\u202E", "sales/"+id)
		b.await("the title", `document.querySelector("h1").textContent === `+quote(title))
		b.text("Pause")
		b.text("Pause")
		b.shows("by <b>ann")
		if owned := b.eval(`window.owned`); owned != "undefined" {
			t.Errorf("the title %q runs as a script", title)
		}
		if wide := b.eval(`document.documentElement.scrollWidth > document.documentElement.clientWidth`); wide != "false" {
			t.Errorf("the title %q makes the page wider than the window", title)
		}
		b.clean()
	}
}

// A group name that does not exist, for example from an old bookmark, is not shown as an empty group.
func consoleUnknownGroup(t *testing.T, s *shop) {
	b := s.atConsole(t, newPerson(t), "ann", "groups/nosuch")
	b.shows("There is no such consumer group.")
	if said := b.eval(`document.querySelector("main").textContent`); strings.Contains(said, "No dead events") {
		t.Errorf("the page shows %s", said)
	}
}

// An expired or forged session leads to the sign-in page, and from there back to the requested page.
func consoleSessionEnds(t *testing.T, s *shop) {
	who := newPerson(t)
	b := s.atConsole(t, who, "ann", "dead?error_contains=x")
	b.do(
		network.SetCookie("sluice_admin", "forged.forged").WithURL(s.admin + "/admin/").WithPath("/admin").WithHTTPOnly(true),
	)
	b.reload()
	b.await("the prompt for the name", `document.activeElement.name === "name"`)
	b.keys("ann" + kb.Tab + "wrong" + kb.Enter)
	b.await(
		"a rejection that prompts for the token alone",
		`document.querySelector("[role=alert]")?.textContent === "Wrong token." && document.querySelector("input[name=name]").value === "ann" && document.activeElement.name === "token"`,
	)
	b.keys(adminToken + kb.Enter)
	b.await("the requested page",
		`location.href.endsWith("/admin/dead?error_contains=x") && document.querySelector("main h1")`)
	b.text("Sign out")
	b.await("the sign-in form", `document.querySelector("input[name=token]")`)
	b = open(t, who, s.admin+"/admin/sales")
	b.await("the sign-out", `document.querySelector("input[name=token]")`)
}

// The notice before the end of a session leads to the sign-in form, and from there back to the page with its filter.
func consoleSignInAgain(t *testing.T, s *shop) {
	ann := newPerson(t)
	s.atConsole(t, ann, "ann", "log")
	b := openWith(t, ann, s.admin+"/admin/dead",
		`const set = window.setTimeout; window.setTimeout = (f, ms) => set(f, ms > 1e6 ? 0 : ms);`)
	b.await("the notice", `document.querySelector("#banner a")`)
	b.enter("error_contains", "x")
	b.await("the filter in the address", `location.search === "?error_contains=x"`)
	b.click(`document.querySelector("#banner a")`)
	b.await("the sign-in form", `document.querySelector("input[name=to]")?.value === "/admin/dead?error_contains=x"`)
	b.clean()
}

// endSession replaces the session of a browser profile with one that has ended.
func (b *tab) endSession(s *shop) {
	b.t.Helper()
	b.do(network.SetCookie("sluice_admin", "ended.ended").WithURL(s.admin + "/admin/").WithPath("/admin").
		WithHTTPOnly(true))
}

// A session that ends while an admin fills a form loses no input: the form can be sent after a sign-in in another tab.
// The notice leads to the sign-in form in another tab, too, and disappears after the sign-in.
func consoleSessionEndsDuringInput(t *testing.T, s *shop) {
	ann := newPerson(t)
	b := s.atConsole(t, ann, "ann", "sales")
	b.text("New sale")
	for name, value := range map[string]string{"title": "Kept", "id": "kept", "stock": "5", "price": "1.00"} {
		b.enter(name, value)
	}
	b.endSession(s)
	b.text("Create")
	b.await("the reason", `document.querySelector("dialog .problem")?.textContent.startsWith("Your session has expired.")`)
	s.atConsole(t, ann, "ann", "log")
	b.text("Create")
	b.await("the sale", `location.pathname === "/admin/sales/kept"`)

	b.visit(s.admin + "/admin/edge/policy")
	b.await("the form", `document.querySelector("textarea[name=policy]")`)
	b.enter("policy", "-- my policy")
	b.endSession(s)
	b.text("Check")
	b.await(
		"the notice",
		`document.querySelector("#banner:not([hidden])")?.textContent.startsWith("Your session has expired.")`,
	)
	b.eval(`document.querySelector("#banner a").addEventListener("click", (e) => e.preventDefault())`)
	b.click(`document.querySelector("#banner a")`)
	if at := b.eval(`document.querySelector("#banner a").target`); at != "_blank" {
		t.Errorf("the link opens %q", at)
	}
	s.atConsole(t, ann, "ann", "log")
	b.text("Check")
	b.await("no notice", `document.querySelector("#banner").hidden`)
	if text := b.eval(`document.querySelector("textarea[name=policy]").value`); text != "-- my policy" {
		t.Errorf("the policy is %q", text)
	}
	b.clean()
}

// Without a connection the console shows that its figures are old, and not by a colour alone. The notice disappears
// when the connection is back. A read that fails is not called a change.
func consoleConnectionLost(t *testing.T, s *shop) {
	s.createSale("cut", "Cut off", 5, time.Now().Add(-time.Second))
	b := s.atConsole(t, newPerson(t), "ann", "log")
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(`
			window.EventSource = class extends EventTarget { constructor() { super(); window.source = this; } close() {} };
			EventSource.CLOSED = 2;`).Do(ctx)
		return err
	}))
	b.visit(s.admin + "/admin/sales/cut")
	b.await("the sale", `document.querySelector("main .badge")?.textContent === "open" && window.source`)
	b.eval(`(() => {
		window.real = window.fetch;
		window.fetch = async () => { throw new TypeError("no connection"); };
		source.readyState = 2;
		source.onerror();
	})()`)
	b.await("the lost connection in the header",
		`document.querySelector("header [role=status]")?.innerText === "No connection"`)
	b.await("the failed read", `document.querySelector("main .problem")?.textContent === "No response from the server."`)
	b.eval(`(() => { window.fetch = window.real; })()`)
	b.await("the sale again", `!document.querySelector("main .problem") &&
		document.querySelector("main .badge")?.textContent === "open"`)
	b.await("the connection", `document.querySelector("header [role=status]").textContent === ""`)
	b.clean()
}

// flapping counts the timers of the live updates, which never fire, and lets a test end the stream.
const flapping = `
	window.EventSource = class extends EventTarget { constructor() { super(); this.readyState = 2; window.source = this; } close() {} };
	EventSource.CLOSED = 2;
	window.waits = new Map();
	const set = window.setTimeout, clear = window.clearTimeout;
	window.setTimeout = (f, ms) => {
		if (ms !== 3000 && ms !== 30_000) return set(f, ms);
		const id = set(() => {}, 2 ** 30);
		waits.set(id, ms);
		return id;
	};
	window.clearTimeout = (id) => { waits.delete(id); clear(id); };
	window.waiting = (ms) => [...waits.values()].filter((w) => w === ms).length;`

// A stream that connects and fails repeatedly is replaced by one series of requests, and by one attempt to connect.
func consoleStreamThatFailsOften(t *testing.T, s *shop) {
	ann := newPerson(t)
	s.atConsole(t, ann, "ann", "log")
	b := openWith(t, ann, s.admin+"/admin/log", flapping)
	for range 3 {
		b.await("a stream", `window.source`)
		b.eval(`(() => {
			const failed = window.source;
			window.source = null;
			failed.dispatchEvent(new MessageEvent("live", { data: JSON.stringify({ now: 1, samples: [], sources: [] }) }));
			failed.onerror();
		})()`)
		b.await("polling", `document.querySelector("header .dot").dataset.state === "poll" && waiting(3000) > 0`)
		b.eval(`void document.dispatchEvent(new Event("visibilitychange"))`)
	}
	if got := b.eval(`[waiting(3000), waiting(30_000)]`); got != "1,1" {
		t.Errorf("%s timers wait to poll and to connect, want one each", got)
	}
	b.clean()
}

// ticking lets a test call the functions that a page calls at intervals.
const ticking = `
	window.ticks = [];
	window.setInterval = (f) => window.ticks.push(f);
	window.tick = () => window.ticks.forEach((f) => f());`

// A server that is slower than the interval of a page gets one request at a time, and no older response replaces a
// newer one.
func consoleSlowServer(t *testing.T, s *shop) {
	s.createSale("slow", "Slowly", 5, time.Now().Add(-time.Second))
	ann := newPerson(t)
	s.atConsole(t, ann, "ann", "log")
	b := openWith(t, ann, s.admin+"/admin/sales/slow", ticking)
	b.await("the sale", `document.querySelector("main .badge")?.textContent === "open"`)
	b.eval(`(() => {
		const real = window.fetch;
		window.releases = [];
		window.fetch = async (url, options) => {
			if (!url.endsWith("/sales/slow")) return real(url, options);
			const response = await real(url, options);
			await new Promise((resolve) => { window.releases.push(resolve); });
			return response;
		};
		tick();
	})()`)
	b.await("a request", `releases.length === 1`)
	b.text("Pause")
	b.text("Pause")
	b.says("toast", "Sale paused.")
	b.promise(`(async () => { tick(); tick(); await fetch("/healthz"); return ""; })()`)
	if n := b.eval(`releases.length`); n != "1" {
		t.Errorf("%s requests are in progress", n)
	}
	b.eval(`releases[0]()`)
	b.await("the next request", `releases.length === 2`)
	b.eval(`releases[1]()`)
	b.await("the newest state", `document.querySelector("main .badge").textContent === "paused"`)
	b.clean()
}

// A page that waits for its first response shows it, and does not look like an empty list.
func consoleLoading(t *testing.T, s *shop) {
	s.createSale("loaded", "Loaded", 5, time.Now().Add(-time.Second))
	ann := newPerson(t)
	s.atConsole(t, ann, "ann", "log")
	for _, view := range []string{"sales", "sales/loaded", "orders", "groups", "webhooks", "rehearsals", "log"} {
		b := openWith(t, ann, s.admin+"/admin/"+view, `
			const gate = new Promise((open) => { window.openGate = open; }), real = window.fetch;
			window.fetch = async (...request) => { await gate; return real(...request); };`)
		b.shows("Loading…")
		b.eval(`openGate()`)
		b.await("the response", `!document.querySelector("main").innerText.includes("Loading…")`)
		b.clean()
	}
}

// Tables that are read again repeatedly keep their scroll position.
func consoleKeepsTheScrollPosition(t *testing.T, s *shop) {
	s.create("scrolled", nil)
	s.buy("scrolled", "eve") // an edge with rules
	s.adminAPI(http.MethodPost, "/webhooks", map[string]any{"url": "https://shop.example/scrolled"})
	ann := newPerson(t)
	s.atConsole(t, ann, "ann", "log")
	for _, view := range []string{"groups", "webhooks", "edge"} {
		b := openWith(t, ann, s.admin+"/admin/"+view, ticking)
		b.look("light", 320, 640)
		b.await("the table", `document.querySelector("main tbody tr")`)
		b.await(
			"a scroll position",
			`(document.querySelector(".scroll").scrollLeft = 40) && document.querySelector(".scroll").scrollLeft === 40`,
		)
		b.eval(`void (window.first = document.querySelector("main tbody tr"))`)
		b.await("new rows", `tick() ?? !first.isConnected`)
		if at := b.eval(`document.querySelector(".scroll").scrollLeft`); at != "40" {
			t.Errorf("%s: the scroll position is %s", view, at)
		}
		b.clean()
	}
}

// On a narrow phone the current view is visible in the navigation, and no heading is broken within a word.
func consolePhone(t *testing.T, s *shop) {
	b := s.atConsole(t, newPerson(t), "ann", "log")
	b.look("light", 320, 640)
	for _, view := range []string{"", "edge", "webhooks", "log"} {
		b.visit(s.admin + "/admin/" + view)
		b.await("the heading", `document.querySelector("main h1")`)
		b.await("the current view in the navigation", `(() => {
			const at = document.querySelector("nav a[aria-current]").getBoundingClientRect();
			return at.left >= 0 && at.right <= innerWidth;
		})()`)
		if lines := b.eval(`(() => {
			const h = document.querySelector("main h1"), r = document.createRange();
			r.selectNodeContents(h);
			return new Set([...r.getClientRects()].map((c) => Math.round(c.top))).size;
		})()`); lines != "1" {
			t.Errorf("the heading of /admin/%s has %s lines", view, lines)
		}
	}
	b.clean()
}

// With the colors of a contrast theme, bars, the keys of charts and the chosen time span are still visible.
func consoleForcedColors(t *testing.T, s *shop) {
	b := s.atConsole(t, newPerson(t), "ann", "")
	b.do(emulation.SetEmulatedMedia().
		WithFeatures([]*emulation.MediaFeature{{Name: "forced-colors", Value: "active"}}))
	b.await("the funnel", `matchMedia("(forced-colors: active)").matches && document.querySelector(".funnel .bar")`)
	b.eval(`void (window.background = (s) => getComputedStyle(document.querySelector(s)).backgroundColor)`)
	lost := b.eval(`[".funnel .bar", ".legend .key.s0", ".legend .key.s1", "fieldset.span input:checked + span"]
		.filter((s) => background(s) === background("body"))`)
	if lost != "" {
		t.Errorf("these have the color of the page: %s", lost)
	}
	b.clean()
}

// A browser with a clock that is a day ahead does not announce the end of a session that has just begun.
func consoleWrongClock(t *testing.T, s *shop) {
	who := newPerson(t)
	s.atConsole(t, who, "ann", "log")
	b := openAt(t, who, s.admin+"/admin/log", 24*time.Hour)
	b.await("the log", `document.querySelectorAll("tbody tr").length > 0`)
	if seen := b.eval(`document.getElementById("banner").innerText`); seen != "" {
		t.Errorf("the banner shows %q", seen)
	}
	b.clean()
}
