package browser

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

var axe = flag.String("axe", "", "axe.min.js of axe-core")

// finding is one barrier that axe-core has found.
type finding struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML string }
}

// barriers runs axe-core in the page. The debugger injects it, because the page's own policy forbids foreign scripts.
func (b *tab) barriers(source string) []finding {
	b.t.Helper()
	b.await("the end of all transitions", `document.getAnimations().length === 0`) // of colors, for example
	var found string
	b.do(chromedp.Evaluate(source, nil),
		chromedp.Evaluate(`axe.run().then((r) => JSON.stringify(r.violations))`, &found, awaited))
	var list []finding
	if err := json.Unmarshal([]byte(found), &list); err != nil {
		b.t.Fatalf("axe returned %q: %v", found, err)
	}
	return list
}

// No page has an accessibility barrier in any state, theme or width.
func TestAccessible(t *testing.T) {
	if *axe == "" {
		t.Skip("-axe is not set: see `make accessible`")
	}
	source, err := os.ReadFile(*axe)
	if err != nil {
		t.Fatal(err)
	}
	s := openUp(t)
	s.createSale("soon", "The shoe", 10, time.Now().Add(time.Hour))
	s.createSale("gone", "The boot", 1, time.Now().Add(-time.Minute))
	s.buy("gone", "somebody")
	s.createSale("open", "The sock", 100, time.Now().Add(-time.Minute))
	for _, l := range looks {
		for _, c := range []struct{ name, url, settled string }{
			{"the list", s.base + "/", `true`},
			{"waiting", s.page("soon", "ann"), `!document.getElementById("countdown").hidden`},
			{"sold out", s.page("gone", "ann"), `document.getElementById("buy").textContent === "Sold out"`},
			{
				"bought", s.page("open", "ann-"+l.name),
				`document.getElementById("buy").click() || document.querySelector("#orders .badge")?.textContent === "confirmed"`,
			},
			{
				"sign-in", s.base + "/s/open",
				`document.getElementById("buy").click() || !document.getElementById("signin").hidden`,
			},
			{"Chinese", s.base + "/s/open?lang=zh", `document.getElementById("buy").ariaDisabled === "false"`},
			{"none", s.base + "/s/none", `true`},
		} {
			b := open(t, newPerson(t), c.url)
			b.look(l.scheme, l.width, l.height)
			b.await(c.name, c.settled)
			found := b.barriers(string(source))
			for _, f := range found {
				var where []string
				for _, n := range f.Nodes {
					where = append(where, n.HTML)
				}
				report := fmt.Sprintf("%s, %s: %s (%s): %s: %s", c.name, l.name, f.ID, f.Impact, f.Help, strings.Join(where, " "))
				if f.Impact == "serious" || f.Impact == "critical" {
					t.Error(report)
				} else {
					t.Log(report)
				}
			}
			t.Logf("%s, %s: %d findings", c.name, l.name, len(found))
		}
	}
}
