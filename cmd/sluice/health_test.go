package main

import (
	"fmt"
	"strings"
	"testing"

	"sluice/test/testenv"
)

// Beside a watcher the environment has a Redis and no database; only what it names is checked.
func TestHealthChecksWhatTheEnvironmentNames(t *testing.T) {
	address := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
	for name, c := range map[string]struct{ value, begins string }{
		envRedis:    {"redis://" + address, "sluice: not ready: Redis: dial tcp " + address + ": connect: connection refused\n"},
		envDatabase: {"postgres://sluice@" + address + "/sluice", "sluice: store: probe: temporarily unavailable: "},
	} {
		_, stderr, code := sluice(t, map[string]string{envData: t.TempDir(), name: c.value}, "health")
		if code != exitFail || !strings.HasPrefix(stderr, c.begins) || strings.Contains(stderr, ";") {
			t.Errorf("%s: exit %d, %q, want %q", name, code, stderr, c.begins)
		}
	}
}
