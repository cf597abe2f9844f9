package fleetlimit

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// The idle connections of all workers, of which an edge has at most 1024, leave room for those that lease: a connection
// beyond maxConns waits for another one to end, and the worker stops leasing meanwhile.
func TestIdleConnectionsOfAllWorkersFit(t *testing.T) {
	text, err := os.ReadFile("../../lua/edge/sluice/fleet.lua")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`local IDLE, POOL = \d+, (\d+) `).FindSubmatch(text)
	if m == nil {
		t.Fatal("fleet.lua has no POOL")
	}
	if pool, _ := strconv.Atoi(string(m[1])); 1024*pool >= maxConns {
		t.Errorf("1024 workers keep %d connections, and the server accepts %d", 1024*pool, maxConns)
	}
}
