package nginx

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/unixsocket"
	"sluice/test/testenv"
)

// With many clients over the limit of the fleet, the leases in the background leave timers of nginx for other tasks.
func TestLeasesInTheBackgroundLeaveTimers(t *testing.T) {
	t.Parallel()
	const clients = 400
	socket, err := unixsocket.Listen("sluice-test-", "lease.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	var mu sync.Mutex
	leases, pending, release := map[string]int{}, 0, make(chan struct{})
	serving := sync.WaitGroup{}
	defer serving.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer close(release)
	serving.Go(func() {
		socket.Serve(ctx, slog.New(slog.DiscardHandler), "", 4*clients, func(conn net.Conn) {
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				mu.Lock()
				client := strings.Fields(lines.Text())[5]
				leases[client]++
				first := leases[client] == 1
				if !first {
					pending++
				}
				mu.Unlock()
				if !first {
					<-release
				}
				fmt.Fprintln(conn, "1000000000000000 1000000000 0") // no slot for a thousand seconds
			}
		})
	})
	e := startEdge(t, `return { `+trusting+` rules = {
		{ name = "all", key = "ip", rate = "10r/s", burst = 20, scope = "fleet" },
	} }`, func(c *Config) { c.Workers, c.LeaseSocket = 1, socket.Path() })
	for range 65 { // the last one of each client leases in the background
		for i := range clients {
			e.do("GET", "/", from(fmt.Sprintf("10.0.%d.%d", i/250, i%250))...)
		}
	}
	testenv.Eventually(t, time.Minute, "a lease is in progress", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return pending > 0
	})
	if text := e.log.String(); strings.Contains(text, "timers are not enough") {
		t.Errorf("the log has:\n%.300s", text[strings.Index(text, "lua_max"):])
	}
}
