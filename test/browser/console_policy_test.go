package browser

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// A policy is checked, compared with the current one, and replayed with an access log. Errors name their line.
func consolePolicy(t *testing.T, s *shop) {
	log := filepath.Join(t.TempDir(), "access.log")
	line := `10.0.0.1 - - [27/Nov/2026:10:00:00 +0000] "GET /v1/sales HTTP/1.1" 200 12 "-" "-"` + "\n"
	if err := os.WriteFile(log, []byte(strings.Repeat(line, 30_000)),
		0o600); err != nil { // larger than the limit of an API request
		t.Fatal(err)
	}
	const rule = `return { rules = { { name = "all", key = "ip", rate = "%", burst = 5 } } }`
	b := s.atConsole(t, newPerson(t), "ann", "edge")
	b.click(`document.querySelector('a[href="/admin/edge/policy"]')`)
	b.await("the page", `document.querySelector("textarea[name=policy]")`)
	b.enter("policy", "return {\n rules = { { name = 7 } } }")
	b.text("Check")
	b.shows("Line 2: ")
	b.text("Replay")
	b.shows("Choose an access log first.")
	b.enter("policy", strings.Replace(rule, "%", "2r/s", 1))
	b.text("Check")
	b.shows("✓ Valid: 1 rule.")
	b.enter("against", strings.Replace(rule, "%", "20r/s", 1))
	b.await("no result of other texts", `!document.querySelector("main").textContent.includes("✓ Valid")`)
	b.text("Check")
	b.shows("rate 20r/s → 2r/s")
	b.do(chromedp.SetUploadFiles(`input[name=log]`, []string{log}, chromedp.ByQuery))
	b.text("Replay")
	b.shows("30,000 requests from 27 Nov 2026")
	b.shows("New policy: 29,99")
	b.shows("ip 10.0.0.1")
	b.enter("policy", "while true do end")
	b.text("Replay")
	b.shows(`unexpected "while"`)
	b.shows("Correct the policy first.")
	b.clean()
}
