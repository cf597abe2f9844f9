package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// slog would write durations to JSON as numbers of nanoseconds, without a unit.
func TestJSONLogWritesDurationsWithTheirUnit(t *testing.T) {
	var out bytes.Buffer
	p := &program{errOut: &out, getenv: func(string) string { return "" }}
	p.logger().With("base", time.Second).Info("retrying", "wait", 1500*time.Millisecond)
	if line := out.String(); !strings.Contains(line, `"base":"1s"`) || !strings.Contains(line, `"wait":"1.5s"`) {
		t.Errorf("got %s", line)
	}
}
