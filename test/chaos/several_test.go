package chaos

import (
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

var several = flag.Bool("several", false, "play TestSeveralMachines: needs root, iproute2 and haproxy")

// Sales on twelve machines, deployed as in docs/deploy.md: each machine is cut off in turn without notice and
// comes back; Redis fails over; the database is restored from a dump; everything is upgraded. Every accepted order is
// sold once.
func TestSeveralMachines(t *testing.T) {
	if !*several || *stock != "single" {
		t.Skip("make several")
	}
	if !inOwnNamespaces(t) {
		return
	}
	n := newSaleRun(t)
	t.Run("the limits see buyers", n.limitsSeeBuyers)
	t.Run("one admin shows all", n.oneConsoleShowsAll)
	n.begin()
	for _, c := range []cut{
		// The balancer notices within two seconds. Buyers that it sent there in the meantime retry.
		{host: "edge-1", away: 12 * time.Second, entrance: "both", longest: 5 * time.Second, refused: 40},
		{host: "edge-2", away: 12 * time.Second, entrance: "both", longest: 5 * time.Second, refused: 40},
		// A request over an open connection waits five seconds, over a new one for one second, then goes to the other
		// backend. A returning backend may be busy for a moment.
		{host: "backend-1", away: 12 * time.Second, longest: 9 * time.Second, refused: 5},
		{host: "backend-2", away: 70 * time.Second, longest: 9 * time.Second, refused: 5, streams: true},
		{host: "worker-1", away: 12 * time.Second, longest: 5 * time.Second},
		{host: "limits", away: 12 * time.Second, longest: 5 * time.Second},
		{host: "redis-3", away: 12 * time.Second, longest: 5 * time.Second}, // a replica
		{host: "sql", away: 12 * time.Second, longest: 5 * time.Second},
		// the master: nothing is sold until there is another one
		{host: "redis-1", away: 30 * time.Second, longest: 9 * time.Second, refused: 250, rebuilt: true},
	} {
		t.Run(c.host+" is cut off", func(t *testing.T) { n.cutOff(t, c) })
	}
	if master := n.master(); master == "redis-1" || master == "" {
		t.Errorf("the master of Redis is %q: it did not fail over", master)
	}
	t.Run("one after the other is upgraded", n.upgrade)
	t.Run("the database is restored", n.restore)
	t.Run("count", n.end)
}

// limitsSeeBuyers verifies that behind the balancer an edge counts each buyer, and not the balancer, over TCP and over
// HTTP.
func (n *saleRun) limitsSeeBuyers(t *testing.T) {
	one := 0
	for name, port := range map[string]int{
		"nginx, TCP": nginxTCP, "gateway, TCP": gatewayTCP, "nginx, HTTP": nginxHTTP, "gateway, HTTP": gatewayHTTP,
	} {
		one += 2
		first, second := fmt.Sprint("10.77.1.", one), fmt.Sprint("10.77.1.", one+1)
		for _, ip := range []string{first, second} {
			command(t, "ip", "addr", "add", ip+network, "dev", "eth0")
		}
		ask := func(ip string, header ...string) int {
			return n.request(t, clientFrom(ip), "GET", n.shop(port)+narrow, "", header...).StatusCode
		}
		for i := range 4 {
			if got := ask(first); got != 404 {
				t.Errorf("%s: request %d of the first buyer: %d", name, i+1, got)
			}
		}
		if got := ask(first); got != 429 {
			t.Errorf("%s: the fifth request of the first buyer: %d", name, got)
		}
		if got := ask(second); got != 404 {
			t.Errorf("%s: the second buyer is limited by the first: %d", name, got)
		}
		if got := ask(first, "X-Forwarded-For", "203.0.113.9"); got != 429 {
			t.Errorf("%s: a buyer with a forged address got %d", name, got)
		}
	}
}

// oneConsoleShowsAll verifies that the admin console of one backend shows the live stats of all, and that a sign-out at
// one is valid at the other.
func (n *saleRun) oneConsoleShowsAll(t *testing.T) {
	for _, name := range backendHosts {
		testenv.Eventually(
			t,
			20*time.Second,
			"the live stats of "+name+" include four edges and of both backends",
			func() bool {
				body := string(call(t.Context(), "GET", n.admin(name)+"/admin/v1/live", adminToken, "", "").body)
				return strings.Count(body, `"edge":true`) == 4 && strings.Count(body, `"seen_at":"`) >= 6 &&
					!strings.Contains(body, `"error":`)
			},
		)
	}
	ask := func(method, host, path, body, cookie string) *http.Response {
		return n.request(t, clientFrom(""), method, n.admin(host)+path, body, "Content-Type",
			"application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin", "Cookie", cookie)
	}
	in := ask("POST", "backend-1", "/admin/sign-in",
		url.Values{"name": {"ann"}, "token": {adminToken}, "to": {"/admin/"}}.Encode(), "")
	cookie, _, _ := strings.Cut(in.Header.Get("Set-Cookie"), ";")
	for _, host := range backendHosts {
		if got := ask("GET", host, "/admin/v1/sales", "", cookie).StatusCode; got != 200 {
			t.Errorf("signed in at the first, and %s answers %d", host, got)
		}
	}
	if got := ask("POST", "backend-2", "/admin/sign-out", "", cookie).StatusCode; got != 303 {
		t.Errorf("signing out: %d", got)
	}
	for _, host := range backendHosts {
		if got := ask("GET", host, "/admin/v1/sales", "", cookie).StatusCode; got != 401 {
			t.Errorf("signed out at the second, and %s answers %d", host, got)
		}
	}
}

// upgrade restarts one process after the other as docs/operations.md describes. Buyers notice nothing at backends and
// workers; the balancer takes a draining edge out.
func (n *saleRun) upgrade(t *testing.T) {
	from := time.Now()
	for i, p := range n.backends {
		n.restart(t, p, backendHosts[i])
		n.awaitReady(backendHosts[i])
		time.Sleep(3 * time.Second) //nolint:forbidigo // edges use the backend again within this time, see docs/operations.md
		n.normal(t, "all well after "+backendHosts[i]+" was restarted")
	}
	for i, p := range n.workers {
		n.restart(t, p, workerHosts[i])
	}
	n.normal(t, "all well after backends and workers were restarted")
	for _, by := range []string{"both", "nginx", "gateway"} {
		f := n.pulse.availability(by, from, time.Now())
		t.Logf("backends and workers, through %s: %s", by, f)
		if f.sold != f.asked {
			t.Errorf("through %s, %d of %d buyers were not served", by, f.asked-f.sold, f.asked)
		}
	}
	from = time.Now()
	for _, p := range n.edges {
		n.restart(t, p, "an edge")
		n.normal(t, "all well after an edge was restarted")
	}
	t.Logf("edges, through both: %s", n.pulse.availability("both", from, time.Now()))
	n.audit(t)
}

// restart stops a process as systemd does, and starts it again.
func (n *saleRun) restart(t *testing.T, p *testenv.Program, name string) {
	t.Helper()
	if code := p.End(sigterm); code != 0 {
		t.Errorf("%s ends with %d", name, code)
	}
	p.Start()
}

// restore loses the database and restores it from a dump of some seconds before, as docs/operations.md describes.
func (n *saleRun) restore(t *testing.T) {
	dump := n.dump(t)
	before := len(n.history.confirmed(mainSale))
	testenv.Eventually(t, time.Minute, "three hundred are sold after the dump",
		func() bool { return len(n.history.confirmed(mainSale)) > before+300 })
	for _, p := range append(n.backends[:len(n.backends):len(n.backends)], n.workers...) {
		if code := p.End(sigterm); code != 0 {
			t.Errorf("a process ends with %d", code)
		}
	}
	for _, p := range n.edges {
		p.End(sigterm)
	}
	n.load(t, dump, "restored")
	began := time.Now()
	n.backends, n.workers = nil, nil
	n.useDatabase("restored")
	n.startBackend(0)
	n.startWorkers()
	n.awaitReady(backendHosts[0])
	if out, err := n.sluice("backend-1", "sale", "rebuild", "--all"); err != nil {
		t.Error(err)
	} else {
		t.Logf("sluice sale rebuild --all: %s", strings.TrimSpace(out))
	}
	n.audit(t)
	t.Logf("rebuilt and counted %.1f s after the database was back", time.Since(began).Seconds())
	n.startBackend(1)
	n.awaitReady(backendHosts[1])
	for _, p := range n.edges {
		p.Start()
	}
	n.normal(t, "all well with the database that was restored")
	n.audit(t)
}
