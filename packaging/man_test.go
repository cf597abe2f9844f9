package main

import (
	"strings"
	"testing"
	"time"
)

func TestManPages(t *testing.T) {
	pages := manPages("# Commands\n\n## sluice\n\nsluice sells. It is exact.\n\n## sluice sale\n\nManage sales.\n\n"+
		"## sluice sale list\n\nList sales.\n\n| Flag | Default | What |\n| --- | --- | --- |\n"+
		"| `--json` |  | print a \\| b |\n| `--state string` | `open` | state |\n\n## Exit codes\n\n"+
		"| Code | When |\n| --- | --- |\n| `0` | success |\n", "1.2.3", time.Unix(0, 0).UTC())
	if len(pages) != 2 {
		t.Fatalf("%d pages", len(pages))
	}
	for name, wants := range map[string][]string{
		"sluice":      {`.TH SLUICE 1 "1970-01-01"`, ".SH EXIT CODES", "success", "sluice-sale", "sluice sells"},
		"sluice-sale": {".SH SLUICE SALE LIST", "print a | b", "(default", "open"},
	} {
		for _, want := range wants {
			if !strings.Contains(string(pages[name]), want) {
				t.Errorf("%s has no %q:\n%s", name, want, pages[name])
			}
		}
	}
}
