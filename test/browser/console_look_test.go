package browser

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// furnished is a console with data in every view.
func furnished(t *testing.T) *shop {
	s := openConsoleShop(t)
	now := time.Now()
	s.createSale("shoe", "The shoe that everybody wants", 400, now.Add(-time.Minute))
	s.createSale("boot", "The boot, last pairs", 40, now.Add(26*time.Hour))
	s.createSale("xie", "鞋 – autumn", 1000, now.Add(-time.Minute))
	s.createSale("last", "The last pair", 1, now.Add(-time.Minute))
	s.buy("last", "ann")
	for i := range 60 {
		s.buy("shoe", fmt.Sprintf("buyer-%d", i))
	}
	s.untilRefused("eve")
	s.addDeadLetters("shoe", 6)
	s.adminAPI(http.MethodPost, "/sales/xie/pause", map[string]any{})
	s.adminAPI(http.MethodPost, "/sales/shoe/restock", map[string]any{"add": 100})
	s.adminAPI(http.MethodPost, "/webhooks", map[string]any{"url": "https://shop.example/hook", "title": "The shop"})
	return s
}

// consolePages are the views of the console, each with a condition that is true when it is complete.
var consolePages = []struct{ name, path, settled string }{
	{"overview", "", `document.querySelector(".funnel li") && document.querySelector(".chart .line").getAttribute("d")`},
	{"sales", "sales", `document.querySelectorAll("tbody tr").length >= 4`},
	{"sale", "sales/shoe", `document.querySelector(".audit") && document.querySelector("tbody tr")`},
	{"orders", "orders", `document.querySelector("tbody tr[data-key]")`},
	{
		"refunds",
		"refunds?refund=",
		`document.querySelector(".list .note").textContent !== "Loading…"`,
	},
	{"dead", "dead", `document.querySelectorAll("tbody tr[data-key]").length >= 6`},
	{"rehearsals", "rehearsals", `document.querySelectorAll("main .card p, main .card table").length >= 2`},
	{"groups", "groups", `document.querySelector("tbody tr")`},
	{"group", "groups/points", `document.querySelector(".list .note").textContent !== "Loading…"`},
	{"webhooks", "webhooks", `document.querySelector("tbody tr")`},
	{"edge", "edge", `document.querySelector("tbody tr")`},
	{"policy", "edge/policy", `document.querySelector("textarea")`},
	{"log", "log", `document.querySelectorAll("tbody tr").length > 5`},
}

// The pictures of the admin console, written to the directory of -pictures.
func TestPicturesOfTheAdminConsole(t *testing.T) {
	if *pictures == "" {
		t.Skip("-pictures is not set")
	}
	s := furnished(t)
	for _, l := range looks {
		who := newPerson(t)
		b := open(t, who, s.admin+"/admin/")
		b.look(l.scheme, l.width, l.height)
		b.await("the sign-in form", `document.querySelector("input[name=token]")`)
		b.draw("admin-sign-in-" + l.name)
		b = s.atConsole(t, who, "ann", "log")
		b.look(l.scheme, l.width, l.height)
		for _, p := range consolePages {
			b.visit(s.admin + "/admin/" + p.path)
			b.await(p.name, p.settled)
			b.draw("admin-" + p.name + "-" + l.name)
		}
		b.visit(s.admin + "/admin/dead")
		b.await("letters", `document.querySelector("tbody tr[data-key]")`)
		b.click(`document.querySelector("tbody button.link")`)
		b.click(`document.querySelector("thead input")`)
		b.click(`[...document.querySelectorAll("main > .acts button")].find((b) => b.textContent === "Cancel")`)
		b.await("the dialog", `document.querySelector("dialog[open]")`)
		b.draw("admin-confirm-" + l.name)
	}
}

// The admin console has no accessibility barrier.
func TestAccessibleAdminConsole(t *testing.T) {
	if *axe == "" {
		t.Skip("-axe is not set: see `make accessible`")
	}
	source, err := os.ReadFile(*axe)
	if err != nil {
		t.Fatal(err)
	}
	s := furnished(t)
	for _, l := range looks {
		who := newPerson(t)
		check := func(name string, b *tab) {
			for _, f := range b.barriers(string(source)) {
				var where []string
				for _, n := range f.Nodes {
					where = append(where, n.HTML)
				}
				report := fmt.Sprintf("%s, %s: %s (%s): %s: %.600s", name, l.name, f.ID, f.Impact, f.Help, strings.Join(where, " "))
				if f.Impact == "serious" || f.Impact == "critical" {
					t.Error(report)
				} else {
					t.Log(report)
				}
			}
		}
		b := open(t, who, s.admin+"/admin/")
		b.look(l.scheme, l.width, l.height)
		b.await("the sign-in form", `document.querySelector("input[name=token]")`)
		check("sign-in", b)
		b = s.atConsole(t, who, "ann", "log")
		b.look(l.scheme, l.width, l.height)
		for _, p := range consolePages {
			b.visit(s.admin + "/admin/" + p.path)
			b.await(p.name, p.settled)
			if wide := b.eval(`document.documentElement.scrollWidth > document.documentElement.clientWidth`); wide != "false" {
				t.Errorf("%s, %s: the page is wider than the window", p.name, l.name)
			}
			check(p.name, b)
		}
		b.visit(s.admin + "/admin/sales")
		b.text("New sale")
		b.await("the dialog", `document.querySelector("dialog[open]")`)
		check("a dialog", b)
	}
}
