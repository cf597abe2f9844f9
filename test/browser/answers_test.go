package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// answering replaces the answers to a page's purchases by window.answers, and repeats the last of them. Order events
// come only from polling, and there are no events of the sale.
const answering = `
window.answers = %s;
window.keys = [];
const problem = (status, body, header) => new Response(typeof body === "string" ? body : JSON.stringify(body), { status, headers: { "Content-Type": "application/problem+json", ...header } });
window.EventSource = class extends EventTarget { close() {} };
window.fetch = async (path, init = {}) => {
  if (init.method === "POST") {
    keys.push(init.headers["Idempotency-Key"]);
    return problem(...(answers.length > 1 ? answers.shift() : answers[0]));
  }
  if (path.endsWith("/events")) return problem(503, {});
  if (path.startsWith("/v1/me/orders")) return problem(200, { orders: keys.length ? [{ order_id: "7", status: "created" }] : [] });
  return new Promise(() => {});
};`

// Every answer to a purchase has a plain text and a way to continue.
func TestEveryAnswerHasAText(t *testing.T) {
	s := openUp(t)
	s.createSale("answers", "The shoe", 10, time.Now().Add(-time.Second))
	opens := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, c := range []struct {
		name, answers, id, shows string
		then                     string // becomes true
	}{
		{
			"sold out", `[[409, {code: "sold-out"}]]`, "message", "Sold out. If more become available",
			`document.getElementById("left").textContent.startsWith("0 of")`,
		},
		{
			"already bought", `[[409, {code: "already-bought", order_id: "7"}]]`, "orders", "confirmed",
			`document.querySelector("#orders .number").textContent === "7"`,
		},
		{
			"not open", `[[409, {code: "sale-not-open", opens_at: "` + opens + `"}]]`, "message",
			"You can buy here as soon as the sale opens", `!document.getElementById("countdown").hidden`,
		},
		{
			"closed", `[[409, {code: "sale-closed"}]]`, "message", "This sale has ended",
			`document.getElementById("buy").textContent === "Closed"`,
		},
		{
			"paused", `[[409, {code: "sale-paused"}]]`, "message", "The sale is paused",
			`document.getElementById("buy").textContent === "Paused"`,
		},
		{"key of another request", `[[422, {code: "idempotency-key-reused"}], [202, {order_id: "7"}]]`, "message", "We couldn't reach the shop",
			`document.querySelector("#orders .number")?.textContent === "7" && keys[0] !== keys[1] || (document.getElementById("buy").textContent === "Buy now" && document.getElementById("buy").click())`},
		{
			"not understood", `[[400, {code: "bad-request", detail: "no such thing"}]]`, "message",
			"Something went wrong: no such thing", `document.getElementById("buy").textContent === "Buy now"`,
		},
		{"busy", `[[503, {code: "temporarily-unavailable"}, {"Retry-After": "3"}], [202, {order_id: "7"}]]`, "message", "very busy. We'll retry in 3 s.",
			`document.querySelector("#orders .number").textContent === "7" && keys.length === 2 && keys[0] === keys[1]`},
		{
			"an error page of a proxy", `[[502, "<html>"], [202, {order_id: "7"}]]`, "message", "very busy",
			`document.querySelector("#orders .number").textContent === "7"`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := openWith(t, newPerson(t), s.page("answers", "kay"), fmt.Sprintf(answering, c.answers))
			b.ready("Buy now")
			b.record(c.id)
			b.press("buy")
			b.showed(c.id, c.shows)
			b.await("what follows", c.then)
			b.clean()
		})
	}
}

// Without event streams the page polls for the sale's units and the order's status. The stream is rejected only after
// the page has its first answer, after which it expects events.
func TestPageWithoutStreamsPolls(t *testing.T) {
	s := openUp(t)
	s.createSale("asked", "The shoe", 2, time.Now().Add(-time.Second))
	b := openWith(t, newPerson(t), s.page("asked", "lea"), `
let had;
const answered = new Promise((done) => { had = done; });
window.EventSource = class extends EventTarget {
	constructor() { super(); this.readyState = 2; answered.then(() => setTimeout(() => this.dispatchEvent(new Event("error")), 100)); }
	close() {}
};
EventSource.CLOSED = 2;
const real = window.fetch;
window.fetch = async (path, init) => {
	if (path.endsWith("/events")) return new Response("", { status: 503 });
	const answer = await real(path, init);
	had();
	return answer;
};`)
	b.ready("Buy now")
	if code := s.buy("asked", "kim"); code != 202 {
		t.Fatalf("kim got %d", code)
	}
	b.says("left", "1 of 2 left")
	b.press("buy")
	b.orderIs("confirmed")
	b.says("left", "0 of 2 left")
	b.clean()
}

// refusing answers the page's purchases with "sold out" while window.refuse is set. There are no events of the sale.
const refusing = `
window.EventSource = class extends EventTarget { close() {} };
const real = window.fetch;
window.fetch = async (path, init = {}) => {
	if (init.method === "POST" && window.refuse) return new Response('{"code":"sold-out"}', { status: 409 });
	const answer = await real(path, init);
	if (/^.v1.sales.[a-z]+$/.test(path)) window.polled = true;
	return answer;
};`

// A refusal may be older than the last event, because an edge repeats it for a second: the sale has sold out and a unit
// has been returned. No further event comes, so the page requests the state.
func TestOldRefusalIsCorrected(t *testing.T) {
	s := openUp(t)
	s.create("older", nil)
	b := openWith(t, newPerson(t), s.page("older", "liv"), refusing)
	b.ready("Buy now")
	b.await("the first answer", `window.polled`)
	b.eval(`window.refuse = true`)
	b.record("message")
	b.press("buy")
	b.showed("message", "Sold out")
	b.eval(`window.refuse = false`)
	b.ready("Buy now")
	b.await("no refusal", `document.getElementById("message").textContent === ""`)
	b.press("buy")
	b.orderIs("confirmed")
	b.clean()
}

// A buyer with an expired order is refused like other buyers: the text disappears when the sale is open again.
func TestRefusalAfterAnExpiredOrder(t *testing.T) {
	s := openUp(t)
	s.create("after", map[string]any{"hold": "2s", "stock": 1})
	b := open(t, newPerson(t), s.page("after", "moe"))
	b.ready("Buy now")
	b.press("buy")
	b.orderIs("not paid in time")
	b.ready("Buy now")
	b.eval(`(() => {
		const real = window.fetch;
		window.fetch = async (path, init = {}) => {
			if (init.method === "POST") await new Promise((done) => { window.send = done; });
			return real(path, init);
		};
	})()`)
	b.press("buy")
	b.await("a purchase that is held back", `window.send`)
	if code := s.buy("after", "kim"); code != 202 {
		t.Fatalf("kim got %d", code)
	}
	b.record("message")
	b.eval(`window.send()`)
	b.showed("message", "Sold out. If more become available")
	b.ready("Buy now") // the hold of the other order has ended
	b.await("no refusal", `document.getElementById("message").textContent === ""`)
	b.clean()
}

// ordering answers the page's purchases with window.purchase and its requests for orders with window.orders. There are
// no events.
const ordering = `
window.orders = %s;
window.purchase = [202, { order_id: "7" }];
const json = (status, body) => new Response(JSON.stringify(body), { status });
window.EventSource = class extends EventTarget { close() {} };
window.fetch = async (path, init = {}) => {
  if (init.method === "POST") {
    if (window.hold) await new Promise((done) => { window.send = done; });
    return json(...purchase);
  }
  if (path.endsWith("/events")) return json(503, {});
  if (!path.startsWith("/v1/me/orders")) return new Promise(() => {});
  return json(200, { orders });
};`

// When the browser's storage is full, a second purchase has a key of its own.
func TestFullStorage(t *testing.T) {
	s := openUp(t)
	s.create("full", map[string]any{"per_buyer": 2})
	b := open(t, newPerson(t), s.page("full", "moe"))
	b.ready("Buy now")
	b.press("buy")
	b.orderIs("confirmed")
	b.ready("Buy another")
	b.eval(`void (Storage.prototype.setItem = () => { throw new DOMException("full", "QuotaExceededError"); })`)
	b.press("buy")
	b.await("two orders", `document.querySelectorAll("#orders li").length === 2`)
	b.clean()
}

// A failure is no longer shown when the sale has another state: the text would contradict the button.
func TestFailureGivesWayToTheStateOfTheSale(t *testing.T) {
	s := openUp(t)
	s.create("failing", map[string]any{"stock": 1})
	b := openWith(t, newPerson(t), s.page("failing", "moe"), `
const real = window.fetch;
window.fetch = async (path, init = {}) => init.method === "POST" ? new Response('{"detail":"why"}', { status: 400 }) : real(path, init);`)
	b.ready("Buy now")
	b.press("buy")
	b.says("message", "Something went wrong: why")
	if code := s.buy("failing", "kim"); code != 202 {
		t.Fatalf("kim got %d", code)
	}
	b.says("message", "Sold out. If more become available")
	b.clean()
}

// A sale that was archived while the page was hidden is not found, and has ended.
func TestArchivedSaleHasEnded(t *testing.T) {
	s := openUp(t)
	s.create("archived", nil)
	b := openWith(t, newPerson(t), s.page("archived", "moe"), `
window.EventSource = class extends EventTarget { close() {} };
const real = window.fetch;
window.fetch = async (path, init = {}) => {
	return window.archived && path === "/v1/sales/archived" ? new Response('{"code":"not-found"}', { status: 404 }) : real(path, init);
};`)
	b.ready("Buy now")
	b.eval(`void (window.archived = true)`)
	b.eval(`void document.dispatchEvent(new Event("visibilitychange"))`)
	b.says("state", "Closed")
	b.says("message", "This sale has ended")
	b.clean()
}

// A purchase can return an order that the page shows already, because its response was lost in another tab. The page
// shows the state of that order.
func TestOrderOfALostResponseIsExplained(t *testing.T) {
	s := openUp(t)
	s.create("lost", nil)
	b := openWith(t, newPerson(t), s.page("lost", "moe"),
		fmt.Sprintf(ordering, `[{ order_id: "7", status: "cancelled", expired: true }]`))
	b.says("message", "the order was cancelled")
	b.ready("Buy now")
	b.press("buy")
	b.says("message", "the order was cancelled")
	b.clean()
}

// A purchase that is refused after an answer about earlier orders has arrived shows the refusal, not those orders.
func TestRefusalStaysWhileEarlierOrdersAreRead(t *testing.T) {
	s := openUp(t)
	s.create("second", map[string]any{"per_buyer": 2})
	b := openWith(t, newPerson(t), s.page("second", "moe"),
		fmt.Sprintf(ordering, `[{ order_id: "7", status: "created" }]`))
	b.ready("Buy another")
	read := func(orders string, rows int) {
		t.Helper()
		b.eval(`void (window.orders = ` + orders + `)`)
		b.eval(`void document.dispatchEvent(new Event("visibilitychange"))`)
		b.await("another row", fmt.Sprint(`document.querySelectorAll("#orders li").length === `, rows))
	}
	b.eval(`(() => { window.hold = true; window.purchase = [409, { code: "sold-out" }]; })()`)
	b.press("buy")
	b.await("a purchase that is held back", `window.send`)
	read(`[{ order_id: "6", status: "cancelled" }, { order_id: "7", status: "created" }]`, 2)
	b.eval(`window.send()`)
	b.says("message", "Sold out")
	read(`[5, 6, 7].map((id) => ({ order_id: String(id), status: id < 7 ? "cancelled" : "created" }))`, 3)
	if shown := b.eval(`document.getElementById("message").textContent`); !strings.HasPrefix(shown, "Sold out") {
		t.Errorf("the page shows %q", shown)
	}
	b.clean()
}

// When the link to the checkout disappears, because the time to pay has ended, its focus moves to the button.
func TestFocusSurvivesTheTimeToPay(t *testing.T) {
	s := openUp(t)
	s.create("focus", nil)
	b := openWith(t, newPerson(t), s.page("focus", "moe"), fmt.Sprintf(ordering,
		`[{ order_id: "7", status: "created", pay_by: new Date(Date.now() + 4000).toISOString() }]`))
	b.await("the page", `document.getElementById("sale")`)
	b.eval(`void (document.getElementById("sale").dataset.checkout = "https://shop.example/pay?order={order}")`)
	b.await("the focus on the link", `(() => {
		const pay = document.querySelector("a.pay:not([hidden])");
		pay?.focus();
		return pay && document.activeElement === pay;
	})()`)
	b.await("the end", `document.querySelector("a.pay").hidden`)
	b.await("the focus on the button", `document.activeElement.id === "buy"`)
	b.clean()
}
