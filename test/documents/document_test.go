package documents

import (
	"reflect"
	"testing"
)

func TestReadReturnsLinksAnchorsAndCode(t *testing.T) {
	d := Read("x.md", []byte("# One, `two` and [three](there.md)\n\n"+
		"See [this](a.md#b \"title\"), ![p](p.png) and `sluice up [not](a-link.md)`.\n"+
		"<img src=\"q.svg\"><source srcset=\"r.png\">\n"+
		"```sh\n# no heading\nsluice up \\\n  --verbose\n[no](link.md)\n```\n```text\nsluice is up\n```\n"+
		"## 中文标题：一\n## Twice\n## Twice\n"))
	for name, pair := range map[string][2]any{
		"anchors": {d.Anchors, map[string]bool{
			"one-two-and-three": true, "中文标题一": true, "twice": true, "twice-1": true,
		}},
		"links": {d.Links, []Text{{1, "there.md"}, {3, "a.md#b"}, {3, "p.png"}, {4, "q.svg"}, {4, "r.png"}}},
		"code":  {d.Code, []Text{{6, "# no heading"}, {7, "sluice up --verbose"}, {9, "[no](link.md)"}}},
		"spans": {d.Spans, []Text{{1, "two"}, {3, "sluice up [not](a-link.md)"}}},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s: got %v, want %v", name, pair[0], pair[1])
		}
	}
}

func TestCallsParsesShellLines(t *testing.T) {
	for line, want := range map[string][][]string{
		`sluice up`: {{"up"}},
		`A=b sluice sale create --title "The shoe" --stock 5   # a comment`: {
			{"sale", "create", "--title", "The shoe", "--stock", "5"},
		},
		`go run ./cmd/sluice up --policy x.lua     # one terminal`:            {{"up", "--policy", "x.lua"}},
		`$ bin/sluice token --user 'a b' > token && sluice up 2>log &`:        {{"token", "--user", "a b"}, {"up"}},
		`curl -H "Authorization: Bearer $(sluice token --user ann)" http://x`: {{"token", "--user", "ann"}},
		`sluice edge -t      # check the configuration`:                       {{"edge", "-t"}},
		`for i in 1 2; do sluice health | grep -c x; done`:                    {{"health"}},
		`echo sluice; # sluice up`:                                            nil,
		`make up`:                                                             nil,
	} {
		if got := Calls("sluice", line); !reflect.DeepEqual(got, want) {
			t.Errorf("Calls(%q): got %q, want %q", line, got, want)
		}
	}
}
