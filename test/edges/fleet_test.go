package edges

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/test/testenv"
)

// admittedRequest is a request that was admitted: the edge has decided between these times.
type admittedRequest struct{ sent, received time.Time }

// crowd sends requests to edges and records which are admitted.
type crowd struct {
	t        *testing.T
	client   *http.Client
	mu       sync.Mutex
	admitted []admittedRequest
	refused  atomic.Int64
	failed   atomic.Int64 // 503, and connections that an edge closes when it stops
}

func newCrowd(t *testing.T) *crowd {
	return &crowd{t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
}

// send sends one request.
func (c *crowd) send(e *edge, path string) {
	sent := time.Now()
	resp, err := c.client.Get("http://" + e.address + path)
	if err != nil {
		c.failed.Add(1)
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	c.count(resp.StatusCode, admittedRequest{sent, time.Now()})
}

// count records the status of a response, which was sent and received between the times of a.
func (c *crowd) count(status int, a admittedRequest) {
	switch status {
	case http.StatusOK:
		c.mu.Lock()
		c.admitted = append(c.admitted, a)
		c.mu.Unlock()
	case http.StatusTooManyRequests:
		c.refused.Add(1)
	case http.StatusServiceUnavailable:
		c.failed.Add(1)
	default:
		c.t.Errorf("status %d", status)
	}
}

// flood sends n requests to an edge, from several connections.
func (c *crowd) flood(e *edge, path string, n int) {
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for range n / 4 {
				c.send(e, path)
			}
		})
	}
	running.Wait()
}

// checkBound verifies that the requests that were admitted between any two instants are within the bound. It does not
// depend on the speed of the machine: it counts only requests that were certainly admitted between them.
func (c *crowd) checkBound(rate, burst float64) {
	c.t.Helper()
	byReceived := slices.SortedFunc(slices.Values(c.admitted),
		func(a, b admittedRequest) int { return a.received.Compare(b.received) })
	starts := slices.SortedFunc(
		slices.Values(c.admitted),
		func(a, b admittedRequest) int { return a.sent.Compare(b.sent) },
	)
	step := max(len(starts)/500, 1)
	for i := 0; i < len(starts); i += step {
		from, n := starts[i].sent, 0
		for _, a := range byReceived {
			if a.sent.Before(from) {
				continue
			}
			n++
			length := a.received.Sub(from).Seconds()
			if most := rate*length + burst + 1; float64(n) > most {
				c.t.Fatalf("%d requests admitted in %.6f s, and the bound is %.1f", n, length, most)
			}
		}
	}
}

// TestFleetKeepsTheBound floods two nginx edges and two gateways with requests of one client.
func TestFleetKeepsTheBound(t *testing.T) {
	t.Parallel()
	for _, r := range []struct {
		rate, burst, requests int
		redis                 []string
	}{
		{10, 50, 2000, nil}, // Redis is empty after a restart
		{1000, 200, 3000, []string{"--appendonly", "yes", "--appendfsync", "always"}},
		{20000, 1000, 6000, []string{"--appendonly", "yes", "--appendfsync", "no"}},
	} {
		t.Run(fmt.Sprintf("%d a second", r.rate), func(t *testing.T) {
			server := testenv.StartRedis(t, r.redis...)
			server.TrustForLimits()
			o := options{redis: server, policy: fmt.Sprintf(`return { repeat_refusals = false, rules = {
				{ name = "all", key = "ip", rate = "%dr/s", burst = %d, scope = "fleet" } } }`, r.rate, r.burst)}
			edges := append(startBoth(t, o, play), startBoth(t, o, play)...)
			c := newCrowd(t)
			weights := [][]int{{1, 1, 1, 1}, {8, 1, 1, 0}, {0, 0, 1, 8}}
			for _, weight := range weights {
				var running sync.WaitGroup
				for i, e := range edges {
					running.Go(func() { c.flood(e, "/", r.requests*weight[i]/10) })
				}
				running.Wait()
			}
			c.checkBound(float64(r.rate), float64(r.burst))
			trips, lost := 0.0, 0.0
			for _, e := range edges {
				for _, result := range []string{"granted", "refused", "late", "error"} {
					n := metric(t, e, `sluice_edge_fleet_leases_total{result="`+result+`"}`)
					if trips += n; result == "error" || result == "late" {
						lost += n
					}
				}
			}
			// On a slow machine Redis may not answer in time, or only after the window of a slot (50 ms at 20,000 a
			// second); then on_error decides.
			if n := c.failed.Load(); lost == 0 && (n > 0 || len(c.admitted) == 0) {
				t.Errorf("%d requests admitted, %d failed, although Redis has answered", len(c.admitted), n)
			}
			t.Logf("%d admitted, %d refused, %d failed, %.0f round trips", len(c.admitted), c.refused.Load(), c.failed.Load(),
				trips)
			c.faults(server, edges, r.requests/10)
			c.checkBound(float64(r.rate), float64(r.burst))
		})
	}
}

// faults kills and restarts Redis, kills the first edge, which holds a lease, and stops two others, while requests
// arrive.
func (c *crowd) faults(server *testenv.Redis, edges []*edge, requests int) {
	for _, fault := range []func(){edges[0].kill, server.Kill, server.Start, edges[1].stop, edges[2].stop} {
		var running sync.WaitGroup
		for _, e := range edges {
			running.Go(func() { c.flood(e, "/", requests) })
		}
		fault()
		running.Wait()
	}
}

func metric(t *testing.T, e *edge, name string) (n float64) {
	t.Helper()
	for line := range strings.Lines(e.metrics()) {
		if _, err := fmt.Sscanf(line, name+" %g", &n); err == nil {
			return n
		}
	}
	return n
}

// Each edge of the test has its own Redis server, so both get the same slots.
func TestBothEdgesDecideAlikeForTheFleet(t *testing.T) {
	t.Parallel()
	const policy = `return { trusted_proxies = { "127.0.0.1" }, repeat_refusals = false, rules = {
		{ name = "edge", key = "ip", rate = "1r/h", burst = 0, match = { path = "/edge" } },
		{ name = "both", key = "ip", rate = "1r/h", burst = 9, match = { path = "/edge" }, scope = "fleet" },
		{ name = "all", key = "ip", rate = "1r/h", burst = 1, match = { path = "/all" }, scope = "fleet" },
		{ name = "buy", key = "token", rate = "1r/h", burst = 1, match = { path = "/buy" }, scope = "fleet" },
		{ name = "buyer", key = "token", rate = "1r/h", burst = 99, match = { path = "/all" } },
		{ name = "trial", key = "ip", rate = "1r/h", burst = 1, match = { path = "/trial" }, scope = "fleet", mode = "shadow" },
		{ name = "deny", key = "ip", rate = "1r/h", burst = 1, match = { path = "/deny" }, scope = "fleet" },
		{ name = "open", key = "ip", rate = "1r/h", burst = 1, match = { path = "/open" }, scope = "fleet", on_error = "allow" },
	} }`
	const last = "Connection: close"
	for _, start := range []func(*testing.T, options, http.HandlerFunc) *edge{startNginx, startGateway} {
		server := testenv.StartRedis(t)
		server.TrustForLimits()
		e := start(t, options{policy: policy, redis: server}, play)
		expect := func(want int, path string, headers ...string) {
			t.Helper()
			got := e.send(t, request("GET", path, append(headers, last)...))
			if len(got.codes) != 1 || got.codes[0] != want {
				t.Errorf("%s: %s: want %d and got\n%s", e.name, path, want, got.answers)
			}
		}
		// The hour may begin between two requests: one or two are admitted.
		ann := bearer(t, "ann")
		e.send(t, request("GET", "/all", ann, last))
		e.send(t, request("GET", "/all", ann, last))
		expect(429, "/all", ann)
		expect(200, "/all", ann, "X-Forwarded-For: 192.0.2.1")
		expect(200, "/all", ann, "X-Forwarded-For: 2001:db8::1")
		expect(200, "/edge")
		for range 5 {
			expect(429, "/edge")
		}
		expect(401, "/buy")
		expect(200, "/buy", ann)
		e.send(t, request("GET", "/buy", ann, last))
		expect(429, "/buy", ann)
		expect(200, "/buy", bearer(t, "ben"))
		for range 5 {
			expect(200, "/trial")
		}
		server.Kill()
		for range 3 {
			expect(503, "/deny")
			expect(200, "/open")
		}
		testenv.Eventually(t, time.Minute, e.name+" has counted", func() bool {
			return metric(t, e, `sluice_edge_requests_total{rule="both",verdict="allow"}`) == 1 &&
				metric(t, e, `sluice_edge_requests_total{rule="edge",verdict="deny"}`) == 5 &&
				metric(t, e, `sluice_edge_requests_total{rule="trial",verdict="shadow"}`) >= 3 &&
				metric(t, e, `sluice_edge_requests_total{rule="deny",verdict="error"}`) == 3 &&
				metric(t, e, `sluice_edge_requests_total{rule="open",verdict="error"}`) == 3 &&
				metric(t, e, `sluice_edge_fleet_leases_total{result="granted"}`) >= 7
		})
		// A refusal by an address does not depend on the buyer.
		for _, want := range []string{`"buyer":"".*"path":"/all".*"status":429`, `"buyer":"ann".*"path":"/buy".*"status":429`} {
			logged := regexp.MustCompile(want)
			testenv.Eventually(t, time.Minute, e.name+" has logged "+want,
				func() bool { return logged.MatchString(e.log()) })
		}
	}
}

// An edge that stops returns the slots that it has leased and not spent.
func TestStoppingEdgesReturnTheirSlots(t *testing.T) {
	t.Parallel()
	for _, start := range []func(*testing.T, options, http.HandlerFunc) *edge{startNginx, startGateway} {
		server := testenv.StartRedis(t)
		server.TrustForLimits()
		e := start(t, options{redis: server, policy: `return { rules = {
			{ name = "all", key = "ip", rate = "1r/h", burst = 40, scope = "fleet" } } }`}, play)
		for range 9 {
			e.send(t, request("GET", "/", "Connection: close"))
		}
		e.stop()
		client := server.Client()
		testenv.Eventually(t, time.Minute, e.name+" has returned slots", func() bool {
			for _, key := range client.Keys(t.Context(), "sluice:limit:*:all:*").Val() {
				for _, lane := range client.HVals(t.Context(), key).Val() {
					if strings.HasSuffix(lane, " -") {
						return true
					}
				}
			}
			return false
		})
	}
}

// slowed returns the server behind a proxy that delays each answer.
func slowed(t *testing.T, server *testenv.Redis, delay time.Duration) *testenv.Redis {
	t.Helper()
	slow := *server
	slow.Addr = testenv.ProxyTCP(t, server.Addr, func(client, redis net.Conn) {
		for answer := make([]byte, 64<<10); ; {
			n, err := redis.Read(answer)
			if err != nil {
				return
			}
			<-time.After(delay)
			if _, err := client.Write(answer[:n]); err != nil {
				return
			}
		}
	})
	slow.URL = strings.Replace(server.URL, server.Addr, slow.Addr, 1)
	return &slow
}

// The window of a slot is 50 ms, so no slot can be spent when its lease arrives.
func TestLateLeasesAreNotRepeatedForEachRequest(t *testing.T) {
	t.Parallel()
	for _, start := range []func(*testing.T, options, http.HandlerFunc) *edge{startNginx, startGateway} {
		server := testenv.StartRedis(t)
		server.TrustForLimits()
		slow := slowed(t, server, 60*time.Millisecond)
		e := start(t, options{redis: slow, policy: `return { repeat_refusals = false, rules = {
			{ name = "deny", key = "ip", rate = "20000r/s", burst = 1000, match = { path = "/deny" }, scope = "fleet" },
			{ name = "open", key = "ip", rate = "20000r/s", burst = 1000, match = { path = "/open" }, scope = "fleet",
				on_error = "allow" },
		} }`}, play)
		c := newCrowd(t)
		const requests = 400
		c.flood(e, "/deny", requests)
		if n := c.failed.Load(); n < requests*9/10 || len(c.admitted) > 0 {
			t.Errorf("%s: on_error has refused %d of %d requests, and %d were admitted", e.name, n, requests, len(c.admitted))
		}
		c.flood(e, "/open", requests)
		if n := len(c.admitted); n < requests*9/10 {
			t.Errorf("%s: on_error has admitted %d of %d requests", e.name, n, requests)
		}
		leases := func(result string) float64 {
			return metric(t, e, `sluice_edge_fleet_leases_total{result="`+result+`"}`)
		}
		testenv.Eventually(t, time.Minute, e.name+" has counted", func() bool { return leases("late") > 0 })
		if n := leases("late") + leases("granted") + leases("refused") + leases("error"); n > requests/5 {
			t.Errorf("%s: %.0f leases for %d requests", e.name, n, 2*requests)
		}
	}
}
