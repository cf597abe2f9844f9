package nginx

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sluice/test/testenv"
)

// busyClient sends one request after the other, on one connection for as long as it lasts, until ctx is done.
type busyClient struct {
	address   string
	request   string
	announced atomic.Int64 // connections that ended after a response with Connection: close
	reset     atomic.Int64 // connections that ended in another way
	odd       atomic.Int64 // responses with another status
}

func (c *busyClient) run(ctx context.Context, status int) {
	for ctx.Err() == nil {
		conn, err := net.Dial("tcp", c.address)
		if err != nil {
			c.reset.Add(1)
			continue
		}
		reader := bufio.NewReader(conn)
		for ctx.Err() == nil {
			var response *http.Response
			_, err := io.WriteString(conn, c.request)
			if err == nil {
				response, err = http.ReadResponse(reader, nil)
			}
			if err == nil {
				_, err = io.Copy(io.Discard, response.Body)
			}
			if err != nil {
				c.reset.Add(1)
				break
			}
			if response.StatusCode != status {
				c.odd.Add(1)
			}
			if response.Close {
				c.announced.Add(1)
				break
			}
		}
		_ = conn.Close()
	}
}

// In a reload the old workers announce the end of busy connections: no client sees a reset. nginx gives them a tenth of
// a second. The test stops the master process in this time, so that each old worker and client has its turn on a busy
// machine too. A connection that an old worker has accepted and not yet read from can still be reset, so several
// reloads may be necessary until no client sees one.
func TestReloadAnnouncesTheEndOfBusyConnections(t *testing.T) {
	variants(t, reloadAnnouncesTheEndOfBusyConnections)
}

func reloadAnnouncesTheEndOfBusyConnections(t *testing.T, f *variant) {
	e := startEdge(
		t, `return { rules = { { name = "never", key = "ip", rate = "1r/h", match = { path = "/never" } } } }`, f.on(t),
	)
	e.do("GET", "/never")
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var clients []*busyClient
	for range 4 {
		for path, status := range map[string]int{"/v1/sales": 200, "/never": 429} {
			c := &busyClient{address: e.cfg.Listen, request: "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"}
			clients = append(clients, c)
			running.Go(func() { c.run(ctx, status) })
		}
	}
	for attempt := 1; ; attempt++ {
		resets, ends := int64(0), make([]int64, len(clients))
		for i, c := range clients {
			ends[i] = c.announced.Load() + c.reset.Load()
			resets -= c.reset.Load()
		}
		inTime := e.reloadSlowly(func() {
			testenv.Eventually(t, time.Minute, "every connection of before the reload has ended", func() bool {
				for i, c := range clients {
					if c.announced.Load()+c.reset.Load() == ends[i] {
						return false
					}
				}
				return true
			})
		})
		for _, c := range clients {
			resets += c.reset.Load()
		}
		if inTime && resets == 0 {
			break
		} else if attempt == 50 {
			t.Fatalf("%d reloads; the last one: the old workers had time %t, %d resets", attempt, inTime, resets)
		}
	}
	for _, c := range clients {
		if n := c.odd.Load(); n > 0 {
			t.Errorf("%q: %d responses with another status", c.request, n)
		}
	}
}

// reloadSlowly reloads the edge, and stops the master process when it has started a new worker and before it ends the
// old ones, until handedOver returns. It returns when the old workers have ended. inTime is false if the master process
// was stopped too late: then the old workers were ending already.
func (e *edge) reloadSlowly(handedOver func()) (inTime bool) {
	e.t.Helper()
	master, old := e.master(), e.allWorkers()
	if err := master.Signal(syscall.SIGHUP); err != nil { // Reload would wait until the old ones are ending
		e.t.Fatal(err)
	}
	isNew := func(pid int) bool { return !slices.Contains(old, pid) }
	testenv.Eventually(e.t, time.Minute, "a new worker runs", func() bool {
		return slices.ContainsFunc(e.workers(), isNew)
	})
	if err := master.Signal(syscall.SIGSTOP); err != nil {
		e.t.Fatal(err)
	}
	resume := sync.OnceFunc(func() { _ = master.Signal(syscall.SIGCONT) })
	defer resume()
	handedOver()
	inTime = !slices.ContainsFunc(old, ending)
	resume()
	testenv.Eventually(e.t, time.Minute, "the old workers have ended", func() bool {
		return !slices.ContainsFunc(e.allWorkers(), func(pid int) bool { return !isNew(pid) })
	})
	return inTime
}

// A worker announces the end of its connections only when there are workers of a later configuration.
func TestWorkerIsReplacedByALaterConfiguration(t *testing.T) {
	got := requireLua(t).run(t, `
		local handover, test = require "sluice.handover", ngx.shared.test
		handover.init()
		local calls = 0
		handover.start(test, function() calls = calls + 1 end)
		local mine = test:get("generation")
		ngx.sleep(0.1)
		local out = { calls }
		test:set("generation", mine - 1)
		ngx.sleep(0.1)
		out[2] = calls
		test:set("generation", mine + 1)
		for _ = 1, 500 do
			if calls > 0 then break end
			ngx.sleep(0.01)
		end
		out[3] = calls
		ngx.sleep(0.1)
		out[4] = calls
		return table.concat(out, " ")
	`)
	if want := "0 0 1 1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// After a reload no new connection gets the previous policy.
func TestReloadReturnsWhenThePolicyApplies(t *testing.T) {
	t.Parallel()
	e := startEdge(t, open, nil)
	for i := range 5 {
		name := fmt.Sprint("policy-", i)
		e.writePolicy(`return { rules = { { name = "` + name + `", key = "ip", rate = "1000r/s", burst = 1000 } } }`)
		if err := e.cfg.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			e.transport.CloseIdleConnections()
			if got := e.do("GET", "/").header.Get("RateLimit-Policy"); !strings.HasPrefix(got, `"`+name+`"`) {
				t.Fatalf("the policy after reload %d: %q", i, got)
			}
		}
	}
}

// A reload that nginx has accepted and cannot complete is not reported as a rejected one.
func TestReloadThatIsNotCompletedIsNotRejected(t *testing.T) {
	const noProcess = 1 << 30
	err := awaitReload(t.Context(), noProcess, nil)
	if !errors.Is(err, ErrNotReloaded) || errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "nginx has ended") {
		t.Errorf("nginx has ended: %v", err)
	}
	if !errors.Is(errSlowReload, ErrNotReloaded) {
		t.Errorf("%v is no ErrNotReloaded", errSlowReload)
	}
}
