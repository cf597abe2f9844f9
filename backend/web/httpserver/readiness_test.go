package httpserver

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestReadinessRunsChecksOncePerInterval(t *testing.T) {
	probes := 0
	r := &readiness{checks: []Check{
		{Name: "redis", Probe: func(context.Context) error { probes++; return errors.New("refused") }},
	}}
	now := time.Unix(100, 0)
	for range 5 {
		if failing, _ := r.check(now); len(failing) != 1 {
			t.Fatalf("failing checks: %v", failing)
		}
	}
	if probes != 1 {
		t.Errorf("%d probes, want 1", probes)
	}
	r.check(now.Add(checkInterval))
	if probes != 2 {
		t.Errorf("%d probes after %v, want 2", probes, checkInterval)
	}
}
