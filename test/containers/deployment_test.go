package containers

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/network"

	"sluice/client"
	"sluice/test/testenv"
)

const (
	edge  = "http://127.0.0.1:8080"
	stock = 60
)

// One stack from a clone to its removal. The parts run in this order, and each needs the ones before.
func TestComposeSells(t *testing.T) {
	e := startEngine(t)
	e.makeImages(t)
	s := clone(t, e)
	t.Cleanup(s.down)

	s.compose("up", "--build", "--wait")
	s.checkPrivileges()

	s.sluice("sale", "create", "--id", "shoe", "--title", "The shoe", "--stock", fmt.Sprint(stock), "--price", "99.90EUR")
	buyers := s.buyers(stock)
	s.buy(buyers[:10], func() {})
	s.buy(buyers[10:20], func() { s.crash("backend-1") })
	s.buy(buyers[20:30], func() { s.crash("worker") })
	s.buy(buyers[30:40], func() { s.crash("redis") })

	s.reloadPolicy()

	s.compose("up", "--wait", "--no-recreate", "--scale", "worker=3")
	if n := len(s.containers(s.Context(), "worker")); n != 3 {
		t.Errorf("%d workers, want 3", n)
	}
	s.compose("--profile", "observe", "--profile", "points", "up", "--wait", "--no-recreate", "prometheus", "points")
	s.checkMonitoring(func() { s.buy(buyers[40:50], func() {}) })

	s.stop()
	s.compose("up", "--wait")
	s.buy(buyers[50:], func() {})
	if sale, err := buyers[0].Sale(t.Context(), "shoe"); err != nil || sale.State != client.Sold || sale.Left != 0 {
		t.Errorf("the sale is %+v, %v; want it sold out", sale, err)
	}
	s.sluice("sale", "audit", "shoe")
	s.remove()
}

// buyers returns n buyers with a token each, created as the shop's login would create it.
func (s *stack) buyers(n int) []*client.Client {
	s.Helper()
	tokens, err := s.in("backend-1", "sh", "-c",
		fmt.Sprintf("for i in $(seq %d); do sluice token --user buyer-$i; done", n))
	if err != nil {
		s.Fatalf("sluice token: %v\n%s", err, tokens)
	}
	var all []*client.Client
	for token := range strings.FieldsSeq(tokens) {
		c, err := client.New(edge, client.WithToken(token))
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, c)
	}
	if len(all) != n {
		s.Fatalf("%d tokens, want %d:\n%s", len(all), n, tokens)
	}
	return all
}

// buy buys one unit for each buyer while meanwhile runs, and verifies that each order becomes a row.
func (s *stack) buy(buyers []*client.Client, meanwhile func()) {
	s.Helper()
	var wait sync.WaitGroup
	for _, b := range buyers {
		wait.Go(func() {
			accepted, err := b.Buy(s.Context(), "shoe", "")
			if err != nil {
				s.Errorf("a purchase: %v", err)
				return
			}
			order, err := b.WaitOrder(s.Context(), accepted.OrderID)
			if err != nil || order.Status != client.Created {
				s.Errorf("the order %s is %q, %v", accepted.OrderID, order.Status, err)
			}
		})
	}
	meanwhile()
	wait.Wait()
	s.sluice("sale", "audit", "shoe")
}

// checkPrivileges checks, inside the containers, the privileges, limits and routes that docker-compose.yml sets.
func (s *stack) checkPrivileges() {
	s.Helper()
	const hardened = "! touch /here 2>/dev/null && grep -q '^CapBnd:.0*$' /proc/1/status && grep -q '^NoNewPrivs:.1$' " +
		"/proc/1/status"
	user := func(id int) string { return fmt.Sprintf("grep -q '^Uid:.%d' /proc/1/status", id) }
	for _, c := range []struct{ service, what, test string }{
		{"edge", "hardened", hardened},
		{"edge", "unprivileged", user(10001)},
		{"edge", "descriptors", fmt.Sprintf("test $(ulimit -n) = %d", s.descriptors)},
		{"edge", "the backlog", "test $(cat /proc/sys/net/core/somaxconn) = 4096"},
		{
			"edge", "cannot reach the stores",
			"! nslookup redis >/dev/null 2>&1 && ! nc -w 1 " + s.address("redis", "stores") + " 6379 </dev/null 2>/dev/null",
		},
		{
			"edge", "reaches the backends",
			"wget -qO /dev/null http://backend-1:8080/readyz && wget -qO /dev/null http://backend-2:8080/readyz",
		},
		{"backend-1", "hardened", hardened},
		{"backend-1", "unprivileged", user(10001)},
		{"backend-1", "writes its journal", "test -n \"$(ls /data/journal)\""},
		{"backend-2", "writes its journal", "test -n \"$(ls /data/journal)\""},
		{"worker", "hardened", hardened},
		{"redis", "hardened", hardened},
		{"redis", "its user", user(999)},
		{"redis", "durable", "redis-cli config get appendfsync | grep -q always"},
		{"limits", "hardened", hardened},
		{"limits", "nothing on disk", "redis-cli config get appendonly | grep -q no && mount | grep -q 'tmpfs on /data '"},
		{"postgres", "its user", user(70)},
		{
			"postgres", "checksums",
			"test \"$(PGPASSWORD=$POSTGRES_PASSWORD psql -h 127.0.0.1 -U sluice -Atc 'show data_checksums')\" = on",
		},
		{"postgres", "shared memory", "df -m /dev/shm | grep -q ' 256 '"},
	} {
		if out, err := s.in(c.service, "sh", "-c", c.test); err != nil {
			s.Errorf("%s, %s: %s fails: %v %s", c.service, c.what, c.test, err, out)
		}
	}
	if stores, err := s.engine.NetworkInspect(s.Context(), "sluice_stores", network.InspectOptions{}); err != nil ||
		!stores.Internal {
		s.Errorf("the network of the stores has a route to the outside: %v", err)
	}
	for service, want := range map[string]string{"backend-1": "172.30.40.11", "backend-2": "172.30.40.12"} {
		if got := s.address(service, "front"); got != want {
			s.Errorf("%s is at %s, want %s", service, got, want)
		}
	}
	for _, c := range s.containers(s.Context(), "") {
		for port, bindings := range c.NetworkSettings.Ports {
			for _, b := range bindings {
				if local := b.HostIP == "127.0.0.1"; local == strings.Contains(c.Name, "edge") {
					s.Errorf("%s publishes %s at %s", c.Name, port, b.HostIP)
				}
			}
		}
	}
}

// reloadPolicy changes the policy, reloads the edge as docker-compose.yml describes, and restores it. After that, the
// engine still restarts an edge that crashes.
func (s *stack) reloadPolicy() {
	s.Helper()
	policy := filepath.Join(s.dir, "lua/policy.lua")
	before := read(s.T, policy)
	limits := func() string {
		response, err := http.Get(edge + "/v1/sales")
		if err != nil {
			return err.Error()
		}
		response.Body.Close()
		return response.Header.Get("RateLimit-Policy")
	}
	reload := func(text, want string) {
		write(s.T, policy, text)
		s.compose("exec", "-T", "edge", "kill", "-HUP", "1")
		testenv.Eventually(s, time.Minute, "the edge reports "+want, func() bool { return limits() == want })
	}
	changed := strings.Replace(before, `rate = "20r/s", burst = 40`, `rate = "20r/s", burst = 59`, 1)
	reload(changed, `"ip";q=60;w=3`)

	write(s.T, policy, "return {")
	s.compose("exec", "-T", "edge", "kill", "-HUP", "1")
	testenv.Eventually(s, time.Minute, "the edge refuses a bad policy", func() bool {
		out, _ := s.try("logs", "--no-color", "edge")
		return strings.Contains(out, "init_by_lua error: /sluice/lua/policy.lua:1:")
	})
	if got := limits(); got != `"ip";q=60;w=3` {
		s.Errorf("after an invalid policy the edge reports %s", got)
	}
	reload(before, `"ip";q=41;w=3`)
	s.crash("edge")
}

// stop stops all services. A graceful exit has status 0; the engine kills what exceeds its stop timeout,
// status 137.
func (s *stack) stop() {
	s.Helper()
	s.compose("--profile", "*", "stop")
	for _, c := range s.containers(s.Context(), "") {
		if c.State.Running || c.State.ExitCode != 0 {
			s.Errorf("%s ended with %d", c.Name, c.State.ExitCode)
		}
	}
}

// remove removes the stack, which leaves no container, volume or network.
func (s *stack) remove() {
	s.Helper()
	s.compose("--profile", "*", "down", "--volumes")
	left := map[string][]string{}
	for _, c := range s.containers(s.Context(), "") {
		left["containers"] = append(left["containers"], c.Name)
	}
	volumes, networks := s.kept()
	left["volumes"], left["networks"] = volumes, networks
	for what, names := range left {
		if len(names) > 0 {
			s.Errorf("%s are left: %v", what, names)
		}
	}
}

// down stops the stack after a failure, when its output is most useful.
func (s *stack) down() {
	if s.Failed() {
		for _, args := range [][]string{{"ps", "--all"}, {"logs", "--no-color", "--tail", "20"}} {
			out, _ := s.try(append([]string{"--profile", "*"}, args...)...)
			s.Log(out)
		}
		for _, c := range s.containers(context.Background(), "") {
			if c.State.Health != nil && c.State.Health.FailingStreak > 0 {
				s.Logf("health check of %s: %q", c.Name, c.State.Health.Log[len(c.State.Health.Log)-1].Output)
			}
		}
	}
	if out, err := s.try("--profile", "*", "down", "--volumes", "--timeout", "5"); err != nil {
		s.Errorf("down: %v\n%s", err, out)
	}
}
