package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"sluice/internal/rehearsal"
)

func TestRehearsalViewOverwritesItsLines(t *testing.T) {
	p := rehearsal.Progress{
		At:       1500 * time.Millisecond,
		Actors:   50,
		Of:       100,
		Requests: 40,
		Groups:   [4]int64{10, 20, 10, 0},
		Left:     5,
		Queued:   -1,
		Step:     "shoppers arrive",
	}
	for name, v := range map[string]*rehearsalView{
		"plain": {}, "live": {to: status{terminal: true}}, "in colour": {to: status{terminal: true}, colour: true},
	} {
		var out bytes.Buffer
		v.to.w = &out
		v.show(p)
		once := out.Len()
		first := out.String()
		v.show(p)
		switch again := out.String()[once:]; name {
		case "plain":
			if strings.Contains(first, "\x1b") || strings.Count(first, "\n") != 1 || again != "" {
				t.Errorf("%s: %q, then immediately %q", name, first, again)
			}
		default:
			const up = "\r\x1b[6A\x1b[J"
			if strings.Contains(first, up) || !strings.HasPrefix(again, up) || strings.Count(first, "\n") != 6 {
				t.Errorf("%s: %q, then %q", name, first, again)
			}
			if !strings.Contains(first, "\x1b[?7l") || !strings.HasSuffix(first, "\x1b[?7h") {
				t.Errorf("%s: a narrow terminal wraps %q", name, first)
			}
		}
		if coloured := strings.Contains(first, "\x1b[32m"); coloured != v.colour {
			t.Errorf("%s: %q", name, first)
		}
		for _, want := range []string{"shoppers arrive", "+1.5s", "50 of 100", "5 left", "? queued"} {
			if !strings.Contains(first, want) {
				t.Errorf("%s does not contain %q: %q", name, want, first)
			}
		}
	}
	if got := bar(1, 0) + bar(3, 3); strings.Count(got, "█") != 30 {
		t.Error(got)
	}
}
