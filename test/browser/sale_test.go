package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"

	"sluice/internal/token/tokentest"
)

// scenarios are the situations of buyers, on either edge. Each has its own sale and buyers.
var scenarios = []struct {
	name string
	run  func(*testing.T, *shop)
}{
	{"FromCountdownToCreated", fromCountdownToCreated},
	{"OneDayIsSingular", oneDayIsSingular},
	{"SoldOutSeenLive", soldOutSeenLive},
	{"DoubleClickBuysOnce", doubleClickBuysOnce},
	{"ReloadGoesOn", reloadGoesOn},
	{"BackFromTheCheckout", backFromTheCheckout},
	{"OfflineAndBack", offlineAndBack},
	{"LimitedCountsDown", limitedCountsDown},
	{"RejectedPageReloads", rejectedPageReloads},
	{"TitlesAreText", titlesAreText},
	{"PictureAndDescription", pictureAndDescription},
	{"RightToLeft", rightToLeft},
	{"WrongClock", wrongClock},
	{"TokenIsRejected", tokenIsRejected},
	{"TokenExpiresDuringPurchase", tokenExpiresDuringPurchase},
	{"SignOutEndsThePurchase", signOutEndsThePurchase},
	{"ExpiredTokenIsExplained", expiredTokenIsExplained},
	{"LimitAboveOne", limitAboveOne},
	{"PaidInTheCheckout", paidInTheCheckout},
	{"ExpiresWhileShown", expiresWhileShown},
	{"HiddenPageSendsNothing", hiddenPageSendsNothing},
	{"ForcedColors", forcedColors},
	{"Chinese", chinese},
	{"StorageDenied", storageDenied},
	{"TokenForAnOpenPage", tokenForAnOpenPage},
	{"SignInKeepsTheLanguage", signInKeepsTheLanguage},
}

// One shop for each edge runs all scenarios.
func TestSalePage(t *testing.T) {
	for edge, open := range edges {
		t.Run(edge, func(t *testing.T) {
			s := open(t, limitedPolicy(t, "10r/m"))
			for _, sc := range scenarios {
				t.Run(sc.name, func(t *testing.T) {
					at := *s
					at.t = t
					sc.run(t, &at)
				})
			}
		})
	}
}

// A buyer waits for the opening, presses once, and has an order.
func fromCountdownToCreated(t *testing.T, s *shop) {
	const counts = `document.getElementById("countdown")?.hidden === false &&
		document.getElementById("buy").textContent.includes("Not open yet")`
	var b *tab
	var id string
	for lead := 6 * time.Second; ; lead *= 2 { // on a slow machine the sale may be open before the page is shown
		id = fmt.Sprint("drop-", int(lead.Seconds()))
		opens := time.Now().Add(lead)
		s.createSale(id, "The drop", 3, opens)
		b = open(t, newPerson(t), s.page(id, "ann"))
		is := b.eval(counts)
		for is != "true" && time.Now().Before(opens) {
			is = b.eval(counts)
		}
		if is == "true" {
			break
		}
		if lead > time.Minute {
			t.Fatalf("the page shows no countdown %s before the sale opens\n%s", lead, b.seen())
		}
	}
	b.await(
		"the opening time in the reader's time zone",
		`(() => { const at = document.getElementById("at"); return at.textContent.includes(String(new Date(at.dateTime).getFullYear())) && !at.textContent.includes("-"); })()`,
	)
	b.ready("Buy now")
	b.await("an announcement of the opening",
		`[...document.querySelectorAll("[role=status]")].some((e) => e.textContent === "On sale now")`)
	b.press("buy")
	b.orderIs("confirmed")
	b.says("message", "Your order is confirmed")
	if n := s.ordered(id); n != 1 {
		t.Errorf("%v rows", n)
	}
	if hash := b.eval(`location.href`); hash != s.base+"/s/"+id {
		t.Errorf("the token stays in the address: %s", hash)
	}
	b.clean()
}

// A countdown of one day and some hours uses the singular.
func oneDayIsSingular(t *testing.T, s *shop) {
	s.createSale("day", "The drop", 3, time.Now().Add(30*time.Hour))
	b := open(t, newPerson(t), s.page("day", "sky"))
	b.await("the countdown", `document.getElementById("countdown").hidden === false`)
	if got := b.eval(`document.querySelector(".clock > span").textContent`); got != "1 day" {
		t.Errorf("the countdown shows %q", got)
	}
	b.clean()
}

// A second buyer sees on the open page that the last unit is sold, and that it is available again.
func soldOutSeenLive(t *testing.T, s *shop) {
	s.createSale("last", "The last one", 1, time.Now().Add(-time.Second))
	b := open(t, newPerson(t), s.page("last", "bob"))
	b.ready("Buy now")
	if code := s.buy("last", "kim"); code != 202 {
		t.Fatalf("ann got %d", code)
	}
	b.says("state", "Sold out")
	b.says("left", "0 of 1 left")
	s.adminAPI("POST", "/sales/last/restock", map[string]any{"add": 1})
	b.ready("Buy now")
	b.press("buy")
	b.orderIs("confirmed")
	b.says("left", "0 of 2 left")
	b.clean()
}

// Repeated clicks, in one tab or two, buy one unit.
func doubleClickBuysOnce(t *testing.T, s *shop) {
	s.createSale("twice", "The shoe", 10, time.Now().Add(-time.Second))
	ann := newPerson(t)
	first, second := open(t, ann, s.page("twice", "cat")), open(t, ann, s.page("twice", "cat"))
	first.ready("Buy now")
	second.ready("Buy now")
	first.eval(`(() => { const b = document.getElementById("buy"); b.click(); b.click(); b.click(); })()`)
	second.eval(`document.getElementById("buy").click()`)
	first.orderIs("confirmed")
	second.orderIs("confirmed")
	if n := first.count("POST /v1/sales/twice/orders"); n != 1 {
		t.Errorf("three clicks made %d requests", n)
	}
	if a, b := first.eval(`document.querySelector("#orders .number").textContent`), second.eval(
		`document.querySelector("#orders .number").textContent`,
	); a != b {
		t.Errorf("two tabs have two orders: %s and %s", a, b)
	}
	if n := s.ordered("twice"); n != 1 {
		t.Errorf("%v rows", n)
	}
	first.clean()
	second.clean()
}

// A page that is reloaded during a purchase continues it. One that is loaded later shows the order.
func reloadGoesOn(t *testing.T, s *shop) {
	s.createSaleFor(2, "again", "The shoe", 10, time.Now().Add(-time.Second)) // a second key would buy a second one
	b := open(t, newPerson(t), s.page("again", "dan"))
	b.ready("Buy now")
	b.lose(true) // no answer arrives
	b.press("buy")
	b.await(
		"a purchase in progress",
		`["One moment…"].includes(document.getElementById("buy").textContent) || document.getElementById("buy").textContent.startsWith("Retrying")`,
	)
	b.lose(false)
	b.reload()
	b.orderIs("confirmed")
	id := b.eval(`document.querySelector("#orders .number").textContent`)
	b.reload()
	b.orderIs("confirmed")
	if again := b.eval(`document.querySelector("#orders .number").textContent`); again != id {
		t.Errorf("after a reload the order is %s, it was %s", again, id)
	}
	if n := s.ordered("again"); n != 1 {
		t.Errorf("%v rows", n)
	}
	b.clean()
}

// The browser's Back button shows the current state of the order, and buys nothing.
func backFromTheCheckout(t *testing.T, s *shop) {
	s.createSale("back", "The shoe", 10, time.Now().Add(-time.Second))
	b := open(t, newPerson(t), s.page("back", "eve"))
	b.ready("Buy now")
	b.press("buy")
	b.orderIs("confirmed")
	order := b.eval(`document.querySelector("#orders .number").textContent`)
	b.visit(s.base + "/")
	s.pay(order)
	b.eval(`void setTimeout(() => history.back())`) // the response arrives before the navigation
	b.orderIs("paid")
	if n := b.count("POST /v1/sales/back/orders"); n != 1 {
		t.Errorf("%d purchases were sent", n)
	}
	b.clean()
}

// Without a connection the page reports it, and continues automatically when the connection is back.
func offlineAndBack(t *testing.T, s *shop) {
	s.createSale("line", "The shoe", 10, time.Now().Add(-time.Second))
	b := open(t, newPerson(t), s.page("line", "eve"))
	b.ready("Buy now")
	b.offline(true)
	b.press("buy")
	b.says("message", "You're offline")
	b.offline(false)
	b.orderIs("confirmed")
	if n := s.ordered("line"); n != 1 {
		t.Errorf("%v rows", n)
	}
	b.clean()
}

// A rejection by a limit shows a countdown, and the page retries after it.
func limitedCountsDown(t *testing.T, s *shop) {
	s.createSale("limited", "The shoe", 10, time.Now().Add(-time.Second))
	b := open(t, newPerson(t), s.page("limited", "fay"))
	b.ready("Buy now")
	s.exhaust("fay")
	b.press("buy")
	b.says("message", "Too many requests")
	b.await("a countdown on the button", `/^Retrying in \d+ s$/.test(document.getElementById("buy").textContent)`)
	b.orderIs("confirmed")
	b.clean()
}

// A page that a limit rejects explains it, and reloads itself until it is the page of the sale. The buyer stays signed
// in.
func rejectedPageReloads(t *testing.T, s *shop) {
	s.createSale("busy", "The shoe", 10, time.Now().Add(-time.Second))
	if _, code := s.get("/s/busy"); code != http.StatusOK {
		t.Fatalf("the first request: %d", code)
	}
	b := open(t, newPerson(t), s.page("busy", "uma"))
	b.await("the explanation", `document.body.innerText.includes("reloads automatically")`)
	b.ready("Buy now")
	b.says("name", "uma")
	b.clean()
}

// The title of a sale is shown as text, and is not executed.
func titlesAreText(t *testing.T, s *shop) {
	for i, title := range []string{
		`<img src=x onerror="window.owned=1"><script>window.owned=1</script>`, "\u202Eevil\u202C 👟 'quotes' \"both\" {{.}}",
		"鞋 & Söhne </title></style></script>",
	} {
		id := fmt.Sprintf("t%d", i)
		s.createSale(id, title, 1, time.Now().Add(-time.Second))
		b := open(t, newPerson(t), s.page(id, "gil"))
		b.ready("Buy now")
		if got := b.eval(`document.querySelector("h1").textContent`); got != title {
			t.Errorf("the title %q is shown as %q", title, got)
		}
		if owned := b.eval(`window.owned`); owned != "undefined" {
			t.Errorf("the title %q runs as a script", title)
		}
		b.clean()
	}
}

// A picture of another host and a description in Markdown are shown; HTML in the description is not. A change is shown
// on the next page.
func pictureAndDescription(t *testing.T, s *shop) {
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/svg+xml")
		_, _ = io.WriteString(w, `<svg xmlns="http://www.w3.org/2000/svg" width="8" height="6"/>`)
	}))
	defer host.Close()
	s.create("shown", map[string]any{
		"picture":     host.URL + "/shoe.svg",
		"description": "## Fit\n\nRuns **small**.<script>window.owned=1</script> [x](javascript:window.owned=1)",
	})
	b := open(t, newPerson(t), s.page("shown", "ned"))
	b.await("the picture", `document.querySelector(".picture").naturalWidth > 0`)
	b.await("the description", `document.querySelector(".about strong").textContent === "small"`)
	if found := b.eval(`document.querySelector(".about a") || window.owned`); found != "undefined" {
		t.Errorf("the description has a link to a script, or runs: %s", found)
	}
	b.clean()
	s.adminAPI(http.MethodPost, "/sales/shown/describe", map[string]any{"description": "*New* text"})
	s.settled(func() bool {
		body, code := s.get("/s/shown")
		return code == http.StatusOK && strings.Contains(body, "<em>New</em>") && !strings.Contains(body, "shoe.svg")
	}, "the new description")
}

// A description in Arabic or Hebrew runs from right to left, except code. The page around it does not.
func rightToLeft(t *testing.T, s *shop) {
	s.create("rtl", map[string]any{"title": "حذاء", "description": "نص **مهم** 42.\n\n- واحد\n\n```\nsize 42\n```"})
	b := open(t, newPerson(t), s.page("rtl", "ned"))
	b.ready("Buy now")
	directions := `[".about p", ".about li", ".about pre", "main"].map((at) => getComputedStyle(document.querySelector(at)).direction)`
	if got := b.eval(directions); got != "rtl,rtl,ltr,ltr" {
		t.Errorf("the directions are %s", got)
	}
	b.clean()
}

// In a browser whose clock is an hour wrong, the sale opens at the time of the shop.
func wrongClock(t *testing.T, s *shop) {
	s.createSale("clock", "The drop", 3, time.Now().Add(5*time.Second))
	for _, hours := range []int{-1, 1} {
		b := openAt(t, newPerson(t), s.page("clock", fmt.Sprint("jon", hours)), time.Duration(hours)*time.Hour)
		b.ready("Buy now")
		b.press("buy")
		b.orderIs("confirmed")
		b.clean()
	}
}

// A token that is rejected is explained to the buyer. In this test its key was changed.
func tokenIsRejected(t *testing.T, s *shop) {
	s.createSale("token", "The shoe", 10, time.Now().Add(-time.Second))
	stale := tokentest.Sign(t, "a key of before, of at least thirty-two bytes", "hal", time.Hour)
	b := open(t, newPerson(t), s.base+"/s/token#token="+stale)
	b.says("message", "Your session has expired")
	b.ready("Sign in again")
	b.press("buy")
	b.fill("token", s.token("hal", -time.Hour))
	b.press("use")
	b.says("message", "has expired")
	b.fill("token", s.token("hal", time.Hour))
	b.press("use")
	b.ready("Buy now")
	b.clean()
}

// A purchase during which the token expires continues with a new token.
func tokenExpiresDuringPurchase(t *testing.T, s *shop) {
	s.createSaleFor(2, "during", "The shoe", 10, time.Now().Add(-time.Second)) // a second key would buy a second one
	expires := time.Now().Add(15 * time.Second)
	b := open(t, newPerson(t), s.base+"/s/during#token="+s.token("hal", time.Until(expires)))
	b.ready("Buy now")
	b.lose(true)
	b.press("buy")
	b.await("the token to expire", fmt.Sprintf(`Date.now() > %d`, expires.UnixMilli()+1000))
	b.lose(false)
	b.says("message", "Your session has expired")
	b.ready("Sign in again")
	b.press("buy")
	b.fill("token", s.token("hal", time.Hour))
	b.press("use")
	b.orderIs("confirmed")
	if n := s.ordered("during"); n != 1 {
		t.Errorf("%v rows", n)
	}
	b.clean()
}

// A sign-out ends a purchase that waits for its next attempt: the page is ready for this and for another buyer and has
// bought nothing.
func signOutEndsThePurchase(t *testing.T, s *shop) {
	s.createSale("shared", "The shoe", 10, time.Now().Add(-time.Second))
	b := open(t, newPerson(t), s.page("shared", "ivy"))
	b.ready("Buy now")
	b.offline(true)
	b.press("buy")
	b.says("message", "You're offline")
	for _, buyer := range []string{"ivy", "kai"} {
		b.press("out")
		b.ready("Sign in to buy")
		b.await("the focus on what follows", `document.activeElement.id === "buy"`)
		b.press("buy")
		b.fill("token", s.token(buyer, time.Hour))
		b.press("use")
		b.says("name", buyer)
		b.ready("Buy now")
	}
	b.offline(false)
	b.ready("Buy now")
	if n := s.ordered("shared"); n != 0 {
		t.Errorf("%v rows before the next buyer has bought", n)
	}
	b.press("buy")
	b.orderIs("confirmed")
	if n := s.ordered("shared"); n != 1 {
		t.Errorf("%v rows", n)
	}
	b.clean()
}

// A page that is opened with an expired token explains it, and so does a page whose token expires while it is open. A
// new token shows the orders again.
func expiredTokenIsExplained(t *testing.T, s *shop) {
	s.createSale("lapsed", "The shoe", 10, time.Now().Add(-time.Second))
	b := open(t, newPerson(t), s.base+"/s/lapsed#token="+s.token("joe", -time.Minute))
	b.says("message", "Your session has expired")
	b.ready("Sign in again")
	b.press("buy")
	b.fill("token", s.token("joe", 15*time.Second))
	b.press("use")
	b.ready("Buy now")
	b.press("buy")
	b.orderIs("confirmed")
	b.says("message", "Your session has expired")
	b.await("no orders of a buyer that is signed out", `document.getElementById("order").hidden`)
	b.press("buy")
	b.fill("token", s.token("joe", time.Hour))
	b.press("use")
	b.orderIs("confirmed")
	b.clean()
}

// With the colors of a contrast theme, the bar of the units left is still visible.
func forcedColors(t *testing.T, s *shop) {
	s.createSale("contrast", "The shoe", 10, time.Now().Add(-time.Second))
	b := open(t, newPerson(t), s.page("contrast", "tom"))
	b.ready("Buy now")
	b.do(emulation.SetEmulatedMedia().
		WithFeatures([]*emulation.MediaFeature{{Name: "forced-colors", Value: "active"}}))
	b.await("the colors", `matchMedia("(forced-colors: active)").matches`)
	const background = `getComputedStyle(document.getElementById("bar")).backgroundColor`
	if b.eval(background+` === getComputedStyle(document.body).backgroundColor`) == "true" {
		t.Error("the bar has the color of the page")
	}
	b.clean()
}

// A buyer with a limit of two units buys two and no third, and sees both orders on another device.
func limitAboveOne(t *testing.T, s *shop) {
	s.createSaleFor(2, "pair", "The shoe", 10, time.Now().Add(-time.Second))
	b := open(t, newPerson(t), s.page("pair", "kim"))
	b.ready("Buy now")
	b.says("limit", "Limit: 2 per customer")
	b.press("buy")
	b.orderIs("confirmed")
	b.ready("Buy another")
	b.says("limit", "You have 1 of 2")
	b.press("buy")
	two := `document.querySelectorAll('#orders [data-status="created"]').length === 2`
	b.await("two orders", two)
	full := `document.getElementById("buy").textContent === "Ordered" && document.getElementById("buy").getAttribute("aria-disabled") === "true"`
	b.await("no offer of a third", full)
	b.says("limit", "You have 2 of 2")
	b.reload()
	b.await("two orders after a reload", two+"&&"+full)
	other := open(t, newPerson(t), s.page("pair", "kim"))
	other.await("two orders on another device", two+"&&"+full)
	if n := s.ordered("pair"); n != 2 {
		t.Errorf("%v rows", n)
	}
	b.clean()
	other.clean()
}

// While an order awaits payment, the page leads to the checkout and shows the time left. It shows the payment.
func paidInTheCheckout(t *testing.T, s *shop) {
	s.create("held", map[string]any{"hold": "15m"})
	b := open(t, newPerson(t), s.page("held", "lou"))
	b.ready("Buy now")
	b.press("buy")
	b.orderIs("confirmed")
	id := b.eval(`document.querySelector("#orders .number").textContent`)
	b.await("the way to the checkout", `document.querySelector(".pay").href === `+
		quote("https://shop.example/pay?order="+id+"&sale=held")+` && !document.querySelector(".pay").hidden`)
	b.await("the time left", `/1[45]:\d\d left/.test(document.querySelector(".due").textContent)`)
	b.says("message", "Your item is reserved")
	s.pay(id)
	b.orderIs("paid")
	b.says("message", "Paid. Thank you!")
	b.await("no way to pay again", `document.querySelector(".pay").hidden && document.querySelector(".due").hidden`)
	b.clean()
}

// The page shows that an order has expired, and offers the unit again.
func expiresWhileShown(t *testing.T, s *shop) {
	s.create("brief", map[string]any{"hold": "10s"})
	b := open(t, newPerson(t), s.page("brief", "max"))
	b.ready("Buy now")
	b.press("buy")
	b.await("the way to the checkout", `document.querySelector(".pay")?.hidden === false`)
	b.orderIs("not paid in time")
	b.says("message", "The time to pay has ended")
	b.await("no way to pay", `document.querySelector(".pay").hidden`)
	b.ready("Buy now")
	b.press("buy")
	b.await("a second order", `document.querySelectorAll("#orders li").length === 2`)
	b.await("the time to pay it", `document.querySelector(".pay").hidden === false`)
	b.clean()
}

// A hidden page requests no orders, also when its timers fire and its order is paid. It requests them when it is shown.
func hiddenPageSendsNothing(t *testing.T, s *shop) {
	const orders = "GET /v1/me/orders?sale=hidden"
	s.create("hidden", map[string]any{"hold": "15m"})
	b := openWith(t, newPerson(t), s.page("hidden", "pam"), `
const timers = [];
window.setTimeout = (run) => timers.push(run);
window.clearTimeout = (timer) => { delete timers[timer - 1]; };
function fireTimers() { timers.splice(0, timers.length, ...timers.map(() => undefined)).forEach((run) => run?.()); }
let hidden = false;
Object.defineProperty(document, "hidden", { get: () => hidden });
function hide(on) { hidden = on; document.dispatchEvent(new Event("visibilitychange")); }`)
	b.ready("Buy now")
	b.press("buy")
	b.await("the order", `fireTimers() || document.querySelector(".pay")?.hidden === false`)
	id := b.eval(`document.querySelector("#orders .number").textContent`)
	b.eval(`hide(true)`)
	before := b.count(orders)
	s.pay(id)
	b.eval(`fireTimers()`)
	b.eval(`void fetch("/healthz")`)
	s.settled(func() bool { return b.count("GET /healthz") == 1 }, "the last request of the hidden page")
	if n := b.count(orders) - before; n != 0 {
		t.Errorf("the hidden page requested its orders %d times", n)
	}
	b.eval(`hide(false)`)
	b.orderIs("paid")
	b.clean()
}

// The page uses the browser's language, and the other one on request.
func chinese(t *testing.T, s *shop) {
	s.createSale("xie", "鞋", 10, time.Now().Add(-time.Second))
	b := open(t, newPerson(t), s.base+"/s/xie?lang=zh#token="+s.token("ida", time.Hour))
	b.ready("立即购买")
	b.press("buy")
	b.orderIs("已确认")
	if lang := b.eval(`document.documentElement.lang`); lang != "zh" {
		t.Errorf("lang is %q", lang)
	}
	b.clean()
}

// A browser that denies storage, for example because its user blocks all cookies, shows the page and buys.
func storageDenied(t *testing.T, s *shop) {
	s.create("denied", nil)
	b := openWith(t, newPerson(t), s.page("denied", "amy"), `
for (const store of ["localStorage", "sessionStorage"]) {
	Object.defineProperty(window, store, { get() { throw new DOMException("denied", "SecurityError"); } });
}`)
	b.ready("Buy now")
	b.press("buy")
	b.orderIs("confirmed")
	b.clean()
}

// A token in the address of a page that is open signs in, as in the address of a new page: an embedding site changes
// the address of its frame after the sign-in. The token leaves the address.
func tokenForAnOpenPage(t *testing.T, s *shop) {
	s.create("linked", nil)
	b := open(t, newPerson(t), s.base+"/s/linked")
	b.ready("Sign in to buy")
	for _, buyer := range []string{"ada", "ben"} {
		b.eval(`location.hash = ` + quote("#token="+s.token(buyer, time.Hour)))
		b.says("name", buyer)
		b.ready("Buy now")
		if at := b.eval(`location.href`); at != s.base+"/s/linked" {
			t.Errorf("the token stays in the address: %s", at)
		}
	}
	b.press("buy")
	b.orderIs("confirmed")
	b.eval(`location.hash = "#top"`)
	b.await("another fragment", `location.hash === "#top"`)
	b.says("name", "ben")
	b.clean()
}

// The sign-in page of the shop returns the buyer to the page in the language that the buyer has chosen.
func signInKeepsTheLanguage(t *testing.T, s *shop) {
	s.create("words", nil)
	b := open(t, newPerson(t), s.base+"/s/words?lang=zh")
	b.ready("登录后购买")
	b.eval(`(() => {
		document.getElementById("sale").dataset.signIn = "https://shop.example/login?back={url}";
		window.open = (url) => { window.opened = url; };
	})()`)
	b.press("buy")
	want := "https://shop.example/login?back=" + url.QueryEscape(s.base+"/s/words?lang=zh")
	if opened := b.eval(`window.opened`); opened != want {
		t.Errorf("the page leads to %s, want %s", opened, want)
	}
	b.clean()
}
