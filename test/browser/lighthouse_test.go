package browser

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

var lighthouse = flag.String("lighthouse", "", "lighthouse program")

// leastScore is the lowest accepted score of Lighthouse in any category.
const leastScore = 0.95

// Lighthouse gives the pages for buyers a high score in each category, on a phone and on a desktop.
func TestLighthouse(t *testing.T) {
	if *lighthouse == "" {
		t.Skip("-lighthouse is not set: see `make lighthouse`")
	}
	s := openUp(t)
	s.create("shoe", map[string]any{
		"hold": "15m", "picture": s.base + "/assets/icon.000000000000.svg",
		"description": "## Fit\n\nRuns **small**, see [the sizes of the shop](https://shop.example/sizes).\n\n- red\n- blue",
	})
	s.createSale("soon", "The boot", 10, time.Now().Add(time.Hour))
	if code := s.buy("shoe", "ann"); code != 202 {
		t.Fatalf("ann got %d", code)
	}
	for _, page := range []struct{ name, url string }{
		{"a sale", s.base + "/s/shoe"}, {"a sale with an order to pay", s.page("shoe", "ann")},
		{"a countdown", s.base + "/s/soon"}, {"Chinese", s.base + "/s/shoe?lang=zh"}, {"all sales", s.base + "/"},
	} {
		for _, form := range []string{"mobile", "desktop"} {
			low := score(t, page.url, form)
			for tries := 1; len(low) > 0 && tries < 3; tries++ { // the performance depends on the load of the machine
				t.Logf("%s, %s: repeated because of %v", page.name, form, low)
				low = score(t, page.url, form)
			}
			if len(low) > 0 {
				t.Errorf("%s, %s: %v", page.name, form, low)
			}
		}
	}
}

// score runs Lighthouse once. It returns the audits that a page has not passed if a category is below leastScore.
func score(t *testing.T, url, form string) (low []string) {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.json")
	args := []string{
		url, "--quiet", "--output=json", "--output-path=" + report, "--chrome-flags=--headless=new --no-sandbox",
	}
	if form == "desktop" {
		args = append(args, "--preset=desktop")
	}
	cmd := exec.CommandContext(t.Context(), *lighthouse, args...)
	cmd.Env = append(os.Environ(), "CHROME_PATH="+chrome(t))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", url, err, out)
	}
	var r struct {
		Categories map[string]struct{ Score float64 }
		Audits     map[string]struct{ Score *float64 }
	}
	text, err := os.ReadFile(report)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil || len(r.Categories) < 4 {
		t.Fatalf("%s: the report has the categories %v (%v)", url, r.Categories, err)
	}
	enough := true
	for name, c := range r.Categories {
		t.Logf("%.60s, %s: %s %.0f", url, form, name, c.Score*100)
		enough = enough && c.Score >= leastScore
	}
	if enough {
		return nil
	}
	for id, a := range r.Audits {
		if a.Score != nil && *a.Score < 0.9 {
			low = append(low, id)
		}
	}
	return append(low, "a category below its least score")
}
