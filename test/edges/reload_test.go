package edges

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/test/testenv"
)

// flood counts the responses of a load, by their status. A connection that ends without a response has the status 0.
type flood struct {
	mu     sync.Mutex
	counts map[int]int
}

func (f *flood) note(status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = map[int]int{}
	}
	f.counts[status]++
}

// run sends one request after the other until ctx ends, on one connection for as long as it lasts.
func (f *flood) run(ctx context.Context, address, request string) {
	for ctx.Err() == nil {
		c, err := net.Dial("tcp", address)
		if err != nil {
			f.note(0)
			continue
		}
		for r := bufio.NewReader(c); ctx.Err() == nil; {
			_, _ = io.WriteString(c, request)
			resp, err := http.ReadResponse(r, nil)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
			}
			if err != nil {
				f.note(0)
				break
			}
			if f.note(resp.StatusCode); resp.Close {
				break
			}
		}
		_ = c.Close()
	}
}

// While the policy changes under load, a rule that stays admits no more than its bound, and no request fails. nginx may
// reset connections in a reload, see docs/edge.md.
func TestReloadsUnderLoadKeepTheBound(t *testing.T) {
	const burst = 300
	policy := func(n int) string {
		other := strings.Repeat(fmt.Sprintf(`{ name = "other", key = "ip", rate = "%dr/s", burst = 1000000 },`, 1000+n), n%2)
		return fmt.Sprintf(`return { rules = { %s
			{ name = "ip", key = "ip", rate = "1r/h", burst = %d, match = { path = "/ip" }, on_error = %q },
			{ name = "token", key = "token", rate = "1r/h", burst = %[2]d, match = { path = "/token" } },
			{ name = "n%[4]d", key = "ip", rate = "1r/h", match = { path = "/n" } },
		} }`, other, burst, []string{"deny", "allow"}[n%2], n)
	}
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t, options{policy: policy(0)}, play)
			ctx, cancel := context.WithCancel(t.Context())
			var clients sync.WaitGroup
			defer clients.Wait()
			defer cancel()
			var byIP, byToken, free flood
			for range 2 {
				clients.Go(func() { byIP.run(ctx, e.address, request("GET", "/ip")) })
				clients.Go(func() { byToken.run(ctx, e.address, request("GET", "/token", bearer(t, "ann"))) })
				clients.Go(func() { free.run(ctx, e.address, request("GET", "/free")) })
			}
			for n := range 3 {
				if err := os.WriteFile(e.policy, []byte(policy(n+1)), 0o644); err != nil {
					t.Fatal(err)
				}
				if e.reload != nil {
					if err := e.reload(); err != nil {
						t.Fatal(err)
					}
				}
				testenv.Eventually(t, time.Minute, "the policy is reloaded", func() bool {
					return strings.Contains(e.metrics(), fmt.Sprintf(`rule="n%d"`, n+1))
				})
			}
			cancel()
			clients.Wait()
			for what, f := range map[string]*flood{"by address": &byIP, "by token": &byToken, "without a limit": &free} {
				if what != "without a limit" && f.counts[200] > burst+1 {
					t.Errorf("%s: %d requests were admitted, want %d at most", what, f.counts[200], burst+1)
				}
				for status, n := range f.counts {
					if status != 200 && (status != 429 || f == &free) && (status != 0 || name != "nginx") {
						t.Errorf("%s: %d responses with status %d", what, n, status)
					}
				}
			}
		})
	}
}
