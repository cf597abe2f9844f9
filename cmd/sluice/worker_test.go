package main

import (
	"io"
	"strings"
	"testing"
)

// A lease out of bounds is rejected before the worker opens a store.
func TestWorkerRefusesALeaseOutOfBounds(t *testing.T) {
	for lease, ok := range map[string]bool{
		"0s": false, "-1s": false, "999999999ns": false, "1s": true, "1h": true, "1h0m0.000000001s": false,
	} {
		p := &program{getenv: func(string) string { return "" }, out: io.Discard, errOut: io.Discard}
		c := p.workerCommand()
		flags := []string{"--redis=redis://127.0.0.1:1/0", "--database=sqlite:x", "--lease=" + lease}
		if err := c.ParseFlags(flags); err != nil {
			t.Fatal(err)
		}
		if err := c.PreRunE(c, nil); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "--lease") {
			t.Errorf("--lease %s: %v", lease, err)
		}
	}
}
