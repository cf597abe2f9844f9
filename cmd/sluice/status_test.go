package main

import (
	"bytes"
	"testing"
)

// On a terminal, the progress is one line, which is overwritten and finally cleared. Elsewhere, each change is a line.
func TestStatus(t *testing.T) {
	for _, c := range []struct {
		terminal bool
		want     string
	}{{true, "\r\x1b[J\x1b[?7la \x1b[?7h\r\x1b[J\x1b[?7lb \x1b[?7h\r\x1b[J"}, {false, "a\nb\n"}} {
		var out bytes.Buffer
		s := &status{w: &out, terminal: c.terminal}
		for _, line := range []string{"a", "a", "b"} {
			s.show(line)
		}
		s.done()
		s.done()
		if out.String() != c.want {
			t.Errorf("terminal %v: %q, want %q", c.terminal, out.String(), c.want)
		}
	}
}
