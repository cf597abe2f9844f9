package fleetlimit

import (
	"errors"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

// The idle connections of all workers leave room for those that lease, also during a reload: a connection beyond the
// limit waits for another one to end, and the worker stops leasing meanwhile. Other users of the machine can connect as
// well, and each connection takes a file of the process.
func TestIdleConnectionsOfAllWorkersFit(t *testing.T) {
	text, err := os.ReadFile("../../lua/edge/sluice/fleet.lua")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`local IDLE, POOL = \d+, (\d+) `).FindSubmatch(text)
	if m == nil {
		t.Fatal("fleet.lua has no POOL")
	}
	pool, _ := strconv.Atoi(string(m[1]))
	for _, workers := range []int{1, 16, 32, 64, 1024} {
		if kept := 2 * workers * pool; kept >= connsFor(workers) {
			t.Errorf("%d workers keep %d connections, and the server serves %d", workers, kept, connsFor(workers))
		}
	}
	if n := connsFor(16); n > 512 {
		t.Errorf("the server serves %d connections for 16 workers", n)
	}
}

// A line that is not valid gets an error, and the connection stays usable.
func TestInvalidLinesOfWorkers(t *testing.T) {
	s := &Server{client: NewClient(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}), Now)}
	for line, invalid := range map[string]bool{
		"": true, "lease": true, "lease r 1 1000000 3 6b": true, "lease r 1 1000000 3 6b 1": true,
		"lease r 1 1000000 3 6b x 1": true,
		"lease r 0 1000000 3 6b 1 1": true, "lease r 1 0 3 6b 1 1": true, "lease r 1 1000000 -1 6b 1 1": true,
		"lease r 1 1000000 3 6 1 1": true, "lease r 1 1000000 3 xy 1 1": true, "spend r 1 1000000 3 6b 1 1": true,
		"return r 1 1000000 3 6b 1 5": true, "return r 1 1000000 3 6b 1 x 7 id": true,
		"lease r 1 1000000 3 6b 1 1": false, "return r 1 1000000 3 6b 1 5 7 id": false,
	} {
		if _, err := s.answer(t.Context(), line); errors.Is(err, errLine) != invalid || err == nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	if answer, err := s.answer(t.Context(), "return r 1 1000000 3 6b"); answer != "ok" || err != nil {
		t.Errorf("a return of nothing: %q, %v", answer, err)
	}
}
