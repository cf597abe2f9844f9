package main

import (
	"bytes"
	"strings"
	"testing"
)

// Commands read .sluice by default: with another data directory, sluice up prints the flag and the variable for them.
func TestWelcomeNamesADataDirectoryThatIsNotTheDefault(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		".sluice": "  data         .sluice\n",
		"other":   "  data         other      commands find it with --data other or SLUICE_DATA=other\n",
	} {
		var out bytes.Buffer
		p := program{out: &out, getenv: func(string) string { return "" }}
		flags := upFlags{data: data}
		flags.secret = strings.Repeat("k", 32)
		if err := p.printWelcome(flags, server{}, ownStores{}); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("--data %s: %v, want the line %q in\n%s", data, err, want, out.String())
		}
	}
}
