package browser

import (
	"fmt"
	"testing"
	"time"

	"sluice/internal/token"
)

// scenarios are what buyers live through, on either edge. Each has a sale and buyers of its own.
var scenarios = []struct {
	name string
	run  func(*testing.T, *shop)
}{
	{"FromCountdownToCreated", fromCountdownToCreated},
	{"SoldOutSeenLive", soldOutSeenLive},
	{"DoubleClickBuysOnce", doubleClickBuysOnce},
	{"ReloadGoesOn", reloadGoesOn},
	{"OfflineAndBack", offlineAndBack},
	{"LimitedCountsDown", limitedCountsDown},
	{"TitlesAreText", titlesAreText},
	{"WrongClock", wrongClock},
	{"TokenRunsOut", tokenRunsOut},
	{"Chinese", chinese},
}

// Each edge is the way in for one shop, and everything happens in it.
func TestSalePage(t *testing.T) {
	for edge, open := range edges {
		t.Run(edge, func(t *testing.T) {
			s := open(t)
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
	s.createSale("drop", "The drop", 3, time.Now().Add(6*time.Second))
	b := open(t, newPerson(t), s.page("drop", "ann"))
	b.await("a countdown", `!document.getElementById("countdown").hidden`)
	b.says("buy", "Not open yet")
	b.await(
		"the opening time in the reader's time zone",
		`(() => { const at = document.getElementById("at"); return at.textContent.includes(String(new Date(at.dateTime).getFullYear())) && !at.textContent.includes("-"); })()`,
	)
	b.ready("Buy now")
	b.press("buy")
	b.says("order-status", "confirmed")
	b.says("message", "Your order is confirmed")
	if n := s.ordered("drop"); n != 1 {
		t.Errorf("%v rows", n)
	}
	if hash := b.eval(`location.href`); hash != s.base+"/s/drop" {
		t.Errorf("the token stays in the address: %s", hash)
	}
	b.clean()
}

// A second buyer sees live how the last unit goes, and how it comes back.
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
	b.says("order-status", "confirmed")
	b.clean()
}

// However often and wherever a buyer clicks, one unit is bought.
func doubleClickBuysOnce(t *testing.T, s *shop) {
	s.createSale("twice", "The shoe", 10, time.Now().Add(-time.Second))
	ann := newPerson(t)
	first, second := open(t, ann, s.page("twice", "cat")), open(t, ann, s.page("twice", "cat"))
	first.ready("Buy now")
	second.ready("Buy now")
	first.eval(`(() => { const b = document.getElementById("buy"); b.click(); b.click(); b.click(); })()`)
	second.eval(`document.getElementById("buy").click()`)
	first.says("order-status", "confirmed")
	second.says("order-status", "confirmed")
	if n := first.count("POST /v1/sales/twice/orders"); n != 1 {
		t.Errorf("three clicks made %d requests", n)
	}
	if a, b := first.eval(
		`document.getElementById("order-id").textContent`,
	), second.eval(
		`document.getElementById("order-id").textContent`,
	); a != b {
		t.Errorf("two tabs have two orders: %s and %s", a, b)
	}
	if n := s.ordered("twice"); n != 1 {
		t.Errorf("%v rows", n)
	}
	first.clean()
	second.clean()
}

// A page that is reloaded during a purchase continues it; one that is loaded later shows the order.
func reloadGoesOn(t *testing.T, s *shop) {
	s.createSaleFor(2, "again", "The shoe", 10, time.Now().Add(-time.Second)) // a second key would buy a second one
	b := open(t, newPerson(t), s.page("again", "dan"))
	b.ready("Buy now")
	b.lose(true) // the answer never comes
	b.press("buy")
	b.await(
		"a purchase in progress",
		`["One moment…"].includes(document.getElementById("buy").textContent) || document.getElementById("buy").textContent.startsWith("Retrying")`,
	)
	b.lose(false)
	b.reload()
	b.says("order-status", "confirmed")
	id := b.eval(`document.getElementById("order-id").textContent`)
	b.reload()
	b.says("order-status", "confirmed")
	if again := b.eval(`document.getElementById("order-id").textContent`); again != id {
		t.Errorf("after a reload the order is %s, it was %s", again, id)
	}
	if n := s.ordered("again"); n != 1 {
		t.Errorf("%v rows", n)
	}
	b.clean()
}

// Without a connection the page shows that, and continues automatically when it is back.
func offlineAndBack(t *testing.T, s *shop) {
	s.createSale("line", "The shoe", 10, time.Now().Add(-time.Second))
	b := open(t, newPerson(t), s.page("line", "eve"))
	b.ready("Buy now")
	b.offline(true)
	b.press("buy")
	b.says("message", "You're offline")
	b.offline(false)
	b.says("order-status", "confirmed")
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
	b.says("order-status", "confirmed")
	b.clean()
}

// What a shop calls its sale is shown as it is, and does nothing else.
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
			t.Errorf("the title %q runs", title)
		}
		b.clean()
	}
}

// A browser with a clock that is an hour wrong opens the sale when the shop does.
func wrongClock(t *testing.T, s *shop) {
	s.createSale("clock", "The drop", 3, time.Now().Add(5*time.Second))
	for _, hours := range []int{-1, 1} {
		b := openAt(t, newPerson(t), s.page("clock", fmt.Sprint("jon", hours)), time.Duration(hours)*time.Hour)
		b.ready("Buy now")
		b.press("buy")
		b.says("order-status", "confirmed")
		b.clean()
	}
}

// A rejected token is explained to the buyer, and a new one continues where the old one ended. In this test its key
// was changed; an expired token looks the same to the page.
func tokenRunsOut(t *testing.T, s *shop) {
	s.createSale("token", "The shoe", 10, time.Now().Add(-time.Second))
	old, err := token.NewKey("a key of before, of at least thirty-two bytes")
	if err != nil {
		t.Fatal(err)
	}
	stale, err := old.Sign("hal", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, newPerson(t), s.base+"/s/token#token="+stale)
	b.ready("Buy now")
	b.press("buy")
	b.says("message", "Your session has expired")
	b.ready("Sign in to buy")
	b.press("buy")
	b.fill("token", s.token("hal", -time.Hour))
	b.press("use")
	b.says("message", "has expired")
	b.fill("token", s.token("hal", time.Hour))
	b.press("use")
	b.says("order-status", "confirmed") // the purchase continues
	b.clean()
}

// The page uses the browser's language, and the other one on request.
func chinese(t *testing.T, s *shop) {
	s.createSale("xie", "鞋", 10, time.Now().Add(-time.Second))
	b := open(t, newPerson(t), s.base+"/s/xie?lang=zh#token="+s.token("ida", time.Hour))
	b.ready("立即购买")
	b.press("buy")
	b.says("order-status", "已确认")
	if lang := b.eval(`document.documentElement.lang`); lang != "zh" {
		t.Errorf("lang is %q", lang)
	}
	b.clean()
}
